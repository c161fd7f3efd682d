"""What the outputs of each kind of model mean: which tensor holds scores, which boxes, where the anchors are.

Everything here is worked out from shapes at set-up. The decoding itself is in shaders/detect, one file a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raven.errors import ModelError

# Limits of a candidate's key and of the pushed addresses; shaders/detect/layout.slang has the same.
MAX_ANCHORS, MAX_CLASSES, MAX_LEVELS, MAX_SCORE_LEVELS = 1 << 20, 4096, 8, 4
#: Bits of ``HeadPush.flags`` that a head decides.
SUPPRESS, LOGITS, NORMALISED, CORNERS, LABELS_FLOAT, LABELS_INT64 = 2, 8, 16, 32, 64, 128


@dataclass(frozen=True)
class HeadSpec:
    """A detection head, as a model's card says it.

    Attributes
    ----------
    type : str
        A key of :data:`HEADS`.
    size : tuple of int
        Width and height of the model's input, in pixels.
    classes : int
        Number of classes; 0: as many as the outputs hold.
    strides : tuple of int
        Model pixels between the anchors of each level.
    bins : int
        Bins of a box side's distribution (``reg_max + 1``); 0: from the shape.
    normalised : bool
        Boxes are fractions of the input rather than pixels.
    logits : bool
        Scores want a sigmoid.
    corners : bool
        Boxes of ``detr`` and ``detr-labels`` are x1, y1, x2, y2 rather than centre and size.
    outputs : mapping of str to int
        Position of an output by role (``scores``, ``boxes``, ``labels``, ``sizes``, ``offsets``), for what shapes do
        not tell.
    """

    type: str
    size: tuple[int, int]
    classes: int = 0
    strides: tuple[int, ...] = (8, 16, 32)
    bins: int = 0
    normalised: bool = False
    logits: bool = False
    corners: bool = False
    outputs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """One grid of anchors: the number of its first one, anchors a row, stride, and the output with its boxes if any."""

    first: int
    width: int
    stride: int
    boxes: int | None = None


@dataclass(frozen=True)
class Plan:
    """How a shader is to read a model's outputs.

    Attributes
    ----------
    shader : str
        File below shaders/detect.
    anchors, classes, row : int
        Anchors of a frame, classes, and elements a row of the first tensor.
    tensors : tuple of int
        Positions of the outputs whose addresses are pushed.
    element : {'float32', 'float16'}
        Their type.
    wide : bool
        Scoring takes eight anchors a thread.
    """

    shader: str
    anchors: int
    classes: int
    row: int
    tensors: tuple[int, ...]
    element: str
    levels: tuple[Level, ...] = ()
    bins: int = 0
    flags: int = SUPPRESS
    wide: bool = False


Shapes = Sequence[tuple[int, ...]]


def plan(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    """Match a head with a model's outputs.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of all outputs in the model's order, with the batch dimension first.
    dtypes : sequence of numpy.dtype

    Raises
    ------
    ModelError
        The head is unknown, or the outputs are not what it makes; the message says what was expected.
    """
    if spec.type not in HEADS:
        raise ModelError(f"head {spec.type!r} is not known; a card's head is one of {', '.join(HEADS)}")
    made = HEADS[spec.type](spec, [tuple(s) for s in shapes], [np.dtype(d) for d in dtypes])
    _check(spec, made)
    return made


def _check(spec: HeadSpec, made: Plan) -> None:
    if made.element not in ("float32", "float16"):
        raise ModelError(f"head {spec.type!r} reads float32 or float16 outputs, not {made.element}; convert the model")
    if not 0 < made.anchors <= MAX_ANCHORS or not 0 < made.classes <= MAX_CLASSES:
        raise ModelError(
            f"{made.anchors} anchors and {made.classes} classes: head {spec.type!r} takes 1 to {MAX_ANCHORS} and "
            f"1 to {MAX_CLASSES}"
        )
    if spec.classes and made.classes != spec.classes:
        raise ModelError(
            f"the card has {spec.classes} classes, the outputs of head {spec.type!r} hold {made.classes}; "
            "correct the card"
        )


def _wrong(spec: HeadSpec, shapes: Shapes, wanted: str) -> ModelError:
    given = ", ".join(str(list(s)) for s in shapes)
    return ModelError(f"head {spec.type!r} wants {wanted}, the model's outputs are {given}; correct the card's head")


def _only(spec: HeadSpec, shapes: Shapes, wanted: str) -> tuple[int, int, int]:
    """Position and last two dimensions of the output that ``scores`` names, or of the first one of rank 3."""
    ranked = [i for i, s in enumerate(shapes) if len(s) == 3]
    at = spec.outputs.get("scores", ranked[0] if ranked else -1)
    if at not in ranked:
        raise _wrong(spec, shapes, wanted)
    return at, shapes[at][1], shapes[at][2]


def grid_levels(
    size: tuple[int, int], strides: Sequence[int], boxes: Sequence[int | None] | None = None
) -> tuple[Level, ...]:
    """Levels of anchors one after the other, each as many as strides fit into the input, rounded up."""
    levels, first = [], 0
    for index, stride in enumerate(strides):
        width, height = math.ceil(size[0] / stride), math.ceil(size[1] / stride)
        levels.append(Level(first, width, stride, boxes[index] if boxes else None))
        first += width * height
    return tuple(levels)


def grid_anchors(size: tuple[int, int], strides: Sequence[int]) -> int:
    """Anchors of all levels together."""
    return sum(math.ceil(size[0] / s) * math.ceil(size[1] / s) for s in strides)


def _yolov5(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    at, anchors, row = _only(spec, shapes, "one output [B, N, 5 + classes]")
    if row < 6:
        raise _wrong(spec, shapes, "one output [B, N, 5 + classes]")
    return Plan("yolov5", anchors, row - 5, row, (at,), dtypes[at].name, flags=SUPPRESS)


def _yolov8(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    at, channels, anchors = _only(spec, shapes, "one output [B, 4 + classes, N]")
    if channels < 5:
        raise _wrong(spec, shapes, "one output [B, 4 + classes, N]")
    wide = dtypes[at] == np.float32 and anchors >= 8
    return Plan("yolov8", anchors, channels - 4, anchors, (at,), dtypes[at].name, wide=wide)


def _yolo26(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    at, anchors, row = _only(spec, shapes, "one output [B, N, 6]")
    if row < 6:
        raise _wrong(spec, shapes, "one output [B, N, 6]")
    return Plan("yolo26", anchors, spec.classes or MAX_CLASSES, row, (at,), dtypes[at].name, flags=0)


def _yolox(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    anchors = grid_anchors(spec.size, spec.strides)
    wanted = f"one output [B, {anchors}, 5 + classes] for strides {list(spec.strides)}"
    at, rows, row = _only(spec, shapes, wanted)
    if rows != anchors or row < 6:
        raise _wrong(spec, shapes, wanted)
    levels = grid_levels(spec.size, spec.strides)
    return Plan("yolox", anchors, row - 5, row, (at,), dtypes[at].name, levels)


def _nanodet(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    counts = [grid_anchors(spec.size, [s]) for s in spec.strides]
    wanted = "for every stride, outputs [B, N, classes] and [B, N, 4 * bins] with N = " + ", ".join(map(str, counts))
    if not 0 < len(counts) <= MAX_SCORE_LEVELS:
        raise ModelError(f"{len(counts)} strides: head 'nanodet' takes 1 to {MAX_SCORE_LEVELS}; correct the card")
    pairs = [_nanodet_pair(spec, shapes, n, wanted) for n in counts]
    scores, boxes = zip(*pairs, strict=True)
    classes, sides = shapes[scores[0]][2], shapes[boxes[0]][2]
    return Plan(
        "nanodet",
        sum(counts),
        classes,
        classes,
        scores,
        dtypes[scores[0]].name,
        grid_levels(spec.size, spec.strides, boxes),
        bins=sides // 4,
    )


def _nanodet_pair(spec: HeadSpec, shapes: Shapes, anchors: int, wanted: str) -> tuple[int, int]:
    """Positions of a level's scores and distributions: of its two outputs, told apart by the card's classes or bins."""
    found = [i for i, s in enumerate(shapes) if len(s) == 3 and s[1] == anchors]
    if len(found) != 2:
        raise _wrong(spec, shapes, wanted)
    first, second = found
    sides = [shapes[i][2] for i in found]
    if spec.classes and spec.classes in sides:
        swapped = sides[0] != spec.classes or (sides[1] == spec.classes and spec.bins * 4 == sides[0])
    elif spec.bins:
        swapped = sides[0] == 4 * spec.bins
    else:
        swapped = sides[0] % 4 == 0 and sides[1] % 4 != 0
    scores, boxes = (second, first) if swapped else (first, second)
    if shapes[boxes][2] % 4 or (spec.bins and shapes[boxes][2] != 4 * spec.bins):
        raise _wrong(spec, shapes, wanted)
    return scores, boxes


def _detr(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    wanted = "outputs [B, Q, classes] and [B, Q, 4]"
    ranked = [i for i, s in enumerate(shapes) if len(s) == 3]
    boxes = spec.outputs.get("boxes", next((i for i in ranked if shapes[i][2] == 4), -1))
    scores = spec.outputs.get("scores", next((i for i in ranked if i != boxes), -1))
    if boxes not in ranked or scores not in ranked or shapes[boxes][1:] != (shapes[scores][1], 4):
        raise _wrong(spec, shapes, wanted)
    flags = LOGITS * spec.logits | NORMALISED * spec.normalised | CORNERS * spec.corners
    anchors, classes = shapes[scores][1:]
    return Plan("detr", anchors, classes, classes, (scores, boxes), dtypes[scores].name, flags=flags)


def _detr_labels(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    wanted = "outputs [B, Q] of labels, [B, Q, 4] of boxes and [B, Q] of scores"
    flat = [i for i, s in enumerate(shapes) if len(s) == 2]
    boxes = spec.outputs.get("boxes", next((i for i, s in enumerate(shapes) if len(s) == 3 and s[2] == 4), -1))
    if boxes < 0 or len(flat) != 2:
        raise _wrong(spec, shapes, wanted)
    whole = [i for i in flat if dtypes[i].kind in "iu"]
    labels = spec.outputs.get("labels", whole[0] if whole else flat[0])
    scores = spec.outputs.get("scores", next(i for i in flat if i != labels))
    kinds = {"float32": LABELS_FLOAT, "float16": LABELS_FLOAT, "int64": LABELS_INT64, "int32": 0}
    if dtypes[labels].name not in kinds:
        raise _wrong(spec, shapes, f"{wanted}, labels as int32, int64 or float")
    flags = kinds[dtypes[labels].name] | NORMALISED * spec.normalised | CORNERS * spec.corners
    element, classes = dtypes[scores].name, spec.classes or MAX_CLASSES
    return Plan("detr_labels", shapes[scores][1], classes, 1, (scores, boxes, labels), element, flags=flags)


def _centerface(spec: HeadSpec, shapes: Shapes, dtypes: Sequence[np.dtype]) -> Plan:
    wanted = "outputs [B, 1, H/4, W/4], [B, 2, H/4, W/4] of sizes and [B, 2, H/4, W/4] of offsets"
    heat = spec.outputs.get("scores", next((i for i, s in enumerate(shapes) if len(s) == 4 and s[1] == 1), -1))
    pairs = [i for i, s in enumerate(shapes) if len(s) == 4 and s[1] == 2]
    if heat < 0 or len(pairs) < 2:
        raise _wrong(spec, shapes, wanted)
    sizes, offsets = spec.outputs.get("sizes", pairs[0]), spec.outputs.get("offsets", pairs[1])
    height, width = shapes[heat][2:]
    stride = round(spec.size[0] / width)
    level = Level(0, width, stride)
    return Plan("centerface", height * width, 1, 1, (heat, sizes, offsets), dtypes[heat].name, (level,))


#: Heads by the name that cards use.
HEADS: dict[str, Callable[[HeadSpec, Shapes, Sequence[np.dtype]], Plan]] = {
    "yolov5": _yolov5,
    "yolov8": _yolov8,
    "yolo26": _yolo26,
    "yolox": _yolox,
    "nanodet": _nanodet,
    "detr": _detr,
    "detr-labels": _detr_labels,
    "centerface": _centerface,
}
