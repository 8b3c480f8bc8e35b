#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model of your own on a fresh machine: builds Starling, installs the Python package into a
# virtual environment, tries an example's trainer and simulates a federation with it.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=examples/build_programs.sh
. "$root/examples/build_programs.sh"

usage() {
  cat <<'TEXT'
usage: examples/quickstart_python.sh [--example NAME] [--clients N] [--rounds R] [--programs DIR]

  --example NAME   plain_python (the default: NumPy alone), pytorch or sklearn
  --clients N      simulated clients (default 10; sklearn 3)
  --rounds R       rounds of training (default 5)
  --programs DIR   use the programs in DIR; install and build nothing of Starling
TEXT
}

example=plain_python clients= rounds=5 programs=
while [ $# -gt 0 ]; do
  case $1 in
    --example | --clients | --rounds | --programs) [ $# -gt 1 ] || refuse "$1 needs a value" ;;
  esac
  case $1 in
    --example) example=$2; shift 2 ;;
    --clients | --rounds)
      [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || refuse "$1 must be a whole number above 0, not '$2'"
      if [ "$1" = --clients ]; then clients=$2; else rounds=$2; fi
      shift 2 ;;
    --programs)
      programs=$(program_directory "$2" starling-coordinator)
      shift 2 ;;
    --help) usage; exit 0 ;;
    *) usage >&2; refuse "unknown argument '$1'" ;;
  esac
done

case $example in
  plain_python) needs= ;;
  pytorch) needs=torch ;;
  sklearn) needs=sklearn; clients=${clients:-3} ;;
  *) refuse "there is no example '$example': there are plain_python, pytorch and sklearn" ;;
esac
clients=${clients:-10}

if [ -z "$programs" ]; then
  build_programs starling-coordinator
  "$root/examples/install_packages.sh" python
fi
python=/usr/bin/python3  # which install_packages.sh installs for
[ -x $python ] || python=python3
if [ -n "$needs" ] && ! $python -c "import $needs" 2>/dev/null; then
  refuse "the example '$example' needs $needs: apt-get install python3-$needs"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say 'installing the Python package'
$python -m venv --system-site-packages "$work/venv"
cp -r "$root/edge_client/python" "$work/package"  # pip leaves files where it builds
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index \
  --no-build-isolation "$work/package"

cd "$root/examples/$example"
export PYTHONDONTWRITEBYTECODE=1 STARLING_PROGRAMS=$programs
say "trying examples/$example/train.py by itself"
"$work/venv/bin/python" train.py --check --settings "{\"clients\": $clients}"

say "simulating $clients clients that train with it"
"$work/venv/bin/python" - "$clients" "$rounds" <<'PYTHON'
import os, sys
import starling

clients, rounds = map(int, sys.argv[1:])
cohort = min(clients, 5)
result = starling.simulate(
    "job.toml", clients=clients, rounds=rounds, cohort=cohort, wait_for=cohort,
    trainer="train.py", workers=min(clients, os.cpu_count()),
    **{"trainer.settings": {"clients": clients}})
for each in result.history:
    print(f"round {each['round']}: accuracy {each['federated_accuracy']:.3f} on the clients' rows")
PYTHON
