# SPDX-License-Identifier: Apache-2.0
"""The requests of core/client/TRAINER.md and their answers, without pipes and memory of its own."""

from __future__ import annotations

import json
import linecache
import math
import re
import traceback
from pathlib import Path
from threading import Event
from typing import Any, Callable, Dict, Mapping, Tuple, Type, TypeVar

import numpy as np
from numpy.typing import NDArray

from starling.layout import WHEN_DIVERGED, Layout, check_tensors
from starling.trainer import Fit, Gradient, Metrics, Task, TaskError, Trainer, task_of

PROTOCOL = 1
MESSAGE_LETTERS_MAX = 2000
METRICS_MAX = 32
METRIC_NAME = re.compile("[a-zA-Z0-9._/@%-]{1,64}")

Memory = NDArray[np.float32]
Returned = TypeVar("Returned")


class Session:
    """Answers requests; `memory_of` gives the shared memory of so many bytes."""

    def __init__(self, trainer: Trainer, memory_of: Callable[[int], Memory]) -> None:
        self._memory_of = memory_of
        self._trainer = trainer
        self._directory = Path(".")
        self._layouts: Dict[str, Layout] = {}  # by settings
        self._memory: Memory = np.empty(0, np.float32)

    def answer(self, request: Dict[str, Any], stop: Event) -> Dict[str, Any]:
        try:
            operation = {"describe": self._describe, "initialize": self._initialize,
                         "fit": self._fit, "evaluate": self._evaluate,
                         "gradient": self._gradient}.get(request["op"])
            if operation is None:
                raise TaskError(f"this trainer does not know the operation {request['op']}",
                                "unsupported-operation")
            self._map(request.get("memory", 0))
            task = task_of(request.get("task", request), self._directory, stop)
            return {"id": request["id"], "ok": operation(request, task)}
        except BaseException as error:  # also what a library raises to end the program
            code, message = _describe_error(error)
            if not isinstance(error, TaskError) and not _is_by_this_package(error):
                traceback.print_exc()
            return {"id": request.get("id"), "error": {"code": code, "message": message}}

    def _describe(self, request: Dict[str, Any], task: Task) -> Dict[str, Any]:
        if request["protocol"] != PROTOCOL:
            raise TaskError(f"this trainer speaks version {PROTOCOL} of the protocol, not "
                            f"{request['protocol']}", "unsupported-protocol")
        self._directory = Path(request["directory"])
        task = task_of(request, self._directory, task._stop)
        layout = self._layout(task)
        rows, held_out = self._trainer.rows(task) if task.client else (0, 0)
        return {"protocol": PROTOCOL, "name": self._trainer.name,
                "operations": self._trainer.operations(), "rows": _count(rows, "rows", "count"),
                "held-out": _count(held_out, "rows", "held-out count"),
                "tensors": layout.describe()}

    def _initialize(self, request: Dict[str, Any], task: Task) -> Dict[str, Any]:
        layout = self._layout(task)
        layout.pack(self._trainer.initialize(task), self._place(request, "result", layout),
                    "initialize")
        return {}

    def _fit(self, request: Dict[str, Any], task: Task) -> Dict[str, Any]:
        layout = self._layout(task)
        parameters = layout.unpack(self._place(request, "parameters", layout))
        fit = _checked(self._trainer.fit(parameters, task), Fit, "fit")
        answer = _fit_answer(fit.weight, fit.metrics)
        layout.pack(fit.parameters, self._place(request, "result", layout), "fit")
        return answer

    def _evaluate(self, request: Dict[str, Any], task: Task) -> Dict[str, Any]:
        layout = self._layout(task)
        parameters = layout.unpack(self._place(request, "parameters", layout))
        return _evaluate_answer(_checked(self._trainer.evaluate(parameters, task), Metrics,
                                         "evaluate"))

    def _gradient(self, request: Dict[str, Any], task: Task) -> Dict[str, Any]:
        layout = self._layout(task)
        parameters = layout.unpack(self._place(request, "parameters", layout))
        gradient = _checked(self._trainer.gradient(parameters, task, request["step"]), Gradient,
                            "gradient")
        answer = {"rows": _count(gradient.rows, "gradient", "rows"),
                  "loss": _finite(gradient.loss, "gradient", "loss")}
        check_tensors(gradient.gradient, "gradient")
        # Those of this task's settings: the trainer's own are those of its last initialize.
        buffers = {t.name: parameters[t.name] for t in layout.tensors if t.buffer}
        layout.pack({**buffers, **gradient.gradient}, self._place(request, "result", layout),
                    "gradient")
        return answer

    def _layout(self, task: Task) -> Layout:
        key = json.dumps(task.settings, sort_keys=True)
        if key not in self._layouts:
            model = self._trainer.initialize(
                Task(client=task.client, settings=task.settings, directory=task.directory))
            self._layouts[key] = Layout(model, self._trainer.buffers,
                                        self._trainer.private_tensors)
        return self._layouts[key]

    def _map(self, size: int) -> None:
        if size > self._memory.nbytes:
            # The former mapping goes with the last array that looks into it.
            self._memory = self._memory_of(size)

    def _place(self, request: Dict[str, Any], name: str, layout: Layout) -> Memory:
        begin, size = request[name]["offset"] // 4, request[name]["bytes"] // 4
        if size != layout.size:
            raise TaskError(f"the run's model has {size} values and this trainer's {layout.size}; "
                            "make the run's initial model with this trainer", "layout-mismatch")
        return self._memory[begin:begin + size]


