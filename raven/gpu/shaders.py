"""Finds shaders: compiled ones first (shipped, then the user's cache), the compiler only when neither is current."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from raven.errors import ShaderError
from raven.gpu import slang
from raven.gpu.cache import cache_dir, write_atomically

_PACKAGE = Path(__file__).resolve().parent.parent
SHIPPED = Path(__file__).resolve().parent / "spirv"
_IMPORT = re.compile(r"^\s*(?:__include|import|#include)\s+[\"<]?([\w./]+)[\">]?", re.MULTILINE)
_ENTRY = re.compile(r"\[shader\(\"(\w+)\"\)\](?:\s*\[[^\]]*\])*\s*[\w<>,\s]+?\b(\w+)\s*\(")


@cache
def shader_dir() -> Path:
    """The folder of Slang files: in an installed wheel beside the package's modules, else at the project's root."""
    inside = _PACKAGE / "_shaders"
    return inside if inside.is_dir() else _PACKAGE.parent / "shaders"


def all_entries() -> Iterator[tuple[str, str, str]]:
    """Every (name, entry, stage) below shaders/."""
    root = shader_dir()
    for path in sorted(root.rglob("*.slang")):
        for stage, entry in _ENTRY.findall(path.read_text()):
            yield path.relative_to(root).with_suffix("").as_posix(), entry, stage


class ShaderLibrary:
    """SPIR-V by shader name and entry point.

    Parameters
    ----------
    root : Path, optional
        Folder of Slang files (default: Raven's own).
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or shader_dir()
        self._loaded: dict[tuple[str, str, str], bytes] = {}

    def spirv(self, name: str, entry: str) -> bytes:
        """SPIR-V of an entry point, named ``main`` in it.

        Raises
        ------
        ShaderError
            No such file or entry point, or it does not compile.
        """
        return self.code(name, entry, "spirv")

    def code(self, name: str, entry: str, target: str) -> bytes:
        """Compiled code for a target (``spirv`` or ``cuda``); see :meth:`spirv`."""
        key = (name, entry, target)
        if key not in self._loaded:
            self._loaded[key] = self._find(*key)
        return self._loaded[key]

    def _find(self, name: str, entry: str, target: str) -> bytes:
        file = self.file_name(name, entry, target)
        for folder in (SHIPPED, cache_dir("spirv")):
            if (folder / file).is_file():
                return (folder / file).read_bytes()
        code = self.compile(name, entry, target)
        write_atomically(cache_dir("spirv") / file, code)
        return code

    def compile(self, name: str, entry: str, target: str = "spirv") -> bytes:
        """Compile from source, past every cache."""
        path = self.root / f"{name}.slang"
        stages = dict((e, s) for s, e in _ENTRY.findall(self._read(path)))
        if entry not in stages:
            raise ShaderError(f"{path} has no entry point {entry!r}; it has {', '.join(stages) or 'none'}")
        return slang.compile_entry(path, entry, stages[entry], target=target, include=(self.root,))

    def file_name(self, name: str, entry: str, target: str = "spirv") -> str:
        """File of a compiled entry point: its name, and a hash of its sources and the compiler's version.

        Without a compiler the version is not part of it: what was shipped is then what there is.
        """
        digest = hashlib.sha256(slang.FORM)
        for path in self.sources(name):
            digest.update(path.relative_to(self.root).as_posix().encode() + b"\0" + path.read_bytes())
        return f"{name.replace('/', '.')}.{entry}.{digest.hexdigest()[:20]}.{'spv' if target == 'spirv' else 'cu'}"

    def sources(self, name: str) -> list[Path]:
        """The file and everything that it imports, in a fixed order."""
        todo: list[Path] = [self.root / f"{name}.slang"]
        seen: dict[Path, None] = {}
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen[path] = None
            todo += [found for word in _IMPORT.findall(self._read(path)) if (found := self._imported(word))]
        return sorted(seen)

    def _imported(self, word: str) -> Path | None:
        stem = word.removesuffix(".slang").replace(".", os.sep)
        path = self.root / f"{stem}.slang"
        return path if path.is_file() else None

    @staticmethod
    def _read(path: Path) -> str:
        try:
            return path.read_text()
        except OSError as error:
            raise ShaderError(f"cannot read shader {path}: {error.strerror}") from None
