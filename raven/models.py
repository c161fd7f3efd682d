"""Models by name: those that come with Raven, and any ONNX file."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from raven.detect.card import ModelCard
from raven.errors import ModelError

_PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class BundledModel:
    """A model that comes with Raven.

    Attributes
    ----------
    name : str
        What ``--model`` takes.
    path : Path
        Its .onnx file.
    card : ModelCard
    """

    name: str
    path: Path
    card: ModelCard


def models_folder() -> Path:
    """Where the bundled models lie: in the package once installed, else in the source tree."""
    packaged = _PACKAGE / "_models"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "models"


def list_models() -> tuple[BundledModel, ...]:
    """The bundled models with their cards, by name.

    Raises
    ------
    ModelError
        A card is wrong.
    """
    paths = (path for path in sorted(models_folder().glob("*.onnx")) if path.with_suffix(".toml").exists())
    return tuple(BundledModel(path.stem, path, ModelCard.load(path.with_suffix(".toml"))) for path in paths)


def find_model(name: str) -> Path:
    """The file of a model.

    Parameters
    ----------
    name : str
        Path of an .onnx file, or a bundled model's name.

    Raises
    ------
    ModelError
        It is neither.
    """
    given = Path(name).expanduser()
    if given.is_file():
        return given
    if (
        given.name == name
        and (bundled := models_folder() / f"{given.stem if given.suffix == '.onnx' else name}.onnx").is_file()
    ):
        return bundled
    raise _unknown(name)


def _unknown(name: str) -> ModelError:
    known = [path.stem for path in sorted(models_folder().glob("*.onnx"))]
    close = get_close_matches(Path(name).stem, known, 1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    listed = ", ".join(known) or "none"
    return ModelError(
        f"model {name!r}{meant}: no such file, and not one of the bundled models ({listed}); give an .onnx file"
    )
