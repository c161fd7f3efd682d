"""Build hook: puts compiled shaders, shader sources and the bundled models into the wheel."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What compiling needs: the compiler itself, and what raven.gpu imports.
COMPILER = ["slangpy>=0.40", "numpy>=1.26", "vulkan==1.3.275.1"]


class ShaderBuildHook(BuildHookInterface):
    """Compiles ``shaders/`` into ``raven/gpu/spirv/`` when the Slang compiler is there."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for the compiler only when nothing was compiled before: it is large."""
        return [] if self._compiled() else COMPILER

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Prepare a wheel; an editable install finds everything in the source tree, and compiles when first run."""
        if version == "editable" or self.target_name != "wheel":
            return
        self._compile()
        root = Path(self.root)
        for folder in ("models", "shaders"):
            if not (root / folder).is_dir():
                raise SystemExit(f"error: {root / folder} is missing; build from a whole checkout")
            build_data["force_include"][str(root / folder)] = f"raven/_{folder}"

    def _compile(self) -> None:
        if all(importlib.util.find_spec(name) for name in ("slangpy", "numpy", "vulkan")):
            sys.path.insert(0, self.root)
            try:
                from raven.gpu.compile_all import compile_all

                compile_all()
            finally:
                sys.path.remove(self.root)
        elif not self._compiled():
            raise SystemExit("error: no compiled shaders and no compiler; pip install slangpy numpy vulkan, then build")

    def _compiled(self) -> bool:
        return any(Path(self.root, "raven", "gpu", "spirv").glob("*.spv"))
