"""The command line with the pipeline stubbed: flags, exit codes, error lines, signals, reports of the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import raven
from raven.cli import checks
from raven.cli.app import app
from raven.errors import ModelError, RavenError, SinkError, UsageError
from raven.pipeline import Report, RunOptions

Stub = Callable[..., list[RunOptions]]


def invoke(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Replace the pipeline: `stub(work)` has `work(options)` run, and returns the options of every run."""

    def install(work: Callable[[RunOptions], Any] = lambda options: None) -> list[RunOptions]:
        seen: list[RunOptions] = []

        def fake(options: RunOptions, progress: Any = None) -> Report:
            seen.append(options)
            progress(1, 2)
            work(options)
            return Report(
                frames=2, seconds=1.0, fps=2.0, stages={"infer": dict.fromkeys(STAGE, 1.5)}, outputs=["o.mp4"]
            )

        monkeypatch.setattr("raven.pipeline.run", fake)
        return seen

    return install


STAGE = ("mean_ms", "p50_ms", "p99_ms", "share")


def raising(error: BaseException) -> Callable[[RunOptions], None]:
    def work(options: RunOptions) -> None:
        raise error

    return work


# -- flags -------------------------------------------------------------------------------------------------------------


def test_every_flag_reaches_the_options(stub: Stub) -> None:
    seen = stub()
    words = (
        "run in.mp4 -o out.mp4 --model m.onnx --backend cpu --conf 0.3 --iou 0.5 --classes person,3 --max-det 7 "
        "--agnostic --detections d.jsonl --frames 9 --device 1 --route compute --report r.json --trace t.json "
        "--no-draw --encoder libx265 --quality 30 --preset slow -q"
    )
    assert invoke(*words.split()).exit_code == 0
    assert seen == [
        RunOptions(
            input="in.mp4",
            output="out.mp4",
            model="m.onnx",
            backend="cpu",
            conf=0.3,
            iou=0.5,
            classes=("person", "3"),
            max_det=7,
            agnostic=True,
            detections="d.jsonl",
            frames=9,
            device="1",
            route="compute",
            report="r.json",
            trace="t.json",
            draw=False,
            encoder="libx265",
            quality=30,
            preset="slow",
        )
    ]


def test_without_flags_the_options_are_the_defaults(stub: Stub) -> None:
    seen = stub()
    assert invoke("run", "in.mp4").exit_code == 0
    assert seen == [RunOptions(input="in.mp4")]


def test_a_run_that_writes_nothing_says_so(stub: Stub) -> None:
    stub()
    assert "nothing will be written" in invoke("run", "in.mp4").stderr
    assert "nothing will be written" not in invoke("run", "in.mp4", "-o", "o.mp4").stderr
    assert "nothing will be written" not in invoke("run", "in.mp4", "-d", "-").stderr


def test_figures_go_to_standard_error_and_quiet_keeps_them_back(stub: Stub) -> None:
    stub()
    loud, quiet = invoke("run", "in.mp4", "-o", "o.mp4"), invoke("run", "in.mp4", "-o", "o.mp4", "-q")
    assert loud.stdout == "" and "2 frames in 1.00 s: 2.0 frames/s" in loud.stderr and "infer" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == ("", "")


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SinkError("disk full"), ModelError("no\nhead"), UsageError("--conf 2 is too much")])
def test_an_expected_error_is_one_line_with_its_exit_code(stub: Stub, error: RavenError) -> None:
    stub(raising(error))
    result = invoke("run", "in.mp4", "-o", "o.mp4")
    assert result.exit_code == error.exit_code
    assert result.stderr == f"error: {' '.join(str(error).split())}\n"


def test_an_unexpected_error_is_one_line_and_points_to_debug(stub: Stub) -> None:
    stub(raising(ZeroDivisionError("by zero")))
    result = invoke("run", "in.mp4", "-q")
    assert result.exit_code == 1
    assert result.stderr == ("internal error: ZeroDivisionError: by zero; run again with --debug for the traceback\n")


@pytest.mark.parametrize("words", ["run in.mp4 --conf 2", "run in.mp4 --max-det 0", "run in.mp4 --route sideways"])
def test_an_impossible_value_is_a_usage_error(stub: Stub, words: str) -> None:
    seen = stub()
    result = invoke(*words.split())
    assert (result.exit_code, seen) == (2, [])
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize("words", ["run", "run in.mp4 --nonsense", "run in.mp4 --conf high", "fly"])
def test_unknown_and_missing_arguments_exit_with_2(stub: Stub, words: str) -> None:
    seen = stub()
    assert (invoke(*words.split()).exit_code, seen) == (2, [])


def test_debug_shows_the_traceback() -> None:
    """In a process of its own: logging is set up once a process."""
    done = stubbed_process("raise ZeroDivisionError('by zero')", "--debug")
    done.wait(30)
    text = done.stderr.read() if done.stderr else ""
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in text and "ZeroDivisionError: by zero" in text


# -- signals -----------------------------------------------------------------------------------------------------------


