"""A card inferred from a model's shapes, names and metadata, or refused with what is missing.

Only what is certain is taken. Where two kinds of model have the same shapes and nothing else tells them apart, a wrong
guess would draw wrong boxes, so a card is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raven.detect.coco import COCO_80, NAME_LISTS
from raven.detect.ultralytics import Export, read_export
from raven.errors import ModelError

if TYPE_CHECKING:
    from raven.infer.base import TensorSpec

Raw = dict[str, Any]
_STRIDES = (8, 16, 32)
#: An end-to-end head gives at most this many rows; a grid of anchors has more.
_MOST_ROWS = 1000

_YOLO_INPUT = {"channels": "rgb", "scale": 255, "resize": "letterbox", "align": "center", "pad": 114}
_YOLOX_INPUT = {
    "channels": "bgr",
    "scale": 1,
    "resize": "letterbox",
    "align": "topleft",
    "pad": 114,
    "rounding": "floor",
}
_STRETCHED = {"channels": "rgb", "scale": 255, "resize": "stretch"}
_IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_NANODET_INPUT = {"channels": "bgr", "mean": [103.53, 116.28, 123.675], "std": [57.375, 57.12, 58.395], "pad": 0}


@dataclass(frozen=True)
class Clues:
    """What there is to go by.

    Attributes
    ----------
    layout : str
        ``NCHW`` or ``NHWC``; empty when the input's shape does not tell.
    size : (int, int) or None
        Width and height of the input, when fixed or in the metadata.
    names : tuple of str
        Class names from the card or the metadata.
    input : str
        Name of the first input.
    outputs : dict
        Shapes by name, batch dimension first, in the model's order.
    export : Export
    """

    layout: str
    size: tuple[int, int] | None
    names: tuple[str, ...]
    input: str
    outputs: dict[str, tuple[int | str | None, ...]]
    export: Export

    @property
    def anchors(self) -> int:
        """Cells of all levels of the usual three strides; 0 when the size is not known."""
        return sum(self.cells(stride) for stride in _STRIDES)

    def cells(self, stride: int) -> int:
        """Cells of one level."""
        return math.ceil(self.size[0] / stride) * math.ceil(self.size[1] / stride) if self.size else 0


def guess(
    path: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    given: Mapping[str, Any],
) -> tuple[Raw, list[str]]:
    """Infer a card's tables.

    Parameters
    ----------
    path : Path
        The model's file.
    inputs, outputs : sequence of TensorSpec
    metadata : mapping of str to str
        What the exporter wrote into the file.
    given : mapping
        A card's tables, when there is one that does not say all.

    Returns
    -------
    tables : dict
        In the form of a card's TOML.
    notices : list of str

    Raises
    ------
    ModelError
        The model cannot be understood; the message lists what is missing.
    """
    clues = _clues(path, inputs, outputs, metadata, given)
    if clues.export.task not in ("", "detect"):
        raise ModelError(f"{path}: its task is {clues.export.task!r}; Raven runs 'detect'; export a detection model")
    raw = next((found for rule in _RULES if (found := rule(clues))), None)
    _demand(path, clues, raw)
    assert raw is not None
    return _completed(raw, clues), [_notice(path, raw, clues)]


def _clues(
    path: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    given: Mapping[str, Any],
) -> Clues:
    export = read_export(metadata)
    table = given.get("input", {})
    shape = inputs[0].shape if len(inputs) == 1 else ()
    layout = table.get("layout") or _layout(shape)
    # A value of another kind is refused later, with what is possible.
    listed = value if isinstance(value := given.get("classes", {}).get("names"), list | str) else ()
    names = NAME_LISTS.get(listed, ()) if isinstance(listed, str) else tuple(listed)
    shapes = {spec.name: spec.shape for spec in outputs}
    size = _size(shape, layout) or tuple(table.get("size", ())) or export.size
    return Clues(layout, size or None, names or export.names, inputs[0].name if inputs else "", shapes, export)


def _layout(shape: Sequence[int | str | None]) -> str:
    if len(shape) != 4 or (shape[1] == 3) == (shape[3] == 3):
        return ""
    return "NCHW" if shape[1] == 3 else "NHWC"


def _size(shape: Sequence[int | str | None], layout: str) -> tuple[int, int] | None:
    if not layout or len(shape) != 4:
        return None
    height, width = (shape[2], shape[3]) if layout == "NCHW" else (shape[1], shape[2])
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _demand(path: Path, clues: Clues, raw: Raw | None) -> None:
    """Refuse, naming everything that is missing at once."""
    missing = []
    if not clues.layout:
        missing.append("input.layout (one picture input of 4 dimensions was not found)")
    if clues.size is None:
        missing.append("input.size")
    if raw is None:
        missing.append("head.type (outputs: " + ", ".join(f"{n} {_shown(s)}" for n, s in clues.outputs.items()) + ")")
    if not clues.names and not (raw or {}).get("classes"):
        missing.append("classes.names")
    if missing:
        card = path.with_suffix(".toml").name
        raise ModelError(
            f"{path}: it does not say enough about itself; missing: {'; '.join(missing)}; write {card} with it"
        )


def _completed(raw: Raw, clues: Clues) -> Raw:
    """With layout, size, names and origin."""
    table = {**raw.get("input", {}), "layout": clues.layout, "size": list(clues.size or ())}
    names = list(clues.names) or raw["classes"]["names"]
    about = {k: v for k, v in (("licence", clues.export.licence), ("description", clues.export.description)) if v}
    return {**raw, "model": about, "input": table, "classes": {"names": names}}


def _notice(path: Path, raw: Raw, clues: Clues) -> str:
    source = "its metadata" if clues.export.names else "its shapes"
    return (
        f"{path.name}: taken for a model with head {raw['head']['type']!r} from {source}; write a card if that is wrong"
    )


def _shown(shape: Sequence[int | str | None]) -> str:
    return f"[{', '.join(str(n or '?') for n in shape)}]"


# -- rules: each knows one kind of model, and says nothing when it is not sure ----------------------------------------


def _only(clues: Clues) -> tuple[int | str | None, int | str | None] | None:
    """Last two dimensions of a single output of three."""
    shapes = list(clues.outputs.values())
    return (shapes[0][1], shapes[0][2]) if len(shapes) == 1 and len(shapes[0]) == 3 else None


def _yolo(head: str, classes: int, clues: Clues, iou: float) -> Raw | None:
    """A YOLO of the usual input, if the class count agrees with the names."""
    if classes < 1 or (clues.names and len(clues.names) != classes):
        return None
    raw: Raw = {"head": {"type": head}, "input": dict(_YOLO_INPUT), "thresholds": {"conf": 0.25, "iou": iou}}
    return _with_coco(raw, classes)


def _with_coco(raw: Raw, classes: int) -> Raw:
    return {**raw, "classes": {"names": "coco"}} if classes == len(COCO_80) else raw


def _yolov8(clues: Clues) -> Raw | None:
    """[B, 4 + classes, N]: YOLOv8, v9, 11, 12, which scale by 255."""
    dims = _only(clues)
    if not dims or not isinstance(dims[0], int):
        return None
    channels, anchors = dims[0], dims[1]
    certain = anchors == clues.anchors if isinstance(anchors, int) else bool(clues.export.names)
    return _yolo("yolov8", channels - 4, clues, 0.7) if certain and not clues.export.end2end else None


def _yolov5(clues: Clues) -> Raw | None:
    """[B, N, 5 + classes] with three anchors a cell: YOLOv5 and v7."""
    dims = _only(clues)
    if not dims or not isinstance(dims[1], int):
        return None
    anchors, row = dims[0], dims[1]
    certain = anchors == 3 * clues.anchors if isinstance(anchors, int) else bool(clues.export.names)
    return _yolo("yolov5", row - 5, clues, 0.45) if certain and not clues.export.end2end else None


def _yolox(clues: Clues) -> Raw | None:
    """The same with one anchor a cell. YOLOv6 has it too, decoded already: only YOLOX's own names are taken."""
    dims = _only(clues)
    named = clues.input == "images" and list(clues.outputs) == ["output"] and not clues.export.names
    if not dims or not named or not isinstance(dims[1], int) or dims[0] != clues.anchors or dims[1] < 6:
        return None
    classes = dims[1] - 5
    if clues.names and len(clues.names) != classes:
        return None
    raw: Raw = {"head": {"type": "yolox", "strides": list(_STRIDES)}, "input": dict(_YOLOX_INPUT)}
    return _with_coco(raw, classes)


