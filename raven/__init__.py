"""Raven: video, neural inference and drawing as one stream of GPU work.

>>> import raven
>>> raven.run("street.mp4", "annotated.mp4")  # doctest: +SKIP
>>> for result in raven.stream("street.mp4"):  # doctest: +SKIP
...     print(result.time, result.detections.class_name)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from raven.api import Result, run, stream
    from raven.detections import Detections
    from raven.errors import RavenError
    from raven.gpu import Device
    from raven.pipeline import Report, RunOptions
    from raven.tensor import Tensor

_HOMES = {
    "Result": "raven.api",
    "run": "raven.api",
    "stream": "raven.api",
    "Detections": "raven.detections",
    "RavenError": "raven.errors",
    "Device": "raven.gpu",
    "Report": "raven.pipeline",
    "RunOptions": "raven.pipeline",
    "Tensor": "raven.tensor",
}

__all__ = [
    "Detections",
    "Device",
    "RavenError",
    "Report",
    "Result",
    "RunOptions",
    "Tensor",
    "run",
    "stream",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `raven --help` and `import raven` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'raven' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
