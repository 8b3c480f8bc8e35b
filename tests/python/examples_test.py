# SPDX-License-Identifier: Apache-2.0
"""The examples: each tries itself, and runs in a simulation."""

import importlib.util
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import starling
from conftest import PROGRAM, ROOT, simulates_trainers

EXAMPLES = ROOT / "examples"
ALL = [("plain_python", "train.py", None), ("pytorch", "train.py", "torch"),
       ("pytorch", "resnet.py", "torch"), ("sklearn", "train.py", "sklearn")]


def needs(package):
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed (apt: python3-{package})")


simulated = pytest.mark.skipif(not simulates_trainers(),
                               reason="there is no starling-coordinator that simulates trainers")


@pytest.mark.parametrize("example, program, package", ALL)
def test_tries_itself(example, program, package):
    needs(package)
    done = subprocess.run(
        [sys.executable, "-B", program, "--check", "--settings", '{"clients": 100}'],
        cwd=EXAMPLES / example, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nfit: weight " in done.stdout and "\nevaluate: rows " in done.stdout


@pytest.mark.parametrize("example, program, package", ALL)
def test_a_client_without_a_part_is_refused(example, program, package):
    needs(package)
    done = subprocess.run(
        [sys.executable, "-B", program, "--check", "--client", "client-4", "--settings",
         '{"clients": 3}'], cwd=EXAMPLES / example, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "client-4 has no rows: the job's trainer.clients is 3; raise it" in done.stdout


@simulated
@pytest.mark.parametrize("example, program, package", ALL)
def test_runs_in_a_simulation(example, program, package, tmp_path, monkeypatch):
    needs(package)
    monkeypatch.chdir(EXAMPLES / example)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    initial = tmp_path / "initial.safetensors"
    subprocess.run([sys.executable, program, "--initial", initial], check=True,
                   capture_output=True)
    results = [starling.simulate(
        "job.toml", clients=3, trainer=program, workers=workers, out=tmp_path / str(workers),
        progress=False, rounds=2, cohort=3, wait_for=3, initial=initial,
        **{"trainer.settings": {"clients": 3 if example == "sklearn" else 100}})
        for workers in (1, 2)]
    for result in results:
        assert result.record["state"] == "completed"
        assert [each["round"] for each in result.history] == [1, 2]
        assert all(0 < each["federated_accuracy"] <= 1 for each in result.history)
    assert results[0].history[1]["model_sha256"] == results[1].history[1]["model_sha256"]
    first = starling.load(tmp_path / "1" / "models" / "0.safetensors")
    for name, array in starling.load(initial).items():
        assert np.array_equal(first[name], array)


@pytest.mark.skipif(shutil.which("starling-gossip", path=os.environ.get("STARLING_PROGRAMS")) is None,
                    reason="there is no starling-gossip")
@pytest.mark.parametrize("example, program, package", ALL)
def test_trains_in_a_network(example, program, package, monkeypatch):
    needs(package)
    monkeypatch.chdir(EXAMPLES / example)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    results = [starling.gossip(
        {"model": {"kind": "external"}, "trainer": {"clients": 3 if example == "sklearn" else 100}},
        trainer=program, workers=workers, progress=False, topology="ring", nodes=3, steps=4,
        local_steps=2, **{"evaluate.every": 2}) for workers in (1, 2)]
    assert [each["step"] for each in results[0].history] == [0, 2, 4]
    assert all(0 <= each["eval_accuracy"] <= 1 for each in results[0].history)
    assert [each["eval_loss"] for each in results[0].history] == [
        each["eval_loss"] for each in results[1].history]


@simulated
def test_an_exported_resnet_loads_strictly(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed (apt: python3-torch)")
    monkeypatch.chdir(EXAMPLES / "pytorch")
    monkeypatch.syspath_prepend(EXAMPLES / "pytorch")
    import resnet

    starling.simulate("job.toml", clients=3, trainer="resnet.py", out=tmp_path, progress=False,
                      rounds=1, cohort=3, wait_for=3, **{"trainer.settings": {"clients": 200}})
    tensors = starling.load(tmp_path / "models" / "1.safetensors")
    model = resnet.ResNet()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()},
                          strict=True)
    assert model[0].body[1].num_batches_tracked > 0


def quickstart(tmp_path, *arguments):
    return subprocess.run([EXAMPLES / "quickstart_python.sh", *arguments], cwd=tmp_path,
                          capture_output=True, text=True)


@simulated
def test_the_quickstart(tmp_path):
    done = quickstart(tmp_path, "--programs", os.path.dirname(PROGRAM), "--clients", "100",
                      "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "round 2: accuracy 0." in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments, sentence", [
    (["--rounds", "0"], "--rounds must be a whole number above 0, not '0'"),
    (["--clients", "a b"], "--clients must be a whole number above 0, not 'a b'"),
    (["--clients"], "--clients needs a value"),
    (["--programs", "nowhere"], "there is no directory 'nowhere'"),
    (["--example", "x"], "there is no example 'x'"),
    (["--what"], "unknown argument '--what'")])
def test_the_quickstart_refuses(tmp_path, arguments, sentence):
    done = quickstart(tmp_path, *arguments)
    assert done.returncode == 2 and sentence in done.stderr and done.stdout == ""
