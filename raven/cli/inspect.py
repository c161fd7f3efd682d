"""``raven inspect``: what a model or a source is made of, as Raven understands it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer

#: More class names than this are counted, not listed, in text.
NAMES_SHOWN = 12


def inspect_command(target: str, as_json: bool) -> None:
    """Print a description of a model (``.onnx`` file or bundled name) or of a source.

    Raises
    ------
    RavenError
        It can be neither opened nor understood; the message says why.
    """
    path = _model_path(target)
    facts = model_facts(path) if path else source_facts(target)
    typer.echo(json.dumps(facts, indent=2, default=_plain) if as_json else "\n".join(_lines(facts)))


def _model_path(target: str) -> Path | None:
    """The model's file; None when the target looks like a source."""
    is_file = target.lower().endswith(".onnx")
    if not is_file and ("://" in target or Path(target).exists() or any(mark in target for mark in "./\\*?[%")):
        return None
    from raven.models import find_model

    return find_model(target)


def model_facts(path: Path) -> dict[str, Any]:
    """Inputs, outputs and card of a model.

    Raises
    ------
    RavenError
    """
    from raven.detect.card import load_card
    from raven.infer import load_model

    model = load_model(path, "cpu")
    try:
        card = load_card(path, model.inputs, model.outputs, model.metadata)
        return {
            "file": str(path),
            "megabytes": round(path.stat().st_size / 1e6, 2),
            "inputs": [_tensor(spec) for spec in model.inputs],
            "outputs": [_tensor(spec) for spec in model.outputs],
            "card": _fields(card),
            "notices": list(model.notices),
        }
    finally:
        model.close()


def _tensor(spec: Any) -> str:
    sizes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.name} {getattr(spec.dtype, 'name', spec.dtype)} [{sizes}]"


def source_facts(uri: str) -> dict[str, Any]:
    """Size, rate, pixel format and colour of a source.

    Raises
    ------
    RavenError
    """
    from raven.sources import open_source

    source = open_source(uri)
    try:
        info, format = source.info, source.info.format
        facts = {"input": info.uri, "kind": info.kind, "size": "{}x{}".format(*format.upright_size)}
        stored = f"{format.width}x{format.height}"
        if format.rotation or format.mirror:
            facts["stored"] = f"{stored}, turned {format.rotation} degrees{', mirrored' if format.mirror else ''}"
        return facts | _timing(info) | _pixels(format) | {"color": info.color, "notices": list(source.notices)}
    finally:
        source.close()


def _timing(info: Any) -> dict[str, Any]:
    return {
        "frames": info.frames,
        "seconds": None if info.duration is None else round(info.duration, 3),
        "frame_rate": info.frame_rate,
        "time_base": info.time_base,
    }


def _pixels(format: Any) -> dict[str, Any]:
    facts = {"pixels": format.pixel.name, "bits": format.pixel.depth}
    if format.pixel.yuv:
        facts |= {"matrix": format.matrix, "range": "full" if format.full_range else "limited"}
        facts["chroma_site"] = format.chroma_site
    if format.sample_aspect_ratio != 1:
        facts["sample_aspect_ratio"] = format.sample_aspect_ratio
    return facts


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.repr}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _lines(facts: Mapping[str, Any], indent: str = "") -> list[str]:
    width = max(len(name) for name in facts)
    lines = []
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}", *_lines(value, indent + "  ")]
        elif (text := _text(value)) != "":
            lines.append(f"{indent}{name:{width}}  {text}")
    return lines


def _text(value: Any) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, Fraction) and value.denominator != 1:
        return f"{value} ({float(value):.3f})"
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(str(item) for item in value[:NAMES_SHOWN])
        return shown + (f", ... ({len(value)})" if len(value) > NAMES_SHOWN else "")
    return str(value)
