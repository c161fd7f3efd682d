"""Slang to SPIR-V (and CUDA source), through the flat C interface of the compiler that slangpy ships.

slangpy's Python module is never imported: it is large, and its own Vulkan device does not start on older Mesa. Only
the compiler library in its package folder is loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from raven.errors import ShaderError

_TARGETS = {"spirv": 6, "cuda": 17}
_STAGES = {"vertex": 1, "fragment": 5, "compute": 6, "amplification": 14, "mesh": 13}
_SPIRV_DIRECTLY = 1 << 10
_SOURCE_LANGUAGE_SLANG = 1
_OP_SOURCE, _OP_DECORATE, _NO_CONTRACTION = 3, 71, 42
# OpFAdd, OpFSub, OpFMul, OpVectorTimesScalar, OpDot.
_FUSABLE = frozenset((129, 131, 133, 142, 148))
# Decorations and types: what follows an entry point's modes and names.
_AFTER_NAMES = frozenset((71, 72, *range(19, 40)))
#: Changes when what is made of the compiler's output does; part of a compiled shader's file name.
FORM = b"2"


def compiler_path() -> Path | None:
    """The compiler library, or None when slangpy is not installed."""
    spec = importlib.util.find_spec("slangpy")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(folder.glob("libslang-compiler.so*")) + sorted(folder.glob("slang-compiler*.dll"))
    return found[0] if found else None


def compiler_version() -> str:
    """Version in the library's file name (``2026.12``); empty when there is none."""
    path = compiler_path()
    return path.name.partition(".so.")[2] if path else ""


@cache
def _library() -> Any:
    path = compiler_path()
    if path is None:
        raise ShaderError("no Slang compiler and no compiled shader for it; install slangpy: pip install slangpy")
    lib = ctypes.CDLL(str(path))
    for name in ("spCreateSession", "spCreateCompileRequest", "spGetEntryPointCode", "spFindProfile"):
        getattr(lib, name).restype = ctypes.c_void_p
    lib.spFindProfile.restype = ctypes.c_int
    lib.spGetDiagnosticOutput.restype = ctypes.c_char_p
    lib.spGetEntryPointSource.restype = ctypes.c_char_p
    lib.spGetDependencyFilePath.restype = ctypes.c_char_p
    return lib


@cache
def _session() -> ctypes.c_void_p:
    return ctypes.c_void_p(_library().spCreateSession(None))


class Request:
    """One compile request: a file, an entry point, a target."""

    def __init__(self, path: Path, entry: str, stage: str, target: str, include: tuple[Path, ...]) -> None:
        self.lib, self.entry, self.target = _library(), entry, target
        self.handle = ctypes.c_void_p(self.lib.spCreateCompileRequest(_session()))
        lib = self.lib
        lib.spSetCodeGenTarget(self.handle, _TARGETS[target])
        if target == "spirv":
            lib.spSetTargetFlags(self.handle, 0, _SPIRV_DIRECTLY)
            lib.spSetTargetProfile(self.handle, 0, lib.spFindProfile(_session(), b"spirv_1_5"))
        for folder in include:
            lib.spAddSearchPath(self.handle, str(folder).encode())
        unit = lib.spAddTranslationUnit(self.handle, _SOURCE_LANGUAGE_SLANG, None)
        lib.spAddTranslationUnitSourceFile(self.handle, unit, str(path).encode())
        lib.spAddEntryPoint(self.handle, unit, entry.encode(), _STAGES[stage])

    def run(self) -> bytes:
        """Compile; return SPIR-V, or CUDA source as UTF-8.

        Raises
        ------
        ShaderError
            With the compiler's lines: file, line and message.
        """
        if self.lib.spCompile(self.handle) < 0:
            raise ShaderError((self.lib.spGetDiagnosticOutput(self.handle) or b"").decode().strip())
        size = ctypes.c_size_t()
        code = self.lib.spGetEntryPointCode(self.handle, 0, ctypes.byref(size))
        data = ctypes.string_at(code, size.value)
        return _finished(data) if self.target == "spirv" else data

    def close(self) -> None:
        self.lib.spDestroyCompileRequest(self.handle)


def compile_entry(
    path: Path, entry: str, stage: str, *, target: str = "spirv", include: tuple[Path, ...] = ()
) -> bytes:
    """Compile one entry point of a Slang file.

    Parameters
    ----------
    stage : {'compute', 'vertex', 'fragment', 'mesh', 'amplification'}
    target : {'spirv', 'cuda'}
    include : tuple of Path
        Folders that imports are looked up in.

    Raises
    ------
    ShaderError
        The source does not compile, or slangpy is not installed.
    """
    request = Request(path, entry, stage, target, include)
    try:
        return request.run()
    finally:
        request.close()


def _finished(code: bytes) -> bytes:
    """SPIR-V as Raven wants it: without OpSource, and with float arithmetic that no driver may fuse.

    Older validation layers do not know Slang's language number in OpSource. Slang drops ``precise`` on the way to
    SPIR-V, and a fused multiply-add would make routes differ in the last bit.
    """
    words = struct.unpack(f"<{len(code) // 4}I", code)
    kept = [item for item in _instructions(words) if item[0] & 0xFFFF != _OP_SOURCE]
    exact = [(3 << 16 | _OP_DECORATE, item[2], _NO_CONTRACTION) for item in kept if item[0] & 0xFFFF in _FUSABLE]
    at = next(i for i, item in enumerate(kept) if item[0] & 0xFFFF in _AFTER_NAMES)
    flat = [*words[:5], *(word for item in [*kept[:at], *exact, *kept[at:]] for word in item)]
    return struct.pack(f"<{len(flat)}I", *flat)


def _instructions(words: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    at = 5
    while at < len(words):
        length = words[at] >> 16
        yield words[at : at + length]
        at += length
