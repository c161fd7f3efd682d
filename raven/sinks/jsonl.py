"""Detections as JSON Lines: one object a frame, frames without detections too."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from raven.errors import SinkError
from raven.sinks.base import DrawnFrame, StreamInfo
from raven.sinks.paths import partial_path, put_in_place, reason, resolve_target

log = logging.getLogger("raven.sinks.jsonl")

COORDINATE_DECIMALS = 2
CONFIDENCE_DECIMALS = 4
TIME_DECIMALS = 6


class JsonLinesSink:
    """Writes one line a frame, such as::

        {"frame":0,"pts":0.0,"width":768,"height":576,"detections":[{"xyxy":[12.5,30.0,80.25,200.0],
         "confidence":0.91,"class_id":0,"class_name":"person","tracker_id":null}]}

    ``pts`` is in seconds, ``xyxy`` in upright source pixels. Each line is handed to the system when its frame is
    written, under a partial name that becomes the final one at `close`.

    Parameters
    ----------
    path : str
        Output file; ``-`` is standard output. Devices and pipes are written directly.
    """

    wants = frozenset({"detections"})

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.notices: list[str] = []
        self._file: TextIO | None = None
        self._target: Path | None = None
        self._written = 0

    def open(self, info: StreamInfo) -> None:
        """Create the file in progress.

        Raises
        ------
        SinkError
            It cannot be created.
        """
        self._info = info
        if self.path == "-":
            self._file = sys.stdout
            return
        if not _is_direct(self.path):
            self._target = resolve_target(self.path)
        name = self.path if self._target is None else partial_path(self._target)
        try:
            self._file = open(name, "w", encoding="utf-8", newline="\n", buffering=1)  # noqa: SIM115
        except OSError as error:
            raise SinkError(f"{self.path} cannot be written: {reason(error)}") from None

    def write(self, frame: DrawnFrame) -> None:
        """Write one line.

        Raises
        ------
        SinkError
            The disk is full, or the reader of standard output is gone.
        """
        assert self._file is not None, "write before open"
        line = json.dumps(self._object(frame), separators=(",", ":"), ensure_ascii=False)
        try:
            self._file.write(line + "\n")
            if self._file is sys.stdout:
                self._file.flush()
        except OSError as error:
            raise SinkError(f"{self.path} cannot be written on: {reason(error)} (frame {frame.index})") from None
        self._written += 1

    def _object(self, frame: DrawnFrame) -> dict[str, Any]:
        rows = () if frame.detections is None else frame.detections
        return {
            "frame": frame.index,
            "pts": round(float(frame.pts * self._info.time_base), TIME_DECIMALS),
            "width": frame.width or self._info.width,
            "height": frame.height or self._info.height,
            "detections": [detection_object(row, self._info.class_names) for row in rows],
        }

    def close(self) -> None:
        """Give the file its name.

        Raises
        ------
        SinkError
        """
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if file is sys.stdout:
                file.flush()
                return
            file.close()
            if self._target is not None:
                put_in_place(partial_path(self._target), self._target)
        except OSError as error:
            raise SinkError(f"{self.path} cannot be finished: {reason(error)}") from None

    def abort(self) -> None:
        """After a fault: the lines that are finished stay under the partial name; an unfinished one is cut off."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if file is sys.stdout:
            return
        with contextlib.suppress(OSError):
            file.close()
        if self._target is not None:
            self._keep(partial_path(self._target))

    def _keep(self, partial: Path) -> None:
        if not self._written:
            partial.unlink(missing_ok=True)
            return
        with contextlib.suppress(OSError):
            cut_to_last_line(partial)
        message = f"{self._written} finished lines are kept in {partial}"
        self.notices.append(message)
        log.warning(message)


def _is_direct(path: str) -> bool:
    """True for what cannot be replaced by a finished file: a device, a pipe."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def cut_to_last_line(path: Path) -> None:
    """Drop what follows the last line feed of a file."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        block = 1 << 16
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        file.truncate(end)


def detection_object(row: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """One detection, ``(8,)`` float32, under supervision's field names. A class without a name has null."""
    class_id, tracker = int(row[5]), int(row[6])
    return {
        "xyxy": [_number(value, COORDINATE_DECIMALS) for value in row[:4]],
        "confidence": _number(row[4], CONFIDENCE_DECIMALS),
        "class_id": class_id,
        "class_name": names[class_id] if 0 <= class_id < len(names) else None,
        "tracker_id": tracker if tracker >= 0 else None,
    }


def _number(value: float, decimals: int) -> float | None:
    """JSON has no NaN and no infinity: null stands for them."""
    return round(float(value), decimals) if math.isfinite(value) else None
