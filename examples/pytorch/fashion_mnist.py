# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as Debian installs it, divided among clients."""

import functools
import gzip

import numpy as np
import starling
import torch
from torch.utils.data import DataLoader, TensorDataset

DIRECTORY = "/usr/share/datasets/fashion-mnist/"


@functools.lru_cache(maxsize=None)
def images(split):
    with gzip.open(f"{DIRECTORY}{split}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
    with gzip.open(f"{DIRECTORY}{split}-labels-idx1-ubyte.gz") as file:
        classes = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(classes)


def loader_of(task, split):
    """client-K of the job's trainer.clients holds every clients-th row, from the K-th on.

    The coordinator, where it evaluates, has all of them.
    """
    number, clients = 1, 1
    if task.client != "coordinator":
        number, clients = int(task.client.rsplit("-", 1)[1]), task.settings.get("clients", 10)
        if not 1 <= number <= clients:
            raise starling.TaskError(f"{task.client} has no rows: the job's trainer.clients is "
                                     f"{clients}; raise it to the number of clients", "no-data")
    rows = TensorDataset(*(each[number - 1::clients] for each in images(split)))
    return DataLoader(rows, task.batch_size, shuffle=split == "train")
