# SPDX-License-Identifier: Apache-2.0
"""A trainer's process: the pipes and the memory of core/client/TRAINER.md, or the command line."""

from __future__ import annotations

import argparse
import io
import json
import mmap
import os
import queue
import sys
from contextlib import suppress
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from starling.layout import Layout
from starling.safetensors import save
from starling.session import PROTOCOL, Memory, Session
from starling.trainer import Task, Trainer

REQUESTS, ANSWERS, MEMORY = 3, 4, 5  # descriptors


def serve(trainer: Trainer) -> None:
    """Trains for the program that started this one, until it says stop.

    Started by hand it reads the command line instead; `--help` says how.
    """
    if not isinstance(trainer, Trainer):
        given = (f"the class {trainer.__name__}; make an object of it: "
                 f"serve({trainer.__name__}())" if isinstance(trainer, type) else
                 f"{type(trainer).__name__}; give an object of a subclass of starling.Trainer")
        raise TypeError(f"serve() was given {given}")
    # Programs that the trainer starts have no part in this; they may be trainers run by hand.
    if os.environ.pop("STARLING_TRAINER", None) is None:
        sys.exit(_run_by_hand(trainer, sys.argv[1:]))
    for descriptor in (REQUESTS, ANSWERS, MEMORY):
        os.set_inheritable(descriptor, False)  # programs that the trainer starts do not get them
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what it prints is logged at once
    requests = _Requests()
    requests.start()
    session = Session(trainer, _map)
    with suppress(BrokenPipeError), os.fdopen(ANSWERS, "wb") as answers:
        while True:
            request = requests.queue.get()
            if request is None:
                return
            answer = session.answer(*request)
            answers.write(json.dumps(answer, allow_nan=False).encode() + b"\n")
            answers.flush()


def _map(size: int) -> Memory:
    return np.frombuffer(mmap.mmap(MEMORY, size), np.float32, size // 4)


class _Requests(Thread):
    """Reads on while a task runs, so that a cancel reaches it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        # A request with the event that says that it is cancelled; None: the end.
        self.queue: queue.Queue[Optional[Tuple[Dict[str, Any], Event]]] = queue.Queue()
        self._last: Tuple[object, Event] = (None, Event())

    def run(self) -> None:
        try:
            with os.fdopen(REQUESTS, "rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if message["op"] == "stop":
                        break
                    self._take(message)
        finally:
            self._last[1].set()
            self.queue.put(None)

    def _take(self, message: Dict[str, Any]) -> None:
        if message["op"] != "cancel":
            self._last = (message["id"], Event())
            self.queue.put((message, self._last[1]))
        elif message["id"] == self._last[0]:
            self._last[1].set()


_USAGE = """\
A trainer of Starling. It is started by the program that gives it tasks:

  on a device      [trainer] command = ["python3", "{program}"] in edge.toml
  in a simulation  starling-coordinator simulate job.toml --trainer 'python3 {program}'

The job says [model] kind = "external" and initial = "initial.safetensors", which --initial writes.
"""

_CHECK_TRAIN = {"local-epochs": 1, "local-steps": 0, "batch-size": 32, "optimizer": "sgd",
                "learning-rate": 0.1, "momentum": 0.9, "weight-decay": 0.0, "beta1": 0.9,
                "beta2": 0.999, "epsilon": 1e-8, "clip-norm": 0.0}


def _run_by_hand(trainer: Trainer, arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=trainer.name, formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_USAGE.format(program=trainer.name))
    parser.add_argument("--initial", metavar="FILE", help="write the initial model as safetensors")
    parser.add_argument("--check", action="store_true",
                        help="try the trainer: one fit and, where it has one, one evaluate")
    parser.add_argument("--seed", type=int, default=1, help="of both (default 1)")
    parser.add_argument("--client", default="client-1",
                        help="check: whose rows to use (default client-1)")
    parser.add_argument("--settings", type=_json_object, default={}, metavar="JSON",
                        help="the job's [trainer] table, as in '{\"clients\": 10}'")
    options = parser.parse_args(arguments)
    if options.initial is None and not options.check:
        parser.print_help()
        return 0
    task = Task(client=options.client, round=1, rounds=1, seed=options.seed, train=_CHECK_TRAIN,
                settings=options.settings)
    if options.initial is not None:
        model = trainer.initialize(task)
        try:
            Layout(model, trainer.buffers, trainer.private_tensors)
            save(options.initial, model, trainer.buffers)
        except (OSError, TypeError, ValueError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        values = sum(np.asarray(array).size for array in model.values())
        print(f"{options.initial}: {_counted(len(model), 'tensor')}, {_counted(values, 'value')}")
    if not options.check:
        return 0
    with TemporaryDirectory() as directory:
        return _check(trainer, task, directory)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _json_object(text: str) -> Dict[str, Any]:
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a JSON object; write it as '{{\"clients\": 10}}'")
    return settings


def _check(trainer: Trainer, task: Task, directory: str) -> int:
    """The requests of a first round, as the programs make them."""
    memory = np.empty(0, np.float32)
    session = Session(trainer, lambda size: memory)
    asked = {"task": {"client": task.client, "round": 1, "rounds": 1, "seed": task.seed,
                      "train": task.train, "settings": task.settings}}

    def ask(operation: str, **request: Any) -> Optional[Dict[str, Any]]:
        answer = session.answer({"id": 0, "op": operation, **request}, Event())
        if "error" in answer:
            print(f"{operation}: {answer['error']['message']}")
            return None
        result: Dict[str, Any] = answer["ok"]
        shown = ", ".join(f"{key} {value}" for key, value in result.items() if key != "tensors")
        print(f"{operation}: {shown or 'done'}")
        return result

    told = ask("describe", protocol=PROTOCOL, client=task.client, directory=directory,
               settings=task.settings)
    if told is None:
        return 1
    for tensor in told["tensors"]:
        rule = f", {tensor['rule']}" if "rule" in tensor else ""
        print(f"  {tensor['name']}: {tensor['dtype']} {tensor['shape']}, {tensor['role']}{rule}")
    size = 4 * sum(int(np.prod(tensor["shape"])) for tensor in told["tensors"]
                   if tensor["role"] != "private")
    memory = np.zeros(size // 2, np.float32)
    first, second = {"offset": 0, "bytes": size}, {"offset": size, "bytes": size}
    places = {"memory": 2 * size, "parameters": first, "result": second}
    # `initialize` fills the first place; `evaluate` is of the model that `fit` has trained.
    differing: Dict[str, Dict[str, Any]] = {
        "initialize": {"result": first}, "evaluate": {"parameters": second},
        "gradient": {"step": 0}}
    for operation in told["operations"]:
        if ask(operation, **{**asked, **places, **differing.get(operation, {})}) is None:
            return 1
    return 0
