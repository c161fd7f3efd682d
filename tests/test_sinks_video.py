"""Video sinks: what is written plays, keeps its times and tags, and survives a fault."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from support import media

from raven.errors import SinkError, UsageError
from raven.sinks import DrawnFrame, StreamInfo, VideoSink, open_sink

SIZE = (64, 64)
VFR = [0, 1001, 2002, 4004, 4505, 9009, 9109, 12012, 15015, 15115, 15215, 20020]
BT709 = {"colorspace": 1, "color_primaries": 1, "color_trc": 1, "color_range": 1}


def stream_info(size: tuple[int, int] = SIZE, **changes: Any) -> StreamInfo:
    values: dict[str, Any] = {
        "time_base": Fraction(1, 24000),
        "frame_rate": Fraction(24000, 1001),
        "sample_aspect_ratio": Fraction(1),
        "color": {},
    }
    return StreamInfo(*size, **(values | changes))


def nv12(index: int, size: tuple[int, int] = SIZE, padding: int = 0) -> np.ndarray:
    """A picture as the GPU hands it out: even size, rows padded with rubbish."""
    width, height = (side + side % 2 for side in size)
    array = np.full((height * 3 // 2, width + padding), 255, np.uint8)
    array[:height, :width] = media.luma(index, width, height)
    array[height:, :width:2] = 90 + index % 40
    array[height:, 1:width:2] = 160
    return array


def write(sink: VideoSink, info: StreamInfo, pts: list[int], padding: int = 0) -> None:
    sink.open(info)
    for i, at in enumerate(pts):
        sink.write(DrawnFrame(i, at, nv12=nv12(i, (info.width, info.height), padding)))


def decode(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def steady(count: int) -> list[int]:
    return [i * 1001 for i in range(count)]


# What is written


@pytest.mark.parametrize("suffix", ["mp4", "mov", "m4v", "mkv"])
@pytest.mark.parametrize("encoder", ["auto", "libx265"])
def test_file_plays_with_the_same_times(tmp_path: Path, suffix: str, encoder: str) -> None:
    path = tmp_path / f"out.{suffix}"
    sink = VideoSink(path, encoder)
    write(sink, stream_info(), VFR)
    sink.close()
    frames = decode(path)
    assert len(frames) == len(VFR)
    if suffix == "mkv":  # it counts in milliseconds
        assert [f.pts for f in frames] == [math.floor(at / 24 + 0.5) for at in VFR]
    else:
        assert [f.pts for f in frames] == VFR
        assert frames[0].time_base == Fraction(1, 24000)
    assert frames[0].format.name == "yuv420p"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("time_base", [Fraction(1, 1000), Fraction(1001, 30000), Fraction(1, 90000), Fraction(1, 25)])
def test_time_bases(tmp_path: Path, time_base: Fraction) -> None:
    pts = [0, 3, 4, 8, 9, 15]
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(time_base=time_base), pts)
    sink.close()
    assert [f.pts * f.time_base for f in decode(tmp_path / "out.mp4")] == [p * time_base for p in pts]


@media.needs_ffmpeg
@pytest.mark.parametrize("pts", [steady(48), VFR], ids=["steady", "variable"])
def test_the_whole_lasts_to_the_end_of_the_last_frame(tmp_path: Path, pts: list[int]) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(), pts)
    sink.close()
    seconds = float(media.ffprobe(tmp_path / "out.mp4", "format=duration")["format"]["duration"])
    assert seconds == pytest.approx((pts[-1] + 1001) / 24000, abs=1.5e-3)


def test_a_late_start_is_kept(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(), [48000 + at for at in steady(30)])
    sink.close()
    assert [f.pts for f in decode(tmp_path / "out.mp4")] == [48000 + at for at in steady(30)]


@media.needs_ffmpeg
def test_rate_tags_and_layout(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    sink = VideoSink(path)
    write(sink, stream_info(color=BT709, sample_aspect_ratio=Fraction(16, 11)), steady(48))
    sink.close()
    (stream,) = media.ffprobe(path, "stream")["streams"]
    said = {
        "codec_name": "h264",
        "pix_fmt": "yuv420p",
        "avg_frame_rate": "24000/1001",
        "r_frame_rate": "24000/1001",
        "nb_frames": "48",
        "color_space": "bt709",
        "color_primaries": "bt709",
        "color_transfer": "bt709",
        "color_range": "tv",
        "sample_aspect_ratio": "16:11",
    }
    assert {name: stream[name] for name in said} == said
    data = path.read_bytes()
    assert 0 < data.find(b"moov") < data.find(b"mdat")  # the index comes first
    assert b"moof" not in data


@media.needs_ffmpeg
def test_no_tags_are_made_up_and_rgb_is_not_passed_on(tmp_path: Path) -> None:
    for name, color in (("none", {}), ("rgb", {"colorspace": 0})):
        sink = VideoSink(tmp_path / f"{name}.mp4")
        write(sink, stream_info(color=color), steady(2))
        sink.close()
        (stream,) = media.ffprobe(tmp_path / f"{name}.mp4", "stream")["streams"]
        assert "color_space" not in stream
        assert "color_primaries" not in stream


@media.needs_ffmpeg
def test_full_range_is_said(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(color={"color_range": 2}), steady(2))
    sink.close()
    assert media.ffprobe(tmp_path / "out.mp4", "stream=color_range")["streams"][0]["color_range"] == "pc"


@media.needs_ffmpeg
def test_h265_in_mp4_has_the_tag_that_apple_plays(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4", "libx265")
    write(sink, stream_info(), steady(3))
    sink.close()
    (stream,) = media.ffprobe(tmp_path / "out.mp4", "stream=codec_name,codec_tag_string")["streams"]
    assert (stream["codec_name"], stream["codec_tag_string"]) == ("hevc", "hvc1")


SMALL = [((64, 48), 0), ((64, 48), 64), ((50, 34), 14), ((33, 21), 6), ((64, 38), 0)]
LARGER = [((64, 64), 0), ((98, 70), 30), ((77, 65), 2)]


@pytest.mark.parametrize(
    ("encoder", "size", "padding"),
    [("libx264", *case) for case in [*SMALL, *LARGER]] + [("libx265", *case) for case in LARGER],
)
def test_pixels_of_any_size_and_stride(tmp_path: Path, encoder: str, size: tuple[int, int], padding: int) -> None:
    sink = VideoSink(tmp_path / "out.mp4", encoder, quality=1)
    write(sink, stream_info(size), steady(6), padding)
    sink.close()
    width, height = (side + side % 2 for side in size)
    assert bool(sink.notices) == ((width, height) != size)
    for i, frame in enumerate(decode(tmp_path / "out.mp4")):
        got = frame.reformat(format="nv12", threads=1).to_ndarray().astype(int)
        assert got.shape == (height * 3 // 2, width)
        assert np.abs(got - nv12(i, size)).max() <= 8


@pytest.mark.parametrize("encoder", ["libx264", "libx265"])
@pytest.mark.parametrize("read_only", [False, True])
def test_memory_is_free_after_write(tmp_path: Path, encoder: str, read_only: bool) -> None:
    """One buffer for all frames, wiped after each: what the encoder looks ahead at must be its own copy."""
    sink = VideoSink(tmp_path / "out.mp4", encoder, quality=1)
    sink.open(stream_info())
    shared = np.zeros((96, 128), np.uint8)
    for i in range(40):
        shared[:, :64] = nv12(i)
        view = shared.view()
        view.flags.writeable = not read_only
        sink.write(DrawnFrame(i, i * 1001, nv12=view))
        shared[:] = 255
    sink.close()
    frames = decode(tmp_path / "out.mp4")
    assert len(frames) == 40
    for i, frame in enumerate(frames):
        assert np.abs(frame.reformat(format="nv12", threads=1).to_ndarray().astype(int) - nv12(i)).max() <= 8


def test_quality_and_preset_are_used(tmp_path: Path) -> None:
    sizes = {}
    for quality in (5, 45):
        sink = VideoSink(tmp_path / f"{quality}.mp4", quality=quality, preset="ultrafast")
        write(sink, stream_info(), steady(12))
        sink.close()
        sizes[quality] = (tmp_path / f"{quality}.mp4").stat().st_size
    assert sizes[45] < sizes[5] * 0.7


# Refusals


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("out.webm",), SinkError, ".mp4, .m4v, .mov, .mkv"),
        (("out.mp4", "xvid"), SinkError, "auto, libx264, libx265"),
        (("out.mp4", "auto", 52), UsageError, "0 (best) to 51"),
        (("out.mp4", "auto", -1), UsageError, "0 (best) to 51"),
        (("out.mp4", "auto", None, "quick"), UsageError, "veryfast"),
    ],
)
def test_impossible_arguments(arguments: tuple, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        VideoSink(*arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def refuse(path: Path | str, words: str) -> None:
    with pytest.raises(SinkError) as caught:
        VideoSink(path).open(stream_info())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_directory_is_missing(tmp_path: Path) -> None:
    refuse(tmp_path / "none" / "out.mp4", "does not exist")


def test_name_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "out.mp4").mkdir()
    refuse(tmp_path / "out.mp4", "is a directory")


def test_name_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.mp4")
    refuse(tmp_path / "out.mp4", "no regular file")


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs /sys as a directory that nobody may write to")
def test_directory_is_not_writable() -> None:
    refuse("/sys/kernel/raven.mp4", "/sys/kernel")


def test_hardware_encoder_without_hardware_fails_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4", "h264_nvenc")
    try:
        sink.open(stream_info((256, 256)))
    except SinkError as error:
        assert "libx264" in str(error)
        assert list(tmp_path.iterdir()) == []
    else:
        sink.abort()
        pytest.skip("needs a machine without NVENC")


def test_x265_is_kept_from_sizes_that_corrupt_its_memory(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="below 64 pixels, this is 48x48: use libx264"):
        VideoSink(tmp_path / "out.mp4", "libx265").open(stream_info((48, 48)))
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_another_size_is_refused(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    sink.open(stream_info())
    with pytest.raises(SinkError, match="does not hold 64x64"):
        sink.write(DrawnFrame(0, 0, nv12=np.zeros((30, 32), np.uint8)))
    sink.abort()


# Faults


def test_existing_output_is_replaced_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    path.write_bytes(b"old")
    sink = VideoSink(path)
    write(sink, stream_info(), steady(5))
    assert path.read_bytes() == b"old"
    sink.close()
    assert len(decode(path)) == 5


def test_a_link_keeps_being_one(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out.mp4").symlink_to(tmp_path / "disk" / "real.mp4")
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(), steady(5))
    sink.close()
    assert (tmp_path / "out.mp4").is_symlink()
    assert len(decode(tmp_path / "disk" / "real.mp4")) == 5


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
def test_abort_keeps_every_frame_under_the_partial_name(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    path.write_bytes(b"old")
    sink = VideoSink(path)
    write(sink, stream_info(), steady(40))
    sink.abort()
    sink.abort()
    partial = tmp_path / f"out.partial.{suffix}"
    assert len(decode(partial)) == 40
    assert path.read_bytes() == b"old"
    assert any(str(partial) in note and "40 finished frames" in note for note in sink.notices)


def test_abort_before_the_first_frame_leaves_nothing(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    sink.abort()
    sink.open(stream_info())
    sink.abort()
    assert list(tmp_path.iterdir()) == []


def test_close_without_a_frame_is_an_error(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    sink.open(stream_info())
    with pytest.raises(SinkError, match="no frame"):
        sink.close()
    assert list(tmp_path.iterdir()) == []


def test_close_is_idempotent(tmp_path: Path) -> None:
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(), steady(3))
    sink.close()
    sink.close()
    sink.abort()
    assert [p.name for p in tmp_path.iterdir()] == ["out.mp4"]


WRITER = """
import resource, sys
from test_sinks_video import VideoSink, DrawnFrame, noise, stream_info
path, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sink = VideoSink(path, preset="ultrafast")
sink.open(stream_info())
try:
    for i in range(100000):
        sink.write(DrawnFrame(i, i * 1001, nv12=noise(i)))
        print(i, flush=True)
