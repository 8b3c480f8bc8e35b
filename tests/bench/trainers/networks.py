# SPDX-License-Identifier: Apache-2.0
"""The 2NN and the CNN of the FedAvg paper in PyTorch, and one client's training on Fashion-MNIST:
what all sides of trainers.sh and trainer_overhead.sh run."""

import functools
import gzip

import numpy as np
import torch
from torch import nn

DIRECTORY = "/usr/share/datasets/fashion-mnist/train"
CLIENTS = 100


@functools.lru_cache(maxsize=None)
def rows():
    with gzip.open(f"{DIRECTORY}-images-idx3-ubyte.gz") as images:
        pixels = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{DIRECTORY}-labels-idx1-ubyte.gz") as labels:
        classes = np.frombuffer(labels.read(), np.uint8, offset=8).astype(np.int64)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(classes)


def model(name="2nn"):
    torch.manual_seed(0)
    if name == "2nn":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(),
                             nn.Linear(200, 10))
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)),
                         nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))


def train(net, client, seed, rate=0.1, batch=10):
    """One epoch over the rows of client 0, 1, ...: the mean loss and the number of rows."""
    inputs, targets = (part[client::CLIENTS] for part in rows())
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    loss_of, loss_sum = nn.CrossEntropyLoss(), 0.0
    order = torch.randperm(len(inputs))
    for begin in range(0, len(inputs), batch):
        chosen = order[begin:begin + batch]
        optimizer.zero_grad()
        loss = loss_of(net(inputs[chosen]), targets[chosen])
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(chosen)
    return loss_sum / len(inputs), len(inputs)
