# SPDX-License-Identifier: Apache-2.0
"""Starts the installed programs and reads what they print as JSON."""

from __future__ import annotations

import importlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

PathLike = Union[str, Path]


class Error(Exception):
    """A program failed: its sentence, and its exit code as `exit_code`."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Result:
    """A finished simulation."""

    record: Dict[str, Any]  # all that the program says of it
    history: List[Dict[str, Any]]  # an entry a round, or a measurement of a gossip network
    directory: Optional[Path]  # `out`: report, models

    def __repr__(self) -> str:
        entries = "round" if "rounds" in self.record else "measurement"
        facts = [f"{len(self.history)} {entries}" + ("" if len(self.history) == 1 else "s")]
        for names in (("eval_accuracy", "federated_accuracy"),
                      ("eval_loss", "federated_loss", "train_loss")):
            found = next((f"{name} {last:.4g}" for name in names
                          if (last := self._last(name)) is not None), None)
            facts += [] if found is None else [found]
        where = "" if self.directory is None else f" in {self.directory}"
        return f"<starling.Result: {', '.join(facts)}{where}>"

    def _last(self, name: str) -> Optional[float]:
        values = (entry.get(name) for entry in reversed(self.history))
        return next((value for value in values if value is not None), None)

    def frame(self) -> Any:
        """The history as a pandas frame, each metric a column: "federated_metrics.mae"."""
        return importlib.import_module("pandas").DataFrame(list(map(_flat, self.history)))


def simulate(job: Union[PathLike, Mapping[str, Any]], *, clients: int = 10,
             trainer: Union[None, PathLike, Sequence[str]] = None, workers: Optional[int] = None,
             out: Optional[PathLike] = None, progress: bool = True, **settings: Any) -> Result:
    """Runs a job on simulated clients, as `starling-coordinator simulate` does.

    `job` is a file, or a dict as the file would be: {"rounds": 5, "model": {"kind": "mlp"}}.
    `trainer` is a Python file ("train.py") or a command ("python3 train.py", or a list), for a job
    with model.kind = "external"; `workers` processes of it serve all clients. Further arguments
    are keys of the job and win over it: rounds=5, learning_rate=0.1, **{"train.momentum": 0.8}.
    """
    return _simulation("starling-coordinator", job, "rounds", trainer, workers, out, progress,
                       {"clients": clients, **settings})


def gossip(network: Union[PathLike, Mapping[str, Any]], *,
           trainer: Union[None, PathLike, Sequence[str]] = None, workers: Optional[int] = None,
           out: Optional[PathLike] = None, progress: bool = True, **settings: Any) -> Result:
    """Runs a simulated network without a coordinator, as `starling-gossip simulate` does.

    `network` is a file or a dict, and further arguments are its keys, as in simulate(). So are
    `trainer` and `workers`, for a network with model.kind = "external": a task's client is then
    node-0001, node-0002 and so on.
    """
    return _simulation("starling-gossip", network, "measurements", trainer, workers, out, progress,
                       settings)


def submit(job: Union[PathLike, Mapping[str, Any]], *, state: Optional[PathLike] = None,
           **settings: Any) -> int:
    """Queues a job at the coordinator and returns the run's number.

    `state` is the coordinator's state directory or an operator's identity (STARLING_HOME).
    """
    with _JobFile(job) as path:
        told = _ask("submit", path, *_flags(settings), state=state)
    return int(told["id"])


def runs(*, state: Optional[PathLike] = None) -> List[Dict[str, Any]]:
    """All runs, in order of submission."""
    told: List[Dict[str, Any]] = _ask("list", state=state)
    return told


def show(run: int, *, state: Optional[PathLike] = None) -> Dict[str, Any]:
    """A run and its rounds."""
    told: Dict[str, Any] = _ask("show", str(run), state=state)
    return told


def wait(run: int, *, timeout: Optional[float] = None,
         state: Optional[PathLike] = None) -> Dict[str, Any]:
    """Waits until a run is completed and returns it.

    Raises Error where it failed or was stopped (exit_code 1) or `timeout` seconds have passed (3).
    """
    limit = [] if timeout is None else ["--timeout", f"{round(timeout * 1000)}ms"]
    _ask("wait", str(run), *limit, state=state)
    return show(run, state=state)


def export(run: int, path: PathLike, *, round: Optional[int] = None, best: bool = False,
           state: Optional[PathLike] = None) -> Path:
    """Writes a run's model as safetensors: the last, that of a round (0: initial), or the best."""
    which = ["--best"] if best else [] if round is None else ["--round", str(round)]
    _ask("export", str(run), "--to", str(path), *which, state=state)
    return Path(path)


def _simulation(program: str, job: Union[PathLike, Mapping[str, Any]], history: str,
                trainer: Union[None, PathLike, Sequence[str]], workers: Optional[int],
                out: Optional[PathLike], progress: bool, settings: Mapping[str, Any]) -> Result:
    flags = _flags(settings)
    if trainer is not None:
        flags += ["--trainer", _command(trainer)]
    if workers is not None:
        flags += ["--workers", str(workers)]
    if out is not None:
        flags += ["--out", str(out)]
    with _JobFile(job) as path:
        record: Dict[str, Any] = _run([program, "simulate", path, *flags], progress)
    return Result(record, record[history], None if out is None else Path(out))


