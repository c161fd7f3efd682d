"""``raven run``: options, signals and figures around the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from raven.cli.failures import INTERRUPTED
from raven.cli.progress import ProgressBar, print_report
from raven.cli.signals import stopping
from raven.errors import RavenError


def run_command(values: Mapping[str, Any], quiet: bool) -> int:
    """Do a run.

    Parameters
    ----------
    values : mapping
        Fields of :class:`~raven.pipeline.RunOptions`.
    quiet : bool
        No progress, notices or figures.

    Returns
    -------
    int
        Exit code: 0, or 130 when a signal ended it.

    Raises
    ------
    RavenError
        From the pipeline, unless a signal came first.
    """
    from raven.pipeline import RunOptions

    options = RunOptions(**values)
    if not (options.output or options.detections or quiet):
        typer.echo("notice: nothing will be written; add -o OUT.mp4 or --detections FILE.jsonl", err=True)
    report = None
    with stopping(options.stop):
        try:
            report = _run(options, quiet)
        except RavenError as error:
            if not options.stop.is_set():
                raise
            typer.echo(f"interrupted: {error}", err=True)  # such as: no frame was finished yet
    if report is not None and not quiet:
        print_report(report.as_dict())
    return INTERRUPTED if options.stop.is_set() else 0


def _run(options: Any, quiet: bool) -> Any:
    from raven.pipeline import run

    with ProgressBar(shown=not quiet) as bar:
        return run(options, bar.update)
