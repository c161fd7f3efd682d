"""The usual script for the same job, written with care: what Raven is measured against.

OpenCV decodes and letterboxes, ONNX Runtime infers on the CPU, NumPy decodes the head (thresholding before the boxes
are computed), OpenCV suppresses, supervision draws, PyAV encodes with the settings of Raven's own sink. Nothing of
Raven is imported. Prints one JSON object.

    python benchmarks/script_baseline.py out/bikes.mp4 -o out/baseline.mp4 --model models/nanodet_416.onnx
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

import av
import cv2
import numpy as np
import onnxruntime as ort
import supervision as sv

COCO = (
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush"
).split(",")

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]  # xyxy (N, 4) in model pixels, scores (N,), class ids (N,)


class Letterbox:
    """Resize into a canvas made once; the same integers map boxes back."""

    def __init__(self, source: tuple[int, int], size: int, centred: bool, pad: int) -> None:
        width, height = source
        scale = min(size / width, size / height)
        self.size = round(width * scale), round(height * scale)
        self.x, self.y = ((size - self.size[0]) // 2, (size - self.size[1]) // 2) if centred else (0, 0)
        self.canvas = np.full((size, size, 3), pad, np.uint8)
        self.scale = np.float32([width / self.size[0], height / self.size[1]] * 2)
        self.offset = np.float32([self.x, self.y] * 2)
        self.limit = np.float32([width, height] * 2)

    def __call__(self, image: np.ndarray) -> np.ndarray:
        inside = self.canvas[self.y : self.y + self.size[1], self.x : self.x + self.size[0]]
        cv2.resize(image, self.size, dst=inside, interpolation=cv2.INTER_LINEAR)
        return self.canvas

    def undo(self, boxes: np.ndarray) -> np.ndarray:
        return np.clip((boxes - self.offset) * self.scale, 0, self.limit)


class NanoDet:
    """Boxes as distributions over 11 bins a side, class scores already sigmoid."""

    centred, pad = True, 0
    mean = np.float32([103.53, 116.28, 123.675])
    std = np.float32([57.375, 57.12, 58.395])

    def __init__(self, size: int) -> None:
        self.scale, self.shift = 1 / self.std, -self.mean / self.std
        self.grids = {}
        for stride in (8, 16, 32):
            cells = -(-size // stride)
            y, x = np.divmod(np.arange(cells * cells), cells)
            centres = np.stack([x, y], 1).astype(np.float32) * stride + (stride - 1) / 2
            self.grids[cells * cells] = centres, stride

    def tensor(self, canvas: np.ndarray) -> np.ndarray:
        normalised = canvas * self.scale + self.shift
        return np.ascontiguousarray(normalised.transpose(2, 0, 1)[None], np.float32)

    def decode(self, outputs: list[np.ndarray], conf: float) -> Boxes:
        scores = {a.shape[1]: a[0] for a in outputs if a.shape[2] == len(COCO)}
        sides = {a.shape[1]: a[0] for a in outputs if a.shape[2] != len(COCO)}
        parts = [self._level(scores[n], sides[n], *self.grids[n], conf) for n in self.grids]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    @staticmethod
    def _level(scores: np.ndarray, sides: np.ndarray, centres: np.ndarray, stride: int, conf: float) -> Boxes:
        ids = scores.argmax(1)
        best = scores[np.arange(len(ids)), ids]
        keep = np.flatnonzero(best >= conf)
        bins = sides[keep].reshape(len(keep), 4, sides.shape[1] // 4)
        weights = np.exp(bins - bins.max(2, keepdims=True))
        distance = weights @ np.arange(bins.shape[2], dtype=np.float32) / weights.sum(2) * stride
        boxes = np.concatenate([centres[keep] - distance[:, :2], centres[keep] + distance[:, 2:]], 1)
        return boxes, best[keep], ids[keep]


class YoloX:
    """Centres and sizes relative to grid cells, objectness and class scores already sigmoid."""

    centred, pad = False, 114

    def __init__(self, size: int) -> None:
        grids, strides = [], []
        for stride in (8, 16, 32):
            cells = size // stride
            y, x = np.divmod(np.arange(cells * cells), cells)
            grids.append(np.stack([x, y], 1))
            strides.append(np.full((cells * cells, 1), stride))
        self.grid, self.stride = np.concatenate(grids).astype(np.float32), np.concatenate(strides).astype(np.float32)

    @staticmethod
    def tensor(canvas: np.ndarray) -> np.ndarray:
        return canvas.transpose(2, 0, 1)[None].astype(np.float32, order="C")

    def decode(self, outputs: list[np.ndarray], conf: float) -> Boxes:
        rows = outputs[0][0]
        likely = np.flatnonzero(rows[:, 4] >= conf)  # a class score is at most 1
        scores = rows[likely, 5:] * rows[likely, 4:5]
        ids = scores.argmax(1)
        best = scores[np.arange(len(ids)), ids]
        sure = best >= conf
        keep = likely[sure]
        centres = (rows[keep, :2] + self.grid[keep]) * self.stride[keep]
        half = np.exp(rows[keep, 2:4]) * self.stride[keep] / 2
        return np.concatenate([centres - half, centres + half], 1), best[sure], ids[sure]


HEADS = {"nanodet": NanoDet, "yolox": YoloX}


def suppress(boxes: Boxes, conf: float, iou: float, max_det: int) -> Boxes:
    """Class-wise NMS by OpenCV, best first."""
    xyxy, scores, ids = boxes
    if not len(scores):
        return boxes
    xywh = np.concatenate([xyxy[:, :2], xyxy[:, 2:] - xyxy[:, :2]], 1)
    kept = cv2.dnn.NMSBoxesBatched(xywh.tolist(), scores.tolist(), ids.tolist(), conf, iou)
    kept = np.asarray(kept, np.intp).reshape(-1)
    kept = kept[np.argsort(-scores[kept], kind="stable")][:max_det]
    return xyxy[kept], scores[kept], ids[kept]


def open_session(path: str, spinning: bool, cuda: bool = False) -> ort.InferenceSession:
    options = ort.SessionOptions()
    if cuda:
        return ort.InferenceSession(path, options, providers=[("CUDAExecutionProvider", {"use_tf32": "0"})])
    if not spinning:  # its threads otherwise burn the cores that the encoder needs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Encoder:
    """libx264 with the settings of Raven's sink."""

    def __init__(self, path: str, size: tuple[int, int], rate: float, preset: str, crf: int) -> None:
        self.container = av.open(path, "w")
        frame_rate = Fraction(rate or 25).limit_denominator(1001)
        self.stream = self.container.add_stream("libx264", rate=frame_rate)
        context = self.stream.codec_context
        context.width, context.height, context.pix_fmt = size[0], size[1], "yuv420p"
        context.thread_count, context.thread_type = 0, "AUTO"
        context.options = {"preset": preset, "crf": str(crf)}

    def write(self, image: np.ndarray) -> None:
        self.container.mux(self.stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))

    def close(self) -> None:
        self.container.mux(self.stream.encode(None))
        self.container.close()


