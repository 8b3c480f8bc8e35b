# SPDX-License-Identifier: Apache-2.0
"""A small ResNet with BatchNorm: its running means and counters are buffers, and are averaged."""

import starling
import torch
from fashion_mnist import loader_of
from starling.torch import TorchTrainer
from torch import nn


class Block(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Sequential):
    def __init__(self, width=16):
        super().__init__(Block(1, width, 2), Block(width, 2 * width, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


if __name__ == "__main__":
    starling.serve(TorchTrainer(lambda settings: ResNet(settings.get("width", 16)),
                                nn.CrossEntropyLoss(), lambda task: loader_of(task, "train"),
                                evaluate_loader_of=lambda task: loader_of(task, "t10k")))
