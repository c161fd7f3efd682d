"""Model cards: read strictly, or inferred from what a model says of itself, or refused with what is missing."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raven.detect.card import HEAD_TYPES, TABLES, ModelCard, load_card
from raven.detect.coco import COCO_80, COCO_91
from raven.detect.ultralytics import read_export
from raven.errors import ModelError
from raven.infer import load_model
from raven.infer.base import TensorSpec
from raven.models import list_models
from tests.support import onnx_models as tiny

MINIMAL: dict[str, dict[str, Any]] = {"head": {"type": "yolov8"}, "classes": {"names": ["cat", "dog"]}}
YOLOX_CARD = Path(__file__).parent / "data" / "yolox_nano_416.toml"
Shapes = Mapping[str, tuple[int | str | None, ...]]


def card_of(**tables: Mapping[str, Any]) -> ModelCard:
    """The minimal card with more keys."""
    merged = {table: {**MINIMAL.get(table, {}), **tables.get(table, {})} for table in {**MINIMAL, **tables}}
    return ModelCard.from_dict(merged, "m", "m.toml")


def specs(shapes: Shapes) -> list[TensorSpec]:
    return [TensorSpec(name, shape, np.dtype(np.float32)) for name, shape in shapes.items()]


def inferred(
    folder: Path, inputs: Shapes, outputs: Shapes, metadata: Mapping[str, str] | None = None, toml: str = ""
) -> ModelCard:
    """The card of a model with these shapes and, where there is one, this file beside it."""
    if toml:
        (folder / "m.toml").write_text(toml)
    return load_card(folder / "m.onnx", specs(inputs), specs(outputs), metadata or {})


def refused(message: str) -> pytest.RaisesExc:
    """A ModelError of one line that matches."""
    return pytest.RaisesExc(ModelError, match=message, check=lambda error: "\n" not in str(error))


# -- strict reading ----------------------------------------------------------------------------------------------------


def test_every_key_becomes_an_attribute() -> None:
    given = {
        "model": {"name": "n", "task": "detect", "licence": "MIT", "origin": "here", "description": "d"},
        "input": {
            "layout": "NHWC",
            "channels": "bgr",
            "size": [640, 480],
            "scale": 255,
            "mean": [1, 2, 3],
            "std": [4, 5, 6.5],
            "resize": "crop",
            "align": "topleft",
            "rounding": "floor",
            "pad": [7, 8, 9],
        },
        "head": {"type": "nanodet", "strides": [4, 8], "bins": 11, "outputs": {"scores": "s"}},
        "classes": {"names": ["cat", "dog"]},
        "thresholds": {"conf": 0.1, "iou": 1, "max_det": 7},
    }
    expected = {key: tuple(v) if isinstance(v, list) else v for table in given.values() for key, v in table.items()}
    expected["head"] = expected.pop("type")
    expected |= {"coordinates": "pixels", "scores": "probability", "boxes": "cxcywh", "notices": ()}
    assert vars(ModelCard.from_dict(given, "m", "m.toml")) == expected


def test_defaults() -> None:
    card = card_of()
    assert (card.name, card.layout, card.channels, card.size) == ("m", "NCHW", "rgb", None)
    assert (card.mean, card.std, card.scale, card.pad) == ((0, 0, 0), (1, 1, 1), 1, (114, 114, 114))
    assert (card.resize, card.align, card.rounding) == ("letterbox", "center", "round")


def test_cards_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        card_of().conf = 0.9  # type: ignore[misc]


def test_one_number_pads_all_channels() -> None:
    assert card_of(input={"pad": 0}).pad == (0, 0, 0)


@pytest.mark.parametrize("table", TABLES)
def test_unknown_keys_name_the_allowed_ones(table: str) -> None:
    allowed = re.escape(", ".join(TABLES[table]))
    with refused(rf"m\.toml: \[{table}\] has no key 'nmae'; allowed: {allowed}$"):
        card_of(**{table: {"nmae": 1}})


def test_unknown_tables_name_the_allowed_ones() -> None:
    with refused("m.toml: the card has no key 'inputs'; allowed: model, input, head, classes, thresholds"):
        card_of(inputs={})
    with refused(r"m\.toml: input = 5 is not a table; write \[input\] above its keys"):
        ModelCard.from_dict({**MINIMAL, "input": 5}, "m", "m.toml")


@pytest.mark.parametrize(
    ("table", "key", "value", "wanted"),
    [
        ("model", "name", 5, "a string"),
        ("model", "task", "segment", "one of 'detect'"),
        ("input", "layout", "nchw", "one of 'NCHW', 'NHWC'"),
        ("input", "channels", "RGB", "one of 'rgb', 'bgr'"),
        ("input", "size", [416], "a list of 2 whole numbers from 1 to 16384"),
        ("input", "size", [416, 0], "a list of 2 whole numbers from 1 to 16384"),
        ("input", "size", [416, True], "a list of 2 whole numbers from 1 to 16384"),
        ("input", "scale", 0, "a number above 0 to 65535"),
        ("input", "scale", float("nan"), "a number above 0 to 65535"),
        ("input", "mean", 0.5, "a list of 3 numbers from -65535 to 65535"),
        ("input", "std", [1, 0, 1], "a list of 3 numbers above 0 to 65535"),
        ("input", "pad", 256, "one number or a list of 3 numbers from 0 to 255"),
        ("input", "pad", [1, 2], "one number or a list of 3 numbers from 0 to 255"),
        ("input", "resize", "pad", "one of 'letterbox', 'stretch', 'crop'"),
        ("input", "align", "left", "one of 'center', 'topleft'"),
        ("input", "rounding", "ceil", "one of 'round', 'floor'"),
        ("head", "type", "yolov9000", "one of 'yolov5', 'yolov8', 'yolox', 'nanodet', 'end2end', 'detr'"),
        ("head", "strides", [], "a list of 1 to 8 whole numbers from 1 to 1024"),
        ("head", "bins", 1, "a whole number from 2 to 64"),
        ("head", "outputs", {"masks": "m"}, "a table of output names for scores, boxes"),
        ("classes", "names", "coc", "a list of names or one of 'coco', 'coco91'"),
        ("classes", "names", [], "a list of names"),
        ("classes", "names", ["a", ""], "a list of names"),
        ("thresholds", "conf", 1.5, "a number from 0 to 1"),
        ("thresholds", "iou", "0.5", "a number from 0 to 1"),
        ("thresholds", "max_det", 1025, "a whole number from 1 to 1024"),
    ],
)
def test_impossible_values_name_what_is_possible(table: str, key: str, value: Any, wanted: str) -> None:
    shown = re.escape(repr(value))
    with refused(rf"^m\.toml: {table}\.{key} = {shown} is not possible; give {re.escape(wanted)}"):
        card_of(**{table: {key: value}})


@pytest.mark.parametrize(
    ("key", "value"),
    [("bins", 16), ("strides", [8]), ("coordinates", "pixels"), ("boxes", "xyxy"), ("scores", "logit")],
)
def test_keys_that_the_head_would_ignore_are_refused(key: str, value: Any) -> None:
    with refused(rf"head\.{key} = .* has no meaning for head 'yolov8', only for .*; remove it"):
        card_of(head={key: value})


def test_what_a_card_must_say() -> None:
    with refused("m.toml: missing: head.type, classes.names; add them to the card"):
        ModelCard.from_dict({}, "m", "m.toml")


def test_files_that_are_no_cards(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    with refused(r"m\.toml: no such card"):
        ModelCard.load(path)
    path.write_text("[head]\ntype = yolov8\n")
    with refused(r"m\.toml: not valid TOML: .*line 2.*; correct that line"):
        ModelCard.load(path)
    path.write_bytes(b"\xff\xfe[\x00")
    with refused(r"m\.toml: the card cannot be read .* UTF-8"):
        ModelCard.load(path)


# -- input size --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "size", "shape", "expected"),
    [
        ("NCHW", None, (1, 3, 480, 640), (640, 480)),
        ("NHWC", None, (1, 480, 640, 3), (640, 480)),
        ("NCHW", [640, 480], ("b", 3, "h", "w"), (640, 480)),
        ("NCHW", [640, 480], ("b", 3, 480, None), (640, 480)),
        ("NCHW", [640, 480], (1, 3, 480, 640), (640, 480)),
    ],
)
def test_input_size(layout: str, size: list[int] | None, shape: tuple[Any, ...], expected: tuple[int, int]) -> None:
    table = {"layout": layout, **({"size": size} if size else {})}
    assert card_of(input=table).input_size(shape) == expected


@pytest.mark.parametrize(
    ("size", "shape", "message"),
    [
        (None, (1, 3, "h", "w"), r"add size = \[WIDTH, HEIGHT\] to its card's \[input\]"),
        ([640, 480], (1, 3, 416, 416), r"the card's size \[640, 480\] is not the model's 416x416; correct it"),
        (None, (1, 416, 416, 3), "416 channels in layout NCHW, not 3; correct the card's layout"),
        (None, (1, 10), "its input has 2 dimensions; a picture has 4"),
    ],
)
def test_impossible_input_sizes(size: list[int] | None, shape: tuple[Any, ...], message: str) -> None:
    with refused(message):
        card_of(input={"size": size} if size else {}).input_size(shape)


# -- the head's specification ------------------------------------------------------------------------------------------


def test_head_spec() -> None:
    head = {
        "type": "detr",
        "scores": "logit",
        "coordinates": "normalized",
        "boxes": "xyxy",
        "outputs": {"scores": "b", "boxes": "a"},
    }
    spec = card_of(head=head).head_spec((64, 32), ["a", "b"])
    assert (spec.type, spec.size, spec.classes) == ("detr", (64, 32), 2)
    assert (spec.normalised, spec.logits, spec.corners) == (True, True, True)
    assert spec.outputs == {"scores": 1, "boxes": 0}


def test_head_spec_without_flags() -> None:
    spec = card_of(head={"type": "detr"}).head_spec((64, 32), ["a", "b"])
    assert (spec.normalised, spec.logits, spec.corners, dict(spec.outputs)) == (False, False, False, {})


def test_output_that_the_model_lacks() -> None:
    card = card_of(head={"type": "detr", "outputs": {"scores": "logits"}})
    with refused("the card's output 'logits' is not among the model's: a, b"):
        card.head_spec((64, 32), ["a", "b"])


def test_every_head_is_one_that_the_detector_has() -> None:
    from raven.detect.heads import HEADS

    assert set(HEAD_TYPES.values()) == set(HEADS)


# -- inference ---------------------------------------------------------------------------------------------------------

SQUARE = {"images": (1, 3, 640, 640)}
OPEN = {"images": ("batch", 3, "height", "width")}
SMALL = {"images": (1, 3, 416, 416)}
NAMES = {"names": "{0: 'cat', 1: 'dog', 2: 'it''s'}".replace("''", "\\'"), "task": "detect", "stride": "32"}
NANODET = {f"o{n}x{c}": (1, n, c) for n in (2704, 676, 169) for c in (80, 44)}
FACES = {"537": (1, 1, 8, 8), "538": (1, 2, 8, 8), "539": (1, 2, 8, 8), "540": (1, 10, 8, 8)}
LABELLED = {"labels": (1, 300), "boxes": (1, 300, 4), "scores": (1, 300)}

KNOWN: dict[str, tuple[Shapes, Shapes, dict[str, str], str, int]] = {
    "v8": (SQUARE, {"output0": (1, 84, 8400)}, {}, "yolov8", 80),
    "v8, own classes": (SQUARE, {"output0": (1, 7, 8400)}, NAMES, "yolov8", 3),
    "v8, dynamic": (OPEN, {"output0": ("b", 7, "n")}, {**NAMES, "imgsz": "[480, 640]"}, "yolov8", 3),
    "v8, not square": ({"images": (1, 3, 480, 640)}, {"o": (1, 84, 6300)}, {}, "yolov8", 80),
    "v8, NHWC": ({"x": (1, 416, 416, 3)}, {"o": (1, 84, 3549)}, {}, "yolov8", 80),
    "v5": (SQUARE, {"output0": (1, 25200, 85)}, {}, "yolov5", 80),
    "v5, dynamic": (OPEN, {"output0": ("b", "n", 8)}, {**NAMES, "imgsz": "[640, 640]"}, "yolov5", 3),
    "yolox": (SMALL, {"output": (1, 3549, 85)}, {}, "yolox", 80),
    "v10": (SQUARE, {"output0": (1, 300, 6)}, NAMES, "end2end", 3),
    "v8 with NMS": (OPEN, {"o": ("b", "n", 6)}, {**NAMES, "imgsz": "640", "args": "{'nms': True}"}, "end2end", 3),
    "26": (OPEN, {"o": ("b", "n", 6)}, {**NAMES, "imgsz": "640", "end2end": "True"}, "end2end", 3),
    "rt-detr": (SQUARE, {"logits": (1, 300, 80), "pred_boxes": (1, 300, 4)}, {}, "detr", 80),
    "rf-detr": (SQUARE, {"dets": (1, 300, 4), "labels": (1, 300, 91)}, {}, "detr", 91),
    "d-fine": (SQUARE, LABELLED, NAMES, "detr-labels", 3),
    "nanodet": (SMALL, NANODET, {}, "nanodet", 80),
    "centerface": ({"input.1": (1, 3, 32, 32)}, FACES, {}, "centerface", 1),
}


@pytest.mark.parametrize("case", KNOWN)
def test_known_models_are_recognised(tmp_path: Path, case: str) -> None:
    inputs, outputs, metadata, head, classes = KNOWN[case]
    card = inferred(tmp_path, inputs, outputs, metadata)
    assert (card.head, len(card.names)) == (head, classes)
    (notice,) = card.notices
    assert notice.startswith(f"m.onnx: taken for a model with head {head!r} from its ")
    card.head_spec(card.input_size(next(iter(inputs.values()))), list(outputs))


def test_pixels_of_known_models(tmp_path: Path) -> None:
    """Red 255, green 0, blue 128 as each family's own preprocessing makes it."""
    expected = {
        "v8": [1, 0, 128 / 255],
        "yolox": [128, 0, 255],
        "nanodet": [(128 - 103.53) / 57.375, -116.28 / 57.12, (255 - 123.675) / 58.395],
        "rf-detr": [(1 - 0.485) / 0.229, -0.456 / 0.224, (128 / 255 - 0.406) / 0.225],
        "centerface": [255, 0, 128],
    }
    for case, values in expected.items():
        inputs, outputs, metadata, _, _ = KNOWN[case]
        card = inferred(tmp_path, inputs, outputs, metadata)
        pixel = np.array([255, 0, 128] if card.channels == "rgb" else [128, 0, 255])
        np.testing.assert_allclose((pixel / card.scale - card.mean) / card.std, values, rtol=1e-9, err_msg=case)


