# SPDX-License-Identifier: Apache-2.0
"""The trainer's process as the programs see it."""

import os

import numpy as np
import pytest

HEAD = """
import os, sys, time
import numpy as np
import starling

class Mine(starling.Trainer):
    buffers = ["count"]

    def initialize(self, task):
        rng = task.rng()
        return {"w": rng.normal(size=(2, 3)).astype(np.float32), "b": np.zeros(3, np.float16),
                "count": np.int64(4)}
"""
FIT = """
    def fit(self, parameters, task):
        parameters["w"] += task.learning_rate
        parameters["count"] += 1
        return starling.Fit(parameters, 5, {"loss": 0.5, "steps": 2})
"""
END = """
starling.serve(Mine())
"""
# In the order of the names: b, count, w.
GIVEN = [1, 2, 3, 6.6, 10, 11, 12, 13, 14, 15]


def fit_that(lines):
    return HEAD + "    def fit(self, parameters, task):\n        " + lines + END


def test_describes_its_tensors_by_name(host):
    trainer = host(HEAD + FIT + END)
    answer = trainer.describe()["ok"]
    assert answer == {
        "protocol": 1, "name": "train.py", "operations": ["initialize", "fit"], "rows": 0,
        "held-out": 0, "tensors": [
            {"name": "b", "shape": [3], "dtype": "float16", "role": "trainable"},
            {"name": "count", "shape": [], "dtype": "int64", "role": "buffer"},
            {"name": "w", "shape": [2, 3], "dtype": "float32", "role": "trainable"}]}


def test_describes_rules_of_buffers_and_private_tensors(host):
    program = HEAD.replace('["count"]', '{"count": "maximum", "b": "mean", "w": "last"}\n    private_tensors = '
                           '{"head": np.zeros((2, 3), np.float16)}') + FIT + END
    trainer = host(program)
    assert trainer.describe()["ok"]["tensors"] == [
        {"name": "b", "shape": [3], "dtype": "float16", "role": "buffer"},
        {"name": "count", "shape": [], "dtype": "int64", "role": "buffer", "rule": "maximum"},
        {"name": "w", "shape": [2, 3], "dtype": "float32", "role": "buffer", "rule": "last"},
        {"name": "head", "shape": [2, 3], "dtype": "float16", "role": "private"}]


@pytest.mark.parametrize("attributes, message", [
    ('buffers = {"w": "median"}',
     "ValueError: buffers has the rule 'median' for \"w\"; it is \"mean\", \"maximum\" or \"last\""),
    ('private_tensors = ["head"]',
     "TypeError: private_tensors is ['head']; a dict of name to array is needed, or {}"),
    ('private_tensors = {"w": np.zeros(3)}',
     'ValueError: initialize returned the tensor "w", which private_tensors has too; it either '
     'travels or is private')])
def test_wrong_roles_are_named(host, attributes, message):
    trainer = host(HEAD.replace('buffers = ["count"]', attributes) + FIT + END)
    assert trainer.describe()["error"]["message"] == message


def test_a_private_tensor_does_not_travel(host, by_hand):
    program = HEAD.replace('["count"]', '["count"]\n    private_tensors = {"head": np.ones(5)}') + """
    def fit(self, parameters, task):
        return starling.Fit({**parameters, "head": np.ones(5)}, 5, {"loss": 0.5})
""" + END
    trainer = host(program)
    trainer.describe()
    assert trainer.fit(GIVEN)["error"]["message"] == (
        'ValueError: fit returned the tensor "head", which is private: keep it in task.directory')
    done = by_hand(program.replace(', "head": np.ones(5)', ""), "--check")
    assert done.returncode == 0 and "head: float64 [5], private" in done.stdout


