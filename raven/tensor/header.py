"""The 256-byte header before a tensor's data; shaders/tensor.slang declares the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

BYTES = 256
WORDS = BYTES // 4
VERTEX_COUNT, INSTANCE_COUNT, GROUPS, DTYPE, RANK, CAPACITY, PRODUCED, FLAGS, SHAPE = 0, 1, 4, 7, 8, 9, 10, 11, 12
MAX_RANK = 8
#: Rows a workgroup of an indirect dispatch handles.
ROWS_A_GROUP = 64

#: Codes in word 7.
DTYPES: dict[str, int] = {
    "float32": 1,
    "float16": 2,
    "uint8": 3,
    "int8": 4,
    "int32": 5,
    "int64": 6,
    "uint32": 7,
    "uint16": 8,
    "bool": 9,
    "float64": 10,
}


def dtype_code(dtype: Any) -> int:
    """Code of a NumPy type in the header.

    Raises
    ------
    ValueError
        A type that tensors do not hold.
    """
    name = np.dtype(dtype).name
    if name not in DTYPES:
        raise ValueError(f"a tensor of {name} is not supported; use one of {', '.join(DTYPES)}")
    return DTYPES[name]


def pack(shape: Sequence[int], dtype: Any, capacity: int, vertices: int) -> np.ndarray:
    """The header's 64 words, uint32.

    Parameters
    ----------
    shape : sequence of int
        At most 8 dimensions; a scalar has an empty shape and counts as one row.
    capacity : int
        The most rows that fit.
    vertices : int
        Vertices an instance of the tensor's own indirect draw.
    """
    words = np.zeros(WORDS, np.uint32)
    rows = shape[0] if shape else 1
    words[VERTEX_COUNT] = vertices
    words[INSTANCE_COUNT] = rows
    words[GROUPS : GROUPS + 3] = (-(-rows // ROWS_A_GROUP), 1, 1)
    words[DTYPE], words[RANK] = dtype_code(dtype), len(shape)
    words[CAPACITY], words[PRODUCED] = capacity, rows
    words[SHAPE : SHAPE + len(shape)] = shape
    return words
