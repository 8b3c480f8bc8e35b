# SPDX-License-Identifier: Apache-2.0
"""Model files as core/model/safetensors.h has them: F32, in the order of the names."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO, Collection, Dict, Mapping, Optional, Union

import numpy as np
from numpy.typing import NDArray

from starling.layout import (Array, Tensors, as_float32, by_name, check_buffers,
                             check_name, rules_of)

_BUFFERS = "starling.buffers"
_RULES = {"maximum": "starling.maximum", "last": "starling.last"}  # the mean needs no word
_HEADER_BYTES_MAX = 16 << 20
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
          "BF16": "<u2"}


def save(path: Union[str, Path], tensors: Mapping[str, Array], buffers: Collection[str] = (),
         metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a model that Starling reads; all types become float32.

    `buffers` names the tensors that no optimizer changes, or is a dict of name to rule
    (Trainer.buffers).
    """
    for name in tensors:
        check_name(name)
    names = by_name(tensors)
    check_buffers(buffers, names)
    notes = dict(metadata or {})
    if buffers:
        notes[_BUFFERS] = json.dumps(by_name(buffers), ensure_ascii=False)
    for rule, key in _RULES.items():
        ruled = [name for name, its in rules_of(buffers).items() if its == rule]
        if ruled:
            notes[key] = json.dumps(by_name(ruled), ensure_ascii=False)
    header: Dict[str, Any] = {"__metadata__": notes} if notes else {}
    end = 0
    for name in names:
        shape = list(np.shape(tensors[name]))
        begin, end = end, end + 4 * int(np.prod(shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = Path(f"{path}.part")
    try:
        with open(part, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in names:
                file.write(np.ascontiguousarray(_narrowed(name, tensors[name]), "<f4").data)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _narrowed(name: str, value: object) -> NDArray[np.float32]:
    """As float32. Values that were not finite before are written as they are."""
    values = as_float32(name, value)
    if np.count_nonzero(np.isinf(values)) != np.count_nonzero(np.isinf(np.asarray(value))):
        raise ValueError(f'tensor "{name}" has values above {np.finfo(np.float32).max:.3g}, which '
                         "float32 does not hold; scale it")
    return values


def load(path: Union[str, Path]) -> Tensors:
    """The tensors of a safetensors file of any program; bfloat16 becomes float32."""
    with open(path, "rb") as file:
        header = _read_header(file, path)
        data = np.fromfile(file, np.uint8)
    tensors: Tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if not _is_entry(name, entry):
            raise ValueError(f"{path}: the header's entry of {name!r} is not one of a tensor; the "
                             "file is damaged")
        if entry["dtype"] not in _TYPES:
            raise ValueError(f'{path}: tensor "{name}" is of type {entry["dtype"]}, which is not '
                             f'supported; convert it to one of {", ".join(_TYPES)}')
        begin, end = entry["data_offsets"]
        dtype = np.dtype(_TYPES[entry["dtype"]])
        size = math.prod(entry["shape"])
        if not 0 <= begin <= end <= data.size or end - begin != size * dtype.itemsize:
            raise ValueError(f'{path}: the offsets of tensor "{name}" do not suit its shape or '
                             "the file's length; the file is damaged")
        # Copied, because a tensor may begin anywhere.
        try:
            values: Array = data[begin:end].copy().view(dtype).reshape(entry["shape"])
        except (ValueError, OverflowError):  # of no values, but with an enormous side
            raise ValueError(f'{path}: tensor "{name}" has a shape that NumPy does not hold; the '
                             "file is damaged") from None
        if entry["dtype"] == "BF16":
            values = np.left_shift(values.astype("<u4"), 16).view("<f4")
        tensors[name] = values
    return {name: tensors[name] for name in by_name(tensors)}


def _is_entry(name: str, entry: object) -> bool:
    def are_counts(numbers: object) -> bool:
        return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)

    return (_is_unicode(name) and isinstance(entry, dict) and isinstance(entry.get("dtype"), str)
            and are_counts(entry.get("shape")) and are_counts(entry.get("data_offsets"))
            and len(entry["data_offsets"]) == 2)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can express
        return False
    return True


def _read_header(file: BinaryIO, path: Union[str, Path]) -> Dict[str, Any]:
    length = int.from_bytes(file.read(8), "little")
    if length > _HEADER_BYTES_MAX:
        raise ValueError(f"{path} is not a safetensors file: its header claims {length} bytes")
    text = file.read(length)
    try:
        header = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path} is not a safetensors file: its header is not an object")
    return header
