"""Where outputs go: temporary names beside the target, replaced into place once whole, and never over an input."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from raven.errors import SinkError, UsageError

NUMBER_FIELD = re.compile(r"%0?\d*d")


def resolve_target(path: str | os.PathLike[str]) -> Path:
    """The file that ``path`` stands for, symbolic links followed, after checking that one can be put there.

    Raises
    ------
    SinkError
        Its directory is missing or not writable, or a directory or device bears that name.
    """
    name = os.fspath(path)
    if not name:
        raise SinkError("the output's name is empty: give a file or a directory")
    target = Path(os.path.realpath(name))
    check_directory(target.parent, name)
    if target.is_dir():
        raise SinkError(f"{name} is a directory: give a file name in it")
    if target.exists() and not target.is_file():
        raise SinkError(f"{name} is no regular file, so it cannot be replaced: give another name")
    return target


def check_directory(directory: Path, name: str) -> None:
    """Raise SinkError unless files can be made in ``directory``; ``name`` is the output as the user gave it."""
    if not directory.is_dir():
        raise SinkError(f"{name} cannot be written: the directory {directory} does not exist; create it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SinkError(f"{name} cannot be written: no permission to create files in {directory}")


def partial_path(target: Path) -> Path:
    """Name of ``target`` while it is being written: ``out.mp4`` is ``out.partial.mp4``, which players open as well."""
    return target.with_name(f"{target.stem}.partial{target.suffix}")


def put_in_place(finished: Path, target: Path) -> None:
    """Flush ``finished`` to the disk, then make it ``target`` in one step."""
    sync(finished)
    os.replace(finished, target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Ask the system to write a file or a directory's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: BaseException) -> str:
    """An error's words in one line."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words).splitlines()[0]


def check_output(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse an output that would overwrite one of the inputs, also through links or as the file in progress.

    Parameters
    ----------
    path : str
        Output as the user gave it: a file, a directory, a pattern, or ``-``.
    inputs : iterable of str
        Inputs as the user gave them: files, directories, patterns or URLs.

    Raises
    ------
    UsageError
    """
    name = os.fspath(path)
    if name in ("", "-") or _is_device(name):
        return
    real = Path(os.path.realpath(name))
    for given in (os.fspath(one) for one in inputs):
        if "://" in given:
            continue
        if _same(real, given) or _inside_pattern(real, given) or _same(_directory_of(real), given, directory=True):
            raise UsageError(f"the output {name} is the input {given}: choose another name for the output")
        if real.suffix and _same(partial_path(real), given):
            raise UsageError(f"the input {given} is the name that {name} has while it is written: rename one of them")


def _is_device(name: str) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _directory_of(real: Path) -> Path:
    """The directory that images go to: that of a pattern, else ``real`` itself."""
    return real.parent if NUMBER_FIELD.search(real.name) else real


def _same(real: Path, given: str, directory: bool = False) -> bool:
    if directory and not os.path.isdir(given):
        return False
    try:
        return os.path.samefile(real, given)
    except OSError:
        return str(real) == os.path.realpath(given)


def _inside_pattern(real: Path, given: str) -> bool:
    """True when ``given`` is a pattern of images and the output is the directory that they lie in."""
    pattern = any(mark in given for mark in "*?[") or NUMBER_FIELD.search(given)
    if not pattern or os.path.exists(given):
        return False
    return str(_directory_of(real)) == os.path.realpath(os.path.dirname(given) or ".")