def test_names_are_ordered_by_their_bytes(host):
    trainer = host("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        return {name: np.zeros(1) for name in ("é", "a10", "z", "a.b", "a2", "B", "𝕏", "ｚ")}
    def fit(self, parameters, task): ...
starling.serve(Mine())
""")
    names = [t["name"] for t in trainer.describe()["ok"]["tensors"]]
    assert names == ["B", "a.b", "a10", "a2", "z", "é", "ｚ", "𝕏"]


def test_offers_what_is_overridden_and_counts_the_clients_rows(host):
    trainer = host(HEAD + FIT + """
    def evaluate(self, parameters, task): ...
    def gradient(self, parameters, task, step): ...
    def rows(self, task):
        assert task.client == "cam-1"
        return 60, 10
""" + END)
    answer = trainer.describe()["ok"]
    assert answer["operations"] == ["initialize", "fit", "evaluate", "gradient"]
    assert (answer["rows"], answer["held-out"]) == (60, 10)
    assert trainer.describe(client="")["ok"]["rows"] == 0


def test_initializes_from_the_seed(host):
    trainer = host(HEAD + FIT + END)
    trainer.describe()
    results = []
    for seed in (1, 2, 1):
        places = trainer.places()
        del places["parameters"]
        assert trainer.ask("initialize", task=trainer.task(seed=seed), **places)["ok"] == {}
        results.append(trainer.result().tolist())
    assert results[0] == results[2] != results[1]
    assert results[0][:4] == [0, 0, 0, 4]


def test_fits_in_the_models_own_types(host):
    trainer = host(HEAD + """
    def fit(self, parameters, task):
        assert parameters["b"].dtype == np.float16 and parameters["w"].dtype == np.float32
        assert parameters["count"].dtype == np.int64 and parameters["count"].shape == ()
        assert parameters["count"] == 7  # rounded to the nearest
        assert task.client == "cam-9" and task.round == 2 and task.rounds == 3
        assert task.settings == {"hidden": 4} and task.batch_size == 16
        assert str(task.directory) == os.getcwd()
        parameters["w"] += task.learning_rate
        parameters["count"] += 1
        return starling.Fit(parameters, 5, {"loss": 0.5, "steps": 2})
""" + END)
    trainer.describe()
    answer = trainer.fit(GIVEN, client="cam-9", round=2, settings={"hidden": 4},
                         train={"learning-rate": 0.5, "batch-size": 16})
    assert answer["ok"] == {"weight": 5, "loss": 0.5, "steps": 2}
    assert trainer.result().tolist() == [1, 2, 3, 8, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5]


def test_a_fit_may_have_metrics_of_its_own(host):
    trainer = host(fit_that("return starling.Fit(parameters, 5, {'loss': 0.5, 'steps': 2, "
                            "'accuracy': np.float32(0.25), 'grad/norm': 3})"))
    trainer.describe()
    assert trainer.fit(GIVEN)["ok"] == {
        "weight": 5, "loss": 0.5, "steps": 2, "metrics": {"accuracy": 0.25, "grad/norm": 3}}


def test_float32_tensors_are_views_of_the_memory(host):
    trainer = host(fit_that('parameters["w"] += 1; time.sleep(0); '
                            'return starling.Fit(dict(parameters), 1, {"loss": 0})'))
    trainer.describe()
    assert "ok" in trainer.fit(GIVEN)
    changed = np.frombuffer(os.pread(trainer.memory, 4 * trainer.values, 0), np.float32)
    assert changed[4:].tolist() == [11, 12, 13, 14, 15, 16]


def test_evaluates(host):
    trainer = host(HEAD + FIT + """
    def evaluate(self, parameters, task):
        return starling.Metrics(loss=float(parameters["w"].sum()), accuracy=0.25, rows=8)
""" + END)
    trainer.describe()
    places = trainer.places(GIVEN)
    del places["result"]
    assert trainer.ask("evaluate", task=trainer.task(), **places)["ok"] == {
        "rows": 8, "loss": 75, "accuracy": 0.25}


def evaluate_that(metrics):
    return HEAD + FIT + "    def evaluate(self, parameters, task):\n        return " + metrics + END


def evaluated(host, metrics):
    trainer = host(evaluate_that(metrics))
    trainer.describe()
    places = trainer.places(GIVEN)
    del places["result"]
    return trainer.ask("evaluate", task=trainer.task(), **places)


def test_an_evaluation_need_no_accuracy_and_may_have_metrics(host):
    answer = evaluated(host, 'starling.Metrics(loss=-2.5, rows=8, metrics={"mae": np.float32(0.25), '
                             '"recall@10/b": 1})')
    assert answer["ok"] == {"rows": 8, "loss": -2.5, "metrics": {"mae": 0.25, "recall@10/b": 1}}


@pytest.mark.parametrize("metrics, message", [
    ("starling.Metrics(0.5)",
     "TypeError: evaluate returned the rows None; a number is needed"),
    ('starling.Metrics(0.5, rows=1, metrics=[1])',
     'TypeError: evaluate returned the metrics [1]; a dict is needed, as {"mae": 0.5}'),
    ('starling.Metrics(0.5, rows=1, metrics={"a b": 1})',
     "ValueError: evaluate returned a metric called 'a b'; names are 1 to 64 of a-z, A-Z, 0-9 and "
     "._-/@%"),
    ('starling.Metrics(0.5, rows=1, metrics={"accuracy": 1})',
     "ValueError: evaluate returned the accuracy among the metrics; "
     "starling.Metrics(accuracy=...) says it"),
    ('starling.Metrics(0.5, rows=1, metrics={"mae": "x"})',
     "TypeError: evaluate returned the metric \"mae\" 'x'; a number is needed"),
    ('starling.Metrics(0.5, rows=1, metrics={"mae": float("nan")})',
     'FloatingPointError: evaluate returned a metric "mae" that is not finite'),
    ('starling.Metrics(0.5, rows=1, metrics={f"m{i}": 0 for i in range(33)})',
     "ValueError: evaluate returned 33 metrics; at most 32 are taken")])
def test_metrics_that_nobody_can_use_are_named(host, metrics, message):
    assert evaluated(host, metrics)["error"]["message"] == message


def test_in_place_of_a_gradient_buffers_have_their_values(host):
    trainer = host(HEAD + FIT + """
    def gradient(self, parameters, task, step):
        rows = 100 if step is None else step
        gradient = {"w": parameters["w"] * 2, "b": np.ones(3)}
        if step is None:
            gradient["count"] = parameters["count"] + 1
        return starling.Gradient(gradient, 0.25, rows)
""" + END)
    trainer.describe()
    for step, rows, count in ((3, 3, 7), (None, 100, 8)):
        answer = trainer.ask("gradient", task=trainer.task(), step=step, **trainer.places(GIVEN))
        assert answer["ok"] == {"rows": rows, "loss": 0.25}
        assert trainer.result().tolist() == [1, 1, 1, count, 20, 22, 24, 26, 28, 30]


def test_a_gradient_has_the_buffers_of_its_own_settings(host):
    trainer = host("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        counts = task.settings.get("counts", False)
        self.buffers = ["count"] if counts else []
        return {"w": np.zeros(2), **({"count": np.zeros(1)} if counts else {})}
    def fit(self, parameters, task): ...
    def gradient(self, parameters, task, step):
        return starling.Gradient({"w": parameters["w"] * 2}, 0.5, 1)
starling.serve(Mine())
""")
    counting, plain = {"counts": True}, {}
    trainer.describe(counting)
    trainer.describe(plain)
    for settings, given, expected in ((plain, [1, 2], [2, 4]), (counting, [7, 1, 2], [7, 2, 4]),
                                      (plain, [1, 2], [2, 4])):
        trainer.values = len(given)
        answer = trainer.ask("gradient", task=trainer.task(settings=settings), step=0,
                             **trainer.places(given))
        assert answer.get("ok") == {"rows": 1, "loss": 0.5}, answer
        assert trainer.result().tolist() == expected


