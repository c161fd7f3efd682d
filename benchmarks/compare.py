"""Raven against the usual script: the same clip, model, thresholds and encoder, run alternately in one go.

Each round runs every side once, in turn, so that a machine that warms up or is shared slows all of them alike; the
ratio is taken within a round. Every side counts until its file is whole, from when its models are loaded and warm.
Sides: Raven, the script with ONNX Runtime's spinning threads off, and the script as most people have it (on).

    python benchmarks/compare.py out/bikes.mp4 --out out/compare.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIDES = ("raven", "script", "script-spinning")
#: Seconds for one run of one side; a stuck one must not stop the comparison for ever.
LIMIT = 600


def command(side: str, args: argparse.Namespace, folder: Path) -> list[str]:
    """The command line of a side, writing its video into ``folder``."""
    output = str(folder / f"{side}.mp4")
    same = ["--conf", str(args.conf), "--iou", str(args.iou), "--max-det", str(args.max_det), "--model", args.model]
    words = [sys.executable, script_of(side), args.input, "-o", output, *same, *encoding(args)]
    if side == "raven":
        return [*words, *args.raven]
    return [*words, "--head", args.head, *(["--spinning"] if side.endswith("spinning") else [])]


def script_of(side: str) -> str:
    """The program that does a side's work."""
    return str(HERE / ("raven_side.py" if side == "raven" else "script_baseline.py"))


def encoding(args: argparse.Namespace) -> list[str]:
    """Flags that every side takes, the ceilings too."""
    limit = ["--frames", str(args.frames)] if args.frames else []
    return [*limit, "--preset", args.preset, "--crf", str(args.crf)]


def run_once(side: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run a side and return its figures."""
    with tempfile.TemporaryDirectory() as name:
        result = run_json(side, command(side, args, Path(name)))
        result["bytes"] = Path(name, f"{side}.mp4").stat().st_size
        return result


def run_json(name: str, words: list[str]) -> dict[str, Any]:
    """Run a program that prints JSON last.

    Raises
    ------
    SystemExit
        It failed: with its last line.
    """
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"error: {name} failed with {done.returncode}: {last}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def ceilings(args: argparse.Namespace) -> dict[str, Any]:
    """Decoding, the model and encoding, each alone."""
    words = [sys.executable, str(HERE / "ceilings.py"), args.input, "--model", args.model, *encoding(args)]
    return run_json("ceilings", words)


def measure(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Figures of every side, a run a round; the first round only warms caches and is thrown away."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in args.sides}
    for turn in range(args.rounds + 1):
        # Back and forth: no side always has the place after the same other one.
        order = args.sides if turn % 2 else list(reversed(args.sides))
        for side in order:
            result = run_once(side, args)
            if turn:
                runs[side].append(result)
            print(f"round {turn} {side:16} {result['fps']:8.2f} frames/s", file=sys.stderr)
    return runs


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def compare(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Frames a second of every side, and Raven's ratio to each, taken round by round."""
    rates = {side: [result["fps"] for result in results] for side, results in runs.items()}
    ratios = {
        side: spread([ours / theirs for ours, theirs in zip(rates["raven"], rates[side], strict=True)])
        for side in runs
        if side != "raven" and "raven" in runs
    }
    counts = {side: results[0]["frames"] for side, results in runs.items()}
    if len(set(counts.values())) > 1:
        raise SystemExit(f"error: the sides did not write the same frames: {counts}")
    return {
        "frames_per_second": {side: spread(values) for side, values in rates.items()},
        "raven_over": ratios,
        "frames": next(iter(counts.values())),
        "bytes": {side: results[0]["bytes"] for side, results in runs.items()},
    }


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    """What the figures depend on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "cpu": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "settings": {k: v for k, v in vars(args).items() if k not in ("out", "sides")},
    }


def cpu_name() -> str:
    """The processor's name as Linux gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def text(result: dict[str, Any]) -> str:
    """The table that goes into a page about performance."""
    where = result["conditions"]
    lines = [f"{where['cpu']}, {where['cpus']} CPUs, commit {where['commit']}, {result['frames']} frames"]
    for side, rate in result["frames_per_second"].items():
        line = f"{side:16} {rate['median']:8.2f} frames/s ({rate['min']:.2f} to {rate['max']:.2f})"
        if side in result["raven_over"]:
            ratio = result["raven_over"][side]
            line += f"   raven is x{ratio['median']:.2f} (x{ratio['min']:.2f} to x{ratio['max']:.2f})"
        lines.append(line)
    alone = ", ".join(f"{name} {result['ceilings'][name]['fps']:.1f}" for name in ("decode", "infer", "encode"))
    lines.append(f"alone, frames/s: {alone}; together at most {result['ceilings']['bound_fps']:.1f}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Flags."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("input")
    flags.add_argument("--out", help="JSON file")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    flags.add_argument("--model", default=str(HERE.parent / "models" / "nanodet_416.onnx"))
    flags.add_argument("--head", choices=("nanodet", "yolox"), default="nanodet")
    flags.add_argument("--conf", type=float, default=0.4)
    flags.add_argument("--iou", type=float, default=0.5)
    flags.add_argument("--max-det", type=int, default=300)
    flags.add_argument("--frames", type=int)
    flags.add_argument("--preset", default="veryfast")
    flags.add_argument("--crf", type=int, default=20)
    flags.add_argument("--raven", nargs=argparse.REMAINDER, default=[], help="further flags of raven_side.py; last")
    return flags


def main() -> None:
    """Measure, print, write."""
    args = parser().parse_args()
    runs = measure(args)
    result = compare(runs) | {"ceilings": ceilings(args), "conditions": conditions(args), "runs": runs}
    print(text(result))
    if args.out:
        Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        Path(args.out).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