except Exception as error:
    print(type(error).__name__, error)
    sink.abort()
"""


def noise(index: int) -> np.ndarray:
    """What no encoder makes small."""
    return np.random.default_rng(index).integers(16, 235, (96, 64), np.uint8)


def writer(path: Path, limit: int = 0) -> subprocess.Popen[str]:
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    command = [sys.executable, "-c", WRITER, str(path), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_killed_run_leaves_a_playable_partial(tmp_path: Path, suffix: str) -> None:
    with writer(tmp_path / f"out.{suffix}") as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        for line in process.stdout:
            if int(line) >= 150 or time.monotonic() > deadline:
                break
        process.send_signal(signal.SIGKILL)
    assert [p.name for p in tmp_path.iterdir()] == [f"out.partial.{suffix}"]
    pts = [f.pts * f.time_base for f in decode(tmp_path / f"out.partial.{suffix}")]
    assert len(pts) >= 90  # all but the last second or two, which the encoder still held
    np.testing.assert_allclose([float(p) for p in pts], np.arange(len(pts)) * 1001 / 24000, atol=6e-4)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_full_disk_is_one_line_and_keeps_what_is_written(tmp_path: Path, suffix: str) -> None:
    with writer(tmp_path / f"out.{suffix}", limit=300_000) as process:
        output = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    assert output[-1].startswith("SinkError")
    assert f"out.{suffix} cannot be written on: File too large; what is finished is kept in out.partial" in output[-1]
    assert [p.name for p in tmp_path.iterdir()] == [f"out.partial.{suffix}"]
    count = 0
    with av.open(str(tmp_path / f"out.partial.{suffix}")) as container:
        for packet in container.demux(video=0):
            with contextlib.suppress(av.error.InvalidDataError):  # the one that the limit cut
                count += len(packet.decode())
    assert count >= 24


def test_disk_full_at_the_very_end_falls_back_to_the_file_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("raven.sinks.video.remux", fail)
    sink = VideoSink(tmp_path / "out.mp4")
    write(sink, stream_info(), VFR)
    sink.close()
    assert [p.name for p in tmp_path.iterdir()] == ["out.mp4"]
    assert [f.pts for f in decode(tmp_path / "out.mp4")] == VFR
    assert any("No space left" in note for note in sink.notices)


def test_open_sink_passes_on_what_is_asked(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out.mkv", encoder="libx265", quality=30)
    assert isinstance(sink, VideoSink)
    assert (sink.encoder, sink.wants) == ("libx265", {"nv12"})