def _ask(command: str, *arguments: str, state: Optional[PathLike]) -> Any:
    where = [] if state is None else ["--state", str(state)]
    return _run(["starling-coordinator", "run", command, *arguments, *where], progress=False)


def _command(trainer: Union[PathLike, Sequence[str]]) -> str:
    """For a shell. A Python file runs in this very Python."""
    if not isinstance(trainer, (str, Path)):
        return shlex.join(trainer)
    name = str(trainer)
    is_path = isinstance(trainer, Path) or os.path.isfile(name)
    # A name with a blank may also be a command, as "python3 train.py".
    if name.endswith(".py") and (is_path or not any(each.isspace() for each in name)):
        return shlex.join([sys.executable, name])
    return shlex.quote(name) if is_path else name


def _run(command: List[str], progress: bool) -> Any:
    """What the program prints as JSON; what it says meanwhile is printed where `progress`."""
    started = [_find(command[0]), *command[1:], "--format", "json"]
    # Where it is set, as in some notebooks, sentences would be broken into lines.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    sentence = ""
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen(started, stdin=subprocess.DEVNULL, stdout=output, env=environment,
                              stderr=subprocess.PIPE, text=True, errors="replace") as process:
            assert process.stderr is not None
            try:
                for line in process.stderr:
                    sentence = line.strip() or sentence
                    if progress and not sentence.startswith("error: "):
                        print(line, end="", file=sys.stderr, flush=True)
            except BaseException:  # such as a notebook's interrupt
                process.send_signal(signal.SIGTERM)
                raise
        output.seek(0)
        text = output.read()
    if process.returncode == 0:
        return json.loads(text or b"null")
    if text and not sentence.startswith("error: "):  # a run that ended otherwise than completed
        told = json.loads(text)
        sentence = f"run {told['id']} {told['state']}"
        if told.get("error"):
            sentence += f": {told['error']}"
    if sentence.startswith("error: "):
        sentence = sentence[len("error: "):]
    raise Error(sentence or f"{command[0]} ended with exit code {process.returncode}",
                process.returncode)


def _find(program: str) -> str:
    """On PATH, or in the directory that STARLING_PROGRAMS names."""
    found = shutil.which(program, path=os.environ.get("STARLING_PROGRAMS") or None)
    if found is None:
        raise Error(f"{program} is not on PATH; install Starling, or set STARLING_PROGRAMS to the "
                    "directory of its programs", 127)
    return found


def _flags(settings: Mapping[str, Any]) -> List[str]:
    flags = []
    for key, value in settings.items():
        flags += [f"--{key.replace('_', '-')}", _flag_value(_plain(key, value))]
    return flags


def _flag_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(_flag_value, value))
    return json.dumps(value) if isinstance(value, Mapping) else str(value)


def _flat(entry: Mapping[str, Any]) -> Dict[str, Any]:
    """An entry of a history without dicts of metrics."""
    flat: Dict[str, Any] = {}
    for key, value in entry.items():
        if key.endswith("_metrics"):
            flat.update({f"{key}.{name}": number for name, number in (value or {}).items()})
        else:
            flat[key] = value
    return flat


class _JobFile:
    """The path of a job; one given as a dict is a file for as long as this lasts."""

    def __init__(self, job: Union[PathLike, Mapping[str, Any]]) -> None:
        self._job = job
        self._made: Optional[str] = None

    def __enter__(self) -> str:
        if not isinstance(self._job, Mapping):
            return str(self._job)
        text = _toml(_plain("", self._job)).encode()
        with tempfile.NamedTemporaryFile(suffix=".toml", delete=False) as file:
            self._made = file.name
            file.write(text)
        return file.name

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            os.unlink(self._made)


def _plain(key: str, value: Any) -> Any:
    """Of NumPy scalars, arrays and paths what a file can say. TypeError or ValueError by key."""
    if isinstance(value, Mapping):
        return {name: _plain(f"{key}.{name}" if key else name, each)
                for name, each in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(f"{key}[{place}]", each) for place, each in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{key} = {value} is not finite; give a number")
    if not isinstance(value, (bool, int, float, str)):
        wanted = "leave the key out" if value is None else "give a number, a text, a list or a dict"
        raise TypeError(f"{key} = {value!r} cannot stand in a job; {wanted}")
    return value


def _toml(job: Mapping[str, Any]) -> str:
    lines = [f"{_toml_text(key)} = {_toml_value(value)}" for key, value in job.items()
             if not isinstance(value, Mapping)]
    for key, table in job.items():
        if isinstance(table, Mapping):
            lines.append(f"[{_toml_text(key)}]")
            lines += [f"{_toml_text(name)} = {_toml_value(value)}"
                      for name, value in table.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{_toml_text(key)} = {_toml_value(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _toml_text(value) if isinstance(value, str) else json.dumps(value)


def _toml_text(text: str) -> str:
    # As in JSON, which leaves one control character as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
