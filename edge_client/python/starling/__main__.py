# SPDX-License-Identifier: Apache-2.0
"""python -m starling: what the package is, and what a model file holds."""

import argparse
import sys

import starling

_TEXT = """\
The Python package of Starling: train a model of your own on devices that keep their data.

  a trainer     a file that ends with starling.serve(MyTrainer()); run by hand it says how it is
                used, writes the initial model (--initial FILE) and tries itself (--check)
  simulate      starling.simulate("job.toml", clients=100, trainer="train.py").history
  gossip        starling.gossip("net.toml", trainer="train.py").history: without a coordinator
  operate       starling.submit, runs, show, wait, export
  model files   starling.load, starling.save (safetensors)

python -m starling FILE.safetensors lists the tensors of a model file."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m starling", description=_TEXT,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", metavar="FILE.safetensors")
    parser.add_argument("--version", action="version", version=starling.__version__)
    options = parser.parse_args()
    if options.file is None:
        parser.print_help()
        return 0
    try:
        tensors = starling.load(options.file)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, values in tensors.items():
        print(f"{name}: {values.dtype} {list(values.shape)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
