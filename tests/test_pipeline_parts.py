"""Ring, statistics, options and trace by themselves."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from raven.errors import SinkError, UsageError
from raven.pipeline.options import RunOptions
from raven.pipeline.ring import Ring
from raven.pipeline.statistics import Durations
from raven.pipeline.trace import Trace


def test_percentiles_agree_with_numpy_within_one_per_cent() -> None:
    values = np.random.default_rng(1).lognormal(14, 1.5, 20_000).astype(int)
    durations = Durations()
    for value in values:
        durations.add(int(value))
    summary = durations.summary()
    assert summary.count == len(values)
    assert summary.mean == pytest.approx(values.mean())
    assert summary.p50 == pytest.approx(np.percentile(values, 50), rel=0.011)
    assert summary.p99 == pytest.approx(np.percentile(values, 99), rel=0.011)


def test_a_slow_consumer_stalls_the_producer() -> None:
    ring = Ring([1, 2, 3])
    made = []

    def produce() -> None:
        while (slot := ring.take("free")) is not None:
            made.append(slot)
            ring.put("input", slot)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    time.sleep(0.05)
    assert len(made) == 3
    ring.put("free", ring.take("input"))
    time.sleep(0.05)
    assert len(made) == 4
    ring.end()
    thread.join(2)
    assert not thread.is_alive()


def test_the_first_fault_ends_every_stage() -> None:
    ring = Ring([1])
    ring.take("free")
    ended = []
    threads = [threading.Thread(target=lambda s=s: ended.append(ring.take(s)), daemon=True) for s in Ring.STATIONS]
    for thread in threads:
        thread.start()
    ring.fail(ValueError("first"))
    ring.fail(ValueError("second"))
    for thread in threads:
        thread.join(2)
    assert ended == [None] * 3
    assert str(ring.cause) == "first"
    assert ring.take("free") is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("conf", 1.5, "--conf 1.5 is outside 0 to 1"),
        ("iou", -0.1, "--iou -0.1 is outside 0 to 1"),
        ("conf", float("nan"), "--conf nan is outside"),
        ("max_det", 0, "--max-det 0 is outside 1 to"),
        ("frames", 0, "--frames 0 is outside 1 to"),
        ("route", "fast", "route 'fast' is not known; use one of auto, raster, compute"),
    ],
)
def test_impossible_options_are_named(field: str, value: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RunOptions(input="x", **{field: value})


def test_trace_is_json_that_a_viewer_reads(tmp_path) -> None:
    trace = Trace(str(tmp_path / "t.json"))
    trace.span("host", "source", "decode", 1_000_000, 3_000_000, 0)
    trace.span("gpu", "gpu", "draw", 2_000_000, 5_000_000, 0)
    trace.close()
    trace.close()
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [(s["name"], s["ts"], s["dur"], s["args"]["frame"]) for s in spans] == [
        ("decode", 1000.0, 2000.0, 0),
        ("draw", 2000.0, 3000.0, 0),
    ]
    names = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert names == {"host", "gpu", "source"}


def test_unwritable_trace_is_one_line(tmp_path) -> None:
    with pytest.raises(SinkError, match=r"cannot write the trace .*No such file"):
        Trace(str(tmp_path / "no" / "t.json"))
