"""Image, JSON Lines and null sinks, the choice among sinks, and outputs that are inputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raven.errors import SinkError, UsageError
from raven.sinks import (
    DrawnFrame,
    ImageDirSink,
    JsonLinesSink,
    NullSink,
    Sink,
    StreamInfo,
    VideoSink,
    check_output,
    open_sink,
)
from raven.sinks.jsonl import cut_to_last_line

INFO = StreamInfo(768, 576, Fraction(1, 10240), Fraction(10), Fraction(1), {}, class_names=("person", "bicycle"))


def rgba(index: int) -> np.ndarray:
    picture = np.full((12, 20, 4), 255, np.uint8)
    picture[..., 0], picture[..., 1], picture[..., 2] = index * 3, np.arange(20) * 12, 7
    return picture


def rows(*detections: tuple[float, ...]) -> np.ndarray:
    return np.array(detections, np.float32).reshape(-1, 8)


def run(sink: Sink, frames: list[DrawnFrame]) -> None:
    sink.open(INFO)
    for frame in frames:
        sink.write(frame)
    sink.close()


# Images


def test_directory_of_images(tmp_path: Path) -> None:
    sink = ImageDirSink(tmp_path / "out", format="png")
    shared = rgba(0)
    sink.open(INFO)
    for i in range(20):
        shared[:] = rgba(i)
        sink.write(DrawnFrame(i, i, rgba=shared))
        shared[:] = 0  # the memory is the GPU's again
    sink.close()
    sink.close()
    names = sorted(os.listdir(tmp_path / "out"))
    assert names == [f"frame_{i:06d}.png" for i in range(20)]
    for i, name in enumerate(names):
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / name)), rgba(i)[..., :3])


def test_images_keep_their_sources_names(tmp_path: Path) -> None:
    names = ["cat.png", "cat.jpg", "dog.v2.bmp", None]
    run(ImageDirSink(tmp_path), [DrawnFrame(i, i, rgba=rgba(i), name=name) for i, name in enumerate(names)])
    assert sorted(os.listdir(tmp_path)) == ["cat.jpg", "cat.jpg.jpg", "dog.v2.jpg", "frame_000003.jpg"]
    first = np.asarray(Image.open(tmp_path / "cat.jpg")).astype(int)
    assert np.abs(first - rgba(0)[..., :3]).max() < 16


def test_pattern_and_single_file(tmp_path: Path) -> None:
    run(open_sink(tmp_path / "shot_%04d.png"), [DrawnFrame(i, i, rgba=rgba(i)) for i in range(3)])
    assert sorted(os.listdir(tmp_path)) == [f"shot_{i:04d}.png" for i in range(3)]
    run(open_sink(tmp_path / "one.jpg"), [DrawnFrame(0, 0, rgba=rgba(0))])
    assert Image.open(tmp_path / "one.jpg").format == "JPEG"
    with pytest.raises(SinkError, match="%06d"):
        run(open_sink(tmp_path / "two.jpg"), [DrawnFrame(i, i, rgba=rgba(i)) for i in range(2)])


def test_rows_may_be_padded(tmp_path: Path) -> None:
    wide = np.zeros((12, 32, 4), np.uint8)
    wide[:, :20] = rgba(5)
    run(ImageDirSink(tmp_path, "png"), [DrawnFrame(0, 0, rgba=wide[:, :20])])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "frame_000000.png")), rgba(5)[..., :3])


def test_a_failed_image_surfaces_and_leaves_no_half(tmp_path: Path) -> None:
    sink = ImageDirSink(tmp_path / "out", "png")
    sink.open(INFO)
    sink.write(DrawnFrame(0, 0, rgba=rgba(0)))
    (tmp_path / "out" / "frame_000001.png").mkdir()  # nothing can be put in its place
    with pytest.raises(SinkError, match="an image cannot be written") as caught:
        for i in range(1, 50):
            sink.write(DrawnFrame(i, i, rgba=rgba(i)))
        sink.close()
    assert "\n" not in str(caught.value)
    sink.abort()
    left = os.listdir(tmp_path / "out")
    assert not [name for name in left if name.endswith(".partial")]
    assert "frame_000000.png" in left


def test_abort_finishes_the_images_on_their_way(tmp_path: Path) -> None:
    sink = ImageDirSink(tmp_path, "png")
    sink.open(INFO)
    for i in range(6):
        sink.write(DrawnFrame(i, i, rgba=rgba(i)))
    sink.abort()
    assert len(os.listdir(tmp_path)) == 6
    assert sink.notices == [f"6 finished images are kept in {tmp_path}"]


def test_image_refusals(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="jpg, jpeg, png"):
        ImageDirSink(tmp_path, "exr")
    with pytest.raises(SinkError, match="cannot be made"):
        ImageDirSink(tmp_path / "none" / "out").open(INFO)
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="is a file"):
        ImageDirSink(tmp_path / "file").open(INFO)


# JSON Lines


def test_json_lines_exactly(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    found = rows(
        (12.5, 30.004, 80.256, 200, 0.91239, 0, -1, 0), (0, 0, 767.999, 576, 0.5, 1, 42, 0), (1, 2, 3, 4, 1, 7, 3, 0)
    )
    run(
        JsonLinesSink(path),
        [DrawnFrame(0, 0, detections=found), DrawnFrame(1, 1024, detections=rows()), DrawnFrame(2, 2049)],
    )
    assert path.read_text() == (
        '{"frame":0,"pts":0.0,"width":768,"height":576,"detections":['
        '{"xyxy":[12.5,30.0,80.26,200.0],"confidence":0.9124,"class_id":0,"class_name":"person","tracker_id":null},'
        '{"xyxy":[0.0,0.0,768.0,576.0],"confidence":0.5,"class_id":1,"class_name":"bicycle","tracker_id":42},'
        '{"xyxy":[1.0,2.0,3.0,4.0],"confidence":1.0,"class_id":7,"class_name":null,"tracker_id":3}]}\n'
        '{"frame":1,"pts":0.1,"width":768,"height":576,"detections":[]}\n'
        '{"frame":2,"pts":0.200098,"width":768,"height":576,"detections":[]}\n'
    )
    assert os.listdir(tmp_path) == ["out.jsonl"]


def test_json_never_holds_nan(tmp_path: Path) -> None:
    run(
        JsonLinesSink(tmp_path / "out.jsonl"),
        [DrawnFrame(0, 0, detections=rows((np.nan, 0, np.inf, 1, 0.5, 0, -1, 0)))],
    )

    def refuse(word: str) -> None:
        raise AssertionError(word)

    line = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=refuse)
    assert line["detections"][0]["xyxy"] == [None, 0.0, None, 1.0]


def test_json_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    sink = open_sink("-")
    run(sink, [DrawnFrame(0, 0)])
    sink.abort()
    assert json.loads(capsys.readouterr().out)["frame"] == 0


def test_json_lines_are_on_the_disk_as_they_come_and_abort_keeps_them(tmp_path: Path) -> None:
    path, partial = tmp_path / "out.jsonl", tmp_path / "out.partial.jsonl"
    path.write_text("old")
    sink = JsonLinesSink(path)
    sink.open(INFO)
    for i in range(3):
        sink.write(DrawnFrame(i, i))
        assert len(partial.read_text().splitlines()) == i + 1
    sink.abort()
    sink.close()
    assert path.read_text() == "old"
    assert [json.loads(line)["frame"] for line in partial.read_text().splitlines()] == [0, 1, 2]
    assert sink.notices == [f"3 finished lines are kept in {partial}"]


def test_json_abort_without_lines_leaves_nothing(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "out.jsonl")
    sink.open(INFO)
    sink.abort()
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full as a disk without space")
def test_json_on_a_full_disk() -> None:
    sink = JsonLinesSink("/dev/full")
    sink.open(INFO)
    with pytest.raises(SinkError, match="No space left on device"):
        sink.write(DrawnFrame(0, 0))
    sink.abort()
    assert os.path.exists("/dev/full")


LIMITED = """
import resource, sys
from test_sinks_data import INFO, DrawnFrame, JsonLinesSink
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sink = JsonLinesSink(sys.argv[1])
sink.open(INFO)
try:
    for i in range(100):
        sink.write(DrawnFrame(i, i))
