"""Video sources against FFmpeg's own tools: every frame once, in order, with the pixels, times and tags of the file."""

from __future__ import annotations

import contextlib
import gc
import shutil
import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from support import media

from raven.errors import SourceError, UsageError
from raven.frame.format import FrameFormat
from raven.sources import VideoSource, open_source
from raven.sources.pixels import PlaneReader, nearest_format
from raven.sources.timing import Timestamps, frame_rate_of

FILM = Fraction(24000, 1001)
B_FRAMES = {"crf": "12", "preset": "fast", "g": "12", "bf": "3", "b-adapt": "0"}
VFR = [0, 1001, 2002, 4004, 4505, 9009, 9109, 12012, 15015, 15115, 15215, 20020]


def upright(plane: np.ndarray, fmt: FrameFormat) -> np.ndarray:
    """Apply a format's mirror and clockwise turn with NumPy."""
    return np.rot90(plane[:, ::-1] if fmt.mirror else plane, -(fmt.rotation // 90))


def times(path: Path) -> list[int]:
    return [frame.pts for frame in VideoSource(path)]


# Frames and times


@media.needs_ffmpeg
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov", "ts", "avi"])
def test_every_frame_once_and_in_order(tmp_path: Path, suffix: str) -> None:
    clip = media.make_clip(tmp_path / f"clip.{suffix}", frames=50, options=B_FRAMES)
    source = VideoSource(clip)
    got = [(f.index, media.planes_as_bytes(f.planes)) for f in source]
    expected = media.raw_frames(clip, "yuv420p", 64 * 48 * 3 // 2)
    assert len(expected) == 50
    assert [index for index, _ in got] == list(range(50))
    assert [data for _, data in got] == expected
    assert source.notices == []


@media.needs_ffmpeg
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_variable_rate_keeps_its_times(tmp_path: Path, suffix: str) -> None:
    clip = media.make_clip(
        tmp_path / f"vfr.{suffix}", 12, pts=VFR, time_base=Fraction(1, 24000), rate=FILM, options=B_FRAMES
    )
    assert times(clip) == media.probed_pts(clip)
    if suffix == "mp4":
        assert times(clip) == VFR


@media.needs_ffmpeg
def test_avi_times_move_forward_one_frame_at_a_time(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.avi", 20, options=B_FRAMES)
    assert set(np.diff(times(clip))) == {1}


@media.needs_ffmpeg
def test_elementary_stream_without_times_gets_them(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 20, options=B_FRAMES)
    raw = tmp_path / "clip.h264"
    media.ffmpeg("-i", str(clip), "-c", "copy", "-bsf:v", "h264_mp4toannexb", str(raw))
    source = VideoSource(raw)
    seconds = [float(f.pts * source.info.time_base) for f in source]
    assert len(seconds) == 20
    np.testing.assert_allclose(np.diff(seconds), 1 / 25, atol=1e-4)


@pytest.mark.parametrize("rate", [FILM, Fraction(30000, 1001), Fraction(25), Fraction(60000, 1001), Fraction(15)])
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_frame_rate_is_exact(tmp_path: Path, rate: Fraction, suffix: str) -> None:
    source = VideoSource(media.make_clip(tmp_path / f"clip.{suffix}", 30, rate=rate))
    assert source.info.frame_rate == rate
    source.close()


def test_average_rate_is_kept_when_it_is_no_rounding_of_the_base_rate() -> None:
    assert frame_rate_of(Fraction(12000, 743), Fraction(48000, 1001)) == Fraction(12000, 743)
    assert frame_rate_of(Fraction(24), FILM) == 24
    assert frame_rate_of(Fraction(239760, 10001), FILM) == FILM
    assert frame_rate_of(None, None) is None


@pytest.mark.parametrize(
    ("given", "expected", "repaired"),
    [
        ([(None, None)] * 3, [0, 4, 8], 3),
        ([(0, 0), (None, None), (8, 8)], [0, 4, 8], 1),
        ([(0, 0), (4, 4), (4, 8), (12, 12)], [0, 4, 8, 12], 0),
        ([(5, None), (5, None), (9, None)], [5, 6, 9], 1),
        ([(-3, -3), (1, 1)], [-3, 1], 0),
    ],
)
def test_timestamps_are_repaired(given: list, expected: list[int], repaired: int) -> None:
    times = Timestamps(step=4)
    assert [times.next(pts, dts) for pts, dts in given] == expected
    assert times.repaired == repaired


def test_info_counts_frames_and_seconds(tmp_path: Path) -> None:
    info = VideoSource(media.make_clip(tmp_path / "clip.mp4", 25)).info
    assert (info.frames, info.kind, info.live) == (25, "video", False)
    assert info.duration == pytest.approx(1.0)


# Pixels


@media.needs_ffmpeg
@pytest.mark.parametrize(
    ("stored", "read", "codec"),
    [
        ("yuv420p", "yuv420p", "ffv1"),
        ("yuv422p", "yuv422p", "ffv1"),
        ("yuv444p", "yuv444p", "ffv1"),
        ("yuv420p10le", "yuv420p10le", "ffv1"),
        ("yuv422p10le", "yuv422p10le", "ffv1"),
        ("yuv444p10le", "yuv444p10le", "ffv1"),
        ("nv12", "nv12", "rawvideo"),
        ("rgb24", "rgb24", "rawvideo"),
        ("bgr24", "bgr24", "rawvideo"),
        ("rgba", "rgba", "rawvideo"),
        ("bgra", "bgra", "ffv1"),
        ("gray", "gray", "ffv1"),
        ("yuva420p", "yuv420p", "ffv1"),
        ("nv21", "nv12", "rawvideo"),
        ("yuyv422", "yuv422p", "rawvideo"),
        ("yuv440p", "yuv444p", "ffv1"),
        ("gbrp", "rgb24", "utvideo"),
    ],
)
@pytest.mark.parametrize("size", [(64, 48), (34, 22)])
def test_planes_are_ffmpegs_bytes(tmp_path: Path, stored: str, read: str, codec: str, size: tuple[int, int]) -> None:
    clip = media.make_clip(tmp_path / "clip.nut", 3, size, codec=codec, pix_fmt=stored, options={})
    source = VideoSource(clip)
    got = [media.planes_as_bytes(f.planes) for f in source]
    assert source.info.format.pixel.name == read
    oracle = media.raw_frames(clip, read, len(got[0]))
    tolerance = 1 if stored == "yuv440p" else 0  # chroma is stretched by two versions of swscale
    worst = max(
        np.abs(np.frombuffer(a, "u1").astype(int) - np.frombuffer(b, "u1")).max()
        for a, b in zip(got, oracle, strict=True)
    )
    assert worst <= tolerance
    converted = stored not in (read, "yuva420p")
    assert any(f"{stored} is read as {read}" in note for note in source.notices) == converted


@pytest.mark.parametrize("name", ["nv12", "p010le"])
def test_interleaved_chroma(name: str) -> None:
    picture = media.picture(3, 34, 22, name)
    reader = PlaneReader(picture, grey_is_video=True)
    planes, owner = reader.read(picture)
    assert (reader.pixel.name, owner is picture) == (name, True)
    assert [p.shape for p in planes] == [(22, 34), (11, 34)]
    planar = picture.reformat(format="yuv420p" if name == "nv12" else "yuv420p10le", threads=1).to_ndarray()
    shift = 6 if name == "p010le" else 0  # P010 keeps its ten bits at the top
    np.testing.assert_array_equal(planes[0] >> shift, planar[:22])
    chroma = planar[22:].reshape(2, 11, 17)
    np.testing.assert_array_equal(np.stack([planes[1][:, ::2], planes[1][:, 1::2]]) >> shift, chroma)


@media.needs_ffmpeg
def test_twelve_bits_become_ten(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.nut", 2, codec="ffv1", pix_fmt="yuv420p12le", options={})
    source = VideoSource(clip)
    frame = next(iter(source))
    full = np.frombuffer(media.raw_frames(clip, "yuv420p12le", 64 * 48 * 3)[0], np.uint16)[: 64 * 48].reshape(48, 64)
    assert frame.format.pixel.name == "yuv420p10le"
    assert np.abs(frame.planes[0].astype(int) - (full >> 2)).max() <= 1


def test_odd_sizes_round_chroma_up(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.nut", 2, (33, 21), codec="ffv1", options={})
    frame = next(iter(VideoSource(clip)))
    assert [p.shape for p in frame.planes] == [(21, 33), (11, 17), (11, 17)]


def test_planes_are_read_only_views_of_the_decoders_memory(tmp_path: Path) -> None:
    frame = next(iter(VideoSource(media.make_clip(tmp_path / "clip.mp4", 3))))
    address = frame.owner.planes[0].buffer_ptr
    assert frame.planes[0].ctypes.data == address
    assert frame.planes[0].strides == (frame.owner.planes[0].line_size, 1)
    with pytest.raises(ValueError, match="read-only"):
        frame.planes[0][0, 0] = 1


@media.needs_ffmpeg
def test_frames_that_are_held_are_not_overwritten_by_later_ones(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 40, options=B_FRAMES)
    source = VideoSource(clip)
    frames = list(source)
    source.close()
    del source
    gc.collect()
    assert [media.planes_as_bytes(f.planes) for f in frames] == media.raw_frames(clip, "yuv420p", 64 * 48 * 3 // 2)


def test_limited_grey_video_gets_neutral_chroma(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 2, pix_fmt="gray", options={"qp": "0"}, tags={"color_range": 1})
    frame = next(iter(VideoSource(clip)))
    assert (frame.format.pixel.name, frame.format.full_range) == ("yuv420p", False)
    assert frame.planes[1].shape == (24, 32)
    assert set(np.unique(frame.planes[1])) == {128}
    with av.open(str(clip)) as oracle:
        np.testing.assert_array_equal(frame.planes[0], next(oracle.decode(video=0)).to_ndarray()[:48])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("yuv411p", "yuv422p"),
        ("yuv410p", "yuv420p"),
        ("yuv422p16le", "yuv422p10le"),
        ("yuv444p9le", "yuv444p10le"),
        ("p016le", "p010le"),
        ("nv16", "yuv422p"),
        ("pal8", "rgb24"),
        ("rgb48le", "rgb24"),
        ("gray16le", "gray10le"),
        ("ya8", "gray"),
    ],
)
def test_nearest_format(name: str, nearest: str) -> None:
    assert nearest_format(av.VideoFormat(name, 64, 64)) == nearest


# Tags


@pytest.mark.parametrize(
    ("tags", "matrix", "full"),
    [
        ({"colorspace": 1, "color_primaries": 1, "color_trc": 1, "color_range": 1}, "bt709", False),
        ({"colorspace": 6, "color_primaries": 6, "color_trc": 6, "color_range": 2}, "bt601", True),
        ({"colorspace": 5, "color_range": 1}, "bt601", False),
        ({"colorspace": 9, "color_primaries": 9, "color_trc": 14, "color_range": 1}, "bt2020", False),
    ],
)
def test_colour_tags(tmp_path: Path, tags: dict[str, int], matrix: str, full: bool) -> None:
    info = VideoSource(media.make_clip(tmp_path / "clip.mp4", 2, tags=tags)).info
    assert (info.format.matrix, info.format.full_range) == (matrix, full)
    assert info.color == tags


@pytest.mark.parametrize(("height", "matrix"), [(718, "bt601"), (720, "bt709")])
def test_untagged_matrix_follows_the_height(tmp_path: Path, height: int, matrix: str) -> None:
    info = VideoSource(media.make_clip(tmp_path / "clip.mp4", 1, (64, height))).info
    assert (info.format.matrix, info.format.full_range, info.color) == (matrix, False, {})


def test_yuvj_is_full_range(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.avi", 2, codec="mjpeg", pix_fmt="yuvj420p", options={})
    source = VideoSource(clip)
    fmt = source.info.format
    assert (fmt.pixel.name, fmt.full_range, fmt.chroma_site) == ("yuv420p", True, "center")
    assert source.info.color["color_range"] == 2
    assert source.notices == []


@pytest.mark.parametrize(("code", "site"), [(0, "left"), (1, "center"), (2, "topleft")])
def test_chroma_site(tmp_path: Path, code: int, site: str) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 2, options={"x264-params": f"chromaloc={code}"})
    assert VideoSource(clip).info.format.chroma_site == site


def test_sample_aspect_ratio(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 2, sar=Fraction(16, 11))
    assert VideoSource(clip).info.format.sample_aspect_ratio == Fraction(16, 11)


@media.needs_ffmpeg
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("flip", [(False, False), (True, False), (False, True)])
def test_turn_is_ffmpegs_autorotation(tmp_path: Path, degrees: int, flip: tuple[bool, bool]) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 1, turn=(degrees, *flip))
    frame = next(iter(VideoSource(clip)))
    width, height = frame.format.upright_size
    assert (width, height) == ((48, 64) if degrees % 180 else (64, 48))
    oracle = np.frombuffer(media.raw_frames(clip, "yuv420p", 64 * 48 * 3 // 2, upright=True)[0], np.uint8)
    np.testing.assert_array_equal(upright(frame.planes[0], frame.format), oracle[: 64 * 48].reshape(height, width))


def test_turn_between_right_angles_is_said(tmp_path: Path) -> None:
    source = VideoSource(media.make_clip(tmp_path / "clip.mp4", 1, turn=(-80, False, False)))
    assert source.info.format.rotation == 90
    assert any("multiple of 90" in note for note in source.notices)


# Bad inputs


def assert_refused(uri: Path, *words: str) -> None:
    with pytest.raises(SourceError) as caught:
        list(open_source(uri))
    message = str(caught.value)
    assert "\n" not in message
    for word in (str(uri), *words):
        assert word in message


def test_missing_file(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.mp4", "does not exist")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    assert_refused(tmp_path / "empty.mp4", "0 bytes")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a directory"):
        VideoSource(tmp_path)
    assert_refused(tmp_path, "directory without images")


def test_noise(tmp_path: Path) -> None:
    (tmp_path / "noise.mp4").write_bytes(np.random.default_rng(1).bytes(5000))
    assert_refused(tmp_path / "noise.mp4", "no video")


def test_text(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("No video is this.\n" * 500)
    assert_refused(tmp_path / "notes.txt", "text")


@media.needs_ffmpeg
def test_sound_alone(tmp_path: Path) -> None:
    assert_refused(media.make_sound(tmp_path / "sound.m4a"), "only audio")


@media.needs_ffmpeg
def test_cover_art_is_no_video(tmp_path: Path) -> None:
    cover = media.make_image(tmp_path / "cover.png")
    assert_refused(media.make_sound(tmp_path / "song.mp3", "libmp3lame", cover=cover), "only audio")


def test_video_without_frames(tmp_path: Path) -> None:
    assert_refused(media.make_clip(tmp_path / "clip.mp4", 0), "holds no video")
    assert_refused(media.make_clip(tmp_path / "clip.mkv", 0), "no video that FFmpeg can read")
    header = media.make_clip(tmp_path / "clip.avi", 0, codec="mjpeg", pix_fmt="yuvj420p", options={})
    assert_refused(header, "without any frame")


def test_header_cut_off(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 10)  # the index is at the end
    clip.write_bytes(clip.read_bytes()[:-600])
    assert_refused(clip, "no video")


def test_camera_number() -> None:
    with pytest.raises(SourceError, match="cameras"):
        open_source("0")


def test_frame_limit_below_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 frames"):
        VideoSource(tmp_path / "any.mp4", frames=0)


def test_truncated_video_delivers_what_is_there(tmp_path: Path) -> None:
    whole = media.make_clip(tmp_path / "clip.mp4", 60, options=B_FRAMES, container_options={"movflags": "faststart"})
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    before = [media.planes_as_bytes(f.planes) for f in VideoSource(whole)]
    got = []
    source = VideoSource(cut)
    with pytest.raises(SourceError, match=r"truncated: \d+ of 60 frames"):
        for frame in source:
            got.append(media.planes_as_bytes(frame.planes))
    assert 20 < len(got) < 60
    assert got[:20] == before[:20]


def damage(clip: Path, packets: range) -> None:
    """Overwrite the data of some packets, lengths left as they are."""
    with av.open(str(clip)) as container:
        spans = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    data = bytearray(clip.read_bytes())
    for start, size in (spans[i] for i in packets):
        data[start + 4 : start + size] = b"\xff" * (size - 4)
    clip.write_bytes(data)


def test_broken_packets_in_the_middle_are_skipped(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 60)
    whole = [(f.pts, media.planes_as_bytes(f.planes)) for f in VideoSource(clip)]
    damage(clip, range(20, 23))
    source = VideoSource(clip)
    got = {f.pts: media.planes_as_bytes(f.planes) for f in source}
    assert len(got) >= 57
    assert all(got[pts] == data for pts, data in whole[:20])
    assert all(got[pts] == data for pts, data in whole[24:])  # a key frame every twelve
    assert any("broken packets" in note or "damaged" in note for note in source.notices)


@pytest.mark.parametrize("options", [None, B_FRAMES], ids=["ip", "ipb"])
@pytest.mark.parametrize("broken", [30, 33, 34, 35])
def test_a_broken_packet_near_the_end_costs_no_other_frame(tmp_path: Path, broken: int, options: dict | None) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 36, options=options)
    damage(clip, range(broken, broken + 1))
    with av.open(str(clip)) as oracle:
        oracle.streams.video[0].thread_count = 1
        expected = []
        for packet in oracle.demux(video=0):
            with contextlib.suppress(av.error.InvalidDataError):
                expected += [f.pts for f in packet.decode()]
    source = VideoSource(clip)
    assert [f.pts for f in source] == expected
    assert source.notices == ["broken packets skipped: 1 of 36"]


def test_unreadable_rest_is_an_error_after_what_came_before(tmp_path: Path) -> None:
    clip = media.make_clip(tmp_path / "clip.mp4", 80)
    damage(clip, range(24, 80))
    got = []
    with pytest.raises(SourceError, match="packets are unreadable"):
        for frame in VideoSource(clip):
            got.append(frame.index)
    assert len(got) >= 24


@media.needs_ffmpeg
def test_change_of_size_is_brought_to_the_first_one(tmp_path: Path) -> None:
    parts = [media.make_clip(tmp_path / f"{w}.ts", 5, (w, 48)) for w in (64, 96)]
    joined = tmp_path / "joined.ts"
    media.ffmpeg("-i", f"concat:{parts[0]}|{parts[1]}", "-c", "copy", str(joined))
    source = VideoSource(joined)
    frames = list(source)
    assert len(frames) == 10
    assert {f.planes[0].shape for f in frames} == {(48, 64)}
    assert sum("96x48" in note for note in source.notices) == 1


# Lifetime


def test_frame_limit(tmp_path: Path) -> None:
    source = VideoSource(media.make_clip(tmp_path / "clip.mp4", 20), frames=7)
    assert source.info.frames == 7
    assert [f.index for f in source] == list(range(7))


def test_close_twice_and_from_another_thread_while_reading(tmp_path: Path) -> None:
    source = VideoSource(media.make_clip(tmp_path / "clip.mp4", 300))
    started, seen = threading.Event(), []

    def read() -> None:
        for frame in source:
            seen.append(int(frame.planes[0][0, 0]))
            started.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(10)
    source.close()
    source.close()
    reader.join(10)
    assert not reader.is_alive()
    assert list(source) == []


def test_path_with_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(media.make_clip(tmp_path / "clip.mp4", 3), tmp_path / "take:1 %d.mp4")
    monkeypatch.chdir(tmp_path)
    assert len(list(open_source("take:1 %d.mp4"))) == 3