def _end2end(clues: Clues) -> Raw | None:
    """[B, N, 6] rows of x1, y1, x2, y2, score, class: YOLOv10, YOLO26, exports with NMS inside."""
    dims = _only(clues)
    if not dims or dims[1] != 6:
        return None
    few = isinstance(dims[0], int) and dims[0] <= _MOST_ROWS and dims[0] not in (clues.anchors, 3 * clues.anchors)
    if not few and not clues.export.end2end:
        return None
    return {"head": {"type": "end2end"}, "input": dict(_YOLO_INPUT), "thresholds": {"conf": 0.25}}


def _detr(clues: Clues) -> Raw | None:
    """Queries: RT-DETR and D-FINE as transformers exports them (logits, pred_boxes), RF-DETR (dets, labels)."""
    pairs = (("logits", "pred_boxes"), ("labels", "dets"))
    scores, boxes = next((pair for pair in pairs if set(pair) == set(clues.outputs)), ("", ""))
    if not scores or clues.outputs[boxes][-1] != 4:
        return None
    classes = clues.outputs[scores][-1]
    known = {80: "coco"} if scores == "logits" else {80: "coco", 91: "coco91"}
    # DETR itself has one class more, for "nothing", and a softmax over them: not this head.
    if not isinstance(classes, int) or (classes not in known and len(clues.names) != classes):
        return None
    outputs = {"scores": scores, "boxes": boxes}
    head = {"type": "detr", "scores": "logit", "coordinates": "normalized", "outputs": outputs}
    pixels = _STRETCHED if scores == "logits" else {**_STRETCHED, **_IMAGENET}
    raw: Raw = {"head": head, "input": dict(pixels), "thresholds": {"conf": 0.5}}
    return {**raw, "classes": {"names": known[classes]}} if classes in known else raw


