"""Which encoders there are, and how quality and preset are said to each."""

from __future__ import annotations

from typing import Any

import av
import av.codec
import av.error

from raven.errors import SinkError, UsageError
from raven.sinks.paths import reason

X_PRESETS = ["ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo"]
NV_PRESETS = [f"p{i}" for i in range(1, 8)]

#: Encoder to (presets, default preset, default quality, pixel format that it is fed).
ENCODERS: dict[str, tuple[list[str], str, float, str]] = {
    "libx264": (X_PRESETS, "veryfast", 20, "nv12"),
    "libx265": (X_PRESETS, "fast", 23, "yuv420p"),
    "h264_nvenc": (NV_PRESETS, "p4", 21, "nv12"),
    "hevc_nvenc": (NV_PRESETS, "p4", 24, "nv12"),
}
AUTO = "libx264"
X265_LEAST = 64  # its lookahead writes past its buffers when a picture of 48x48 or less comes (seen in 4.2)
QUALITY_LIMIT = 51


def available_encoders() -> list[str]:
    """Names of the encoders that this FFmpeg was built with; one for hardware may still fail to open."""
    return [name for name in ENCODERS if _is_built_in(name)]


def _is_built_in(name: str) -> bool:
    try:
        av.codec.Codec(name, "w")
    except (ValueError, av.error.FFmpegError):
        return False
    return True


def choose_encoder(name: str) -> str:
    """Name of the encoder to use; ``auto`` is x264.

    Raises
    ------
    SinkError
        It is unknown or not built in; the message names those that are.
    """
    chosen = AUTO if name == "auto" else name
    there = available_encoders()
    if chosen not in there:
        raise SinkError(f"the encoder {name} is not there; there are: auto, {', '.join(there)}")
    return chosen


def encoder_options(name: str, quality: float | None, preset: str | None) -> dict[str, str]:
    """FFmpeg's options of an encoder.

    Parameters
    ----------
    name : str
        One of ENCODERS.
    quality : float or None
        Constant rate factor (x264, x265) or constant quality (NVENC), 0 (best) to 51.
    preset : str or None
        Speed against size, in the encoder's own words.

    Raises
    ------
    UsageError
        A value is out of range or unknown.
    """
    presets, usual_preset, usual_quality, _ = ENCODERS[name]
    level = usual_quality if quality is None else quality
    if not 0 <= level <= QUALITY_LIMIT:
        raise UsageError(f"quality {quality:g} is out of range: 0 (best) to {QUALITY_LIMIT}, usual {usual_quality:g}")
    if preset is not None and preset not in presets:
        raise UsageError(f"preset {preset} is unknown to {name}: give one of {', '.join(presets)}")
    options = {"preset": preset or usual_preset}
    if name.endswith("_nvenc"):
        return options | {"rc": "vbr", "cq": f"{level:g}", "b": "0"}
    if name == "libx265":  # it prints to the terminal unless told not to
        options["x265-params"] = "log-level=none"
    return options | {"crf": f"{level:g}"}


def open_encoder(context: Any, name: str) -> None:
    """Open a codec context; a hardware encoder without its hardware fails here, before any work is done.

    Raises
    ------
    SinkError
    """
    if name == "libx265" and min(context.width, context.height) < X265_LEAST:
        size = f"{context.width}x{context.height}"
        raise SinkError(f"libx265 takes no side below {X265_LEAST} pixels, this is {size}: use libx264")
    try:
        context.open()
    except (av.error.FFmpegError, ValueError, OSError) as error:
        others = ", ".join(n for n in available_encoders() if n.startswith("libx") and n != name)
        raise SinkError(
            f"the encoder {name} does not open here at {context.width}x{context.height} ({reason(error)}); try {others}"
        ) from None
