"""``raven doctor``: the findings, as lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import typer

import raven
from raven.cli.checks import Check, run_checks


def doctor_command(as_json: bool) -> int:
    """Print every finding.

    Returns
    -------
    int
        Exit code: 1 when the main job cannot run.
    """
    checks = run_checks()
    good = all(check.status != "fail" for check in checks)
    typer.echo(_json(checks, good) if as_json else _lines(checks, good))
    return 0 if good else 1


def _json(checks: Sequence[Check], good: bool) -> str:
    return json.dumps({"version": raven.__version__, "ok": good, "checks": [asdict(c) for c in checks]}, indent=2)


def _lines(checks: Sequence[Check], good: bool) -> str:
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status:4}  {check.name:{width}}  {check.detail}")
        if check.remedy:
            lines.append(f"{'':4}  {'':{width}}  -> {check.remedy}")
    lines.append("ready: `raven run INPUT -o OUT.mp4`" if good else "not ready: mend what says fail")
    return "\n".join(lines)