except Exception as error:
    print(type(error).__name__, error)
    sink.abort()
"""


def test_json_line_cut_by_a_full_disk_is_dropped(tmp_path: Path) -> None:
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "out.jsonl")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.startswith("SinkError")
    assert "File too large" in done.stdout
    lines = (tmp_path / "out.partial.jsonl").read_text()
    assert lines.endswith("}\n")
    assert [json.loads(line)["frame"] for line in lines.splitlines()] == list(range(len(lines.splitlines())))
    assert 10 < len(lines.splitlines()) < 20


@pytest.mark.parametrize(("text", "kept"), [("a\nb\nc", "a\nb\n"), ("a\n", "a\n"), ("abc", ""), ("", "")])
def test_cut_to_last_line(tmp_path: Path, text: str, kept: str) -> None:
    (tmp_path / "file").write_text(text)
    cut_to_last_line(tmp_path / "file")
    assert (tmp_path / "file").read_text() == kept


# Choice and checks


def test_null_sink_counts() -> None:
    sink = NullSink(wants={"nv12"})
    run(sink, [DrawnFrame(i, i) for i in range(5)])
    assert (sink.frames, sink.wants) == (5, {"nv12"})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("out.mp4", VideoSink),
        ("OUT.MKV", VideoSink),
        ("out", ImageDirSink),
        ("out.v2/", ImageDirSink),
        ("%d.png", ImageDirSink),
        ("out.jpeg", ImageDirSink),
        ("out.jsonl", JsonLinesSink),
        ("-", JsonLinesSink),
    ],
)
def test_choice_of_sink(name: str, kind: type[Any]) -> None:
    assert type(open_sink(name)) is kind


def test_unknown_suffix_lists_the_known_ones() -> None:
    with pytest.raises(SinkError) as caught:
        open_sink("out.wmv")
    for suffix in (".mp4", ".mkv", ".mov", ".jpg", ".png", ".jsonl"):
        assert suffix in str(caught.value)


def refuse(output: Path | str, given: Path | str) -> None:
    with pytest.raises(UsageError) as caught:
        check_output(output, [given])
    assert "\n" not in str(caught.value)


def test_output_that_is_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"clip")
    (tmp_path / "link.mp4").symlink_to(clip)
    os.link(clip, tmp_path / "hard.mp4")
    monkeypatch.chdir(tmp_path)
    for output in (clip, "clip.mp4", "./clip.mp4", tmp_path / "link.mp4", tmp_path / "hard.mp4"):
        refuse(output, clip)
    refuse(clip, "link.mp4")
    check_output("other.mp4", [clip])
    check_output(clip, ["rtsp://host/clip.mp4"])
    assert clip.read_bytes() == b"clip"


def test_output_whose_partial_name_is_the_input(tmp_path: Path) -> None:
    partial = tmp_path / "out.partial.mp4"
    partial.write_bytes(b"what a crash left")
    refuse(tmp_path / "out.mp4", partial)


def test_images_over_images(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jpg").touch()
    refuse(tmp_path / "in", tmp_path / "in")
    refuse(tmp_path / "in", tmp_path / "in" / "*.jpg")
    refuse(tmp_path / "in" / "%d.jpg", tmp_path / "in")
    refuse(tmp_path / "in", tmp_path / "in" / "%d.jpg")
    check_output(tmp_path / "out", [tmp_path / "in"])
    check_output(tmp_path / "in" / "video.mp4", [tmp_path / "in"])


def test_standard_output_and_devices_are_no_inputs(tmp_path: Path) -> None:
    check_output("-", ["-", tmp_path])
    check_output(os.devnull, [tmp_path])
