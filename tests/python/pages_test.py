# SPDX-License-Identifier: Apache-2.0
"""The code of the package's pages runs as it stands there, and the package is typed."""

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from conftest import PACKAGE, PROGRAM, simulates_trainers


def blocks(page, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", (PACKAGE / page).read_text(), re.DOTALL)


def check(directory, program):
    (directory / "train.py").write_text(program)
    done = subprocess.run([sys.executable, "train.py", "--check"], cwd=directory,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nfit: weight " in done.stdout
    return done.stdout


def test_the_flower_page(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed (apt: python3-torch)")
    found = blocks("FLOWER.md")
    (tmp_path / "task.py").write_text(found[0])
    ours = [block for block in found if block.startswith("# Starling")]
    assert len(ours) == 2
    results = [check(tmp_path, block) for block in ours]
    # The short one trains as the long one does.
    assert [re.search("loss ([0-9.]+)", each)[1][:6] for each in results] == [
        re.search("loss ([0-9.]+)", results[0])[1][:6]] * 2
    assert all("evaluate: rows 10, " in each for each in results)


def test_the_readme(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2,3\n3,4,5\n")
    told = check(tmp_path, next(each for each in blocks("README.md") if "class Mean" in each))
    assert "fit: weight 2.0, loss 14.5" in told


def test_the_job_and_the_command_of_the_readme(tmp_path):
    if not simulates_trainers():
        pytest.skip("there is no starling-coordinator that simulates trainers")
    page = (PACKAGE / "README.md").read_text()
    (tmp_path / "rows.csv").write_text("1,2,3\n3,4,5\n")
    (tmp_path / "train.py").write_text(
        next(each for each in blocks("README.md") if "class Mean" in each))
    (tmp_path / "job.toml").write_text(
        next(each for each in blocks("README.md", "toml") if "# job.toml" in each))
    command, = re.findall(r"^starling-coordinator simulate .*$", page, re.MULTILINE)
    done = subprocess.run(
        [PROGRAM, *shlex.split(command)[1:], "--format", "json"], cwd=tmp_path,
        capture_output=True, text=True,
        env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["rounds"]) == 5


def test_the_readme_of_pytorch(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed (apt: python3-torch)")
    (tmp_path / "mine.py").write_text("""
import torch
Net = lambda: torch.nn.Linear(2, 2)
def loader(client, batch_size, train):
    assert client == "client-1" and batch_size == 32
    return [(torch.ones(4, 2), torch.ones(4, dtype=torch.int64))]
""")
    check(tmp_path, next(each for each in blocks("README.md") if "from mine" in each))


def test_the_type_checker_passes(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (apt: mypy)")
    done = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", tmp_path], cwd=PACKAGE,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