@pytest.mark.parametrize(
    ("case", "placing"),
    [
        ("v8", ("letterbox", "center", "round", 114)),
        ("v5", ("letterbox", "center", "round", 114)),
        ("v10", ("letterbox", "center", "round", 114)),
        ("yolox", ("letterbox", "topleft", "floor", 114)),
        ("nanodet", ("letterbox", "center", "round", 0)),
        ("centerface", ("letterbox", "center", "round", 0)),
    ],
)
def test_pictures_are_placed_as_the_family_does(tmp_path: Path, case: str, placing: tuple[Any, ...]) -> None:
    inputs, outputs, metadata, _, _ = KNOWN[case]
    card = inferred(tmp_path, inputs, outputs, metadata)
    assert (card.resize, card.align, card.rounding, *set(card.pad)) == placing


@pytest.mark.parametrize("case", ["rt-detr", "rf-detr", "d-fine"])
def test_transformers_stretch(tmp_path: Path, case: str) -> None:
    inputs, outputs, metadata, _, _ = KNOWN[case]
    assert inferred(tmp_path, inputs, outputs, metadata).resize == "stretch"


def test_sizes_of_dynamic_models_come_from_the_metadata(tmp_path: Path) -> None:
    """The exporter writes height first."""
    inputs, outputs, metadata, _, _ = KNOWN["v8, dynamic"]
    assert inferred(tmp_path, inputs, outputs, metadata).size == (640, 480)


