"""Models in inference runtimes: :func:`load_model`, and which runtimes there are."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from raven.infer.backends import available_backends, choose_backend, module_of
from raven.infer.base import Binding, Model, TensorSpec

__all__ = ["Binding", "Model", "TensorSpec", "available_backends", "choose_backend", "load_model"]


def load_model(path: str | Path, backend: str = "auto", **options: Any) -> Model:
    """Load an ONNX file into a runtime.

    Parameters
    ----------
    path : str or Path
    backend : {'auto', 'cpu', 'cuda', 'tensorrt', 'tensorrt-rtx'}
        ``auto`` takes the fastest that is installed and says which in the model's notices.
    **options
        The runtime's own: ``threads`` and ``max_rows`` for ``cpu``.

    Raises
    ------
    BackendError
        The runtime asked for is not there; the message says what is and how to get it.
    ModelError
        The file is not a model that the runtime can run.
    UsageError
        The backend's name is not known.
    """
    chosen, why = choose_backend(backend)
    model: Model = importlib.import_module(module_of(chosen)).load(Path(path), **options)
    if backend == "auto":
        model.notices.append(f"backend: {chosen} ({why})")
    return model
