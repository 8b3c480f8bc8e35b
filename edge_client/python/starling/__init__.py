# SPDX-License-Identifier: Apache-2.0
"""Federated and decentralized training of your own model with Starling.

A trainer is a subclass of Trainer, served by serve(); starling.torch and starling.sklearn have
ready ones and are imported only when asked for. simulate() and the functions after it start the
installed programs.
"""

from starling.layout import Array, Tensors
from starling.programs import Error, Result, export, gossip, runs, show, simulate, submit, wait
from starling.safetensors import load, save
from starling.serving import serve
from starling.trainer import Fit, Gradient, Metrics, Task, TaskError, Trainer

__all__ = [
    "Array", "Error", "Fit", "Gradient", "Metrics", "Result", "Task", "TaskError", "Tensors",
    "Trainer", "export", "gossip", "load", "runs", "save", "serve", "show", "simulate", "submit",
    "wait",
]
__version__ = "0.1.0"