def _checked(value: Returned, wanted: Type[Returned], giver: str) -> Returned:
    if not isinstance(value, wanted):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{giver} returned {given}; starling.{wanted.__name__}(...) is needed")
    return value


def _number(value: Any, giver: str, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # the last by PyTorch
        raise TypeError(f"{giver} returned the {what} {value!r}; a number is needed") from None


def _finite(value: Any, giver: str, what: str) -> float:
    number = _number(value, giver, what)
    if not math.isfinite(number):
        advice = WHEN_DIVERGED if what == "loss" else ""
        raise FloatingPointError(f"{giver} returned a {what} that is not finite{advice}")
    return number


def _count(value: Any, giver: str, what: str) -> int:
    number = _number(value, giver, what)
    if not 0 <= number < math.inf:
        raise ValueError(f"{giver} returned the {what} {value}; 0 or more is needed")
    return int(number)


def _fit_answer(weight: Any, metrics: Any) -> Dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"fit returned the metrics {metrics!r}; a dict is needed, as "
                        '{"loss": 0.5}')
    if _finite(weight, "fit", "weight") < 1e-6:
        raise ValueError(f"fit returned the weight {weight}; at least 1e-6 is needed, as the "
                         "number of rows is")
    if "loss" not in metrics:
        raise ValueError('fit returned no metrics["loss"], the mean loss while training')
    answer: Dict[str, Any] = {"weight": float(weight),
                              "loss": _finite(metrics["loss"], "fit", "loss")}
    if "steps" in metrics:
        answer["steps"] = _count(metrics["steps"], "fit", "steps")
    own = {name: value for name, value in metrics.items() if name not in ("loss", "steps")}
    if own:
        answer["metrics"] = _own_metrics(own, "fit")
    return answer


def _evaluate_answer(found: Metrics) -> Dict[str, Any]:
    answer: Dict[str, Any] = {"rows": _count(found.rows, "evaluate", "rows"),
                              "loss": _finite(found.loss, "evaluate", "loss")}
    if found.accuracy is not None:
        answer["accuracy"] = _finite(found.accuracy, "evaluate", "accuracy")
        if not 0 <= answer["accuracy"] <= 1:
            raise ValueError(f"evaluate returned the accuracy {found.accuracy}; 0 to 1 is needed")
    if not isinstance(found.metrics, Mapping):
        raise TypeError(f"evaluate returned the metrics {found.metrics!r}; a dict is needed, as "
                        '{"mae": 0.5}')
    for name in ("loss", "accuracy"):
        if name in found.metrics:
            raise ValueError(f"evaluate returned the {name} among the metrics; "
                             f"starling.Metrics({name}=...) says it")
    if found.metrics:
        answer["metrics"] = _own_metrics(found.metrics, "evaluate")
    return answer


def _own_metrics(metrics: Mapping[str, Any], giver: str) -> Dict[str, float]:
    if len(metrics) > METRICS_MAX:
        raise ValueError(f"{giver} returned {len(metrics)} metrics; at most {METRICS_MAX} are "
                         "taken")
    for name in metrics:
        if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
            raise ValueError(f"{giver} returned a metric called {name!r}; names are 1 to 64 of "
                             "a-z, A-Z, 0-9 and ._-/@%")
    return {name: _finite(value, giver, f'metric "{name}"') for name, value in metrics.items()}


def _is_by_this_package(error: BaseException) -> bool:
    """Whether a check of this package raised it: its sentence says all, a traceback nothing more."""
    if not isinstance(error, (TypeError, ValueError, FloatingPointError)):
        return False
    *_, (last, line) = traceback.walk_tb(error.__traceback__)
    source = linecache.getline(last.f_code.co_filename, line)
    return (str(last.f_globals.get("__name__", "")).startswith("starling.")
            and source.lstrip().startswith("raise "))


def _describe_error(error: BaseException) -> Tuple[str, str]:
    """Code and sentence of an error answer, in one line."""
    text = re.sub(r"\s+", " ", str(error)).strip().encode(errors="replace").decode()
    if isinstance(error, TaskError):
        return error.code, text[:MESSAGE_LETTERS_MAX]
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    code = "diverged" if isinstance(error, FloatingPointError) else "trainer-failed"
    return code, text[:MESSAGE_LETTERS_MAX]
