"""Where compiled things are kept between runs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_dir(kind: str) -> Path:
    """Folder for cached files of a kind: RAVEN_CACHE, else XDG_CACHE_HOME/raven, else ~/.cache/raven."""
    root = os.environ.get("RAVEN_CACHE")
    if root:
        return Path(root) / kind
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "raven" / kind


def write_atomically(path: Path, data: bytes) -> bool:
    """Write a cache file so that a reader never sees half of it; a cache that cannot be written is no fault.

    Returns
    -------
    bool
        Whether it was written.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
        return True
    return False
