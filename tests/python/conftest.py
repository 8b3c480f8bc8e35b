# SPDX-License-Identifier: Apache-2.0
"""The package of this tree, installed or not; trainers under test are files of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "edge_client" / "python"
PROGRAM = shutil.which("starling-coordinator", path=os.environ.get("STARLING_PROGRAMS"))
sys.path.insert(0, str(PACKAGE))
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])


def simulates_trainers():
    if PROGRAM is None:
        return False
    told = subprocess.run([PROGRAM, "simulate", "--help"], capture_output=True, text=True).stdout
    return "--trainer" in told


@pytest.fixture
def host(tmp_path):
    """Starts trainers by the text of their program; all of them end with the test."""
    from host import Host

    hosts = []

    def start(program, **options):
        path = tmp_path / "train.py"
        path.write_text(program)
        hosts.append(Host(path, tmp_path, **options))
        return hosts[-1]

    yield start
    for each in hosts:
        each.close()


@pytest.fixture
def by_hand(tmp_path):
    """Runs the text of a trainer's program as a user does."""
    def run(program, *arguments):
        (tmp_path / "train.py").write_text(program)
        environment = {key: value for key, value in os.environ.items()
                       if key != "STARLING_TRAINER"}
        return subprocess.run([sys.executable, "train.py", *arguments], cwd=tmp_path,
                              env=environment, capture_output=True, text=True)

    return run