def _detr_labels(clues: Clues) -> Raw | None:
    """Labels, boxes and scores: D-FINE's and RT-DETR's own exports, whose boxes are in pixels of the size given."""
    if set(clues.outputs) != {"labels", "boxes", "scores"}:
        return None
    head = {"type": "detr-labels", "boxes": "xyxy", "outputs": {role: role for role in ("labels", "boxes", "scores")}}
    return {"head": head, "input": dict(_STRETCHED), "thresholds": {"conf": 0.5}}


def _nanodet(clues: Clues) -> Raw | None:
    """For every stride, class scores and distributions of the four sides."""
    shapes = list(clues.outputs.values())
    if len(shapes) != 2 * len(_STRIDES) or any(len(s) != 3 for s in shapes):
        return None
    rows = {clues.cells(stride): [s[2] for s in shapes if s[1] == clues.cells(stride)] for stride in _STRIDES}
    pairs = {tuple(sorted(pair, key=str)) for pair in rows.values()}
    if len(pairs) != 1 or len(pair := set(next(iter(pairs)))) != 2:
        return None
    classes = len(clues.names) or len(COCO_80)
    sides = pair - {classes}
    if len(sides) != 1 or not isinstance(side := sides.pop(), int) or side % 4:
        return None
    head = {"type": "nanodet", "strides": list(_STRIDES), "bins": side // 4}
    return _with_coco({"head": head, "input": dict(_NANODET_INPUT)}, classes)


def _centerface(clues: Clues) -> Raw | None:
    """CenterFace's output names, as its authors exported it."""
    channels = {"537": 1, "538": 2, "539": 2, "540": 10}
    if set(clues.outputs) != set(channels) or any(clues.outputs[n][1] != c for n, c in channels.items()):
        return None
    head = {"type": "centerface", "outputs": {"scores": "537", "sizes": "538", "offsets": "539"}}
    pixels = {"channels": "rgb", "resize": "letterbox", "pad": 0}
    return {"head": head, "input": pixels, "thresholds": {"conf": 0.5, "iou": 0.3}, "classes": {"names": ["face"]}}


_RULES = (_end2end, _yolov8, _yolov5, _yolox, _detr, _detr_labels, _nanodet, _centerface)
