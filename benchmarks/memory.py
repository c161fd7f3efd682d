"""Does memory stay flat? Runs a clip end to end, again and again in one stream, and watches the process.

    python benchmarks/memory.py out/bikes.mp4 --frames 5000

Prints resident memory at a twentieth of the run and at its end, and Vulkan objects made after warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from raven.pipeline import RunOptions, run


def resident() -> int:
    """Resident bytes of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def looped(clip: str, frames: int, folder: Path) -> str:
    """The clip over and over, without encoding it again."""
    path = folder / "looped.mkv"
    loop = ["-stream_loop", "-1", "-i", clip, "-frames:v", str(frames + 50), "-c", "copy", "-an"]
    subprocess.run(["ffmpeg", "-v", "error", *loop, str(path)], check=True)
    return str(path)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clip")
    parser.add_argument("--frames", type=int, default=5000)
    parser.add_argument("--model", default="nanodet_416")
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    marks = {options.frames // 10: 0, options.frames: 0}

    def watch(done: int, _: int | None) -> None:
        if done in marks:
            marks[done] = resident()

    with tempfile.TemporaryDirectory() as folder:
        chosen = RunOptions(
            looped(options.clip, options.frames, Path(folder)),
            str(Path(folder) / "out.mp4"),
            model=options.model,
            backend=options.backend,
            detections=str(Path(folder) / "found.jsonl"),
            frames=options.frames,
        )
        report = run(chosen, watch)
    first, last = marks.values()
    print(
        json.dumps(
            {
                "frames": report.frames,
                "fps": report.fps,
                "growth_mib": round((last - first) / 2**20, 2),
                "resident_mib": round(last / 2**20, 1),
                "allocations_after_warm_up": report.allocations_after_warm_up,
            }
        )
    )


if __name__ == "__main__":
    main()
