"""The wheel, built and installed where nothing else is: no source tree, no shader compiler."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import raven

ROOT = Path(__file__).resolve().parents[1]
#: What pip says when there is no way to the package index.
OFFLINE = ("NewConnectionError", "Temporary failure in name resolution", "No route to host", "Network is unreachable")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed"),
]


def command(words: list[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    # A source tree on the path would be imported instead of the wheel.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= options.pop("env", {})
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=environment, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    done = command(pip)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    done = command([sys.executable, "-m", "venv", folder])
    assert done.returncode == 0, done.stderr
    install(folder / "bin", str(wheel))
    return folder / "bin"


def install(scripts: Path, requirement: str) -> None:
    done = command([scripts / "python", "-m", "pip", "install", "--quiet", requirement])
    if any(word in done.stderr for word in OFFLINE):
        pytest.skip("no way to the package index")
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_what_a_run_needs(wheel: Path) -> None:
    from raven.gpu.shaders import ShaderLibrary, all_entries

    names = set(zipfile.ZipFile(wheel).namelist())
    assert wheel.name == f"raven_gpu-{raven.__version__}-py3-none-any.whl"
    library = ShaderLibrary()
    for name, entry, _ in all_entries():
        assert f"raven/gpu/spirv/{library.file_name(name, entry)}" in names
        assert f"raven/_shaders/{name}.slang" in names
    models = [path for path in (ROOT / "models").iterdir() if path.is_file()]
    assert any(path.suffix == ".onnx" for path in models)
    assert {f"raven/_models/{path.name}" for path in models} <= names
    assert "raven/py.typed" in names and "raven/draw/assets/DejaVuSans-Bold.ttf" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/")) or "__pycache__" in name]


def test_installed_commands_work_without_the_compiler(scripts: Path, tmp_path: Path) -> None:
    def has(module: str) -> bool:
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        return command([scripts / "python", "-c", probe], cwd=tmp_path).returncode == 0

    assert has("raven") and not has("slangpy") and not has("onnxruntime")
    listed = command([scripts / "raven", "models", "--json"], cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "nanodet_416" in {item["name"] for item in json.loads(listed.stdout)}

    cache = {"RAVEN_CACHE": str(tmp_path / "cache"), "RAVEN_VALIDATION": "0"}
    done = command([scripts / "raven", "doctor", "--json"], cwd=tmp_path, env=cache)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["shaders"]["status"] == "ok" and "no Slang compiler" in found["shaders"]["detail"]
    assert found["bundled model"]["status"] == "ok", found["bundled model"]
    # The only thing amiss is what the extra brings; the exit code says that a run would fail.
    assert [name for name, check in found.items() if check["status"] == "fail"] == ["onnxruntime"]
    assert "raven-gpu[cpu]" in found["onnxruntime"]["remedy"] and done.returncode == 1


# After the test above, which wants the runtime absent.
def test_an_installed_run_writes_every_frame(scripts: Path, wheel: Path, tmp_path: Path) -> None:
    install(scripts, f"{wheel}[cpu]")
    write_clip(tmp_path / "clip.mp4", frames=9)
    cache = {"RAVEN_CACHE": str(tmp_path / "cache"), "RAVEN_VALIDATION": "0"}
    words = [scripts / "raven", "run", "clip.mp4", "-o", "out.mp4", "--backend", "cpu", "--report", "report.json"]
    done = command(words, cwd=tmp_path, env=cache)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["frames"] == 9
    with av.open(str(tmp_path / "out.mp4")) as container:
        frames = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
    # Each picture is brighter than the one before: none was lost, doubled or moved.
    means = [float(frame.mean()) for frame in frames]
    assert len(frames) == 9 and means == sorted(means) and means[-1] - means[0] > 100


def write_clip(path: Path, frames: int) -> None:
    """Even grey pictures, from dark to light."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for level in np.linspace(30, 220, frames).astype(np.uint8):
            picture = av.VideoFrame.from_ndarray(np.full((64, 96, 3), level, np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
