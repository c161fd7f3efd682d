"""Ctrl-C and SIGTERM end a run in good order; a second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from raven.cli.failures import INTERRUPTED

_CAUGHT = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on the first SIGINT or SIGTERM, and leave the process on the second.

    Handlers are put back at the end. Outside of the main thread, where there are no signals, this does nothing.
    """

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            os._exit(INTERRUPTED)  # threads may hang: no clean-up, no flush
        stop.set()
        # Not through a buffered stream: the handler may have interrupted a write to it.
        with contextlib.suppress(OSError):
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nfinishing the file; once more: stop now\n")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in _CAUGHT}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
