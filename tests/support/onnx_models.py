"""Tiny ONNX models made on the spot, and host memory that looks like a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str]
#: Old enough for every runtime that Raven takes.
OPSET, IR = 17, 8

TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
    "float64": TensorProto.DOUBLE,
}


class HostTensor:
    """What a runtime needs of a tensor, over a NumPy array; reads of ``array`` are counted."""

    def __init__(self, shape: Sequence[int], dtype: Any = np.float32) -> None:
        self._array = np.zeros(shape, dtype)
        self.reads = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def data_pointer(self) -> int:
        return self._array.ctypes.data

    @property
    def array(self) -> np.ndarray:
        self.reads += 1
        return self._array


def value(name: str, dims: Dims, dtype: str = "float32") -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, TYPES[dtype], list(dims))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = OPSET,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """A model of some nodes, not checked: wrong ones are wanted too."""
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "tiny", list(inputs), list(outputs), held)
    domains = {node.domain for node in nodes} | {""}
    opsets = [helper.make_opsetid(domain, 1 if domain else opset) for domain in sorted(domains)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
    helper.set_model_props(made, dict(metadata or {}))
    return made


def affine(folder: Path, dims: Dims = (1, 3, 4, 4), name: str = "affine") -> Path:
    """``y = 2 x + 1``, both of the same shape."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["d"]), helper.make_node("Add", ["d", "one"], ["y"])]
    weights = {"two": np.array(2, np.float32), "one": np.array(1, np.float32)}
    return save(model(nodes, [value("x", dims)], [value("y", dims)], weights), folder / f"{name}.onnx")


def same(folder: Path, dtype: str) -> Path:
    """``y = x``, of any type."""
    node = helper.make_node("Identity", ["x"], ["y"])
    return save(model([node], [value("x", (2, 3), dtype)], [value("y", (2, 3), dtype)]), folder / f"{dtype}.onnx")


def positive_rows(folder: Path) -> Path:
    """Positions of the numbers above zero: as many rows as there are."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("NonZero", ["above"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["rows"], perm=[1, 0]),
        helper.make_node("Mul", ["x", "zero"], ["fixed"]),
    ]
    outputs = [value("rows", ("n", 1), "int64"), value("fixed", (8,))]
    made = model(nodes, [value("x", (8,))], outputs, {"zero": np.array(0, np.float32)})
    return save(made, folder / "positive_rows.onnx")


def save(made: onnx.ModelProto, path: Path) -> Path:
    """Write a model; return its path."""
    onnx.save(made, path)
    return path
