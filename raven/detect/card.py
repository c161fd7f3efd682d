"""A model's card: what its pixels and outputs mean. ``NAME.toml`` beside ``NAME.onnx``, or inferred."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raven.detect import schema
from raven.detect.coco import NAME_LISTS
from raven.detect.guess import guess
from raven.errors import ModelError

if TYPE_CHECKING:
    from raven.detect.heads import HeadSpec
    from raven.frame.geometry import Align, Resize, Rounding
    from raven.infer.base import TensorSpec

#: Heads that a card may name, and what :mod:`raven.detect.heads` calls them.
HEAD_TYPES = {
    "yolov5": "yolov5",
    "yolov8": "yolov8",
    "yolox": "yolox",
    "nanodet": "nanodet",
    "end2end": "yolo26",
    "detr": "detr",
    "detr-labels": "detr-labels",
    "centerface": "centerface",
}
#: Keys of [head] that only some heads heed.
_ONLY_FOR = {
    "bins": ("nanodet",),
    "strides": ("yolox", "nanodet"),
    "coordinates": ("detr", "detr-labels"),
    "boxes": ("detr", "detr-labels"),
    "scores": ("detr",),
}

#: Every key of a card. Each becomes an attribute of the same name, but for head.type, which becomes ``head``.
TABLES: dict[str, dict[str, schema.Reader]] = {
    "model": {
        "name": schema.text,
        "task": schema.choice("detect"),
        "licence": schema.text,
        "origin": schema.text,
        "description": schema.text,
    },
    "input": {
        "layout": schema.choice("NCHW", "NHWC"),
        "channels": schema.choice("rgb", "bgr"),
        "size": schema.integers(1, 16384, 2),
        "scale": schema.number(0, 65535, above=True),
        "mean": schema.triple(-65535, 65535),
        "std": schema.triple(0, 65535, above=True),
        "resize": schema.choice("letterbox", "stretch", "crop"),
        "align": schema.choice("center", "topleft"),
        "rounding": schema.choice("round", "floor"),
        "pad": schema.triple(0, 255, spread=True),
    },
    "head": {
        "type": schema.choice(*HEAD_TYPES),
        "strides": schema.integers(1, 1024),
        "bins": schema.integer(2, 64),
        "coordinates": schema.choice("pixels", "normalized"),
        "scores": schema.choice("probability", "logit"),
        "boxes": schema.choice("cxcywh", "xyxy"),
        "outputs": schema.roles("scores", "boxes", "labels", "sizes", "offsets"),
    },
    "classes": {"names": schema.names(NAME_LISTS)},
    "thresholds": {
        "conf": schema.number(0, 1),
        "iou": schema.number(0, 1),
        "max_det": schema.integer(1, 1024),
    },
}


@dataclass(frozen=True)
class ModelCard:
    """What a detection model's pixels and outputs mean.

    A pixel p, 0 to 255, enters the model as ``(p / scale - mean) / std``, with mean and std in the order of
    ``channels``. Padding is a pixel value like any other: it is normalised too.

    Attributes
    ----------
    name, task, licence, origin, description : str
    layout : {'NCHW', 'NHWC'}
    channels : {'rgb', 'bgr'}
    size : (int, int) or None
        Width and height in pixels, for models that leave them open.
    scale : float
    mean, std : tuple of 3 float
    resize : {'letterbox', 'stretch', 'crop'}
    align : {'center', 'topleft'}
    rounding : {'round', 'floor'}
        How the letterboxed picture's size becomes integral.
    pad : tuple of 3 float
        0 to 255, in the order of ``channels``.
    head : str
        How the outputs are laid out: a key of :data:`HEAD_TYPES`.
    names : tuple of str
        Class names by id.
    strides : tuple of int
        Model pixels between the anchors of each level.
    bins : int
        Bins of a box side's distribution (``reg_max + 1``); 0: from the outputs' shapes.
    coordinates : {'pixels', 'normalized'}
        Whether boxes are in pixels of the input or fractions of its size (``detr`` and ``detr-labels`` only).
    scores : {'probability', 'logit'}
        Whether the sigmoid was applied already (``detr`` only).
    boxes : {'cxcywh', 'xyxy'}
        Order of a box's numbers (``detr`` and ``detr-labels`` only).
    outputs : mapping of str to str
        Outputs' names by role, where shapes do not tell them apart.
    conf, iou : float
        Default thresholds, 0 to 1.
    max_det : int
    notices : tuple of str
        What was assumed, when the card was inferred.
    """

    name: str
    head: str
    names: tuple[str, ...]
    strides: tuple[int, ...] = (8, 16, 32)
    bins: int = 0
    coordinates: str = "pixels"
    scores: str = "probability"
    boxes: str = "cxcywh"
    outputs: Mapping[str, str] = field(default_factory=dict)
    task: str = "detect"
    licence: str = ""
    origin: str = ""
    description: str = ""
    layout: str = "NCHW"
    channels: str = "rgb"
    size: tuple[int, int] | None = None
    scale: float = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    resize: Resize = "letterbox"
    align: Align = "center"
    rounding: Rounding = "round"
    pad: tuple[float, float, float] = (114.0, 114.0, 114.0)
    conf: float = 0.25
    iou: float = 0.45
    max_det: int = 300
    notices: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: str | Path) -> ModelCard:
        """Read a card that says everything itself.

        Raises
        ------
        ModelError
            No such file, not TOML, an unknown key, or an impossible or missing value.
        """
        return cls.from_dict(read_toml(Path(path)), Path(path).stem, str(path))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], name: str, origin: str, notices: Sequence[str] = ()) -> ModelCard:
        """Make a card of TOML's tables.

        Parameters
        ----------
        raw : mapping
        name : str
            The model's, when the card does not give one.
        origin : str
            Where the tables come from, for messages.
        notices : sequence of str

        Raises
        ------
        ModelError
            As :meth:`load`.
        """
        schema.check_tables(raw, TABLES, origin)
        read = {table: schema.read_table(raw, table, readers, origin) for table, readers in TABLES.items()}
        missing = [f"{t}.{k}" for t, k in (("head", "type"), ("classes", "names")) if k not in read[t]]
        if missing:
            raise ModelError(f"{origin}: missing: {', '.join(missing)}; add them to the card")
        _check_head(read["head"], origin)
        read["head"]["head"] = read["head"].pop("type")
        flat = {key: value for table in read.values() for key, value in table.items()}
        return cls(**{"name": name, "notices": tuple(notices), **flat})

    def input_size(self, shape: Sequence[int | str | None]) -> tuple[int, int]:
        """Width and height, in pixels, for a model's input shape.

        Raises
        ------
        ModelError
            The input is no picture, neither shape nor card give a size, or they differ.
        """
        if len(shape) != 4:
            raise ModelError(
                f"{self.name}: its input has {len(shape)} dimensions; a picture has 4, such as 1x3x416x416"
            )
        height, width, channels = (shape[i] for i in ((2, 3, 1) if self.layout == "NCHW" else (1, 2, 3)))
        if isinstance(channels, int) and channels != 3:
            raise ModelError(
                f"{self.name}: {channels} channels in layout {self.layout}, not 3; correct the card's layout"
            )
        known = self.size or (None, None)
        for given, wanted in ((width, known[0]), (height, known[1])):
            if isinstance(given, int) and wanted is not None and given != wanted:
                raise ModelError(
                    f"{self.name}: the card's size {list(known)} is not the model's {width}x{height}; correct it"
                )
        size = tuple(
            given if isinstance(given, int) else wanted for given, wanted in zip((width, height), known, strict=True)
        )
        if size[0] is None or size[1] is None:
            raise ModelError(f"{self.name}: the model takes any size; add size = [WIDTH, HEIGHT] to its card's [input]")
        return size[0], size[1]

    def head_spec(self, size: tuple[int, int], outputs: Sequence[str]) -> HeadSpec:
        """What the head's passes are made from.

        Parameters
        ----------
        size : (int, int)
            Width and height of the model's input.
        outputs : sequence of str
            Names of the model's outputs, in its own order.

        Raises
        ------
        ModelError
            The card names an output that the model does not have.
        """
        from raven.detect.heads import HeadSpec

        for name in self.outputs.values():
            if name not in outputs:
                raise ModelError(
                    f"{self.name}: the card's output {name!r} is not among the model's: {', '.join(outputs)}"
                )
        return HeadSpec(
            type=HEAD_TYPES[self.head],
            size=size,
            classes=len(self.names),
            strides=self.strides,
            bins=self.bins,
            normalised=self.coordinates == "normalized",
            logits=self.scores == "logit",
            corners=self.boxes == "xyxy",
            outputs={role: list(outputs).index(name) for role, name in self.outputs.items()},
        )


def load_card(
    model_path: str | Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    metadata: Mapping[str, str],
    card: str | Path | None = None,
) -> ModelCard:
    """The card of a model: the file beside it, with what that leaves out inferred, or inferred altogether.

    A card without ``head.type`` only adds to what is inferred: it may give just the class names, say.

    Parameters
    ----------
    model_path : str or Path
        ``NAME.onnx``; the card is ``NAME.toml``.
    inputs, outputs : sequence of TensorSpec
    metadata : mapping of str to str
    card : str or Path or None
        Another card than the one beside the model; it must exist.

    Raises
    ------
    ModelError
        The card is wrong, or the model cannot be understood without one; the message lists what is missing.
    """
    path = Path(model_path)
    file = Path(card) if card is not None else path.with_suffix(".toml")
    given = read_toml(file) if card is not None or file.exists() else {}
    origin = str(file if given else path)
    schema.check_tables(given, TABLES, origin)
    notices: list[str] = []
    if "type" not in given.get("head", {}):
        inferred, notices = guess(path, inputs, outputs, metadata, given)
        given = _merge(inferred, given)
    found = ModelCard.from_dict(given, path.stem, origin, notices)
    if inputs:
        found.input_size(inputs[0].shape)
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's tables. Raises ModelError naming the line that is wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path}: no such card; write one beside the model") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: the card cannot be read ({error}); it is a TOML file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"{path}: not valid TOML: {error}; correct that line") from None


def _merge(inferred: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of both, the card's own keys first."""
    tables = [t for t in TABLES if t in inferred or t in given]
    return {t: {**inferred.get(t, {}), **given.get(t, {})} for t in tables}


def _check_head(given: Mapping[str, Any], origin: str) -> None:
    """Refuse a key that the head would ignore."""
    for key, heads in _ONLY_FOR.items():
        if key in given and given["type"] not in heads:
            raise ModelError(
                f"{origin}: head.{key} = {given[key]!r} has no meaning for head {given['type']!r}, only for "
                f"{' and '.join(heads)}; remove it"
            )
