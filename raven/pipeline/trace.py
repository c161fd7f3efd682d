"""A trace of the run in Chrome's format: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TextIO

from raven.errors import SinkError

_PROCESS = {"host": 1, "gpu": 2}


class Trace:
    """Spans, written as they end so that memory stays flat; nothing at all is done without a path.

    Parameters
    ----------
    path : str or None
        File to write.

    Raises
    ------
    SinkError
        It cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self._lock, self._rows, self._file = threading.Lock(), {}, None
        self.on = path is not None
        if path is None:
            return
        self._rows = {}
        self._file = self._open(path)
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for name, number in _PROCESS.items():
            self._put({"ph": "M", "pid": number, "name": "process_name", "args": {"name": name}})

    _rows: dict[tuple[str, str], int]
    _file: TextIO | None

    @staticmethod
    def _open(path: str) -> TextIO:
        try:
            return Path(path).open("w", encoding="utf-8")
        except OSError as error:
            raise SinkError(
                f"cannot write the trace {path}: {os.strerror(error.errno or 0)}; choose another path"
            ) from None

    def span(self, process: str, row: str, name: str, start: int, end: int, frame: int) -> None:
        """Write one span.

        Parameters
        ----------
        process : {'host', 'gpu'}
        row : str
            Thread or queue.
        start, end : int
            Nanoseconds of ``time.perf_counter_ns``.
        """
        if self._file is None:
            return
        with self._lock:
            thread = self._row(process, row)
            self._put(
                {
                    "ph": "X",
                    "pid": _PROCESS[process],
                    "tid": thread,
                    "name": name,
                    "ts": start / 1000,
                    "dur": max(end - start, 0) / 1000,
                    "args": {"frame": frame},
                }
            )

    def _row(self, process: str, row: str) -> int:
        key = (process, row)
        if key not in self._rows:
            self._rows[key] = len(self._rows) + 1
            meta = {"ph": "M", "pid": _PROCESS[process], "tid": self._rows[key], "name": "thread_name"}
            self._put({**meta, "args": {"name": row}})
        return self._rows[key]

    def _put(self, event: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event, separators=(",", ":")) + ",\n")

    def close(self) -> None:
        """Finish the JSON; idempotent."""
        if self._file is not None:
            with self._lock:
                self._file.write('{"ph":"M","pid":1,"name":"process_labels","args":{"labels":"raven"}}]}\n')
                self._file.close()
                self._file = None