UNKNOWN: dict[str, tuple[Shapes, Shapes, dict[str, str], str]] = {
    "own classes without names": (SQUARE, {"o": (1, 7, 8400)}, {}, r"missing: classes\.names; write m\.toml"),
    "nothing": (
        OPEN,
        {"o": ("b", 7, "n")},
        {},
        r"missing: input\.size; head\.type \(outputs: o \[b, 7, n\]\); classes\.names; write m\.toml with it",
    ),
    "v6 or yolox": (SMALL, {"outputs": (1, 3549, 85)}, {}, r"missing: head\.type \(outputs: outputs \[1, 3549, 85\]\)"),
    "names of another count": (SQUARE, {"o": (1, 84, 8400)}, NAMES, r"missing: head\.type"),
    "detr with background": (
        SQUARE,
        {"logits": (1, 100, 92), "pred_boxes": (1, 100, 4)},
        {},
        r"missing: head\.type \(outputs: logits \[1, 100, 92\], pred_boxes \[1, 100, 4\]\)",
    ),
    "not a picture": ({"x": (1, 10)}, {"o": (1, 2)}, {}, r"missing: input\.layout .*; input\.size; head\.type"),
    "two inputs": ({"a": (1, 3, 8, 8), "b": (1, 3, 8, 8)}, {"o": (1, 2)}, {}, r"missing: input\.layout"),
    "segmentation": (SQUARE, {"a": (1, 39, 8400)}, {**NAMES, "task": "segment"}, "its task is 'segment'; Raven runs"),
    "pose": (SQUARE, {"a": (1, 56, 8400)}, {**NAMES, "task": "pose"}, "export a detection model"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_others_are_refused_with_what_is_missing(tmp_path: Path, case: str) -> None:
    inputs, outputs, metadata, message = UNKNOWN[case]
    with refused(message):
        inferred(tmp_path, inputs, outputs, metadata)


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"names": "{0: 'a', 1: 'b'}"}, ("a", "b")),
        ({"names": "{1: 'b', 0: 'a'}"}, ("a", "b")),
        ({"names": "['a', 'b']"}, ("a", "b")),
        ({"names": "{1: 'a', 2: 'b'}"}, ()),
        ({"names": "{0: 1}"}, ()),
        ({"names": "__import__('os').getcwd()"}, ()),
        ({"names": "{0: 'a'"}, ()),
        ({}, ()),
    ],
)
def test_names_of_exports(metadata: dict[str, str], names: tuple[str, ...]) -> None:
    """Literals only: nothing in a file is ever run."""
    assert read_export(metadata).names == names


