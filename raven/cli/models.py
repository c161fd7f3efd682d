"""``raven models``: what is bundled, and under which terms."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import typer

import raven

#: Keys of a card that are worth a look in a list.
SHOWN = ("head", "licence", "license", "origin")


def models_command(as_json: bool) -> None:
    """Print name, size, head, licence and origin of every bundled model."""
    found = [describe(path) for path in sorted(model_folder().glob("*.onnx"))]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo(f"no models in {model_folder()}; give a path: raven run INPUT --model FILE.onnx", err=True)
    for item in () if as_json else found:
        facts = ", ".join(f"{key} {value}" for key, value in item.items() if key in SHOWN)
        typer.echo(f"{item['name']:26} {item['megabytes']:6.2f} MB  {facts}")


def model_folder() -> Path:
    """The folder of bundled models: in the installed package, else at the project's root."""
    package = Path(raven.__file__).resolve().parent
    inside = package / "_models"
    return inside if inside.is_dir() else package.parent / "models"


def describe(path: Path) -> dict[str, Any]:
    """Name, size and the card's plain entries of a model file."""
    card = path.with_suffix(".toml")
    entries = tomllib.loads(card.read_text(encoding="utf-8")) if card.is_file() else {}
    plain = {key: _word(value) for key, value in entries.items() if key in SHOWN and _word(value)}
    return {"name": path.stem, "megabytes": round(path.stat().st_size / 1e6, 2), **plain}


def _word(value: Any) -> str:
    """A card may give a table where a name is enough for a list."""
    if isinstance(value, dict):
        value = value.get("kind", value.get("name", value.get("type", "")))
    return str(value)
