"""The engine as a whole: real files in, real files out, faults, stops, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import av
import numpy as np
import pytest
from support.media import make_clip, make_image, probed_pts
from support.tiny_detector import tiny_detector

import raven
from raven.errors import DeviceError, RavenError, SinkError, SourceError, UsageError
from raven.gpu import Device
from raven.pipeline import RunOptions, run
from raven.pipeline.engine import Engine
from raven.sinks import NullSink
from raven.sources import open_source
from raven.tensor import Tensor


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_detector(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=40, size=(160, 96))


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_frame_once_in_order_with_its_time(tmp_path: Path, clip: Path, model: str) -> None:
    out, found = tmp_path / "out.mp4", tmp_path / "found.jsonl"
    report = run(RunOptions(str(clip), str(out), model=model, detections=str(found), report=str(tmp_path / "r.json")))
    assert report.frames == 40
    assert [row["frame"] for row in rows_of(found)] == list(range(40))
    assert probed_pts(out) == probed_pts(clip)
    assert all(row["detections"] for row in rows_of(found))
    assert json.loads((tmp_path / "r.json").read_text())["frames"] == 40
    assert report.allocations_after_warm_up == 0
    assert report.bytes_read_back_per_frame > 0
    assert not report.interrupted


def test_boxes_are_drawn_and_the_rest_is_the_source(tmp_path: Path, clip: Path, model: str) -> None:
    drawn = [frame.copy() for frame in _pictures(clip, model, draw=True)]
    plain = [frame.copy() for frame in _pictures(clip, model, draw=False)]
    changed = np.any(drawn[20] != plain[20], axis=2)
    assert 0.01 < changed.mean() < 0.7
    assert not changed[-16:].any()  # the boxes end at half the height


def _pictures(clip: Path, model: str, draw: bool):
    for result in raven.stream(str(clip), model=model, images=True, draw=draw):
        yield result.image


def test_stream_gives_results_and_leaving_it_ends_the_run(clip: Path, model: str) -> None:
    before = threading.active_count()
    for result in raven.stream(str(clip), model=model):
        assert result.detections.class_name[0] == "bright"
        assert result.detections.xyxy.shape == (len(result.detections), 4)
        if result.index == 5:
            break
    assert result.time == pytest.approx(0.2)
    assert threading.active_count() == before


def test_the_python_interface_raises_what_the_run_raises(model: str) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        list(raven.stream("no/such/file.mp4", model=model))


def test_classes_thresholds_and_max_det(tmp_path: Path, clip: Path, model: str) -> None:
    def count(**options) -> list[int]:
        found = tmp_path / "found.jsonl"
        run(RunOptions(str(clip), model=model, detections=str(found), frames=5, **options))
        return [len(row["detections"]) for row in rows_of(found)]

    everything = count(conf=0.0)
    assert everything == [4] * 5
    assert count(conf=0.0, classes=("dark",)) == [2] * 5
    assert count(conf=0.0, max_det=3) == [3] * 5
    assert count(conf=1.0) == [0] * 5
    with pytest.raises(UsageError, match=r"class 'brigt' is not among the model's 2 classes; did you mean 'bright'"):
        count(classes=("brigt",))


def test_overflow_is_reported(tmp_path: Path, clip: Path, model: str) -> None:
    options = RunOptions(str(clip), model=model, detections=str(tmp_path / "f.jsonl"), frames=6, conf=0.0, max_det=2)
    report = run(options)
    assert report.overflowed == 6
    assert any("--max-det" in notice for notice in report.notices)


def test_images_of_mixed_sizes(tmp_path: Path, model: str) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    sizes = [(40, 30), (64, 64), (33, 51), (40, 30)]
    for index, size in enumerate(sizes):
        make_image(folder / f"image{index + 8}.png", size, value=index)
    report = run(RunOptions(str(folder), str(out), model=model, detections=str(tmp_path / "f.jsonl")))
    assert report.frames == 4
    assert [(row["width"], row["height"]) for row in rows_of(tmp_path / "f.jsonl")] == sizes
    assert len(list(out.iterdir())) == 4
    with pytest.raises(SinkError, match=r"image9.png is 64x64, the video is 40x30; write to a directory"):
        run(RunOptions(str(folder), str(tmp_path / "out.mp4"), model=model))
    assert not (tmp_path / "out.mp4").exists()


def test_odd_sizes_are_padded_with_a_notice(tmp_path: Path, model: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(3):
        make_image(folder / f"{index}.png", (41, 31), value=index)
    report = run(RunOptions(str(folder), str(tmp_path / "out.mp4"), model=model))
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (42, 32)
    assert any("41x31 is odd: written as 42x32" in notice for notice in report.notices)


def test_rotated_video_comes_out_upright(tmp_path: Path, model: str) -> None:
    clip = make_clip(tmp_path / "turned.mp4", frames=6, size=(96, 64), turn=(90, False, False))
    run(RunOptions(str(clip), str(tmp_path / "out.mp4"), model=model))
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (64, 96)


class Breaking(NullSink):
    """A sink that fails at one frame."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at, self.error, self.aborted = at, error, False

    def write(self, frame) -> None:
        if frame.index == self.at:
            raise self.error

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("error", [SinkError("disk full"), ValueError("a callback's own fault"), KeyboardInterrupt()])
def test_a_fault_in_a_sink_ends_all_and_keeps_what_was_finished(tmp_path, clip, model, error) -> None:
    sink = Breaking(20, error)
    with pytest.raises(type(error)):
        run(RunOptions(str(clip), str(tmp_path / "out.mp4"), model=model, sinks=(sink,)))
    assert sink.aborted
    assert not (tmp_path / "out.mp4").exists()
    with av.open(str(tmp_path / "out.partial.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) >= 20
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("raven-")]


def test_a_fault_in_the_model_is_the_first_cause(clip: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from raven.infer.onnxruntime import OnnxBinding

    calls = iter(range(100))
    original = OnnxBinding.run

    def fail(self) -> None:
        if next(calls) == 7:
            raise RavenError("the model broke")
        original(self)

    monkeypatch.setattr(OnnxBinding, "run", fail)
    with pytest.raises(RavenError, match="the model broke"):
        run(RunOptions(str(clip), model=model))


def test_a_lost_device_ends_the_run_in_a_line(clip: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from raven.gpu.timeline import Submission

    count = iter(range(1000))
    original = Submission.submit

    def lose(self, waits, signals):
        if len(waits) and next(count) == 9:
            from raven.gpu import vk

            vk.check(-4, "vkQueueSubmit2")
        return original(self, waits, signals)

    monkeypatch.setattr(Submission, "submit", lose)
    with pytest.raises(DeviceError, match="VK_ERROR_DEVICE_LOST; the GPU was reset or removed"):
        run(RunOptions(str(clip), model=model))


def test_a_stop_finishes_the_file(tmp_path: Path, clip: Path, model: str) -> None:
    stop = threading.Event()
    options = RunOptions(str(clip), str(tmp_path / "out.mp4"), model=model, stop=stop)
    report = run(options, progress=lambda done, total: stop.set() if done == 10 else None)
    assert report.interrupted
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == report.frames >= 10
    assert report.frames < 40


def test_output_over_the_input_is_refused(clip: Path, model: str) -> None:
    before = clip.read_bytes()
    with pytest.raises(UsageError):
        run(RunOptions(str(clip), str(clip), model=model))
    assert clip.read_bytes() == before


@pytest.mark.parametrize("flag", ["detections", "report", "trace"])
def test_two_outputs_of_one_name_are_refused(tmp_path: Path, clip: Path, model: str, flag: str) -> None:
    out = tmp_path / "out.mp4"
    with pytest.raises(UsageError, match=f"named twice, as output and as {flag}"):
        run(RunOptions(str(clip), str(out), model=model, **{flag: str(tmp_path / "." / "out.mp4")}))
    assert not out.exists()


def test_no_count_is_read_by_the_host(clip: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every host-side path to tensors and read-backs poisoned, boxes are drawn all the same."""
    pictures: list[np.ndarray] = []

    class Keep(NullSink):
        def write(self, frame) -> None:
            pictures.append(frame.rgba.copy())

    def poisoned(*_: object, **__: object) -> None:
        raise AssertionError("the host read a tensor")

    original = Engine.warm_up

    def warm_up(self: Engine) -> None:
        original(self)
        for name in ("read", "read_header"):
            monkeypatch.setattr(Tensor, name, poisoned)
        monkeypatch.setattr(Tensor, "array", property(poisoned))

    monkeypatch.setattr(Engine, "warm_up", warm_up)
    report = run(RunOptions(str(clip), model=model, sinks=(Keep(("rgba",)),), frames=10))
    monkeypatch.undo()
    plain = list(_pictures(clip, model, draw=False))
    assert report.detections == -1
    assert (pictures[5] != plain[5]).any()


def test_twenty_engines_leave_nothing(clip: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[Device] = []
    original = Device.__init__

    def remember(self, *args, **options) -> None:
        original(self, *args, **options)
        devices.append(self)

    monkeypatch.setattr(Device, "__init__", remember)

    def once() -> None:
        source = open_source(str(clip))
        engine = Engine(
            RunOptions(str(clip), model=model, route="compute"), source.info.format, frozenset({"nv12"}), True
        )
        engine.warm_up()
        engine.close()
        source.close()

    once()
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        once()
    assert len(devices) == 21
    assert all(not +device.counts and not -device.counts for device in devices)
    assert len(os.listdir("/proc/self/fd")) == descriptors


WITHOUT_THE_LAYER = """
import ctypes, gc, os, sys
from raven.pipeline import RunOptions
from raven.pipeline.engine import Engine
from raven.sources import open_source

def once():
    source = open_source(sys.argv[1])
    options = RunOptions(sys.argv[1], model=sys.argv[2], route="compute")
    engine = Engine(options, source.info.format, frozenset({"nv12"}), True)
    engine.warm_up()
    engine.close()
    source.close()

def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free but kept by the C library is no leak
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

for _ in range(10):
    once()
before = resident()
for _ in range(20):
    once()
print(resident() - before)
"""


def test_twenty_engines_leave_no_memory(clip: Path, model: str) -> None:
    """In a process of its own without the validation layer, which keeps memory itself; ten engines to warm up."""
    environment = {**os.environ, "RAVEN_VALIDATION": "0", "PYTHONPATH": str(Path(raven.__file__).parents[1])}
    command = [sys.executable, "-c", WITHOUT_THE_LAYER, str(clip), model]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert int(out) < 16 << 20