@pytest.mark.parametrize(
    ("text", "size"),
    [("[480, 640]", (640, 480)), ("640", (640, 640)), ("True", None), ("[640]", None), ("[1.5, 2]", None), ("", None)],
)
def test_sizes_of_exports(text: str, size: tuple[int, int] | None) -> None:
    assert read_export({"imgsz": text}).size == size


# -- the card beside the model -----------------------------------------------------------------------------------------


def test_a_card_may_add_just_the_names(tmp_path: Path) -> None:
    card = inferred(tmp_path, SQUARE, {"o": (1, 6, 8400)}, toml='[classes]\nnames = ["cat", "dog"]\n')
    assert (card.head, card.names, card.scale) == ("yolov8", ("cat", "dog"), 255)


def test_a_list_of_names_may_be_named(tmp_path: Path) -> None:
    card = inferred(tmp_path, SQUARE, LABELLED, toml='[classes]\nnames = "coco91"\n')
    assert card.names == COCO_91


def test_a_card_overrides_what_is_inferred(tmp_path: Path) -> None:
    card = inferred(
        tmp_path, SQUARE, {"o": (1, 84, 8400)}, toml='[input]\nchannels = "bgr"\n[thresholds]\nconf = 0.6\n'
    )
    assert (card.head, card.channels, card.conf, card.scale) == ("yolov8", "bgr", 0.6, 255)


