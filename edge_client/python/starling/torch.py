# SPDX-License-Identifier: Apache-2.0
"""A trainer for PyTorch: a model, a loss, and a function from task to data loader are enough."""

from __future__ import annotations

import hashlib
import json
import random
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import (Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence,
                    Tuple, Union)
from urllib.parse import quote

import numpy as np
import torch
from torch import nn
from torch.nn.utils.clip_grad import clip_grad_norm_

from starling.layout import Tensors
from starling.safetensors import load, save
from starling.trainer import Fit, Gradient, Metrics, Task, TaskError, Trainer

Batches = Iterable[Tuple[Any, Any]]


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The part of the rows whose largest output is the target's class."""
    return float((outputs.argmax(1) == targets).float().mean())


def to_state_dict(tensors: Tensors) -> Dict[str, torch.Tensor]:
    """For load_state_dict; shares memory with the arrays."""
    return {name: torch.from_numpy(array) for name, array in tensors.items()}


def from_state_dict(state: Mapping[str, Any]) -> Tensors:
    """What of a state_dict is tensors, as arrays; those on the CPU share memory with them."""
    return {name: _array(value) for name, value in state.items() if isinstance(value, torch.Tensor)}


class TorchTrainer(Trainer):
    """Federates a PyTorch model.

    model: an nn.Module, or a function from the job's [trainer] settings to one, so that the
        initial weights follow from the run's seed. Parameters with requires_grad are trained; all
        else in its state_dict is a buffer, and is averaged; of integers and truth values, as
        num_batches_tracked is, the largest of the clients' is taken, which is one that a client
        has and never falls.
    loss: from outputs and targets to the mean loss of a batch.
    loader_of: from task to batches (inputs, targets) of the rows of task.client, as a DataLoader
        that shuffles: torch, numpy and random are seeded for each task.
    optimizer: from (parameters, task) to an optimizer; by default that of the job's [train].
    evaluate_loader_of: as loader_of, of the held-out rows; without it nothing is evaluated.
    metric: from outputs and targets to the accuracy of a batch, 0 to 1; None for models that have
        none.
    metrics: numbers of your own of an evaluation, as {"mae": function}: each function takes the
        outputs and targets of a batch and returns their mean.
    device: by default a GPU where there is one.
    private: a prefix of names, as "head.", or several: these tensors stay in the trainer's
        directory, and no run sees them. There is one file per client and set of names and shapes:
        a run begins with the private tensors that the last run of the same shapes has left.
    """

    def __init__(self, model: Union[nn.Module, Callable[[Mapping[str, Any]], nn.Module]],
                 loss: Callable[[Any, Any], torch.Tensor],
                 loader_of: Callable[[Task], Batches], *,
                 optimizer: Optional[Callable[[List[nn.Parameter], Task],
                                               torch.optim.Optimizer]] = None,
                 evaluate_loader_of: Optional[Callable[[Task], Batches]] = None,
                 metric: Optional[Callable[[Any, Any], float]] = accuracy,
                 metrics: Optional[Mapping[str, Callable[[Any, Any], float]]] = None,
                 device: Union[None, str, torch.device] = None,
                 private: Union[str, Sequence[str]] = ()) -> None:
        self._given = model
        self._loss = loss
        self._loader_of = loader_of
        self._optimizer = optimizer or _job_optimizer
        self._evaluate_loader_of = evaluate_loader_of
        self._metric = metric
        self._metrics = dict(metrics or {})
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._private = (private,) if isinstance(private, str) else tuple(private)
        self._settings: Optional[Mapping[str, Any]] = None  # those that _model was made for
        self._model = nn.Module()
        self._initial: Dict[str, Any] = {}  # of a module that was given as it is
        if isinstance(model, nn.Module):
            self._model = model.to(self._device)
            self._initial = deepcopy(self._model.state_dict())
        self._order: Optional[_Order] = None

    def operations(self) -> List[str]:
        lacking = {"evaluate": self._evaluate_loader_of is None,
                   "gradient": bool(self._private)}  # which nobody would apply to private tensors
        return [each for each in super().operations() if not lacking.get(each)]

    def initialize(self, task: Task) -> Tensors:
        self._make(task)
        tensors = self._shared()
        self.private_tensors = self._private_state()
        self.buffers = {name: "mean" if tensor.is_floating_point() else "maximum"
                        for name, tensor in self._state().items() if name in tensors and not (
                            isinstance(tensor, nn.Parameter) and tensor.requires_grad)}
        return tensors

    def fit(self, parameters: Tensors, task: Task) -> Fit:
        loader = self._begin(parameters, task, self._loader_of, training=True)
        own = {name: value.copy() for name, value in self._private_state().items()}
        model = self._model.train()
        optimizer = self._optimizer(self._trained(), task)
        epochs, steps_max = task.train.get("local-epochs", 1), task.train.get("local-steps", 0)
        clip_norm = task.train.get("clip-norm", 0)
        loss_sum, rows_sum, steps, epoch_rows = 0.0, 0, 0, 0
        for epoch in count():
            if steps >= steps_max if steps_max else epoch >= epochs:
                break
            before = rows_sum
            for inputs, targets in loader:
                task.check_stopped()
                optimizer.zero_grad()
                loss, rows = self._loss_of(inputs, targets)
                torch.autograd.backward(loss)
                if clip_norm > 0:
                    clip_grad_norm_(self._trained(), clip_norm)
                optimizer.step()
                loss_sum += float(loss.detach()) * rows
                rows_sum += rows
                steps += 1
                if steps == steps_max:
                    break
            epoch_rows = max(epoch_rows, rows_sum - before)
            if rows_sum == before:
                raise ValueError(f"the loader of {task.client} gives no batch")
        model.eval()
        self._keep_private(task, own)
        return Fit(self._shared(), _rows_of(loader) or epoch_rows,
                   {"loss": loss_sum / rows_sum, "steps": steps})

    def evaluate(self, parameters: Tensors, task: Task) -> Metrics:
        assert self._evaluate_loader_of is not None
        if task.client == "coordinator" and self._private:
            raise TaskError("the private tensors stay with the clients, and without them the "
                            "coordinator cannot evaluate; let clients do it, "
                            "evaluate.federated-every", "private-tensors")
        loader = self._begin(parameters, task, self._evaluate_loader_of)
        self._model.eval()
        loss_sum, right, rows_sum = 0.0, 0.0, 0
        sums = dict.fromkeys(self._metrics, 0.0)
        with torch.no_grad():
            for inputs, targets in loader:
                task.check_stopped()
                targets = self._moved(targets)
                outputs, rows = self._model(self._moved(inputs)), len(targets)
                loss_sum += float(self._loss(outputs, targets)) * rows
                if self._metric is not None:
                    right += float(self._metric(outputs, targets)) * rows
                for name, metric in self._metrics.items():
                    sums[name] += float(metric(outputs, targets)) * rows
                rows_sum += rows
        if rows_sum == 0:
            raise ValueError(f"the evaluation loader of {task.client} gives no batch")
        return Metrics(loss_sum / rows_sum, None if self._metric is None else right / rows_sum,
                       rows_sum, {name: value / rows_sum for name, value in sums.items()})

    def gradient(self, parameters: Tensors, task: Task, step: Optional[int]) -> Gradient:
        if step is None:
            batches: Iterable[Tuple[Any, Any]] = self._begin(parameters, task, self._loader_of)
        else:
            # The order is kept from one step to the next: a loader begins at its first batch.
            key = (task.client, task.round, task.seed)
            if self._order is None or self._order.key != key or self._order.next > step:
                _seed(task.seed)
                self._order = _Order(key, self._loader_of(task))
            batches = [self._order.batch(step)]
            self._begin(parameters, task)
            _seed(task.seed + step)
        self._model.train()
        self._model.zero_grad()
        loss_sum, rows_sum = 0.0, 0
        for inputs, targets in batches:
            task.check_stopped()
            loss, rows = self._loss_of(inputs, targets)
            torch.autograd.backward(loss.mul(rows))
            loss_sum += float(loss.detach()) * rows
            rows_sum += rows
        if rows_sum == 0:
            raise ValueError(f"the loader of {task.client} gives no batch")
        gradient: Tensors = {}
        for name, tensor in self._state().items():
            if self._stays(name):
                continue
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                given = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
                gradient[name] = _array(given.div(rows_sum))
            else:
                gradient[name] = _array(tensor)
        return Gradient(gradient, loss_sum / rows_sum, rows_sum)

    def rows(self, task: Task) -> Tuple[int, int]:
        held_out = self._evaluate_loader_of(task) if self._evaluate_loader_of else None
        return _rows_of(self._loader_of(task)), _rows_of(held_out)

    def _make(self, task: Task) -> None:
        """The initial model of a task's seed and settings, with the client's private tensors."""
        _seed(task.seed)
        if isinstance(self._given, nn.Module):
            self._model.load_state_dict(self._initial)
        else:
            self._model = self._given(task.settings).to(self._device)
        for prefix in self._private:
            if not any(name.startswith(prefix) for name in self._state()):
                raise ValueError(f'private names "{prefix}", with which the name of no tensor of '
                                 f"the model begins; the tensors are {', '.join(self._state())}")
        self._settings = task.settings

    def _begin(self, parameters: Tensors, task: Task,
               loader_of: Optional[Callable[[Task], Batches]] = None,
               training: bool = False) -> Batches:
        """Takes the task's model and returns its loader."""
        if self._private or self._settings != task.settings:
            self._make(task)
        own = self._kept_private(task, training)
        values = {**self._model.state_dict(), **to_state_dict({**parameters, **own})}
        self._model.load_state_dict(values)
        _seed(task.seed)
        return loader_of(task) if loader_of else ()

    def _state(self) -> Dict[str, torch.Tensor]:
        """What of the model's state is tensors; the parameters themselves."""
        return {name: value for name, value in self._model.state_dict(keep_vars=True).items()
                if isinstance(value, torch.Tensor)}

    def _shared(self) -> Tensors:
        return from_state_dict({name: tensor for name, tensor in self._state().items()
                                if not self._stays(name)})

    def _trained(self) -> List[nn.Parameter]:
        return [each for each in self._model.parameters() if each.requires_grad]

    def _stays(self, name: str) -> bool:
        return name.startswith(self._private) if self._private else False

    def _private_file(self, task: Task) -> Path:
        shapes = [(name, list(tensor.shape)) for name, tensor in sorted(self._state().items())
                  if self._stays(name)]
        digest = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]
        return task.directory / f"private-{quote(task.client, safe='')}-{digest}.safetensors"

    def _private_state(self) -> Tensors:
        return from_state_dict({name: tensor for name, tensor in self._state().items()
                                if self._stays(name)})

    def _keep_private(self, task: Task, before: Tensors) -> None:
        """Also as it was before the task: one that is asked for again begins from that again."""
        if self._private:
            kept = {f"after.{name}": value for name, value in self._private_state().items()}
            kept.update({f"before-{task.seed}.{name}": value for name, value in before.items()})
            save(self._private_file(task), kept)

    def _kept_private(self, task: Task, training: bool) -> Tensors:
        if not self._private or not self._private_file(task).exists():
            return {}
        kept = load(self._private_file(task))
        again = f"before-{task.seed}."
        is_again = training and any(name.startswith(again) for name in kept)
        prefix = again if is_again else "after."
        return {name[len(prefix):]: value for name, value in kept.items()
                if name.startswith(prefix)}

    def _loss_of(self, inputs: Any, targets: Any) -> Tuple[torch.Tensor, int]:
        targets = self._moved(targets)
        return self._loss(self._model(self._moved(inputs)), targets), len(targets)

    def _moved(self, batch: Any) -> Any:
        if isinstance(batch, torch.Tensor):
            return batch.to(self._device, non_blocking=True)
        if isinstance(batch, Mapping):
            return {key: self._moved(value) for key, value in batch.items()}
        return [self._moved(each) for each in batch] if isinstance(batch, (tuple, list)) else batch


