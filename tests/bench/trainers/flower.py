# SPDX-License-Identifier: Apache-2.0
"""The same training under Flower's simulation engine: median seconds of a round after the first."""

import statistics
import sys
import time

import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from networks import CLIENTS, model, train

ROUNDS, WORKERS = int(sys.argv[1]), int(sys.argv[2])
begun = []


class Client(NumPyClient):
    def __init__(self, number):
        self.number = number

    def fit(self, parameters, config):
        torch.set_num_threads(1)
        net = model()
        net.load_state_dict(
            {name: torch.from_numpy(array) for name, array in zip(net.state_dict(), parameters)})
        loss, rows = train(net, self.number, config["round"] * 1000 + self.number)
        return [tensor.numpy() for tensor in net.state_dict().values()], rows, {"loss": loss}


def client_of(context):
    return Client(int(context.node_config["partition-id"])).to_client()


def configure(number):
    begun.append(time.perf_counter())
    return {"round": number}


def components(context):
    initial = [tensor.numpy() for tensor in model().state_dict().values()]
    strategy = FedAvg(fraction_fit=10 / CLIENTS, fraction_evaluate=0.0, min_fit_clients=10,
                      min_available_clients=CLIENTS, on_fit_config_fn=configure,
                      initial_parameters=ndarrays_to_parameters(initial))
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))


run_simulation(server_app=ServerApp(server_fn=components), client_app=ClientApp(client_fn=client_of),
               num_supernodes=CLIENTS,
               backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                               "init_args": {"num_cpus": WORKERS}})
rounds = [after - before for before, after in zip(begun[1:], begun[2:])]
print(f"median {statistics.median(rounds):.4f}")