def test_a_whole_card_is_not_mixed_with_guesses(tmp_path: Path) -> None:
    toml = '[head]\ntype = "yolov8"\n[classes]\nnames = "coco"\n'
    card = inferred(tmp_path, SQUARE, {"o": (1, 84, 8400)}, NAMES, toml)
    assert (card.scale, len(card.names), card.notices) == (1, 80, ())


def test_wrong_cards_beside_a_model_name_their_file(tmp_path: Path) -> None:
    for toml in ("[input]\nchanels = 1\n", "[classes]\nnames = 5\n", '[classes]\nnames = "voc"\n'):
        with refused(r"m\.toml: .*(allowed: layout, channels|names = .* is not possible; give a list of names)"):
            inferred(tmp_path, SQUARE, {"o": (1, 84, 8400)}, toml=toml)


def test_a_card_whose_size_is_not_the_models(tmp_path: Path) -> None:
    toml = '[input]\nsize = [416, 416]\n[head]\ntype = "yolov8"\n[classes]\nnames = "coco"\n'
    with refused(r"the card's size \[416, 416\] is not the model's 640x640"):
        inferred(tmp_path, SQUARE, {"o": (1, 84, 8400)}, toml=toml)


def test_another_card_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("[nonsense]\n")
    other = tmp_path / "other.toml"
    shapes = specs(SQUARE), specs({"o": (1, 84, 8400)})
    with refused(r"other\.toml: no such card"):
        load_card(tmp_path / "m.onnx", *shapes, {}, card=other)
    other.write_text('[head]\ntype = "yolov8"\n[classes]\nnames = "coco"\n[thresholds]\nconf = 0.7\n')
    assert load_card(tmp_path / "m.onnx", *shapes, {}, card=other).conf == 0.7


