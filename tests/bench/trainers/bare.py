# SPDX-License-Identifier: Apache-2.0
"""Seconds of one training, with nothing around it."""

import time

import torch
from two_nn import model, train

torch.set_num_threads(1)
net = model()
train(net, 0, 0)  # reads the rows
begin = time.perf_counter()
for client in range(20):
    train(net, client, client)
print(f"{(time.perf_counter() - begin) / 20:.4f}")
