"""Sorting and suppression at their limits: many candidates, ties, what is not a number, overflow, frame after frame."""

from __future__ import annotations

import numpy as np
import pytest

from raven.detect.detector import Detector
from raven.detect.heads import HeadSpec
from raven.frame.geometry import Placement, place
from raven.gpu import Device
from raven.tensor import Tensor
from tests.heads_oracle import decoded, selected, to_source
from tests.reference.decoders import Decoded

SIZE = (640, 640)
SPEC = HeadSpec("yolov8", SIZE)
SAME = Placement(source=SIZE, target=SIZE, content=(0, 0, *SIZE), crop=(0.0, 0.0, *map(float, SIZE)))
LIMITS = {"conf": 0.25, "iou": 0.5, "max_det": 300, "agnostic": False, "classes": None}


class Rig:
    """A YOLOv8 detector on one tensor, whose contents may be changed from run to run."""

    def __init__(self, device: Device, anchors: int, classes: int = 4) -> None:
        self.device = device
        self.output = Tensor(device, (1, 4 + classes, anchors))
        self.detector = Detector(device, SPEC, [self.output.shape], [np.float32])

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *exc: object) -> None:
        self.detector.destroy()
        self.output.destroy()

    def run(self, boxes: np.ndarray, scores: np.ndarray, **limits) -> tuple[np.ndarray, np.ndarray]:
        """Rows and header for boxes as centre and size ``(N, 4)`` and scores ``(N, classes)``."""
        self.output.write(np.concatenate([boxes, scores], 1).T[None].astype(np.float32))
        bound = self.detector.bind([self.output], SAME, **(LIMITS | limits))
        try:
            self.device.immediate(bound.record)
            return bound.detections.read(), bound.detections.read_header()
        finally:
            bound.destroy()

    def compare(self, boxes: np.ndarray, scores: np.ndarray, **limits) -> np.ndarray:
        """The rows, after a comparison with NumPy's."""
        rows, header = self.run(boxes, scores, **limits)
        found = decode(boxes, scores)
        kept, produced = selected(found, SPEC, LIMITS | limits)
        assert (header[1], header[10]) == (len(kept), produced)
        np.testing.assert_array_equal(rows[:, 4], found.scores[kept])
        np.testing.assert_array_equal(rows[:, 5], found.classes[kept])
        np.testing.assert_allclose(rows[:, :4], to_source(found.boxes[kept], SAME), atol=1e-3, rtol=0)
        return rows


def decode(boxes: np.ndarray, scores: np.ndarray) -> Decoded:
    return decoded(SPEC, [np.concatenate([boxes, scores], 1).T.astype(np.float32)])


def crowd(rng, n: int, step: float = 1.0) -> np.ndarray:
    centre = np.round(rng.uniform(0, 640, (n, 2)) / step) * step
    return np.concatenate([centre, np.round(rng.uniform(8, 120, (n, 2)) / step) * step], 1)


def test_33600_anchors_are_all_candidates(device: Device) -> None:
    rng = np.random.default_rng(1)
    boxes = crowd(rng, 33600)
    scores = np.round(rng.random((33600, 80)) * 1000) / 1000
    with Rig(device, 33600, 80) as rig:
        rig.compare(boxes, scores, conf=0.0, max_det=300)
        rig.compare(boxes, scores, conf=0.0, max_det=1024, agnostic=True, iou=0.3)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 128, 511, 512, 513, 1024, 2100, 2101, 4099])
def test_any_number_of_candidates(device: Device, count: int) -> None:
    rng = np.random.default_rng(count)
    spare = 37
    scores = np.zeros((count + spare, 4))
    # Few different scores: most candidates are tied, and the lower anchor must come first.
    scores[rng.permutation(count + spare)[:count], rng.integers(0, 4, count)] = rng.integers(16, 24, count) / 32
    with Rig(device, count + spare) as rig:
        rig.compare(crowd(rng, count + spare, 4.0), scores, conf=0.5, max_det=1024)
        rows = rig.compare(crowd(rng, count + spare, 4.0), scores, conf=0.5, iou=1.0, max_det=1024)
        assert len(rows) == min(count, 1024)


def test_all_in_one_place_leaves_one(device: Device) -> None:
    boxes, scores = np.tile([100.0, 100, 50, 50], (3000, 1)), np.full((3000, 4), 0.5)
    with Rig(device, 3000) as rig:
        rows = rig.compare(boxes, scores)
        np.testing.assert_array_equal(rows, [[75, 75, 125, 125, 0.5, 0, -1, 0]])


def test_a_suppressed_box_does_not_suppress(device: Device) -> None:
    # A chain: each overlaps the next by 0.6, the next but one by 1/3.
    boxes = np.array([[100.0 + 25 * i, 100, 100, 100] for i in range(200)])
    scores = np.zeros((200, 4))
    scores[:, 0] = np.linspace(0.9, 0.6, 200)
    with Rig(device, 200) as rig:
        assert len(rig.compare(boxes[:200], scores)) == 100