def test_a_cancelled_task_sees_that_it_is_stopped(host):
    trainer = host(fit_that("""
        print("fitting", flush=True)
        while not task.stopped: pass
        task.check_stopped()
"""))
    trainer.describe()
    number = trainer.send("fit", task=trainer.task(), **trainer.places(GIVEN))
    trainer.write({"op": "cancel", "id": number - 1})  # of a request that has been answered
    trainer.write({"op": "cancel", "id": number})
    assert trainer.answer() == {
        "id": number, "error": {"code": "stopped", "message": "the task was cancelled"}}
    # The next task is not.
    assert trainer.describe()["ok"]
    assert trainer.end() == 0
    assert "Traceback" not in trainer.printed


def test_the_memory_may_grow_while_old_views_are_held(host):
    trainer = host(fit_that("""
        self.held = getattr(self, "held", []) + [parameters]
        return starling.Fit({name: array + 1 for name, array in parameters.items()}, 1,
                            {"loss": 0})
"""))
    trainer.describe()
    for extra in (0, 1 << 16, 1 << 20):
        answer = trainer.ask("fit", task=trainer.task(), **trainer.places(GIVEN, extra))
        assert answer["ok"] == {"weight": 1, "loss": 0}
        assert trainer.result().tolist() == [2, 3, 4, 8, 11, 12, 13, 14, 15, 16]


