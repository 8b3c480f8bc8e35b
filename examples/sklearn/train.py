# SPDX-License-Identifier: Apache-2.0
"""Logistic regression of scikit-learn on a CSV file; its last column is the class."""

import csv
import functools
from pathlib import Path

import numpy as np
import starling
from sklearn.linear_model import SGDClassifier
from starling.sklearn import SklearnTrainer

FEATURES = 4
CLASSES = ["setosa", "versicolor", "virginica"]


@functools.lru_cache(maxsize=None)
def rows(file):
    with open(file, newline="") as lines:
        _, *body = csv.reader(lines)
    # In one fixed order, so that what is held out stays held out.
    body = np.array(body)[np.random.default_rng(0).permutation(len(body))]
    return body[:, :-1].astype(np.float64), body[:, -1]


def part(task, held_out):
    """A device has a file of its own; in a simulation client-K has a part of one.

    Every fifth row is held out.
    """
    here = Path(__file__).resolve().parent
    inputs, classes = rows(task.settings.get("file", here / "iris.csv"))
    if "clients" in task.settings and task.client != "coordinator":
        number, clients = int(task.client.rsplit("-", 1)[1]), task.settings["clients"]
        if not 1 <= number <= clients:
            raise starling.TaskError(f"{task.client} has no rows: the job's trainer.clients is "
                                     f"{clients}; raise it to the number of clients", "no-data")
        inputs, classes = inputs[number - 1::clients], classes[number - 1::clients]
    chosen = (np.arange(len(classes)) % 5 == 0) == held_out
    return inputs[chosen], classes[chosen]


if __name__ == "__main__":
    starling.serve(SklearnTrainer(
        SGDClassifier(loss="log_loss"), lambda task: part(task, held_out=False),
        evaluate_data_of=lambda task: part(task, held_out=True), features=FEATURES,
        classes=CLASSES))
