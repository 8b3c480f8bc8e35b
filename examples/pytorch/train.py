# SPDX-License-Identifier: Apache-2.0
"""The 2NN of the FedAvg paper in PyTorch, on Fashion-MNIST."""

import starling
from fashion_mnist import loader_of
from starling.torch import TorchTrainer
from torch import nn


def model(settings):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200),
                         nn.ReLU(), nn.Linear(200, 10))


if __name__ == "__main__":
    starling.serve(TorchTrainer(model, nn.CrossEntropyLoss(), lambda task: loader_of(task, "train"),
                                evaluate_loader_of=lambda task: loader_of(task, "t10k")))
