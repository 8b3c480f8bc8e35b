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


def test_rules_of_buffers_stand_in_the_metadata(tmp_path):
    path = tmp_path / "m.safetensors"
    starling.save(path, {"n": np.zeros(1), "m": np.zeros(1), "k": np.zeros(1), "w": np.zeros(1)},
                  buffers={"n": "maximum", "m": "mean", "k": "last"})
    content = path.read_bytes()
    header = json.loads(content[8:8 + struct.unpack("<Q", content[:8])[0]])
    assert header["__metadata__"] == {"starling.buffers": '["k", "m", "n"]',
                                      "starling.maximum": '["n"]', "starling.last": '["k"]'}


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
                   {**entry, "shape": [2**32, 2**32], "data_offsets": [0, 0]}):
        with pytest.raises(ValueError, match='the offsets of tensor "w"'):
            starling.load(file_of(tmp_path / "m", {"w": header}, bytes(8)))
    with pytest.raises(ValueError, match="type F8_E4M3"):
        starling.load(file_of(tmp_path / "m", {"w": {**entry, "dtype": "F8_E4M3"}}, bytes(8)))


@pytest.mark.parametrize("change", [
    {"dtype": 3}, {"dtype": ["F32"]}, {"shape": 2}, {"shape": [2.0]}, {"shape": [-1, -2]},
    {"shape": [True, 2]}, {"shape": None}, {"data_offsets": [0]}, {"data_offsets": [0, 8.0]},
    {"data_offsets": [-8, 0]}, {"data_offsets": {"0": 8}}, {"data_offsets": [0, 8, 8]}])
def test_entries_of_other_kinds_are_refused(tmp_path, change):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}
    path = file_of(tmp_path / "m", {"w": entry}, bytes(8))
    with pytest.raises(ValueError, match=f"^{path}: the header's entry of 'w'"):
        starling.load(path)


@pytest.mark.parametrize("header", [
    b'{"w": []}', b'{"w": null}', b'{"w": {}}', b'{"w": 1e999}',
    b'{"\\ud800": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}',
    b'{"w": {"dtype": "F32", "shape": [0, 1' + b"0" * 40 + b'], "data_offsets": [0, 0]}}',
    b'{"w": {"dtype": "F32", "shape": [' + b"0, " * 200 + b'0], "data_offsets": [0, 0]}}',
    b'{"w": ' + b"[" * 100000, b'{"w\xff": {}}', '{"w": {}}'.encode("utf-16")])
def test_hostile_headers_are_one_sentence_with_the_path(tmp_path, header):
    path = tmp_path / "m"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ValueError, match=f"^{path}"):
        starling.load(path)


@pytest.mark.parametrize("tensors, error", [
    ({"__metadata__": np.zeros(1)}, "'__metadata__' cannot be the name"),
    ({"a\nb": np.zeros(1)}, r"'a\\nb' cannot be the name"),
    ({"a": np.zeros(1), "b": np.array([1.0, 1e39])}, 'tensor "b" has values above 3.4e'),
    ({"a": np.zeros(1), "b": np.array(["x"])}, 'tensor "b" is of type <U1'),
    ({1: np.zeros(1)}, "names of tensors are texts, not int")])
def test_what_a_file_cannot_hold_is_refused_and_nothing_is_left(tmp_path, tensors, error):
    with pytest.raises((ValueError, TypeError), match=error):
        starling.save(tmp_path / "m", tensors)
    assert not list(tmp_path.iterdir())


def test_values_that_are_not_finite_are_written(tmp_path):
    starling.save(tmp_path / "m", {"w": np.array([np.inf, np.nan])})
    assert np.array_equal(starling.load(tmp_path / "m")["w"], [np.inf, np.nan], equal_nan=True)


def test_buffers_must_be_tensors(tmp_path):
    with pytest.raises(ValueError, match='buffers names "x"'):
        starling.save(tmp_path / "m", {"w": np.zeros(1)}, buffers=["x"])
