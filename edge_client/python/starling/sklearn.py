# SPDX-License-Identifier: Apache-2.0
"""A trainer for scikit-learn's linear classifiers that learn by partial_fit."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.metrics import hinge_loss, log_loss

from starling.layout import Tensors
from starling.trainer import Fit, Metrics, Task, Trainer


class SklearnTrainer(Trainer):
    """Federates coef_ and intercept_ of a model such as SGDClassifier(loss="log_loss").

    model: the classifier, not trained. What the job's [train] says of learning-rate wins over its
        eta0 and learning_rate.
    data_of: from task to (X, y), the rows of task.client.
    features, classes: of every client's data, whichever classes it has itself.
    evaluate_data_of: as data_of, of the held-out rows; without it nothing is evaluated.
    """

    def __init__(self, model: Any, data_of: Callable[[Task], Tuple[Any, Any]], *, features: int,
                 classes: Sequence[Any],
                 evaluate_data_of: Optional[Callable[[Task], Tuple[Any, Any]]] = None) -> None:
        self._given = model
        self._data_of = data_of
        self._features = features
        self._classes = np.asarray(classes)
        self._evaluate_data_of = evaluate_data_of
        reason = self._why_not()
        if reason:
            raise TypeError(f"{type(model).__name__} {reason}; take "
                            'SGDClassifier(loss="log_loss"), which is logistic regression')

    def operations(self) -> List[str]:
        return [each for each in super().operations()
                if each != "evaluate" or self._evaluate_data_of]

    def initialize(self, task: Task) -> Tensors:
        coef, intercept = self._shapes()
        return {"coef_": np.zeros(coef, np.float32), "intercept_": np.zeros(intercept, np.float32)}

    def fit(self, parameters: Tensors, task: Task) -> Fit:
        inputs, targets = self._data_of(task)
        inputs, targets = np.asarray(inputs), np.asarray(targets)
        model = self._model_of(parameters, task)
        epochs, steps_max = task.train.get("local-epochs", 1), task.train.get("local-steps", 0)
        steps = 0
        if steps_max:  # a step is a batch; scikit-learn updates once a row within it
            for rows in _batches(len(targets), steps_max, task):
                task.check_stopped()
                model.partial_fit(inputs[rows], targets[rows])
            steps = steps_max
        else:
            for _ in range(epochs):
                task.check_stopped()
                model.partial_fit(inputs, targets)
            steps = epochs * len(targets)
        return Fit({"coef_": model.coef_, "intercept_": model.intercept_}, len(targets),
                   {"loss": self._loss(model, inputs, targets), "steps": steps})

    def evaluate(self, parameters: Tensors, task: Task) -> Metrics:
        assert self._evaluate_data_of is not None
        inputs, targets = self._evaluate_data_of(task)
        model = self._model_of(parameters, task)
        return Metrics(self._loss(model, inputs, targets), float(model.score(inputs, targets)),
                       len(targets))

    def rows(self, task: Task) -> Tuple[int, int]:
        held_out = len(self._evaluate_data_of(task)[1]) if self._evaluate_data_of else 0
        return len(self._data_of(task)[1]), held_out

    def _model_of(self, parameters: Tensors, task: Task) -> Any:
        model = clone(self._given)
        known = model.get_params()
        if "random_state" in known:
            model.set_params(random_state=task.seed % 2**32)
        if "eta0" in known and "learning_rate" in known:
            model.set_params(learning_rate="constant", eta0=task.learning_rate)
        self._make_tensors(model)
        model.coef_ = parameters["coef_"].astype(np.float64)
        model.intercept_ = parameters["intercept_"].astype(np.float64)
        model.t_ = 1.0
        return model

    def _make_tensors(self, model: Any) -> None:
        """By training on a row of zeros a class; their values are of no use."""
        model.partial_fit(np.zeros((len(self._classes), self._features)), self._classes,
                          classes=self._classes)

    def _shapes(self) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
        """Of coef_ and intercept_; two classes share a line."""
        lines = 1 if len(self._classes) == 2 else len(self._classes)
        return (lines, self._features), (lines,)

    def _why_not(self) -> str:
        """What of the given model cannot be federated; empty if nothing."""
        if not hasattr(self._given, "partial_fit"):
            return "has no partial_fit"
        if not is_classifier(self._given):
            return "is no classifier"
        if self._given.get_params().get("average"):
            return "with average keeps two sets of coefficients"
        model = clone(self._given)
        self._make_tensors(model)
        found = tuple(np.shape(getattr(model, name, 0)) for name in ("coef_", "intercept_"))
        is_linear = found == self._shapes()
        return "" if is_linear else "does not have coef_ and intercept_ as a linear classifier has"

    def _loss(self, model: Any, inputs: Any, targets: Any) -> float:
        if hasattr(model, "predict_proba"):
            return float(log_loss(targets, model.predict_proba(inputs), labels=self._classes))
        return float(hinge_loss(targets, model.decision_function(inputs), labels=self._classes))


def _batches(rows: int, steps: int, task: Task) -> Iterator[Any]:
    """`steps` batches of the job's size, from one shuffled pass after the other."""
    rng, size = task.rng(), min(task.batch_size, rows)
    order = rng.permutation(rows)
    for _ in range(steps):
        if len(order) < size:
            order = rng.permutation(rows)
        yield order[:size]
        order = order[size:]
