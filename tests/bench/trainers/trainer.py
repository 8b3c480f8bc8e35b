# SPDX-License-Identifier: Apache-2.0
"""The same training as a trainer."""

import numpy as np
import starling
import torch
from two_nn import model, train


class TwoNN(starling.Trainer):
    def __init__(self):
        self.net = model()

    def initialize(self, task):
        return {name: tensor.numpy().copy() for name, tensor in model().state_dict().items()}

    def fit(self, parameters, task):
        self.net.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in parameters.items()})
        client = int(task.client.split("-")[1]) - 1
        loss, rows = train(self.net, client, task.seed % 2**31)
        trained = {name: tensor.numpy() for name, tensor in self.net.state_dict().items()}
        return starling.Fit(trained, rows, {"loss": loss})


starling.serve(TwoNN())