class _Order:
    """The batches of a task, one a step; batch k follows from seed and k, whatever came between."""

    def __init__(self, key: Tuple[str, int, int], loader: Batches) -> None:
        self.key = key
        self.next = 0
        self._loader = loader
        self._pass: Optional[Iterator[Tuple[Any, Any]]] = None

    def batch(self, step: int) -> Tuple[Any, Any]:
        while True:
            if self.next > 0:
                _seed(self.key[2] + self.next)
            found = next(self._pass, None) if self._pass is not None else None
            if found is None:
                self._pass = iter(self._loader)
                found = next(self._pass, None)
                if found is None:
                    raise ValueError(f"the loader of {self.key[0]} gives no batch")
            self.next += 1
            if self.next > step:
                return found


def _job_optimizer(parameters: List[nn.Parameter], task: Task) -> torch.optim.Optimizer:
    train = task.train
    name = train.get("optimizer", "sgd")
    common: Dict[str, Any] = {"lr": task.learning_rate,
                              "weight_decay": train.get("weight-decay", 0)}
    if name == "sgd":
        return torch.optim.SGD(parameters, **common)
    if name in ("momentum", "nesterov"):
        return torch.optim.SGD(parameters, momentum=train.get("momentum", 0.9),
                               nesterov=name == "nesterov", **common)
    if name in ("adam", "adamw"):
        make = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        return make(parameters, betas=(train.get("beta1", 0.9), train.get("beta2", 0.999)),
                    eps=train.get("epsilon", 1e-8), **common)
    raise ValueError(f'train.optimizer = "{name}" is unknown here; give TorchTrainer an optimizer')


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # which NumPy lacks
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.cpu().numpy()
    return array


def _rows_of(loader: Optional[Batches]) -> int:
    """All rows behind a DataLoader or of a list of batches; 0: not known."""
    if isinstance(loader, (list, tuple)):
        return sum(len(targets) for _, targets in loader)
    try:
        return len(getattr(loader, "sampler"))
    except (AttributeError, TypeError):
        return 0
