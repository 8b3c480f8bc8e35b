# SPDX-License-Identifier: Apache-2.0
"""Driving the programs: how they are called with a pretended one, and the installed ones."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import starling

DIRECTORY = os.environ.get("STARLING_PROGRAMS")
MISSING = [name for name in ("starling-coordinator", "starling-gossip")
           if shutil.which(name, path=DIRECTORY) is None]
real = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} neither in STARLING_PROGRAMS nor on PATH")
JOB = {"rounds": 2, "model": {"kind": "softmax-regression"},
       "round": {"cohort": 3, "min-updates": 2, "wait-for": 3},
       "evaluate": {"dataset": "synthetic:rows=200:test"},
       "data": {"dataset": "synthetic:rows=600"}}


@pytest.fixture
def pretended(tmp_path, monkeypatch):
    """A starling-coordinator that notes its arguments and job, and says what it is told to."""
    def make(says, sentence="", code=0):
        program = tmp_path / "starling-coordinator"
        program.write_text(f"""#!{sys.executable}
import json, sys
job = next((each for each in sys.argv if each.endswith(".toml")), None)
json.dump([sys.argv[1:], open(job).read() if job else ""], open({str(tmp_path / "noted")!r}, "w"))
sys.stderr.write({sentence!r})
print({says!r})
sys.exit({code})
""")
        program.chmod(0o755)
        monkeypatch.setenv("STARLING_PROGRAMS", str(tmp_path))
        return lambda: json.loads((tmp_path / "noted").read_text())

    return make


def test_a_simulation_is_given_all_that_was_said(pretended, tmp_path):
    noted = pretended('{"rounds": [{"round": 1}], "state": "completed"}')
    job = {"rounds": 2, "trainer": {"hidden_units": 4, "wide": True, "names": ["a", 'b"']},
           "model": {"kind": "external", "initial": "init.safetensors"}}
    result = starling.simulate(job, clients=4, trainer=Path("my train.py"), workers=3, out="here",
                               learning_rate=0.5, **{"data.input": [1, 2], "secure": False})
    arguments, text = noted()
    path = arguments[1]
    assert arguments == [
        "simulate", path, "--clients", "4", "--learning-rate", "0.5", "--data.input", "1,2",
        "--secure", "false", "--trainer", f"{sys.executable} 'my train.py'", "--workers", "3",
        "--out", "here", "--format", "json"]
    assert not os.path.exists(path)
    assert text == """"rounds" = 2
