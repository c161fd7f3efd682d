"""A detector that finds what the picture is made to say: quick enough for tests of the whole engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CARD = """
[model]
name = "tiny"
[input]
layout = "NCHW"
channels = "rgb"
resize = "stretch"
scale = 255.0
[head]
type = "end2end"
[classes]
names = ["bright", "dark"]
[thresholds]
conf = 0.25
iou = 0.45
"""


def tiny_detector(folder: Path, side: int = 64, rows: int = 4) -> Path:
    """Write a model with its card; return its path.

    It is end-to-end: ``rows`` boxes at fixed places (a quarter of the input each, left to right), whose scores are the
    mean brightness of the picture times 1, 1/2, 1/4 and so on. A brighter frame thus has more detections.
    """
    boxes = np.zeros((1, rows, 6), np.float32)
    for row in range(rows):
        boxes[0, row] = [row * side / rows, side / 4, (row + 1) * side / rows, side / 2, 0, row % 2]
    weights = np.zeros((1, rows, 6), np.float32)
    weights[0, :, 4] = 0.5 ** np.arange(rows)
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "one"], ["level"]),
        helper.make_node("Mul", ["level", "weights"], ["scores"]),
        helper.make_node("Add", ["scores", "boxes"], ["output"]),
    ]
    constants = {"boxes": boxes, "weights": weights, "one": np.array([1, 1, 1], np.int64)}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, rows, 6])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    path.with_suffix(".toml").write_text(CARD)
    return path
