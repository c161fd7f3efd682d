"""Frame rates as exact rationals, and presentation times that always move forward."""

from __future__ import annotations

from fractions import Fraction

#: Relative distance below which a measured average is the stream's base rate: 24 and 24000/1001 are 1e-3 apart.
SAME_RATE = 2e-4
#: Relative error of a rate that a container stored as a rounded duration.
ROUNDING = 1e-6


def frame_rate_of(average: Fraction | None, base: Fraction | None) -> Fraction | None:
    """Nominal rate, in frames a second: the base rate when the average is that but for rounding, else the average."""
    # PyAV 19 has a rational type of its own that lacks most of Fraction's arithmetic.
    rate, base = (Fraction(value) if value else None for value in (average or base, base))
    if not rate:
        return None
    if base and abs(rate / base - 1) < SAME_RATE:
        rate = base
    return _unrounded(rate)


def _unrounded(rate: Fraction) -> Fraction:
    """A whole rate, or one over 1.001, in place of what Matroska's nanoseconds made of it (19001/317 is 60000/1001)."""
    for usual in (Fraction(round(rate)), Fraction(round(rate * 1001 / 1000) * 1000, 1001)):
        if usual and abs(rate / usual - 1) < ROUNDING:
            return usual
    return rate


class Timestamps:
    """Presentation times in stream units, repaired where the container has none or they do not move forward.

    The choice between a frame's own time and its packet's decoding time is FFmpeg's ``guess_correct_pts``: whichever
    has gone backwards less often.

    Parameters
    ----------
    step : int
        Units a frame at the nominal rate, for frames without any time.
    use_dts : bool
        True for containers that store decoding times only (AVI): frames leave the decoder in order, so the n-th
        smallest decoding time belongs to the n-th frame.

    Attributes
    ----------
    repaired : int
        Frames whose time was made up.
    """

    def __init__(self, step: int, use_dts: bool = False) -> None:
        self._step = max(1, step)
        self._use_dts = use_dts
        self._last: int | None = None
        self._last_pts = self._last_dts = -(1 << 62)
        self._faulty_pts = self._faulty_dts = 0
        self.repaired = 0

    def next(self, pts: int | None, dts: int | None) -> int:
        """Time of the frame that follows, from its own ``pts`` and its packet's ``dts``."""
        time = self._guess(None if self._use_dts else pts, dts)
        if self._last is None:
            self.repaired += time is None
            self._last = 0 if time is None else time
        elif time is None or time <= self._last:
            self.repaired += not (time is None and self._use_dts)  # AVI's last frames leave without one
            self._last += self._step if time is None else 1
        else:
            self._last = time
        return self._last

    def _guess(self, pts: int | None, dts: int | None) -> int | None:
        if dts is not None:
            self._faulty_dts += dts <= self._last_dts
            self._last_dts = dts
        if pts is not None:
            self._faulty_pts += pts <= self._last_pts
            self._last_pts = pts
        if pts is not None and (dts is None or self._faulty_pts <= self._faulty_dts):
            return pts
        return dts