def test_an_exception_is_one_line_and_the_next_task_goes_on(host):
    trainer = host(fit_that("""
        if task.round == 1: raise ValueError("two\\nlines")
        return starling.Fit(parameters, 1, {"loss": 0})
"""))
    trainer.describe()
    assert trainer.fit(GIVEN)["error"] == {
        "code": "trainer-failed", "message": "ValueError: two lines"}
    assert "ok" in trainer.fit(GIVEN, round=2)
    trainer.end()
    assert "Traceback" in trainer.printed


@pytest.mark.parametrize("code, error", [
    ("raise starling.TaskError('cam-1 has no rows', 'no-data')",
     {"code": "no-data", "message": "cam-1 has no rows"}),
    ("raise starling.TaskError('x', 'No Data')",
     {"code": "trainer-failed", "message":
      'ValueError: "No Data" is no code: a-z, 0-9 and -, at most 40 letters'}),
    ("raise OSError('file \\udcff')", {"code": "trainer-failed", "message": "OSError: file ?"}),
    ("sys.exit(3)", {"code": "trainer-failed", "message": "SystemExit: 3"}),
    ("return starling.Fit({**parameters, 'w': np.zeros((3, 2))}, 1, {'loss': 0})",
     {"code": "trainer-failed", "message":
      'ValueError: fit returned the tensor "w" with the shape [3, 2]; [2, 3] is needed'}),
    ("del parameters['b']; return starling.Fit(parameters, 1, {'loss': 0})",
     {"code": "trainer-failed", "message": 'ValueError: fit did not return the tensor "b"'}),
    ("parameters['x'] = 1; return starling.Fit(parameters, 1, {'loss': 0})",
     {"code": "trainer-failed",
      "message": 'ValueError: fit returned the tensor "x", which the model lacks'}),
    ("parameters['w'] = 'text'; return starling.Fit(parameters, 1, {'loss': 0})",
     {"code": "trainer-failed",
      "message": 'TypeError: tensor "w" is of type <U4; numbers are needed'}),
    ("parameters['w'][1, 1] = np.nan; return starling.Fit(parameters, 1, {'loss': 0})",
     {"code": "diverged", "message": 'FloatingPointError: fit returned the tensor "w" with values '
                                     'that are not finite; lower the learning rate or set '
                                     'clip-norm'}),
    ("parameters['w'] = np.full((2, 3), 1e300); return starling.Fit(parameters, 1, {'loss': 0})",
     {"code": "diverged", "message": 'FloatingPointError: fit returned the tensor "w" with values '
                                     'that are not finite; lower the learning rate or set '
                                     'clip-norm'}),
    ("return starling.Fit(parameters, 1, {'loss': float('nan')})",
     {"code": "diverged",
      "message": "FloatingPointError: fit returned a loss that is not finite; lower the learning "
                 "rate or set clip-norm"}),
    ("return starling.Fit(parameters, float('inf'), {'loss': 0})",
     {"code": "diverged",
      "message": "FloatingPointError: fit returned a weight that is not finite"}),
    ("return starling.Fit(None, 1, {'loss': 0})",
     {"code": "trainer-failed", "message":
      'TypeError: fit returned its tensors as NoneType; a dict of name to array is needed, as '
      '{"weight": np.zeros(3)}'}),
    ("return starling.Fit(list(parameters.values()), 1, {'loss': 0})",
     {"code": "trainer-failed", "message":
      'TypeError: fit returned its tensors as list; a dict of name to array is needed, as '
      '{"weight": np.zeros(3)}'}),
    ("return starling.Fit(parameters, None, {'loss': 0})",
     {"code": "trainer-failed",
      "message": "TypeError: fit returned the weight None; a number is needed"}),
    ("return starling.Fit(parameters, 1, {'loss': None})",
     {"code": "trainer-failed",
      "message": "TypeError: fit returned the loss None; a number is needed"}),
    ("return starling.Fit(parameters, 1, None)",
     {"code": "trainer-failed", "message":
      'TypeError: fit returned the metrics None; a dict is needed, as {"loss": 0.5}'}),
    ("return starling.Fit(parameters, 1, {'loss': 0, 'steps': -1})",
     {"code": "trainer-failed",
      "message": "ValueError: fit returned the steps -1; 0 or more is needed"}),
    ("return starling.Fit(parameters, 1, {'loss': 0, 'a b': 1})",
     {"code": "trainer-failed", "message":
      "ValueError: fit returned a metric called 'a b'; names are 1 to 64 of a-z, A-Z, 0-9 and "
      "._-/@%"}),
    ("return starling.Fit(parameters, 1, {'loss': 0, 'note': 'x'})",
     {"code": "trainer-failed",
      "message": "TypeError: fit returned the metric \"note\" 'x'; a number is needed"}),
    ("return starling.Fit(parameters, 1, {'loss': 0, **{f'm{i}': 0 for i in range(33)}})",
     {"code": "trainer-failed",
      "message": "ValueError: fit returned 33 metrics; at most 32 are taken"}),
    ("return starling.Fit",
     {"code": "trainer-failed",
      "message": "TypeError: fit returned the class Fit; starling.Fit(...) is needed"}),
    ("return parameters, 5, {}",
     {"code": "trainer-failed",
      "message": "TypeError: fit returned tuple; starling.Fit(...) is needed"}),
    ("return starling.Fit(parameters, 0, {'loss': 0})",
     {"code": "trainer-failed",
      "message": "ValueError: fit returned the weight 0; at least 1e-6 is needed, as the "
                 "number of rows is"}),
    ("return starling.Fit(parameters, 1)",
     {"code": "trainer-failed", "message":
      'ValueError: fit returned no metrics["loss"], the mean loss while training'}),
])
def test_a_bad_answer_is_named_and_nothing_is_written(host, code, error):
    trainer = host(fit_that(code))
    trainer.describe()
    assert trainer.fit(GIVEN)["error"] == error
    assert trainer.result().tolist() == [77] * 10


