# SPDX-License-Identifier: Apache-2.0
"""The same training as a trainer."""

import numpy as np
import starling
import torch
from networks import model, train


class FashionTrainer(starling.Trainer):
    def initialize(self, task):
        self.net = model(task.settings.get("model", "2nn"))
        return {name: tensor.numpy().copy() for name, tensor in self.net.state_dict().items()}

    def fit(self, parameters, task):
        self.net.load_state_dict(
            {name: torch.from_numpy(np.array(array)) for name, array in parameters.items()})
        client = int(task.client.split("-")[1]) - 1
        loss, rows = train(self.net, client, task.seed % 2**31)
        trained = {name: tensor.numpy() for name, tensor in self.net.state_dict().items()}
        return starling.Fit(trained, rows, {"loss": loss})


starling.serve(FashionTrainer())