["trainer"]
"hidden_units" = 4
"wide" = true
"names" = ["a", "b\\""]
["model"]
"kind" = "external"
"initial" = "init.safetensors"
"""
    assert result.history == [{"round": 1}]
    assert str(result.directory) == "here"


def test_a_job_has_numbers_of_numpy_and_any_text(pretended):
    tomllib = pytest.importorskip("tomllib", reason="tomllib needs Python 3.11")
    noted = pretended('{"rounds": []}')
    text = "\x00\x1b\x7f\n\"\\é𝕏"
    job = {"rounds": np.int64(3), "secure": np.bool_(True), "model": {"initial": Path("a") / "b"},
           "train": {"learning-rate": np.float32(0.5), "epsilon": 1e-8},
           "trainer": {text: text, "sizes": np.arange(2), "deep": {"é": [(1, 2.5), {"x": "y"}]}}}
    starling.simulate(job, learning_rate=np.float64(0.25), secure=np.bool_(False))
    arguments, written = noted()
    assert tomllib.loads(written) == {
        "rounds": 3, "secure": True, "model": {"initial": "a/b"},
        "train": {"learning-rate": 0.5, "epsilon": 1e-8},
        "trainer": {text: text, "sizes": [0, 1], "deep": {"é": [[1, 2.5], {"x": "y"}]}}}
    assert arguments[4:8] == ["--learning-rate", "0.25", "--secure", "false"]


@pytest.mark.parametrize("job, error", [
    ({"rounds": None}, "^rounds = None cannot stand in a job; leave the key out$"),
    ({"train": {"learning-rate": np.float32(np.inf)}}, "^train.learning-rate = inf is not finite"),
    ({"trainer": {"rates": [1, float("nan")]}}, r"^trainer.rates\[1\] = nan is not finite"),
    ({"trainer": {"a": {"b": {1}}}}, r"^trainer.a.b = \{1\} cannot stand in a job; give a ")])
def test_what_a_job_cannot_hold_is_named(pretended, tmp_path, monkeypatch, job, error):
    pretended('{"rounds": []}')
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises((TypeError, ValueError), match=error):
        starling.simulate(job)
    with pytest.raises((TypeError, ValueError), match=error):
        starling.submit({}, **job)
    assert not (tmp_path / "noted").exists() and not list(tmp_path.glob("*.toml"))


def test_a_command_is_passed_on(pretended):
    noted = pretended('{"rounds": []}')
    starling.simulate({}, trainer=["python3", "a b.py"])
    assert noted()[0][-3] == "python3 'a b.py'"
    for command in ("exec python3 x", "python3 train.py", "env A=1 python3 train.py"):
        starling.simulate({}, trainer=command)
        assert noted()[0][-3] == command


def test_a_python_file_runs_in_this_python(pretended, tmp_path):
    noted = pretended('{"rounds": []}')
    file = tmp_path / "my train.py"
    file.touch()
    for trainer in (file, str(file)):
        starling.simulate({}, trainer=trainer)
        assert noted()[0][-3] == f"{sys.executable} '{file}'"
    starling.simulate({}, trainer="train.py")  # the program says that there is no such file
    assert noted()[0][-3] == f"{sys.executable} train.py"
    starling.simulate({}, trainer=Path("my trainer"))  # a program that is no Python file
    assert noted()[0][-3] == "'my trainer'"


def test_progress_is_printed(pretended, capsys):
    pretended('{"rounds": []}', "[round 1/1] 3 updates\n")
    starling.simulate({})
    assert capsys.readouterr().err == "[round 1/1] 3 updates\n"
    starling.simulate({}, progress=False)
    assert capsys.readouterr().err == ""


def test_errors_are_the_programs_sentence(pretended, capsys):
    pretended("", "[round 1/1] x\nerror: the job is wrong\n", 2)
    with pytest.raises(starling.Error, match="^the job is wrong$") as raised:
        starling.simulate({})
    assert raised.value.exit_code == 2
    assert "job is wrong" not in capsys.readouterr().err
    pretended('{"id": 3, "state": "failed", "error": "too few updates"}', "", 1)
    with pytest.raises(starling.Error, match="^run 3 failed: too few updates$"):
        starling.wait(3)


def test_a_missing_program_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("STARLING_PROGRAMS", str(tmp_path))
    with pytest.raises(starling.Error, match="starling-coordinator is not on PATH; install"):
        starling.runs()


def test_operators_commands(pretended):
    noted = pretended("[]")
    assert starling.runs(state="op") == []
    assert noted()[0] == ["run", "list", "--state", "op", "--format", "json"]
    starling.show(4)
    assert noted()[0] == ["run", "show", "4", "--format", "json"]
    starling.wait(4, timeout=1.5)
    starling.export(4, "m.safetensors", round=0)
    assert noted()[0] == ["run", "export", "4", "--to", "m.safetensors", "--round", "0",
                          "--format", "json"]
    starling.export(4, "m.safetensors", best=True)
    assert "--best" in noted()[0]
    pretended('{"id": 7}')
    assert starling.submit({"rounds": 1}, name="mine") == 7
    assert noted()[0][3:5] == ["--name", "mine"]


@real
def test_simulates(tmp_path):
    result = starling.simulate(JOB, clients=5, out=tmp_path / "out", seed=3, progress=False)
    assert [each["round"] for each in result.history] == [1, 2]
    assert result.record["state"] == "completed" and result.record["seed"] == 3
    assert result.history[1]["eval_accuracy"] > 0.5
    assert starling.load(tmp_path / "out" / "models" / "2.safetensors")
    again = starling.simulate(JOB, clients=5, seed=3, progress=False)
    assert again.history[1]["model_sha256"] == result.history[1]["model_sha256"]


def test_a_result_is_shown_in_a_few_words(pretended, tmp_path):
    rounds = [{"round": 1, "train_loss": 0.75, "eval_accuracy": None, "federated_accuracy": 0.5},
              {"round": 2, "train_loss": 0.31415926, "eval_accuracy": None,
               "federated_accuracy": 0.87654321},
              {"round": 3, "train_loss": None, "federated_accuracy": None}]
    pretended(json.dumps({"rounds": rounds, "state": "completed"}))
    assert (repr(starling.simulate({}, out="here")) ==
            "<starling.Result: 3 rounds, federated_accuracy 0.8765, train_loss 0.3142 in here>")
    pretended('{"rounds": [{"round": 1}]}')
    assert repr(starling.simulate({})) == "<starling.Result: 1 round>"


@real
def test_the_history_is_a_frame():
    pytest.importorskip("pandas", reason="pandas is not installed (apt: python3-pandas)")
    frame = starling.simulate(JOB, clients=5, progress=False).frame()
    assert frame["round"].tolist() == [1, 2]


def test_metrics_are_columns_of_the_frame(monkeypatch):
    class Pandas:
        DataFrame = staticmethod(list)

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    history = [{"round": 1, "federated_loss": -1, "federated_metrics": {"mae": 0.25}},
               {"round": 2, "federated_loss": None, "federated_metrics": None}]
    assert starling.Result({}, history, None).frame() == [
        {"round": 1, "federated_loss": -1, "federated_metrics.mae": 0.25},
        {"round": 2, "federated_loss": None}]


@real
def test_metrics_of_a_trainer_stand_in_the_history(tmp_path):
    (tmp_path / "train.py").write_text("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        return {"w": np.zeros(2)}
    def fit(self, parameters, task):
        number = int(task.client[-1])
        return starling.Fit(parameters, number,
                            {"loss": 0, "accuracy": number, "round": task.round})
    def evaluate(self, parameters, task):
        rows = int(task.client[-1])
        return starling.Metrics(-1.5, rows=rows, metrics={"mae": rows})
    def rows(self, task):
        return int(task.client[-1] or 1), 3
starling.serve(Mine())
""")
    said = starling.simulate({"model": {"kind": "external"}}, clients=2, rounds=1,
                             trainer=tmp_path / "train.py", progress=False,
                             **{"evaluate.federated_every": 1, "min_updates": 2, "cohort": 2})
    entry = said.history[0]
    numbers = sorted(int(each["client"][-1]) for each in entry["contributors"])
    assert entry["federated_loss"] == -1.5 and entry["federated_accuracy"] is None
    weighted = sum(n * n for n in numbers) / sum(numbers)
    assert entry["federated_metrics"]["mae"] == pytest.approx(weighted)
    assert entry["train_metrics"] == {"accuracy": pytest.approx(weighted), "round": 1}
    assert entry["eval_metrics"] is None


