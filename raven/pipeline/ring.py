"""The frame ring: a fixed set of slots that go round the stages. It is the only queue between threads."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Generic, TypeVar

S = TypeVar("S")


class Ring(Generic[S]):
    """Slots travel free → input → output → free. A slow stage keeps slots, and thereby stalls the source.

    The first error of any stage ends all of them: every blocked or later ``take`` returns None.

    Parameters
    ----------
    slots : list
        All slots, free at the start.
    """

    STATIONS = ("free", "input", "output")

    def __init__(self, slots: list[S]) -> None:
        self.size = len(slots)
        self._stations: dict[str, SimpleQueue[S | None]] = {name: SimpleQueue() for name in self.STATIONS}
        self._lock = threading.Lock()
        self.cause: BaseException | None = None
        self.ended = False
        for slot in slots:
            self.put("free", slot)

    def put(self, station: str, slot: S | None) -> None:
        """Hand a slot to a station; None says that no more will come."""
        self._stations[station].put(slot)

    def take(self, station: str) -> S | None:
        """The next slot at a station, waiting for it; None at the end of the stream or after a fault."""
        if self.ended:
            return None
        slot = self._stations[station].get()
        return None if self.ended else slot

    def fail(self, cause: BaseException) -> None:
        """End every stage; the first cause is kept."""
        with self._lock:
            if self.cause is None:
                self.cause = cause
        self.end()

    def end(self) -> None:
        """Wake every stage, now."""
        self.ended = True
        for station in self._stations.values():
            station.put(None)
