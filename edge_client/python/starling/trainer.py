# SPDX-License-Identifier: Apache-2.0
"""What a trainer is given and gives back."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple

import numpy as np

from starling.layout import Array, Tensors


class TaskError(Exception):
    """Raised in a trainer to fail a task with a code of your own, such as "no-data"."""

    def __init__(self, message: str, code: str = "trainer-failed") -> None:
        super().__init__(message)
        if not re.fullmatch("[a-z0-9-]{1,40}", code):
            raise ValueError(f'"{code}" is no code: a-z, 0-9 and -, at most 40 letters')
        self.code = code


@dataclass(frozen=True)
class Task:
    """What is asked, of whom, and with which settings."""

    client: str = ""  # whose rows to use; one process serves all clients of a simulation
    round: int = 0
    rounds: int = 0
    seed: int = 0  # differs by run, client and round
    train: Mapping[str, Any] = field(default_factory=dict)  # the job's [train]
    settings: Mapping[str, Any] = field(default_factory=dict)  # the job's [trainer]
    directory: Path = Path(".")  # the trainer's own; stays between starts
    _stop: Event = field(default_factory=Event, repr=False, compare=False)

    @property
    def stopped(self) -> bool:
        """Whether the answer is not needed any more. Look at it between batches."""
        return self._stop.is_set()

    @property
    def learning_rate(self) -> float:
        """That of this round, by the job's schedule."""
        return float(self.train.get("learning-rate", 0.1))

    @property
    def batch_size(self) -> int:
        return int(self.train.get("batch-size", 32))

    def rng(self) -> np.random.Generator:
        """Random numbers that follow from the task's seed alone; each call begins again."""
        return np.random.default_rng(self.seed)

    def check_stopped(self) -> None:
        """Ends the task where it is stopped."""
        if self.stopped:
            raise TaskError("the task was cancelled", "stopped")


@dataclass
class Fit:
    """A trained model; `weight` is what it counts as, the rows as a rule.

    `metrics` has the mean "loss" over the rows, and may have "steps", the optimizer's steps, and
    numbers of your own, as {"loss": 0.4, "accuracy": 0.8}: at most 32, with names of 1 to 64 of
    a-z, A-Z, 0-9 and ._-/@%. The history has their means as "train_metrics".
    """

    parameters: Mapping[str, Array]
    weight: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Metrics:
    """Means over the held-out rows, of which there are `rows` (needed, and above 0).

    `accuracy`, from 0 to 1, is of models that have one. `metrics` has numbers of your own, as
    {"mae": 0.31}: at most 32, with names of 1 to 64 of a-z, A-Z, 0-9 and ._-/@%.
    """

    loss: float
    accuracy: Optional[float] = None
    rows: Optional[int] = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Gradient:
    """The mean gradient over `rows` rows, and their mean loss.

    For a buffer `gradient` may hold its value after these rows; else it stays as it is.
    """

    gradient: Mapping[str, Array]
    loss: float
    rows: int


class Trainer(ABC):
    """Base class of trainers: initialize and fit are needed, the rest is optional.

    `parameters` is a dict of name to array, of the types and shapes that initialize returned. It
    may be changed in place and returned, and is valid until the method returns.
    """

    # Names of tensors that no optimizer changes and that are averaged, as running means are; or a
    # dict of name to rule, "mean", "maximum" or "last" (that of the last client in order of name):
    # {"count": "maximum"}. May be set in initialize.
    buffers: Collection[str] = ()
    # Tensors that stay with the client and never travel: keep them in task.directory, which stays
    # between starts. Of these arrays only names, shapes and types are told, to the device's owner.
    # May be set in initialize.
    private_tensors: Mapping[str, Array] = {}

    @property
    def name(self) -> str:
        """For people: in the log and in messages."""
        return Path(sys.argv[0]).name or type(self).__name__

    @abstractmethod
    def initialize(self, task: Task) -> Tensors:
        """The initial model, from task.seed and task.settings."""

    @abstractmethod
    def fit(self, parameters: Tensors, task: Task) -> Fit:
        """Trains on the rows of task.client, beginning with `parameters`."""

    def evaluate(self, parameters: Tensors, task: Task) -> Metrics:
        """Of `parameters` on the held-out rows of task.client."""
        raise NotImplementedError

    def gradient(self, parameters: Tensors, task: Task, step: Optional[int]) -> Gradient:
        """At `parameters` over the rows of step `step`, or over all rows where it is None."""
        raise NotImplementedError

    def rows(self, task: Task) -> Tuple[int, int]:
        """How many rows task.client trains on, and how many are held out; 0: not said."""
        return 0, 0

    def operations(self) -> List[str]:
        """What this trainer can do: the methods that a subclass has overridden."""
        optional = [name for name in ("evaluate", "gradient")
                    if getattr(type(self), name) is not getattr(Trainer, name)]
        return ["initialize", "fit", *optional]


def task_of(message: Mapping[str, Any], directory: Path, stop: Event) -> Task:
    """From the "task" of a request."""
    known: Dict[str, Any] = {key: message[key] for key in (
        "client", "round", "rounds", "seed", "train", "settings") if key in message}
    return Task(**known, directory=directory, _stop=stop)
