"""Raven doing the benchmark's job, timed as the script is: from the output's opening until the file has its name.

The report of a run stops its clock at the last frame handed to a sink; what an encoder still holds then, and the
writing of the index, would be left out. Here the sink itself holds the clock. Prints one JSON object.

    python benchmarks/raven_side.py out/bikes.mp4 -o out/raven.mp4
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from raven.pipeline import RunOptions, run
from raven.sinks import DrawnFrame, Sink, StreamInfo, open_sink


class TimedSink:
    """Passes everything on to a sink, and notes when it was opened, handed its last frame, and closed."""

    def __init__(self, sink: Sink) -> None:
        self.sink, self.wants, self.notices = sink, sink.wants, sink.notices
        self.opened = self.last = self.closed = 0.0

    def open(self, info: StreamInfo) -> None:
        self.opened = perf_counter()
        self.sink.open(info)

    def write(self, frame: DrawnFrame) -> None:
        self.sink.write(frame)
        self.last = perf_counter()

    def close(self) -> None:
        self.sink.close()
        self.closed = perf_counter()

    def abort(self) -> None:
        self.sink.abort()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The report of a run, its clock replaced by the sink's."""
    sink = TimedSink(open_sink(args.output, encoder="libx264", quality=args.crf, preset=args.preset))
    options = RunOptions(
        args.input,
        model=args.model,
        backend=args.backend,
        conf=args.conf,
        iou=args.iou,
        max_det=args.max_det,
        frames=args.frames,
        device=args.device,
        route=args.route,
        slots=args.slots,
        sinks=(sink,),
    )
    result = run(options).as_dict()
    seconds = sink.closed - sink.opened
    result |= {"seconds": round(seconds, 4), "fps": round(result["frames"] / seconds, 3)}
    return result | {"closing_seconds": round(sink.closed - sink.last, 4)}


def parser() -> argparse.ArgumentParser:
    """The script's flags, and Raven's own."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("input")
    flags.add_argument("-o", "--output", required=True)
    flags.add_argument("--model", default="nanodet_416")
    flags.add_argument("--conf", type=float, default=0.4)
    flags.add_argument("--iou", type=float, default=0.5)
    flags.add_argument("--max-det", type=int, default=300)
    flags.add_argument("--frames", type=int)
    flags.add_argument("--preset", default="veryfast")
    flags.add_argument("--crf", type=int, default=20)
    flags.add_argument("--backend", default="cpu")
    flags.add_argument("--device")
    flags.add_argument("--route", default="auto")
    flags.add_argument("--slots", type=int)
    return flags


def main(args: Sequence[str] | None = None) -> None:
    """Run and print."""
    print(json.dumps(measure(parser().parse_args(args))))


if __name__ == "__main__":
    main()
