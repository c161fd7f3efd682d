"""How fast the parts that every program shares run alone: decoding, the model, encoding with the sink's settings.

No program that does all three can pass the slowest of them; with all CPUs busy it cannot pass the CPUs over the sum of
the CPU times either. Prints one JSON object.

    python benchmarks/ceilings.py out/bikes.mp4
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time

import av
import numpy as np
from script_baseline import open_session

#: Runs of the model: enough for a steady mean, a few seconds at most.
RUNS = 60


def timed(work: Callable[[], int]) -> dict[str, float]:
    """Frames a second, and the CPU time of all threads a frame."""
    cpu, begun = process_time(), perf_counter()
    frames = work()
    seconds, cpu = perf_counter() - begun, process_time() - cpu
    return {"fps": round(frames / seconds, 2), "cpu_ms": round(cpu / frames * 1e3, 3)}


def decoded(path: str, limit: int) -> tuple[list[av.VideoFrame], Fraction]:
    """The first frames of a video, held in memory, and its rate."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        return list(islice(container.decode(stream), limit)), stream.average_rate or Fraction(25)


def encode(frames: list[av.VideoFrame], rate: Fraction, path: Path, preset: str, crf: int) -> int:
    """Encode frames with libx264 as both sides do."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate)
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = frames[0].width, frames[0].height, "yuv420p"
        context.thread_count, context.thread_type = 0, "AUTO"
        context.options = {"preset": preset, "crf": str(crf)}
        for number, frame in enumerate(frames):
            frame.pts, frame.time_base = number, 1 / rate
            frame.pict_type = 0  # the encoder chooses, not the source
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return len(frames)


def infer(model: str) -> Callable[[], int]:
    """The model alone, its threads not spinning, warm."""
    session = open_session(model, spinning=False)
    first = session.get_inputs()[0]
    feed = {first.name: np.zeros(first.shape, np.float32)}
    session.run(None, feed)

    def work() -> int:
        for _ in range(RUNS):
            session.run(None, feed)
        return RUNS

    return work


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Every part alone, and the bound that they set together."""
    stored, rate = decoded(args.input, args.frames)
    frames = [frame.reformat(format="yuv420p") for frame in stored]
    parts = {"decode": timed(lambda: len(decoded(args.input, args.frames)[0])), "infer": timed(infer(args.model))}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.mp4")
        parts["encode"] = timed(lambda: encode(frames, rate, path, args.preset, args.crf))
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bound = cpus * 1e3 / sum(part["cpu_ms"] for part in parts.values())
    return {**parts, "cpus": cpus, "bound_fps": round(min(bound, *(part["fps"] for part in parts.values())), 2)}


def parser() -> argparse.ArgumentParser:
    """Flags, as the other sides have them."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("input")
    flags.add_argument("--model", default=str(Path(__file__).resolve().parents[1] / "models" / "nanodet_416.onnx"))
    flags.add_argument("--frames", type=int, default=300, help="at most: they are held in memory")
    flags.add_argument("--preset", default="veryfast")
    flags.add_argument("--crf", type=int, default=20)
    return flags


if __name__ == "__main__":
    print(json.dumps(measure(parser().parse_args())))
