# SPDX-License-Identifier: Apache-2.0
"""starling.sklearn: learns, and gives what a trained classifier holds."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed (apt: python3-sklearn)")

from sklearn.linear_model import (  # noqa: E402
    LogisticRegression, Perceptron, SGDClassifier, SGDOneClassSVM, SGDRegressor)
from sklearn.naive_bayes import BernoulliNB, GaussianNB  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from starling.sklearn import SklearnTrainer  # noqa: E402
from starling.trainer import Task  # noqa: E402

RNG = np.random.default_rng(5)
CENTRES = {"cat": [3, 0], "dog": [0, 3], "eel": [-3, -3]}


def rows_of(classes, count=40):
    targets = np.repeat(classes, count)
    inputs = np.array([CENTRES[each] for each in targets]) + RNG.normal(size=(len(targets), 2))
    return inputs, targets


def task(client="a", **train):
    return Task(client=client, seed=2**40, train={
        "learning-rate": 0.05, "local-epochs": 3, "local-steps": 0, "batch-size": 16, **train})


@pytest.mark.parametrize("model", [SGDClassifier(loss="log_loss"), SGDClassifier(), Perceptron()])
@pytest.mark.parametrize("classes", [["cat", "dog"], ["cat", "dog", "eel"]])
@pytest.mark.parametrize("train", [{}, {"local-steps": 12}])
def test_averaged_clients_learn_all_classes(model, classes, train):
    parts = {client: rows_of([client]) for client in classes}  # a class each
    trainer = SklearnTrainer(model, lambda task: parts[task.client], features=2, classes=classes,
                             evaluate_data_of=lambda task: rows_of(classes))
    assert trainer.operations() == ["initialize", "fit", "evaluate"]
    assert trainer.rows(task("cat")) == (40, 40 * len(classes))
    parameters = trainer.initialize(task())
    for _ in range(5):
        fits = [trainer.fit({n: a.copy() for n, a in parameters.items()}, task(client, **train))
                for client in classes]
        assert all(fit.weight == 40 and fit.metrics["loss"] >= 0 for fit in fits)
        parameters = {name: np.mean([fit.parameters[name] for fit in fits], axis=0,
                                    dtype=np.float32) for name in parameters}
    metrics = trainer.evaluate(parameters, task())
    assert metrics.accuracy > 0.9
    assert metrics.rows == 40 * len(classes)


def test_the_same_seed_gives_the_same_model():
    data = rows_of(list(CENTRES))
    trainer = SklearnTrainer(SGDClassifier(loss="log_loss"), lambda task: data, features=2,
                             classes=list(CENTRES))
    one, other = (trainer.fit(trainer.initialize(task()), task()).parameters for _ in range(2))
    for name in one:
        assert np.array_equal(one[name], other[name])


NOT_LINEAR = "does not have coef_ and intercept_ as a linear classifier has"


@pytest.mark.parametrize("classes", [[0, 1], [0, 1, 2]])
@pytest.mark.parametrize("model, reason", [
    (LogisticRegression(), "has no partial_fit"),
    (MLPClassifier(), NOT_LINEAR),
    (GaussianNB(), NOT_LINEAR),
    (BernoulliNB(), NOT_LINEAR),
    (SGDRegressor(), "is no classifier"),
    (SGDOneClassSVM(), "is no classifier"),
    (SGDClassifier(average=True), "with average "),
    (SGDClassifier(average=10), "with average ")])
def test_models_that_cannot_be_averaged_are_refused(model, reason, classes):
    sentence = f"^{type(model).__name__} {reason}.*; take SGDClassifier"
    with pytest.raises(TypeError, match=sentence):
        SklearnTrainer(model, None, features=2, classes=classes)
