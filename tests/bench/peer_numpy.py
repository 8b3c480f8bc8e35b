# SPDX-License-Identifier: Apache-2.0
"""D-PSGD written by hand in NumPy, all nodes in one batched product: what a careful researcher would
write, for the same run on the same machine. Softmax regression on Fashion-MNIST, batch 32.

usage: peer_numpy.py NODES GRAPH STEPS [RATE]     GRAPH: ring or exponential
prints node-steps/s and the accuracy of the mean model after STEPS steps.
"""
import gzip
import sys
import time

import numpy as np

HOME = "/usr/share/datasets/fashion-mnist/"
BATCH = 32


def load(part):
    with gzip.open(f"{HOME}{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(f"{HOME}{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return images.astype(np.float32) / 255, labels


def offsets(graph, nodes):
    if graph == "ring":
        return [1, -1]
    return [2**k for k in range(int(np.ceil(np.log2(nodes))))]


def main(nodes, graph, steps, rate):
    random = np.random.default_rng(1)
    images, labels = load("train")
    rows = random.permutation(len(images))[: len(images) // nodes * nodes].reshape(nodes, -1)
    images, targets = images[rows], np.eye(10, dtype=np.float32)[labels[rows]]
    weight = np.zeros((nodes, 784, 10), np.float32)
    bias = np.zeros((nodes, 1, 10), np.float32)
    every = np.arange(nodes)[:, None]
    hops = offsets(graph, nodes)
    began = time.perf_counter()
    for _ in range(steps):
        chosen = random.integers(0, rows.shape[1], (nodes, BATCH))
        x = images[every, chosen]
        error = x @ weight + bias
        error -= error.max(2, keepdims=True)
        np.exp(error, out=error)
        error /= error.sum(2, keepdims=True)
        error -= targets[every, chosen]
        error *= np.float32(rate / BATCH)
        weight -= x.transpose(0, 2, 1) @ error
        bias -= error.sum(1, keepdims=True)
        mixed, mixed_bias = weight.copy(), bias.copy()
        for hop in hops:
            hop %= nodes
            mixed[hop:] += weight[: nodes - hop]
            mixed[:hop] += weight[nodes - hop :]
            mixed_bias += np.roll(bias, hop, 0)
        weight = mixed * np.float32(1 / (len(hops) + 1))
        bias = mixed_bias * np.float32(1 / (len(hops) + 1))
    seconds = time.perf_counter() - began
    images, labels = load("t10k")
    scores = images @ weight.mean(0) + bias.mean(0)
    accuracy = (scores.argmax(1) == labels).mean()
    print(f"{nodes * steps / seconds:.0f} node-steps/s, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) if len(sys.argv) > 4 else 0.1)
