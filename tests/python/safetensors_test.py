# SPDX-License-Identifier: Apache-2.0
"""Model files: what Starling reads, and files of other programs."""

import json
import struct

import numpy as np
import pytest
import starling


def file_of(path, header, data=b""):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_written_as_float32_in_the_order_of_the_names(tmp_path):
    path = tmp_path / "m.safetensors"
    starling.save(path, {"b": np.arange(6.0).reshape(2, 3).T, "a2": np.int64(5),
                         "a10": np.zeros((0, 4), np.float16), "é": np.array([True])},
                  buffers={"é", "a2"}, metadata={"by": "me"})
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    assert length % 8 == 0
    assert json.loads(content[8:8 + length]) == {
        "__metadata__": {"by": "me", "starling.buffers": '["a2", "é"]'},
        "a10": {"dtype": "F32", "shape": [0, 4], "data_offsets": [0, 0]},
        "a2": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [3, 2], "data_offsets": [4, 28]},
        "é": {"dtype": "F32", "shape": [1], "data_offsets": [28, 32]}}
    assert np.frombuffer(content[8 + length:], "<f4").tolist() == [5, 0, 3, 1, 4, 2, 5, 1]
    assert not list(tmp_path.glob("*.part"))


def test_round_trip(tmp_path):
    tensors = {"w": np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32),
               "s": np.array(2, np.float32)}
    starling.save(tmp_path / "m", tensors)
    loaded = starling.load(tmp_path / "m")
    assert list(loaded) == ["s", "w"]
    for name, values in tensors.items():
        assert loaded[name].dtype == np.float32
        assert np.array_equal(loaded[name], values)
    loaded["w"] += 1  # is the caller's own


def test_types_of_other_programs(tmp_path):
    parts = {"f64": ("F64", np.array([0.1]).tobytes()), "f16": ("F16", b"\x00\x3c"),
             "bf16": ("BF16", b"\xc0\x3f"), "i64": ("I64", struct.pack("<q", -(2**40)))}
    header, data = {}, b"\x07"
    header["u8"] = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}  # the others not aligned
    for name, (dtype, values) in parts.items():
        header[name] = {"dtype": dtype, "shape": [1],
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    loaded = starling.load(file_of(tmp_path / "m", header, data))
    assert {name: (str(a.dtype), a.tolist()) for name, a in loaded.items()} == {
        "f64": ("float64", [0.1]), "f16": ("float16", [1]), "bf16": ("float32", [1.5]),
        "i64": ("int64", [-(2**40)]), "u8": ("uint8", [7])}


@pytest.mark.parametrize("content, why", [
    (b"", "not a safetensors file"), (b"\xff" * 9, "its header claims"),
    (struct.pack("<Q", 2) + b"[]", "its header is not an object")])
def test_other_files_are_refused(tmp_path, content, why):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match=why):
        starling.load(tmp_path / "m")


def test_damaged_files_are_refused(tmp_path):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header in ({**entry, "shape": [3]}, {**entry, "data_offsets": [8, 16]},
                   {**entry, "data_offsets": [-8, 0]}):
        with pytest.raises(ValueError, match='the offsets of tensor "w"'):
            starling.load(file_of(tmp_path / "m", {"w": header}, bytes(8)))
    with pytest.raises(ValueError, match="type F8_E4M3"):
        starling.load(file_of(tmp_path / "m", {"w": {**entry, "dtype": "F8_E4M3"}}, bytes(8)))


def test_buffers_must_be_tensors(tmp_path):
    with pytest.raises(ValueError, match='buffers names "x"'):
        starling.save(tmp_path / "m", {"w": np.zeros(1)}, buffers=["x"])