@real
def test_metrics_of_a_trainer_stand_in_the_history_of_a_network(tmp_path):
    (tmp_path / "train.py").write_text("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        return {"w": np.zeros(2)}
    def fit(self, parameters, task):
        return starling.Fit(parameters, 1, {"loss": 0, "steps": 1})
    def evaluate(self, parameters, task):
        return starling.Metrics(-1.5, rows=3, metrics={"mae": int(task.client[-1])})
    def rows(self, task):
        return 3, 3
starling.serve(Mine())
""")
    result = starling.gossip({"model": {"kind": "external"}, "train": {"local-steps": 1}}, steps=2,
                             topology="ring", nodes=4, trainer=tmp_path / "train.py",
                             out=tmp_path / "out", progress=False)
    assert [entry["eval_metrics"] for entry in result.history] == [{"mae": 2.5}] * len(
        result.history)
    assert "Metrics of the trainer" in (tmp_path / "out" / "report.html").read_text()


@real
def test_a_trainers_metric_ends_a_run(tmp_path):
    (tmp_path / "train.py").write_text("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        return {"w": np.zeros(2)}
    def fit(self, parameters, task):
        return starling.Fit({"w": parameters["w"] + 1}, 1, {"loss": 0})
    def evaluate(self, parameters, task):
        return starling.Metrics(1, rows=3, metrics={"mae": parameters["w"][0]})
    def rows(self, task):
        return 3, 3
starling.serve(Mine())
""")
    run = {"model": {"kind": "external"}, "evaluate": {"federated-every": 1},
           "stop": {"metric": "federated-mae", "patience": 2}}
    given = dict(clients=2, rounds=9, trainer=tmp_path / "train.py", progress=False,
                 min_updates=2, cohort=2)
    with pytest.raises(starling.Error, match="needs stop.mode = \"max\""):
        starling.simulate(run, **given)
    said = starling.simulate(run, **given, **{"stop.mode": "min"})
    assert len(said.history) == 3
    assert said.record["best_round"] == {"round": 1, "metric": "federated-mae", "value": 1}
    assert said.record["stopped_early"].startswith("federated-mae has not improved")


