# SPDX-License-Identifier: Apache-2.0
"""Plays the programs' side of core/client/TRAINER.md over real pipes and a memfd."""

import json
import os
import subprocess
import sys
from threading import Thread

import numpy as np

DEADLINE = 60  # seconds, for what hangs
TRAIN = {"learning-rate": 0.1, "local-epochs": 1, "local-steps": 0, "batch-size": 32,
         "optimizer": "sgd", "momentum": 0.9, "weight-decay": 0, "beta1": 0.9, "beta2": 0.999,
         "epsilon": 1e-8, "clip-norm": 0}


class Host:
    def __init__(self, program, directory, version="1"):
        self.directory = directory
        self.memory = os.memfd_create("model")
        self.size = 0
        asked, self.requests = os.pipe()
        self.answers, answered = os.pipe()
        given = {3: asked, 4: answered, 5: self.memory}

        # Above 5, so that no descriptor is overwritten before it is copied.
        high = {to: os.dup2(source, 100 + to) for to, source in given.items()}

        def in_child():
            for to, source in high.items():
                os.dup2(source, to)

        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, preexec_fn=in_child, pass_fds=(3, 4, 5),
            env={**os.environ, "STARLING_TRAINER": version}, cwd=directory)
        for each in (asked, answered, *high.values()):
            os.close(each)
        self._lines = os.fdopen(self.answers, "rb")
        self.printed = ""
        self._reader = Thread(target=self._read_output)
        self._reader.start()
        self._next = 0

    def _read_output(self):
        for line in self.process.stdout:
            self.printed += line

    def send(self, op, **members):
        self._next += 1
        self.write({"id": self._next, "op": op, **members})
        return self._next

    def write(self, message):
        os.write(self.requests, json.dumps(message).encode() + b"\n")

    def answer(self):
        line = self._lines.readline()
        assert line.endswith(b"\n"), f"the trainer died: {self.printed}"
        return json.loads(line)

    def ask(self, op, **members):
        number = self.send(op, **members)
        answer = self.answer()
        assert answer["id"] == number
        return answer

    def describe(self, settings=None, client="cam-1"):
        answer = self.ask("describe", protocol=1, client=client, directory=str(self.directory),
                          settings=settings or {})
        if "ok" in answer:
            self.tensors = answer["ok"]["tensors"]
            self.values = sum(int(np.prod(t["shape"])) for t in self.tensors
                              if t["role"] != "private")
        return answer

    def task(self, **members):
        train = {**TRAIN, **members.pop("train", {})}
        return {"client": "cam-1", "round": 1, "rounds": 3, "seed": 7, "train": train,
                "settings": {}, **members}

    def places(self, parameters=None, extra=0):
        """Grows the memory where needed, and writes `parameters` to it."""
        space = -(-4 * self.values // 64) * 64 + extra
        if self.size < 2 * space:
            self.size = 2 * space
            os.ftruncate(self.memory, self.size)
        if parameters is not None:
            os.pwrite(self.memory, np.asarray(parameters, np.float32).tobytes(), 0)
        # What an answer must not leave as it is.
        os.pwrite(self.memory, np.full(self.values, 77, np.float32).tobytes(), space)
        bytes_ = 4 * self.values
        self.result_at = space
        return {"memory": self.size, "parameters": {"offset": 0, "bytes": bytes_},
                "result": {"offset": space, "bytes": bytes_}}

    def result(self):
        return np.frombuffer(os.pread(self.memory, 4 * self.values, self.result_at), np.float32)

    def fit(self, parameters, **task):
        return self.ask("fit", task=self.task(**task), **self.places(parameters))

    def end(self):
        """Ends the requests; returns the exit code."""
        if self.requests is not None:
            os.close(self.requests)
            self.requests = None
        code = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.end()
        self._lines.close()
        self.process.stdout.close()
        os.close(self.memory)
