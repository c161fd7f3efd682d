"""One line and an exit code for every way a command can fail."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

import typer

from raven.errors import RavenError

#: As a shell reports a process that SIGINT ended.
INTERRUPTED = 130


@contextlib.contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Turn what a command raises into a line on standard error and an exit code.

    Parameters
    ----------
    debug : bool
        Log everything and let tracebacks through.
    """
    logging.basicConfig(level=logging.DEBUG if debug else logging.CRITICAL, format="%(name)s: %(message)s")
    try:
        yield
    except typer.Exit:
        raise
    except RavenError as error:
        _fail(f"error: {_one_line(error)}", error.exit_code, error if debug else None)
    except BrokenPipeError:
        # Whoever read our output has gone: nobody to tell. Python must not try to flush it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED, None)
    except Exception as error:
        text = f"internal error: {type(error).__name__}: {_one_line(error)}"
        _fail(text if debug else f"{text}; run again with --debug for the traceback", 1, error if debug else None)


def _fail(line: str, code: int, error: BaseException | None) -> None:
    if error is not None:
        logging.getLogger("raven.cli").error("traceback", exc_info=error)
    typer.echo(line, err=True)
    raise typer.Exit(code) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or "no message"