@real
@pytest.mark.parametrize("columns", [None, "30"])  # of a terminal, as a notebook may set it
def test_a_job_that_is_wrong_raises(monkeypatch, columns):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(starling.Error, match="^--rounds = '0' is out of range; .* 1000000000$") as raised:
        starling.simulate(JOB, rounds=0)
    assert raised.value.exit_code == 2


@real
def test_simulates_a_network():
    result = starling.gossip({"steps": 4, "data": {"dataset": "synthetic:rows=600"},
                              "evaluate": {"dataset": "synthetic:rows=200:test"}},
                             topology="ring", nodes=4, progress=False)
    assert [each["step"] for each in result.history] == [0, 1, 2, 3, 4]


@real
def test_operates_a_coordinator(tmp_path):
    program = shutil.which("starling-coordinator", path=DIRECTORY)
    state = tmp_path / "coordinator"
    with socket.socket() as free:  # the kernel does not give its port away again at once
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    subprocess.run([program, "init", state, "--listen", address], check=True, capture_output=True)
    with subprocess.Popen([program, "serve", state], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as service:
        try:
            assert any("listens on" in line for line in service.stderr)
            run = starling.submit({"model": {"kind": "softmax-regression"}, "round": {
                "wait-for": 2}, "data": {"input": [4], "classes": 2}}, name="mine", state=state)
            assert [each["name"] for each in starling.runs(state=state)] == ["mine"]
            assert starling.show(run, state=state)["settings"]["name"] == "mine"
            with pytest.raises(starling.Error, match="goes on; it had not ended in time") as raised:
                starling.wait(run, timeout=0.01, state=state)
            assert raised.value.exit_code == 3
            path = starling.export(run, tmp_path / "m.safetensors", round=0, state=state)
            assert {name: array.shape for name, array in starling.load(path).items()} == {
                "fc1.weight": (2, 4), "fc1.bias": (2,)}
            with pytest.raises(starling.Error, match="there is no run 9"):
                starling.show(9, state=state)
        finally:
            service.terminate()


def test_the_module_says_what_it_is(tmp_path):
    run = [sys.executable, "-m", "starling"]
    told = subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"starling.{name}" in told for name in ("serve", "simulate", "gossip", "submit"))
    starling.save(tmp_path / "m.safetensors", {"w": np.zeros((2, 3))})
    done = subprocess.run([*run, tmp_path / "m.safetensors"], capture_output=True, text=True)
    assert done.stdout == "w: float32 [2, 3]\n"
    done = subprocess.run([*run, tmp_path / "none"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: ")