class Annotator:
    """Boxes, then labels, over the frame in place."""

    def __init__(self) -> None:
        self.box, self.label = sv.BoxAnnotator(), sv.LabelAnnotator()

    def __call__(self, image: np.ndarray, boxes: Boxes) -> np.ndarray:
        xyxy, scores, ids = boxes
        found = sv.Detections(xyxy=xyxy, confidence=scores, class_id=ids)
        labels = [f"{COCO[i]} {score:.2f}" for i, score in zip(ids, scores, strict=True)]
        return self.label.annotate(self.box.annotate(image, found), found, labels=labels)


class Stages:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def time(self, name: str, work: Callable, *args: object) -> object:
        begun = perf_counter()
        result = work(*args)
        self.seconds[name] += perf_counter() - begun
        return result


def run(args: argparse.Namespace) -> dict[str, object]:
    """The loop that everybody writes."""
    capture = cv2.VideoCapture(args.input)
    if not capture.isOpened():
        raise SystemExit(f"error: {args.input} cannot be opened")
    size = int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
    session = open_session(args.model, args.spinning, args.cuda)
    model_input = session.get_inputs()[0]
    side = model_input.shape[2]
    head = HEADS[args.head](side)
    letterbox = Letterbox(size, side, head.centred, head.pad)
    annotate, stages = Annotator(), Stages()
    rate = capture.get(cv2.CAP_PROP_FPS)
    encoder = Encoder(args.output, size, rate, args.preset, args.crf) if args.output else None
    session.run(None, {model_input.name: np.zeros((1, 3, side, side), np.float32)})  # warm, as Raven's is
    frames = detections = 0
    begun = perf_counter()
    while args.frames is None or frames < args.frames:
        good, image = stages.time("decode", capture.read)
        if not good:
            break
        tensor = stages.time("prepare", lambda image=image: head.tensor(letterbox(image)))
        outputs = stages.time("infer", session.run, None, {model_input.name: tensor})
        boxes = stages.time("head", head.decode, outputs, args.conf)
        xyxy, scores, ids = stages.time("nms", suppress, boxes, args.conf, args.iou, args.max_det)
        boxes = letterbox.undo(xyxy), scores, ids
        if encoder or args.draw:
            stages.time("draw", annotate, image, boxes)
        if encoder:
            stages.time("encode", encoder.write, image)
        frames, detections = frames + 1, detections + len(scores)
    if encoder:
        stages.time("encode", encoder.close)
    seconds = perf_counter() - begun
    return {
        "frames": frames,
        "seconds": round(seconds, 4),
        "fps": round(frames / seconds, 3),
        "detections": detections,
        "spinning": args.spinning,
        "stages_ms": {name: round(total / max(frames, 1) * 1e3, 3) for name, total in stages.seconds.items()},
    }


def parser() -> argparse.ArgumentParser:
    """Flags; the defaults are those of Raven's sink and of the bundled model's card."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("input")
    flags.add_argument("-o", "--output")
    flags.add_argument("--model", default="models/nanodet_416.onnx")
    flags.add_argument("--head", choices=sorted(HEADS), default="nanodet")
    flags.add_argument("--conf", type=float, default=0.4)
    flags.add_argument("--iou", type=float, default=0.5)
    flags.add_argument("--max-det", type=int, default=300)
    flags.add_argument("--frames", type=int)
    flags.add_argument("--preset", default="veryfast")
    flags.add_argument("--crf", type=int, default=20)
    flags.add_argument("--spinning", action="store_true", help="ONNX Runtime's default: threads spin while they wait")
    flags.add_argument("--cuda", action="store_true", help="infer with ONNX Runtime's CUDA provider")
    flags.add_argument("--draw", action="store_true", help="draw even when nothing is written")
    return flags


if __name__ == "__main__":
    print(json.dumps(run(parser().parse_args())))
