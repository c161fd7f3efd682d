"""A detector on real frames, and what it refuses."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raven.detect.detector import Detector
from raven.detect.heads import HEADS, HeadSpec
from raven.errors import ModelError, UsageError
from raven.frame.geometry import Placement, place
from raven.gpu import Device
from raven.gpu.shaders import ShaderLibrary, all_entries
from raven.gpu.slang import compiler_path
from raven.tensor import Tensor
from tests.heads_oracle import clear_of, decoded, selected, to_source
from tests.reference.preprocess import preprocess

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("RAVEN_SHARED", ROOT.parent / "shared"))
CLIP = SHARED / "video" / "vtest.mp4"
CARDS = {"nanodet_416": ROOT / "models" / "nanodet_416.toml", "yolox_nano_416": ROOT / "tests/data/yolox_nano_416.toml"}
SPECS = {
    "nanodet_416": HeadSpec("nanodet", (416, 416), classes=80, bins=11),
    "yolox_nano_416": HeadSpec("yolox", (416, 416), classes=80),
}


def some_frames(count: int) -> list[np.ndarray]:
    """Frames from all over the clip, as OpenCV reads them."""
    cv2 = pytest.importorskip("cv2")
    video, frames = cv2.VideoCapture(str(CLIP)), []
    for index in range(795):
        ok, frame = video.read()
        assert ok
        if index % (795 // count) == 0:
            frames.append(frame)
    return frames[:count]


def outputs_of(name: str) -> Callable[[np.ndarray], list[np.ndarray]]:
    """A function from an input tensor to a model's outputs."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = SHARED / "models" / f"{name}.onnx"
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda tensor: session.run(None, {session.get_inputs()[0].name: tensor})


@pytest.mark.skipif(not CLIP.is_file(), reason="needs vtest.mp4 and the models of the shared folder")
@pytest.mark.parametrize("name", SPECS)
def test_real_frames_give_the_boxes_of_numpy(device: Device, name: str) -> None:
    spec, card = SPECS[name], tomllib.loads(CARDS[name].read_text())
    infer, images = outputs_of(name), some_frames(12)
    placement = place((768, 576), spec.size, align=card["input"].get("align", "center"))
    tensors: list[Tensor] = []
    rows = 0
    for image in images:
        arrays = infer(preprocess(image, card, spec.size).tensor)
        tensors = tensors or [Tensor(device, a.shape, a.dtype) for a in arrays]
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.write(array)
        detector = Detector(device, spec, [t.shape for t in tensors], [t.dtype for t in tensors])
        for conf in (0.02, 0.35):
            found = decoded(spec, [a[0] for a in arrays])
            limits = {"conf": conf, "iou": 0.5, "max_det": 300, "agnostic": False, "classes": None}
            limits["iou"] = clear_of(found, spec, limits, 1e-5)
            kept, produced = selected(found, spec, limits)
            bound = detector.bind(tensors, placement, **limits)
            device.immediate(bound.record)
            result, header = bound.detections.read(), bound.detections.read_header()
            bound.destroy()
            assert (len(result), header[10]) == (len(kept), produced)
            np.testing.assert_array_equal(result[:, 5], found.classes[kept])
            np.testing.assert_array_equal(result[:, 4], found.scores[kept])
            np.testing.assert_allclose(result[:, :4], to_source(found.boxes[kept], placement), atol=1e-3, rtol=0)
            rows += len(result)
        detector.destroy()
    for tensor in tensors:
        tensor.destroy()
    assert rows > 10 * len(images)


SIZE = (64, 64)
WRONG = [
    ("yolov5", [(1, 84, 5)], "one output [B, N, 5 + classes]"),
    ("yolov8", [(1, 4, 84)], "one output [B, 4 + classes, N]"),
    ("yolov8", [(1, 84)], "one output [B, 4 + classes, N]"),
    ("yolo26", [(1, 300, 5)], "one output [B, N, 6]"),
    ("yolox", [(1, 85, 10)], "one output [B, 84, 5 + classes] for strides [8, 16, 32]"),
    ("nanodet", [(1, 64, 8), (1, 64, 44), (1, 16, 8)], "[B, N, 4 * bins] with N = 64, 16, 4"),
    ("detr", [(1, 300, 80), (1, 200, 4)], "outputs [B, Q, classes] and [B, Q, 4]"),
    ("detr-labels", [(1, 300), (1, 300, 4)], "outputs [B, Q] of labels"),
    ("centerface", [(1, 1, 16, 16), (1, 2, 16, 16)], "[B, 2, H/4, W/4] of offsets"),
]


@pytest.mark.parametrize(("head", "shapes", "wanted"), WRONG)
def test_other_outputs_are_refused_by_name(device: Device, head: str, shapes: list, wanted: str) -> None:
    with pytest.raises(ModelError) as caught:
        Detector(device, HeadSpec(head, SIZE), shapes, [np.float32] * len(shapes))
    assert wanted in str(caught.value)
    assert str(list(shapes[0])) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_impossible_heads_are_refused(device: Device) -> None:
    with pytest.raises(ModelError, match=f"'yolov9000' is not known; .*{', '.join(HEADS)}"):
        Detector(device, HeadSpec("yolov9000", SIZE), [(1, 84, 85)], [np.float32])
    with pytest.raises(ModelError, match="float32 or float16 outputs, not int8"):
        Detector(device, HeadSpec("yolov5", SIZE), [(1, 84, 85)], [np.int8])
    with pytest.raises(ModelError, match="3 classes, the outputs of head 'yolov5' hold 80"):
        Detector(device, HeadSpec("yolov5", SIZE, classes=3), [(1, 84, 85)], [np.float32])


def test_impossible_thresholds_are_refused(device: Device) -> None:
    output = Tensor(device, (2, 84, 85))
    detector = Detector(device, HeadSpec("yolov5", SIZE), [output.shape], [np.float32])
    whole = Placement(source=SIZE, target=SIZE, content=(0, 0, 64, 64), crop=(0.0, 0.0, 64.0, 64.0))
    try:
        for given, message in (
            ({"conf": 1.5}, "confidence threshold of 1.5: give 0 to 1"),
            ({"conf": float("nan")}, "confidence threshold of nan: give 0 to 1"),
            ({"iou": -0.1}, "IoU threshold of -0.1: give 0 to 1"),
            ({"max_det": 0}, "at most 0 detections: give 1 to 1024"),
            ({"max_det": 1025}, "at most 1025 detections: give 1 to 1024"),
            ({"classes": [80]}, "class 80: this model has classes 0 to 79"),
        ):
            with pytest.raises(UsageError, match=message):
                detector.bind([output], whole, **given)
        with pytest.raises(ModelError, match="frame 2 of a batch of 2"):
            detector.bind([output], whole, batch_index=2)
        with pytest.raises(ModelError, match="not those that the detector was made for"):
            detector.bind([], whole)
    finally:
        detector.destroy()
        output.destroy()


@pytest.mark.skipif(compiler_path() is None, reason="needs slangpy, which ships the compiler")
@pytest.mark.parametrize("entry", [(n, e) for n, e, _ in all_entries() if n.startswith("detect/") and "16" not in e])
def test_every_pass_compiles_to_cuda(entry: tuple[str, str]) -> None:
    assert b"__global__" in ShaderLibrary().compile(*entry, target="cuda")