@pytest.mark.parametrize("model, buffers, message", [
    ("[np.zeros(2)]", "()", 'TypeError: initialize returned its tensors as list; a dict of name to '
     'array is needed, as {"weight": np.zeros(3)}'),
    ("None", "()", 'TypeError: initialize returned its tensors as NoneType; a dict of name to '
     'array is needed, as {"weight": np.zeros(3)}'),
    ("{}", "()", "ValueError: initialize returned no tensor; a model needs one at least"),
    ("{1: np.zeros(2)}", "()", "TypeError: the names of tensors are texts, not int: 1"),
    ("{'a b\\n': np.zeros(2)}", "()", "ValueError: 'a b\\n' cannot be the name of a tensor in a "
     "model file; rename it"),
    ("{'mean': np.zeros(2)}", "'mean'", "TypeError: buffers is 'mean'; a list of names is needed: "
     "['mean']"),
    ("{'mean': np.zeros(2)}", "None", 'TypeError: buffers is None; a list of names is needed: '
     '["mean"], or [] for none'),
    ("{'mean': np.zeros(2)}", "['x']", 'ValueError: buffers names "x", which is no tensor of the '
     'model')])
def test_a_bad_model_is_named(host, by_hand, tmp_path, model, buffers, message):
    program = f"""
import numpy as np, starling
class Mine(starling.Trainer):
    buffers = {buffers}
    def initialize(self, task):
        return {model}
    def fit(self, parameters, task): ...
starling.serve(Mine())
"""
    assert host(program).describe()["error"] == {"code": "trainer-failed", "message": message}
    done = by_hand(program, "--initial", "m.safetensors")
    assert done.returncode == 1
    assert done.stderr == f"error: {message.split(': ', 1)[1]}\n"
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


