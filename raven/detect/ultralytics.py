"""What Ultralytics' exporter writes into a model's metadata: Python literals as strings."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Export:
    """An export's own words about itself; empty where it says nothing.

    Attributes
    ----------
    names : tuple of str
        Class names by id.
    task : str
        ``detect``, ``segment``, ``pose``, ``obb`` or ``classify``.
    size : (int, int) or None
        Width and height that it was exported for.
    end2end : bool
        Boxes come out final: the model has no need of NMS, or has it inside.
    licence, description : str
    """

    names: tuple[str, ...] = ()
    task: str = ""
    size: tuple[int, int] | None = None
    end2end: bool = False
    licence: str = ""
    description: str = ""


def read_export(metadata: Mapping[str, str]) -> Export:
    """Read the metadata; what is not as expected counts as absent."""
    arguments = _literal(metadata.get("args", ""))
    has_nms = isinstance(arguments, dict) and arguments.get("nms") is True
    return Export(
        names=_names(_literal(metadata.get("names", ""))),
        task=metadata.get("task", ""),
        size=_size(_literal(metadata.get("imgsz", ""))),
        end2end=has_nms or metadata.get("end2end", "").lower() == "true",
        licence=metadata.get("license", ""),
        description=metadata.get("description", ""),
    )


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, dict) and sorted(value, key=str) == sorted(range(len(value)), key=str):
        value = [value[i] for i in range(len(value))]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return ()
    return tuple(value)


def _size(value: Any) -> tuple[int, int] | None:
    """The exporter writes height first."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value):
        return value[1], value[0]
    return None
