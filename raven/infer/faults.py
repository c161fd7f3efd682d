"""ONNX Runtime's errors in one line that says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from raven.errors import ModelError

#: Files that people hand over by mistake, and how each becomes ONNX.
_OTHER_FORMATS = {
    ".pt": "export it with `yolo export model=FILE format=onnx`",
    ".pth": "export it with torch.onnx.export",
    ".engine": "give the ONNX file that it was built from",
    ".tflite": "convert it with tf2onnx",
    ".pb": "convert it with tf2onnx",
    ".safetensors": "export it with torch.onnx.export",
}

#: What the runtime says, and what that means. Tried in order.
_MEANINGS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        r'External data path does not exist: "?([^"\n]+?)"?\s*$',
        lambda m: f"its weights file {Path(m[1]).name} is missing; put it beside the model",
    ),
    (
        r"External initializer: .* given file_length: (\d+)",
        lambda m: f"its weights file is cut short at {m[1]} bytes; copy it again",
    ),
    (
        r"Opset (\d+) is under development.*?till opset (\d+)",
        lambda m: f"opset {m[1]} is newer than the runtime's {m[2]}; export with opset {m[2]} or update onnxruntime",
    ),
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        lambda m: f"IR version {m[1]} is newer than the runtime's {m[2]}; update onnxruntime or export an older one",
    ),
    (
        r"No Op registered for (\S+) with domain_version of (\d+)",
        lambda m: f"operator {m[1]} does not exist in opset {m[2]}; export with another opset",
    ),
    (
        r"No opset import for domain '([^']*)'|Fatal error: (\S+) is not a registered function",
        lambda m: f"it needs custom operators of {m[1] or m[2]}; export it without them",
    ),
    (
        r"Could not find an implementation for (\S+?)\(\d+\)",
        lambda m: f"operator {m[1]} is not implemented for the types it is used with; export as float32",
    ),
    (
        r"No graph was found|Protobuf parsing failed|ModelProto does not have a graph",
        lambda m: "not a whole ONNX file; copy or export it again",
    ),
)


def check_file(path: Path) -> None:
    """Raise ModelError for a path that cannot be an ONNX file, before the runtime sees it."""
    if path.is_dir():
        raise ModelError(f"{path}: a directory; give an .onnx file")
    if not path.exists():
        raise ModelError(f"{path}: no such file; give an .onnx file or a name that `raven models` lists")
    if remedy := _OTHER_FORMATS.get(path.suffix.lower()):
        raise ModelError(f"{path}: {path.suffix} is not ONNX; {remedy}")
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}; check its permissions") from None
    if empty:
        raise ModelError(f"{path}: the file is empty; copy or export it again")


def load_error(path: Path, error: Exception) -> ModelError:
    """What a failed load means.

    Parameters
    ----------
    path : Path
        The model's file.
    error : Exception
        As the runtime raised it.
    """
    text = str(error)
    for pattern, meaning in _MEANINGS:
        if match := re.search(pattern, text, re.DOTALL):
            return ModelError(f"{path}: {meaning(match)}")
    return ModelError(f"{path}: ONNX Runtime cannot load it: {short(text)}")


def run_error(name: str, error: Exception) -> ModelError:
    """What a failed run means."""
    text = str(error)
    if match := re.search(r"output '(\S+)' .* has shape (\{.*?\}) but the computed .* is (\{.*?\})", text):
        return ModelError(
            f"{name}: output {match[1]!r} was bound as {match[2]} and came out as {match[3]}; "
            "export the model with fixed output shapes"
        )
    if "bad_alloc" in text or "Failed to allocate memory" in text:
        return ModelError(f"{name}: out of memory while running; use a smaller input or fewer slots")
    return ModelError(f"{name}: ONNX Runtime failed while running it: {short(text)}; check the input size in its card")


def short(text: str, limit: int = 200) -> str:
    """The runtime's own words in one line: without code, source position and C++ signature."""
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"/\S+\.(cc|h):\d+ .*?\) (?=[A-Z\[])", "", " ".join(text.split()))
    return text if len(text) <= limit else f"{text[:limit]}…"