def stubbed_process(work: str, *flags: str) -> subprocess.Popen[str]:
    """A real `raven run` whose pipeline is ``work``, a line of Python with ``options``; it prints "going" first."""
    code = f"""
        import sys, time
        import raven.pipeline
        def fake(options, progress=None):
            print("going", flush=True)
            {work}
            return raven.pipeline.Report(frames=1, interrupted=options.stop.is_set())
        raven.pipeline.run = fake
        from raven.cli.app import main
        main(["run", "in.mp4", "-o", "o.mp4", *{list(flags)!r}])
    """
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=Path(raven.__file__).parents[1])
    assert process.stdout is not None and process.stdout.readline() == "going\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_run_finish_and_exits_with_130(number: signal.Signals) -> None:
    process = stubbed_process("options.stop.wait(20); print('finished', flush=True)")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == "finished\n"
    assert "interrupted" in err and "Traceback" not in err


def test_a_second_signal_ends_a_run_that_hangs() -> None:
    process = stubbed_process("[time.sleep(0.05) for _ in range(600)]")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "once more" not in process.stderr.readline():
        assert process.poll() is None
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert time.monotonic() - begun < 5


def test_an_error_after_a_signal_still_exits_with_130(stub: Stub) -> None:
    def work(options: RunOptions) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert options.stop.wait(5)
        raise SinkError("no frame came to o.mp4")

    before = signal.getsignal(signal.SIGINT)
    stub(work)
    result = invoke("run", "in.mp4", "-o", "o.mp4")
    assert result.exit_code == 130
    assert "interrupted: no frame came to o.mp4" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before


# -- the other commands ------------------------------------------------------------------------------------------------


def test_version_and_help_import_nothing_heavy() -> None:
    code = (
        "import sys, raven.cli.app as a\n"
        "try: a.main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "print([m for m in ('numpy', 'av', 'onnxruntime', 'vulkan', 'PIL', 'cv2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in ("run", "inspect", "doctor", "models"):
        assert f"\n  {name}" in done.stdout
    assert invoke("--version").stdout == f"raven {raven.__version__}\n"


def test_doctor_speaks_json_and_exits_by_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ALL", (("python", checks.python, "fail"),))
    good = invoke("doctor", "--json")
    assert good.exit_code == 0 and json.loads(good.stdout)["ok"] is True

    def broken() -> Any:
        raise RavenError("no such thing; install it")

    monkeypatch.setattr(checks, "ALL", (("thing", broken, "fail"), ("python", checks.python, "fail")))
    bad = invoke("doctor", "--json")
    assert bad.exit_code == 1
    first, second = json.loads(bad.stdout)["checks"]
    assert first == {"name": "thing", "status": "fail", "detail": "no such thing", "remedy": "install it"}
    assert second["status"] == "ok"
    monkeypatch.setattr(checks, "ALL", (("thing", broken, "warn"),))
    assert invoke("doctor").exit_code == 0


def test_doctor_without_any_vulkan_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    from raven.gpu import vk

    monkeypatch.setattr(vk, "_LOADERS", ("libnothing-of-the-kind.so",))
    vk.loader.cache_clear()
    try:
        result = invoke("doctor", "--json")
    finally:
        vk.loader.cache_clear()
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert result.exit_code == 1
    assert found["vulkan loader"]["status"] == "fail" and "apt-get install" in found["vulkan loader"]["remedy"]
    assert found["python"]["status"] == "ok" and "encoders" in found and "cache" in found


def test_doctor_names_the_clash_of_the_two_runtimes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setattr(checks, "_version", lambda package: "1.0")
    found = {check.name: check for check in checks.onnx_runtime()}
    assert found["onnxruntime clash"].status == "warn" and "uninstall" in found["onnxruntime clash"].remedy


def test_doctor_finds_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    monkeypatch.setenv("RAVEN_CACHE", str(file / "cache"))
    (found,) = checks.cache_folder()
    assert found.status == "warn" and str(file) in found.detail
    monkeypatch.setenv("RAVEN_CACHE", str(tmp_path / "cache"))
    assert [check.status for check in checks.cache_folder()] == ["ok"]


def test_inspect_describes_a_video(tmp_path: Path) -> None:
    import av
    import numpy as np

    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(6):
            picture = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    facts = json.loads(invoke("inspect", str(path), "--json").stdout)
    assert (facts["size"], facts["frames"], facts["frame_rate"], facts["pixels"]) == ("64x48", 6, "12", "yuv420p")
    assert "64x48" in invoke("inspect", str(path)).stdout


def test_inspect_of_nothing_is_one_line(tmp_path: Path) -> None:
    result = invoke("inspect", str(tmp_path / "absent.mp4"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_models_lists_what_the_folder_holds() -> None:
    """Against the files themselves: every model of the folder is listed, with its size and the card's words."""
    folder = Path(raven.__file__).parents[1] / "models"
    files = {path.stem: path for path in folder.glob("*.onnx")}
    listed = {item["name"]: item for item in json.loads(invoke("models", "--json").stdout)}
    assert listed.keys() == files.keys() and "nanodet_416" in listed
    shown = invoke("models").stdout
    for name, path in files.items():
        card = tomllib.loads(path.with_suffix(".toml").read_text())["model"]
        assert listed[name]["megabytes"] == round(path.stat().st_size / 1e6, 2)
        assert listed[name]["licence"] == card["licence"] and card["licence"] in shown


def test_inspect_describes_a_bundled_model() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    facts = json.loads(invoke("inspect", "nanodet_416", "--json").stdout)
    assert facts["inputs"] == ["input_1:0 float32 [1, 3, 416, 416]"]
    assert len(facts["outputs"]) == 6 and facts["card"]["head"] == "nanodet" and len(facts["card"]["names"]) == 80