def test_metadata_reaches_the_card_through_the_runtime(tmp_path: Path) -> None:
    """A file as an exporter writes it, loaded, and understood without a card."""
    node = tiny.helper.make_node(
        "Constant", [], ["output0"], value=tiny.numpy_helper.from_array(np.zeros((1, 7, 84), "f"))
    )
    made = tiny.model(
        [node], [tiny.value("images", (1, 3, 64, 64))], [tiny.value("output0", (1, 7, 84))], metadata=NAMES
    )
    model = load_model(tiny.save(made, tmp_path / "m.onnx"), "cpu", threads=1)
    card = load_card(tmp_path / "m.onnx", model.inputs, model.outputs, model.metadata)
    assert (card.head, card.names) == ("yolov8", ("cat", "dog", "it's"))


# -- cards of the project ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [model.name for model in list_models()])
def test_bundled_cards_fit_their_models(name: str) -> None:
    (bundled,) = (model for model in list_models() if model.name == name)
    model = load_model(bundled.path, "cpu", threads=1)
    card = load_card(bundled.path, model.inputs, model.outputs, model.metadata)
    assert card == bundled.card
    assert card.name == name
    assert card.licence and card.origin and card.description
    assert card.notices == ()
    card.head_spec(card.input_size(model.inputs[0].shape), [output.name for output in model.outputs])


def test_card_of_yolox() -> None:
    card = ModelCard.load(YOLOX_CARD)
    assert (card.head, card.channels, card.align, card.pad) == ("yolox", "bgr", "topleft", (114, 114, 114))
    assert (card.mean, card.std, card.scale, card.names) == ((0, 0, 0), (1, 1, 1), 1, COCO_80)
    assert tomllib.loads(YOLOX_CARD.read_text())["head"]["strides"] == list(card.strides)


def test_class_names_of_coco() -> None:
    assert len(COCO_80) == len(set(COCO_80)) == 80
    assert (COCO_80[0], COCO_80[2], COCO_80[16], COCO_80[79]) == ("person", "car", "dog", "toothbrush")
    assert len(COCO_91) == len(set(COCO_91)) == 91
    assert (COCO_91[1], COCO_91[3], COCO_91[18], COCO_91[90]) == ("person", "car", "dog", "toothbrush")
    assert [name for name in COCO_91 if name in COCO_80] == list(COCO_80)


def test_grids_in_this_file_are_right() -> None:
    """The anchors that the cases above write out, by their definition."""
    for width, height, anchors in ((640, 640, 8400), (640, 480, 6300), (416, 416, 3549), (64, 64, 84)):
        assert sum(math.ceil(width / s) * math.ceil(height / s) for s in (8, 16, 32)) == anchors
