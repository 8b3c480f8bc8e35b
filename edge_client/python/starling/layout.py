# SPDX-License-Identifier: Apache-2.0
"""Where each tensor lies in the vector that a model travels as (core/client/TRAINER.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Collection, Dict, List, Mapping, Tuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Tensors = Dict[str, Array]
RULES = ("mean", "maximum", "last")  # of buffers
WHEN_DIVERGED = "; lower the learning rate or set clip-norm"


def by_name(names: Collection[str]) -> List[str]:
    """In the order of the protocol and of model files: by the bytes of the names."""
    return sorted(names, key=lambda name: name.encode())


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the names of tensors are texts, not {type(name).__name__}: {name!r}")
    if name == "__metadata__" or re.search(r"[\x00-\x1f\x7f]", name):
        raise ValueError(f"{name!r} cannot be the name of a tensor in a model file; rename it")


def rules_of(buffers: Collection[str]) -> Dict[str, str]:
    """The rule of each buffer: "mean", or what a dict of buffers says."""
    return dict(buffers) if isinstance(buffers, Mapping) else dict.fromkeys(buffers, "mean")


def check_buffers(buffers: object, names: Collection[str]) -> None:
    if isinstance(buffers, str) or not isinstance(buffers, Collection):
        example = f"[{buffers!r}]" if isinstance(buffers, str) else '["mean"], or [] for none'
        raise TypeError(f"buffers is {buffers!r}; a list of names is needed: {example}")
    for name in buffers:
        if name not in names:
            raise ValueError(f'buffers names "{name}", which is no tensor of the model')
    for name, rule in rules_of(buffers).items():
        if rule not in RULES:
            raise ValueError(f'buffers has the rule {rule!r} for "{name}"; it is "mean", '
                             '"maximum" or "last"')


def check_tensors(tensors: object, giver: str) -> None:
    """That they are a dict, as a method has to return them."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{giver} returned its tensors as {type(tensors).__name__}; a dict of name "
                        'to array is needed, as {"weight": np.zeros(3)}')


def as_float32(name: str, value: object) -> NDArray[np.float32]:
    """Values as they travel. TypeError where they are not numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f'tensor "{name}" is of type {array.dtype}; numbers are needed')
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def all_finite(values: NDArray[np.float32]) -> bool:
    # One pass without a temporary: a sum is finite only if each value is. It may overflow, too.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: Tuple[int, ...]
    dtype: np.dtype[Any]
    rule: str  # of a buffer; empty: it is trainable
    begin: int  # in values of the vector
    end: int

    @property
    def buffer(self) -> bool:
        return bool(self.rule)

    def describe(self) -> Dict[str, object]:
        said: Dict[str, object] = {"name": self.name, "shape": list(self.shape),
                                   "dtype": str(self.dtype),
                                   "role": "buffer" if self.buffer else "trainable"}
        return {**said, "rule": self.rule} if self.rule in ("maximum", "last") else said


class Layout:
    """The tensors of a model in the order in which they travel; `private` ones do not."""

    def __init__(self, model: Mapping[str, Array], buffers: Collection[str],
                 private: Mapping[str, Array] = {}) -> None:
        check_tensors(model, "initialize")
        if not model:
            raise ValueError("initialize returned no tensor; a model needs one at least")
        for name in model:
            check_name(name)
        check_buffers(buffers, model)
        _check_private(private, model)
        self.private = {name: np.asarray(private[name]) for name in by_name(private)}
        rules = rules_of(buffers)
        self.tensors: List[Tensor] = []
        end = 0
        for name in by_name(model):
            values = as_float32(name, model[name])
            begin, end = end, end + values.size
            dtype = np.asarray(model[name]).dtype
            self.tensors.append(Tensor(name, values.shape, dtype, rules.get(name, ""), begin, end))
        self.size = end

    def describe(self) -> List[Dict[str, object]]:
        return [tensor.describe() for tensor in self.tensors] + [
            {"name": name, "shape": list(array.shape), "dtype": str(array.dtype), "role": "private"}
            for name, array in self.private.items()]

    def unpack(self, vector: NDArray[np.float32]) -> Tensors:
        """Tensors of their own type; those of float32 are views of `vector`."""
        return {t.name: _of_type(vector[t.begin:t.end], t.dtype).reshape(t.shape)
                for t in self.tensors}

    def pack(self, tensors: Mapping[str, object], vector: NDArray[np.float32], giver: str) -> None:
        """Writes tensors to `vector`.

        Raises TypeError, ValueError or FloatingPointError, and leaves `vector` as it is, where a
        tensor is missing, is none of the model, has another shape or a value that is not finite.
        """
        check_tensors(tensors, giver)
        wanted = {t.name: t for t in self.tensors}
        for name in tensors:
            if name in self.private:
                raise ValueError(f'{giver} returned the tensor "{name}", which is private: keep it '
                                 "in task.directory")
            if name not in wanted:
                raise ValueError(f'{giver} returned the tensor "{name}", which the model lacks')
        values = {}
        for name, tensor in wanted.items():
            if name not in tensors:
                raise ValueError(f'{giver} did not return the tensor "{name}"')
            values[name] = as_float32(name, tensors[name])
            shape = values[name].shape
            if shape != tensor.shape:
                raise ValueError(f'{giver} returned the tensor "{name}" with the shape '
                                 f'{list(shape)}; {list(tensor.shape)} is needed')
            if not all_finite(values[name]):
                advice = "" if giver == "initialize" else WHEN_DIVERGED
                raise FloatingPointError(f'{giver} returned the tensor "{name}" with values that '
                                         f"are not finite{advice}")
        for tensor in self.tensors:
            place = vector[tensor.begin:tensor.end].reshape(tensor.shape)
            np.copyto(place, values[tensor.name])


def _check_private(private: object, model: Mapping[str, Array]) -> None:
    if not isinstance(private, Mapping):
        raise TypeError(f"private_tensors is {private!r}; a dict of name to array is needed, or {{}}")
    for name in private:
        check_name(name)
        if name in model:
            raise ValueError(f'initialize returned the tensor "{name}", which private_tensors has '
                             "too; it either travels or is private")


def _of_type(values: NDArray[np.float32], dtype: np.dtype[Any]) -> Array:
    if dtype.kind not in "iu":
        return (np.rint(values) if dtype.kind == "b" else values).astype(dtype, copy=False)
    # A mean, or the nearest float32, may lie outside of the type, where a cast would wrap around.
    limits = np.iinfo(dtype)
    largest = np.float64(limits.max)
    if int(largest) > limits.max:  # of 64 bits, which float64 rounds up
        largest = np.nextafter(largest, 0)
    return np.rint(values, dtype=np.float64).clip(limits.min, largest).astype(dtype)
