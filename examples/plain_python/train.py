# SPDX-License-Identifier: Apache-2.0
"""Logistic regression by hand, in NumPy, on Fashion-MNIST: a trainer without a framework."""

import functools
import gzip
import itertools

import numpy as np
import starling

DIRECTORY = "/usr/share/datasets/fashion-mnist/"


@functools.lru_cache(maxsize=None)
def fashion_mnist(split):
    """Pixels from 0 to 1, and classes."""
    with gzip.open(f"{DIRECTORY}{split}-images-idx3-ubyte.gz") as images:
        pixels = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{DIRECTORY}{split}-labels-idx1-ubyte.gz") as labels:
        return pixels.astype(np.float32) / 255, np.frombuffer(labels.read(), np.uint8, offset=8)


def rows_of(task, split):
    """client-K of the job's trainer.clients holds every clients-th row, from the K-th on.

    The coordinator, where it evaluates, has all of them.
    """
    number, clients = 1, 1
    if task.client != "coordinator":
        number, clients = int(task.client.rsplit("-", 1)[1]), task.settings.get("clients", 10)
        if not 1 <= number <= clients:
            raise starling.TaskError(f"{task.client} has no rows: the job's trainer.clients is "
                                     f"{clients}; raise it to the number of clients", "no-data")
    inputs, classes = fashion_mnist(split)
    return inputs[number - 1::clients], classes[number - 1::clients]


def losses_and_gradient(parameters, inputs, classes):
    """The loss of each row, and that of the mean with respect to the scores."""
    scores = inputs @ parameters["weight"].T + parameters["bias"]
    scores -= scores.max(axis=1, keepdims=True)
    log_chances = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    slope = np.exp(log_chances)
    rows = np.arange(len(classes))
    slope[rows, classes] -= 1
    return -log_chances[rows, classes], slope / len(classes)


def batches(task, rows):
    """The rows of each step: of train.local-steps where it is said, else of train.local-epochs."""
    rng, steps = task.rng(), task.train["local-steps"]
    epochs = itertools.count() if steps else range(task.train["local-epochs"])
    every = (order[begin:begin + task.batch_size]
             for order in (rng.permutation(rows) for _ in epochs)
             for begin in range(0, rows, task.batch_size))
    return itertools.islice(every, steps or None)


class LogisticRegression(starling.Trainer):
    def initialize(self, task):
        return {"weight": np.zeros((10, 784), np.float32), "bias": np.zeros(10, np.float32)}

    def fit(self, parameters, task):
        inputs, classes = rows_of(task, "train")
        losses = []
        for batch in batches(task, len(classes)):
            task.check_stopped()
            of_rows, slope = losses_and_gradient(parameters, inputs[batch], classes[batch])
            parameters["weight"] -= task.learning_rate * slope.T @ inputs[batch]
            parameters["bias"] -= task.learning_rate * slope.sum(axis=0)
            losses.append(of_rows)
        return starling.Fit(parameters, len(classes), {"loss": np.concatenate(losses).mean()})

    def evaluate(self, parameters, task):
        inputs, classes = rows_of(task, "t10k")
        losses, _ = losses_and_gradient(parameters, inputs, classes)
        right = (inputs @ parameters["weight"].T + parameters["bias"]).argmax(axis=1) == classes
        return starling.Metrics(losses.mean(), right.mean(), len(classes))


if __name__ == "__main__":
    starling.serve(LogisticRegression())
