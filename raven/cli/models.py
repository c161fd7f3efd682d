"""``raven models``: what is bundled, and under which terms."""

from __future__ import annotations

import json
from typing import Any

import typer

from raven.models import BundledModel, list_models, models_folder


def models_command(as_json: bool) -> None:
    """Print name, size, task, licence and origin of every bundled model.

    Raises
    ------
    ModelError
        A card is wrong.
    """
    found = [describe(model) for model in list_models()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif not found:
        typer.echo(f"no models in {models_folder()}; give a path: raven run INPUT --model FILE.onnx", err=True)
    else:
        typer.echo("\n".join(_lines(found)))


def describe(model: BundledModel) -> dict[str, Any]:
    """Plain data about a model."""
    card = model.card
    return {
        "name": model.name,
        "megabytes": round(model.path.stat().st_size / 1e6, 2),
        "head": card.head,
        "classes": len(card.names),
        "description": card.description,
        "licence": card.licence,
        "origin": card.origin,
    }


def _lines(found: list[dict[str, Any]]) -> list[str]:
    width = max(len(item["name"]) for item in found)
    lines = []
    for item in found:
        lines.append(f"{item['name']:{width}}  {item['megabytes']:5.1f} MB  {item['description']}")
        lines.append(f"{'':{width}}  {'':8}  licence: {item['licence']}")
    return lines