def test_counts_below_zero_are_named(host):
    trainer = host(HEAD + FIT + """
    def evaluate(self, parameters, task):
        return starling.Metrics(0.5, 0.5, -3)
    def gradient(self, parameters, task, step):
        return starling.Gradient(None, 0.5, -3 if step else 3)
    def rows(self, task):
        return 5, -1 if task.client == "cam-2" else 0
""" + END)
    trainer.describe()
    assert trainer.describe(client="cam-2")["error"]["message"] == (
        "ValueError: rows returned the held-out count -1; 0 or more is needed")
    for operation in ("evaluate", "gradient"):
        answer = trainer.ask(operation, task=trainer.task(), step=1, **trainer.places(GIVEN))
        assert answer["error"]["message"] == (
            f"ValueError: {operation} returned the rows -3; 0 or more is needed")
    answer = trainer.ask("gradient", task=trainer.task(), step=0, **trainer.places(GIVEN))
    assert answer["error"]["message"].startswith(
        "TypeError: gradient returned its tensors as NoneType; a dict of name to array is needed")


def test_integers_stay_within_their_type(host):
    trainer = host("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        return {t: np.zeros(2, t) for t in ("int64", "int32", "int8", "uint8", "uint64")}
    def fit(self, parameters, task):
        for name, values in parameters.items():
            limits = np.iinfo(name)
            low, high = (int(each) for each in values)
            assert low == limits.min, name
            assert limits.max - limits.max // 2**50 <= high <= limits.max, name
        parameters["uint8"][:] = 3
        return starling.Fit(parameters, 1, {"loss": 0})
starling.serve(Mine())
""")
    trainer.describe()
    assert trainer.fit([-1e30, 1e30] * 5)["ok"] == {"weight": 1, "loss": 0}


def test_large_finite_values_are_taken(host):
    trainer = host(fit_that("parameters['w'][:] = 3e38; "
                            "return starling.Fit(parameters, 1, {'loss': 0})"))
    trainer.describe()
    assert "ok" in trainer.fit(GIVEN)


def test_another_models_vector_is_refused(host):
    trainer = host(HEAD + FIT + END)
    trainer.describe()
    trainer.values = 11
    error = trainer.fit([*GIVEN, 0])["error"]
    assert error == {"code": "layout-mismatch", "message":
                     "the run's model has 11 values and this trainer's 10; make the run's initial "
                     "model with this trainer"}


def test_models_may_follow_from_the_settings(host):
    trainer = host("""
import numpy as np, starling
class Mine(starling.Trainer):
    def initialize(self, task):
        print("initialize", task.settings)
        return {"w": np.zeros(task.settings["hidden"])}
    def fit(self, parameters, task):
        return starling.Fit(parameters, len(parameters["w"]), {"loss": 0})
starling.serve(Mine())
""")
    for hidden in (2, 5, 2):
        assert trainer.describe({"hidden": hidden})["ok"]["tensors"][0]["shape"] == [hidden]
        answer = trainer.fit(np.zeros(hidden), settings={"hidden": hidden})
        assert answer["ok"]["weight"] == hidden
    trainer.end()
    assert trainer.printed.count("initialize") == 2  # once for each


def test_what_is_printed_breaks_nothing(host):
    trainer = host(fit_that("""
        for _ in range(20000): print('{"id": 1, "ok": {}}'); sys.stderr.write("x" * 50)
        os.system("echo from a program")
        return starling.Fit(parameters, 1, {"loss": 0})
"""))
    trainer.describe()
    assert trainer.fit(GIVEN)["ok"] == {"weight": 1, "loss": 0}
    trainer.end()
    assert "from a program" in trainer.printed


def test_programs_that_the_trainer_starts_get_no_descriptors(host):
    trainer = host(fit_that("""
        assert os.system("test -e /proc/self/fd/4 -o -e /proc/self/fd/5") != 0
        return starling.Fit(parameters, 1, {"loss": 0})
"""))
    trainer.describe()
    assert "ok" in trainer.fit(GIVEN)


def test_trainers_that_the_trainer_starts_are_run_by_hand(host):
    trainer = host(fit_that("""
        if task.rounds == 3:  # a check has one round
            import subprocess
            told = subprocess.check_output([sys.executable, "train.py", "--check"], text=True)
            assert "fit: weight 1.0" in told
        return starling.Fit(parameters, 1, {"loss": 0})
"""))
    trainer.describe()
    assert "ok" in trainer.fit(GIVEN)


def test_ends_on_stop(host):
    trainer = host(HEAD + FIT + END)
    trainer.describe()
    trainer.write({"op": "stop"})
    assert trainer.process.wait(60) == 0


def test_ends_with_its_requests_in_the_midst_of_a_task(host):
    trainer = host(fit_that("""
        while not task.stopped: pass
        task.check_stopped()
"""))
    trainer.describe()
    trainer.send("fit", task=trainer.task(), **trainer.places(GIVEN))
    assert trainer.end() == 0


def test_unknown_members_are_ignored_and_unknown_operations_are_named(host):
    trainer = host(HEAD + FIT + END)
    trainer.describe()
    assert "ok" in trainer.ask("fit", task={**trainer.task(), "new": 1}, later=[],
                               **trainer.places(GIVEN))
    assert trainer.ask("predict", task=trainer.task())["error"]["code"] == "unsupported-operation"
    answer = trainer.ask("describe", protocol=2, client="", directory=".", settings={})
    assert answer["error"]["code"] == "unsupported-protocol"


def test_by_hand_it_says_how_it_is_used(tmp_path, by_hand):
    done = by_hand(HEAD + FIT + END)
    assert done.returncode == 0
    assert 'command = ["python3", "train.py"]' in done.stdout


def test_by_hand_it_writes_the_initial_model(tmp_path, by_hand):
    import starling

    for seed in ("1", "2"):
        done = by_hand(HEAD + FIT + END, "--initial", f"{seed}.safetensors", "--seed", seed)
        assert done.stdout == f"{seed}.safetensors: 3 tensors, 10 values\n"
    model = starling.load(tmp_path / "1.safetensors")
    assert list(model) == ["b", "count", "w"]
    assert model["count"] == 4
    assert not np.array_equal(model["w"], starling.load(tmp_path / "2.safetensors")["w"])


def test_by_hand_it_checks_itself(tmp_path, by_hand):
    done = by_hand(HEAD + FIT + END, "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  w: float32 [2, 3], trainable\ninitialize: done\nfit: weight 5.0, loss" in done.stdout
    done = by_hand(fit_that("return starling.Fit({}, 1, {'loss': 0})"), "--check")
    assert done.returncode == 1
    assert 'fit: ValueError: fit did not return the tensor "b"' in done.stdout
    assert done.stderr == "", "the sentence says all"
    done = by_hand(fit_that("return starling.Fit(parameters, 1)"), "--check")
    assert done.stdout.endswith('no metrics["loss"], the mean loss while training\n')
    assert done.stderr == ""
    done = by_hand(fit_that("return undefined"), "--check")
    assert done.returncode == 1 and "Traceback" in done.stderr


@pytest.mark.parametrize("settings", ["[1]", "3", "null", "{", "clients=3", "[" * 100000])
def test_by_hand_settings_are_a_json_object(by_hand, settings):
    done = by_hand(HEAD + FIT + END, "--check", "--settings", settings)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is not a JSON object; write it as '{\"clients\": 10}'" in done.stderr


@pytest.mark.parametrize("given, sentence", [
    ("Mine", "the class Mine; make an object of it: serve(Mine())"),
    ("print", "builtin_function_or_method; give an object of a subclass of starling.Trainer")])
def test_only_a_trainer_is_served(by_hand, given, sentence):
    done = by_hand(HEAD + FIT + f"\nstarling.serve({given})\n", "--check")
    assert done.returncode == 1
    assert done.stderr.endswith(f"TypeError: serve() was given {sentence}\n")
