"""The last frames of a damaged stream, which a decoder of several threads loses when it fails while being drained.

A frame-threaded decoder reports the damage of a packet some packets later. When the report comes after the last packet,
PyAV has no way to go on draining, and the sound frames behind it are gone. So the packets since the key frame before
last are kept (they are small), and decoded again by a single thread, which fails at the very packet that is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import av
import av.error

#: Packets that a group holds at least: more than any decoder keeps back.
LEAST = 32
#: Packets without a key frame after which nothing is kept, so that memory stays bounded.
MOST = 2000


class Tail:
    """Keeps the packets from which the end of a stream can be decoded once more."""

    def __init__(self) -> None:
        self._groups: list[list[Any]] = [[], []]

    def add(self, packet: Any) -> None:
        """Keep one packet; what lies two groups of pictures back is let go."""
        current = self._groups[-1]
        if packet.is_keyframe and len(current) >= LEAST:
            self._groups = [current, [packet]]
        elif len(current) < MOST:
            current.append(packet)
        else:
            self._groups = [[], []]

    def decode(self, context: Any, after: int | None) -> Iterator[av.VideoFrame | None]:
        """Pictures that come later than ``after`` (stream units), in order; None for each broken packet."""
        fresh: Any = av.CodecContext.create(context.codec.name, "r")
        if context.extradata:
            fresh.extradata = context.extradata
        fresh.thread_count = 1
        for packet in [*self._groups[0], *self._groups[1], None]:
            try:
                pictures = fresh.decode(packet)
            except (av.error.FFmpegError, EOFError):
                yield None
                continue
            yield from (p for p in pictures if p.pts is not None and (after is None or p.pts > after))
