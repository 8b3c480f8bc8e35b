# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the same work as Starling's benchmarks, for the same run on the same machine.

usage: peer_torch.py train KIND BATCH       samples/s of plain SGD (KIND: softmax, 2nn, cnn), one thread
       peer_torch.py fedavg ROUNDS          seconds a round: 100 clients, 10 a round, E=1, B=10, 2NN
Data are random images of MNIST's size: only the speed is looked at.
"""
import sys
import time
from collections import OrderedDict

import torch
from torch import nn


def make(kind):
    if kind == "softmax":
        return nn.Sequential(OrderedDict(fc1=nn.Linear(784, 10)))
    if kind == "2nn":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(),
                             nn.Linear(200, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))


def images(kind, rows):
    x = torch.rand(rows, 1, 28, 28) if kind == "cnn" else torch.rand(rows, 784)
    if kind == "cnn":
        x = x.to(memory_format=torch.channels_last)
    return x, torch.randint(0, 10, (rows,))


def step(net, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()


def train(kind, batch):
    torch.set_num_threads(1)
    rows = 2560 if kind == "cnn" else 12800
    x, y = images(kind, rows)
    net = make(kind)
    if kind == "cnn":
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    best = 0.0
    for window in range(4):  # the first one warms up
        start, seen = time.perf_counter(), 0
        while time.perf_counter() - start < 1.0:
            order = torch.randperm(rows)
            for i in range(0, rows - batch + 1, batch):
                step(net, optimizer, x[order[i:i + batch]], y[order[i:i + batch]])
                seen += batch
                if time.perf_counter() - start >= 1.0:
                    break
        if window:
            best = max(best, seen / (time.perf_counter() - start))
    print(f"{best:.0f}")


def fedavg(rounds):
    torch.set_num_threads(1)
    x, y = images("2nn", 60000)
    parts = torch.randperm(60000).split(600)
    net = make("2nn")
    state = [p.detach().clone() for p in net.parameters()]
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        total = [torch.zeros_like(p) for p in state]
        for client in torch.randperm(100)[:10]:
            with torch.no_grad():
                for p, s in zip(net.parameters(), state):
                    p.copy_(s)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            order = parts[client][torch.randperm(600)]
            for i in range(0, 600, 10):
                step(net, optimizer, x[order[i:i + 10]], y[order[i:i + 10]])
            for t, p in zip(total, net.parameters()):
                t.add_(p.detach(), alpha=0.1)
        state = total
        seconds.append(time.perf_counter() - start)
    print(f"{sorted(seconds)[len(seconds) // 2]:.4f}")


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train(sys.argv[2], int(sys.argv[3]))
    else:
        fedavg(int(sys.argv[2]))
