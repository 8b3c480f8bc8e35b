# SPDX-License-Identifier: Apache-2.0
"""The same training in one process, with nothing around it.

bare.py [2nn|cnn [ROUNDS]] prints the median seconds of a round of ten clients, without and with
the mean of their models.
"""

import statistics
import sys
import time

import torch
from networks import CLIENTS, model, train

name = sys.argv[1] if len(sys.argv) > 1 else "2nn"
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
torch.set_num_threads(1)
net = model(name)
average = {key: tensor.clone() for key, tensor in net.state_dict().items()}
fits, wholes = [], []
for number in range(rounds + 1):  # the first one reads the rows
    begin, averaging = time.perf_counter(), 0.0
    total, weights = {key: torch.zeros_like(tensor) for key, tensor in average.items()}, 0
    for client in range(10 * number, 10 * number + 10):
        net.load_state_dict(average)
        _, rows = train(net, client % CLIENTS, client)
        summed = time.perf_counter()
        for key, tensor in net.state_dict().items():
            total[key].add_(tensor, alpha=rows)
        weights += rows
        averaging += time.perf_counter() - summed
    average = {key: tensor / weights for key, tensor in total.items()}
    wholes.append(time.perf_counter() - begin)
    fits.append(wholes[-1] - averaging)
print(f"{statistics.median(fits[1:]):.4f} {statistics.median(wholes[1:]):.4f}")
