"""Compile every shader into raven/gpu/spirv/, for the wheel: ``python -m raven.gpu.compile_all``."""

from __future__ import annotations

import argparse
from pathlib import Path

from raven.gpu import slang
from raven.gpu.shaders import SHIPPED, ShaderLibrary, all_entries


def compile_all(folder: Path = SHIPPED, targets: tuple[str, ...] = ("spirv",)) -> list[Path]:
    """Compile what is not there yet and remove what no source asks for any more.

    A change of compiler version compiles everything again.

    Returns
    -------
    list of Path
        Files written.
    """
    library, written, wanted = ShaderLibrary(), [], {"compiler.txt"}
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "compiler.txt"
    same = stamp.is_file() and stamp.read_text() == slang.compiler_version()
    for name, entry, stage in all_entries():
        for target in targets if stage == "compute" else ("spirv",):
            path = folder / library.file_name(name, entry, target)
            wanted.add(path.name)
            if not (same and path.is_file()):
                path.write_bytes(library.compile(name, entry, target))
                written.append(path)
    for path in folder.iterdir():
        if path.name not in wanted:
            path.unlink()
    stamp.write_text(slang.compiler_version())
    return written


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=SHIPPED)
    parser.add_argument("--cuda", action="store_true", help="also write CUDA source of compute entry points")
    options = parser.parse_args()
    targets = ("spirv", "cuda") if options.cuda else ("spirv",)
    written = compile_all(options.folder, targets)
    print(f"{len(written)} shaders compiled into {options.folder}")


if __name__ == "__main__":
    main()
