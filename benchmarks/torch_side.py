"""The script's job with PyTorch before and after the model: frames go to the GPU once, boxes come back.

OpenCV decodes, PyTorch letterboxes and normalises, ONNX Runtime's CUDA provider reads and writes PyTorch's memory,
PyTorch decodes the head and suppresses, supervision draws. Prints one JSON object.

    python benchmarks/torch_side.py clip.mp4 --model models/nanodet_416.onnx
"""

from __future__ import annotations

import argparse
import json
from time import perf_counter

import cv2
import numpy as np
import onnxruntime as ort
import torch
from script_baseline import COCO, HEADS, Annotator, Letterbox, NanoDet, parser

DEVICE = torch.device("cuda")


class Model:
    """A session bound to PyTorch's memory."""

    def __init__(self, path: str) -> None:
        provider = ("CUDAExecutionProvider", {"use_tf32": "0", "device_id": "0"})
        self.session = ort.InferenceSession(path, providers=[provider])
        given = self.session.get_inputs()[0]
        self.input = torch.zeros(given.shape, device=DEVICE)
        shapes = [array.shape for array in self.session.run(None, {given.name: self.input.cpu().numpy()})]
        self.outputs = [torch.zeros(shape, device=DEVICE) for shape in shapes]
        self.binding = self.session.io_binding()
        self._bind(self.binding.bind_input, given.name, self.input)
        for spec, tensor in zip(self.session.get_outputs(), self.outputs, strict=True):
            self._bind(self.binding.bind_output, spec.name, tensor)

    @staticmethod
    def _bind(bind, name: str, tensor: torch.Tensor) -> None:
        bind(name, "cuda", 0, np.float32, tuple(tensor.shape), tensor.data_ptr())

    def run(self) -> list[torch.Tensor]:
        torch.cuda.current_stream().synchronize()  # the session has a stream of its own
        self.session.run_with_iobinding(self.binding)
        return self.outputs


class Prepare:
    """Letterbox and normalise on the GPU, into the model's input."""

    def __init__(self, box: Letterbox, head: object, target: torch.Tensor) -> None:
        self.box, self.target = box, target
        self.mean = torch.tensor(getattr(head, "mean", np.zeros(3)), device=DEVICE).view(1, 3, 1, 1)
        self.std = torch.tensor(getattr(head, "std", np.ones(3)), device=DEVICE).view(1, 3, 1, 1)
        self.target.copy_(((torch.full_like(target, float(head.pad)) - self.mean) / self.std).float())

    def __call__(self, image: np.ndarray) -> None:
        frame = torch.from_numpy(image).to(DEVICE).permute(2, 0, 1)[None].float()
        width, height = self.box.size
        small = torch.nn.functional.interpolate(frame, (height, width), mode="bilinear", align_corners=False)
        inside = self.target[:, :, self.box.y : self.box.y + height, self.box.x : self.box.x + width]
        inside.copy_((small - self.mean) / self.std)


def decode_nanodet(head: NanoDet, outputs: list[torch.Tensor], conf: float) -> tuple[torch.Tensor, ...]:
    """Boxes, scores and classes above the threshold."""
    parts = []
    for count, (centres, stride) in head.grids.items():
        scores = next(o[0] for o in outputs if o.shape[1] == count and o.shape[2] == len(COCO))
        sides = next(o[0] for o in outputs if o.shape[1] == count and o.shape[2] != len(COCO))
        best, ids = scores.max(1)
        keep = best >= conf
        bins = sides[keep].view(-1, 4, sides.shape[1] // 4).softmax(2)
        reach = (bins * torch.arange(bins.shape[2], device=DEVICE)).sum(2) * stride
        middle = torch.from_numpy(centres).to(DEVICE)[keep]
        parts.append((torch.cat([middle - reach[:, :2], middle + reach[:, 2:]], 1), best[keep], ids[keep]))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


def decode_yolox(head: object, outputs: list[torch.Tensor], conf: float) -> tuple[torch.Tensor, ...]:
    """Boxes, scores and classes above the threshold."""
    rows = outputs[0][0]
    best, ids = (rows[:, 5:] * rows[:, 4:5]).max(1)
    keep = best >= conf
    grid, stride = torch.from_numpy(head.grid).to(DEVICE)[keep], torch.from_numpy(head.stride).to(DEVICE)[keep]
    centres, half = (rows[keep, :2] + grid) * stride, rows[keep, 2:4].exp() * stride / 2
    return torch.cat([centres - half, centres + half], 1), best[keep], ids[keep]


def suppress(boxes: torch.Tensor, scores: torch.Tensor, ids: torch.Tensor, iou: float) -> torch.Tensor:
    """Class-wise greedy NMS on the overlap matrix; classes are kept apart by moving them away from each other."""
    order = scores.argsort(descending=True)
    moved = boxes[order] + (ids[order, None] * 10_000)
    low, high = torch.maximum(moved[:, None, :2], moved[:, :2]), torch.minimum(moved[:, None, 2:], moved[:, 2:])
    inter = (high - low).clamp(min=0).prod(2)
    area = (moved[:, 2:] - moved[:, :2]).prod(1)
    hits = (inter / (area[:, None] + area - inter) > iou).cpu().numpy()
    kept: list[int] = []
    for index in range(len(hits)):
        if not hits[index, kept].any():
            kept.append(index)
    return order[torch.tensor(kept, dtype=torch.long, device=DEVICE)]


def run(args: argparse.Namespace) -> dict[str, object]:
    """The loop."""
    capture = cv2.VideoCapture(args.input)
    size = int(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), int(capture.get(cv2.CAP_PROP_FRAME_HEIGHT))
    model = Model(args.model)
    head = HEADS[args.head](model.input.shape[2])
    box = Letterbox(size, model.input.shape[2], head.centred, head.pad)
    prepare, annotate = Prepare(box, head, model.input), Annotator()
    decode = decode_nanodet if args.head == "nanodet" else decode_yolox
    prepare(np.zeros((size[1], size[0], 3), np.uint8))
    model.run()
    frames = detections = 0
    begun = perf_counter()
    while args.frames is None or frames < args.frames:
        good, image = capture.read()
        if not good:
            break
        prepare(image)
        found, scores, ids = decode(head, model.run(), args.conf)
        keep = suppress(found, scores, ids, args.iou)[: args.max_det]
        host = box.undo(found[keep].cpu().numpy()), scores[keep].cpu().numpy(), ids[keep].cpu().numpy()
        if args.draw:
            annotate(image, host)
        frames, detections = frames + 1, detections + len(keep)
    seconds = perf_counter() - begun
    return {"frames": frames, "seconds": round(seconds, 4), "fps": round(frames / seconds, 3), "detections": detections}


if __name__ == "__main__":
    print(json.dumps(run(parser().parse_args())))
