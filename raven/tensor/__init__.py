"""Tensors in GPU memory."""

from raven.tensor.tensor import Tensor

__all__ = ["Tensor"]