def test_classes_do_not_suppress_each_other_unless_asked(device: Device) -> None:
    boxes, scores = np.tile([100.0, 100, 50, 50], (8, 1)), np.eye(4)[[0, 1, 2, 3, 3, 2, 1, 0]] * 0.5
    with Rig(device, 8) as rig:
        assert len(rig.compare(boxes, scores)) == 4
        assert len(rig.compare(boxes, scores, agnostic=True)) == 1
        np.testing.assert_array_equal(rig.compare(boxes, scores, classes=[1, 3])[:, 5], [1, 3])


def test_an_overlap_equal_to_the_threshold_stays(device: Device) -> None:
    boxes = np.array([[50.0, 50, 100, 100], [50.0, 75, 100, 50], *[[500.0, 500, 1, 1]] * 6])  # IoU exactly 0.5
    scores = np.zeros((8, 4))
    scores[:2, 0] = (0.9, 0.8)
    with Rig(device, 8) as rig:
        assert len(rig.compare(boxes, scores, iou=0.5)) == 2
        assert len(rig.compare(boxes, scores, iou=float(np.nextafter(np.float32(0.5), np.float32(0))))) == 1


def test_overflow_is_reported_and_nothing_is_written_past_the_end(device: Device) -> None:
    rng = np.random.default_rng(3)
    side = np.arange(20) * 32.0 + 16
    boxes = np.stack([*(g.ravel() for g in np.meshgrid(side, side)), *np.full((2, 400), 30.0)], 1)
    scores = rng.uniform(0.3, 1, (400, 4))
    with Rig(device, 400) as rig:
        for most in (1, 64, 65, 399, 400):
            rows, header = rig.run(boxes, scores, max_det=most)
            assert (len(rows), header[10], header[9]) == (most, 400, most)
            rig.compare(boxes, scores, max_det=most)


def test_what_is_not_a_number_is_left_out(device: Device) -> None:
    rng = np.random.default_rng(4)
    boxes, scores = crowd(rng, 500), rng.random((500, 4))
    bad = [np.nan, np.inf, -np.inf]
    boxes[rng.integers(0, 500, 60), rng.integers(0, 4, 60)] = rng.choice(bad, 60)
    scores[rng.integers(0, 500, 60), rng.integers(0, 4, 60)] = np.nan
    scores[7] = np.nan
    with Rig(device, 500) as rig:
        rows = rig.compare(boxes, scores, conf=0.0, max_det=1024)
        assert np.isfinite(rows).all() and len(rows) > 100
        rows, header = rig.run(np.full((500, 4), np.nan), scores, conf=0.0)
        assert len(rows) == header[10] == 0
        rows, header = rig.run(boxes, np.full((500, 4), np.nan), conf=0.0)
        assert len(rows) == header[10] == 0


def test_boxes_without_an_area_overlap_nothing(device: Device) -> None:
    boxes = np.tile([100.0, 100, 0, 0], (20, 1))
    with Rig(device, 20) as rig:
        assert len(rig.compare(boxes, np.full((20, 4), 0.5), iou=0.0)) == 20


def test_one_recording_serves_frame_after_frame(device: Device) -> None:
    rng = np.random.default_rng(5)
    with Rig(device, 700) as rig:
        bound = rig.detector.bind([rig.output], SAME, **LIMITS)
        for turn in range(12):
            boxes, scores = crowd(rng, 700), rng.random((700, 4)) * (turn % 3 > 0)
            rig.output.write(np.concatenate([boxes, scores], 1).T[None].astype(np.float32))
            device.immediate(bound.record)
            first = bound.detections.read()
            device.immediate(bound.record)  # the same frame again: no trace of the one before
            np.testing.assert_array_equal(bound.detections.read(), first)
            kept, _ = selected(decode(boxes, scores), SPEC, LIMITS)
            assert len(first) == len(kept)
        bound.destroy()


def test_frames_of_a_batch_do_not_mix(device: Device) -> None:
    rng = np.random.default_rng(6)
    batch = [(crowd(rng, 101), rng.random((101, 4)) ** 4) for _ in range(3)]
    data = np.stack([np.concatenate(pair, 1).T for pair in batch]).astype(np.float32)
    output = Tensor.from_numpy(device, data)
    detector = Detector(device, SPEC, [data.shape], [data.dtype])
    for index, pair in enumerate(batch):
        placement = place((1280 + index, 720), SIZE)
        bound = detector.bind([output], placement, **LIMITS, batch_index=index)
        device.immediate(bound.record)
        found = decode(*pair)
        kept, _ = selected(found, SPEC, LIMITS)
        expected = to_source(found.boxes[kept], placement)
        np.testing.assert_allclose(bound.detections.read()[:, :4], expected, atol=1e-3, rtol=0)
        bound.destroy()
    detector.destroy()
    output.destroy()
