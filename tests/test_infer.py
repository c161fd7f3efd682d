"""ONNX Runtime in place: what it writes, where, and what it says of files that are no models. The oracle is NumPy."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import external_data_helper, helper

from raven.errors import BackendError, ModelError, UsageError
from raven.gpu import Device
from raven.infer import available_backends, backends, choose_backend, load_model
from raven.infer.base import TensorSpec
from raven.infer.onnxruntime import OnnxBinding, OnnxModel
from raven.infer.threads import physical_cores
from raven.models import find_model, list_models, models_folder
from raven.tensor import Tensor
from tests.support import onnx_models as tiny
from tests.support.onnx_models import HostTensor

RNG = np.random.default_rng(20)


def bound(path: Path, *shapes: tuple[int, ...]) -> tuple[OnnxModel, HostTensor, list[HostTensor], OnnxBinding]:
    """A model with tensors of one input and of all outputs, and its binding."""
    model = OnnxModel(path, threads=1)
    x = HostTensor(shapes[0], model.inputs[0].dtype)
    made = zip(model.resolve(shapes[0]), model.outputs, strict=True)
    outputs = [HostTensor(shape, spec.dtype) for shape, spec in made]
    return model, x, outputs, model.bind([x], outputs)


# -- in place ----------------------------------------------------------------------------------------------------------


def test_results_appear_in_the_memory_that_was_bound(tmp_path: Path) -> None:
    """The addresses stay, the bytes behind them change, and nothing reads the arrays to copy."""
    _, x, (y,), binding = bound(tiny.affine(tmp_path), (1, 3, 4, 4))
    view, before = y.array, (x.data_pointer, y.data_pointer)
    x.reads = y.reads = 0
    for _ in range(3):
        x._array[:] = RNG.random(x.shape)
        binding.run()
        np.testing.assert_array_equal(view, 2 * x._array + 1)
    assert (x.data_pointer, y.data_pointer) == before
    assert (x.reads, y.reads) == (0, 0)
    assert binding.in_place


def test_runtime_holds_no_memory_of_its_own_for_outputs(tmp_path: Path) -> None:
    """What the runtime hands out as its output lies at the tensor's address."""
    _, _, (y,), binding = bound(tiny.affine(tmp_path), (1, 3, 4, 4))
    binding.run()
    (made,) = binding._io.get_outputs()
    assert made.data_ptr() == y.data_pointer


def test_tensors_on_the_device_are_written_in_place(tmp_path: Path, device: Device) -> None:
    x, y = (Tensor(device, (1, 3, 4, 4), kind=kind) for kind in ("readback", "upload"))
    model = load_model(tiny.affine(tmp_path), "cpu", threads=1)
    try:
        binding = model.bind([x], [y])
        x.array[:] = RNG.random(x.shape)
        binding.run()
        np.testing.assert_array_equal(y.read(), 2 * x.array + 1)
        binding.close()
    finally:
        x.destroy()
        y.destroy()


def test_bindings_of_one_model_do_not_mix(tmp_path: Path) -> None:
    model = OnnxModel(tiny.affine(tmp_path), threads=1)
    slots = [(HostTensor((1, 3, 4, 4)), HostTensor((1, 3, 4, 4))) for _ in range(4)]
    bindings = [model.bind([x], [y]) for x, y in slots]
    for index, (x, _) in enumerate(slots):
        x.array[:] = index
    for binding in reversed(bindings):
        binding.run()
    assert [y.array.min() for _, y in slots] == [y.array.max() for _, y in slots] == [1, 3, 5, 7]


@pytest.mark.parametrize("varying", [False, True], ids=["fixed", "varying"])
def test_memory_does_not_grow(tmp_path: Path, varying: bool) -> None:
    """2,000 runs. An output kept from each would take 400 MB (fixed), 2,000 wrappers and arrays 1 MB (varying)."""
    shape = (8,) if varying else (1, 1, 224, 224)
    path = tiny.positive_rows(tmp_path) if varying else tiny.affine(tmp_path, shape)
    _, x, _, binding = bound(path, shape)
    x.array[:] = 1
    for _ in range(300):
        binding.run()
    gc.collect()
    before = resident_bytes()
    for _ in range(2000):
        binding.run()
    gc.collect()
    assert resident_bytes() - before < 512 * 1024


def resident_bytes() -> int:
    """Memory of this process in RAM."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("needs /proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_idle_threads_do_not_spin(tmp_path: Path) -> None:
    model = OnnxModel(tiny.affine(tmp_path), threads=2)
    options = model._session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.intra_op_num_threads == 2
    assert model._session.get_providers() == ["CPUExecutionProvider"]


# -- types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int8", "int32", "int64", "bool"])
def test_element_types(tmp_path: Path, dtype: str) -> None:
    model, x, (y,), binding = bound(tiny.same(tmp_path, dtype), (2, 3))
    assert model.inputs[0].dtype == model.outputs[0].dtype == np.dtype(dtype)
    x.array[:] = RNG.integers(0, 2 if dtype == "bool" else 100, (2, 3))
    x.array[0, 0] = 1
    binding.run()
    np.testing.assert_array_equal(y.array, x.array)


def test_other_element_types_are_refused(tmp_path: Path) -> None:
    with refused(r"'x' is a tensor\(double\); Raven takes float32, float16, uint8"):
        OnnxModel(tiny.same(tmp_path, "float64"))


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_open_dimensions_are_resolved_by_running(tmp_path: Path) -> None:
    model = OnnxModel(tiny.affine(tmp_path, ("batch", 3, "height", "width")), threads=1)
    assert model.inputs[0] == TensorSpec("x", ("batch", 3, "height", "width"), np.dtype(np.float32))
    assert not model.inputs[0].static
    assert model.resolve((1, 3, 6, 10)) == ((1, 3, 6, 10),)
    assert model.resolve((2, 3, 4, 4)) == ((2, 3, 4, 4),)
    assert model.notices == []


def test_rows_that_depend_on_the_data(tmp_path: Path) -> None:
    """Copied once, the rest zeroed, shapes told; fixed outputs of the same model stay in place."""
    model, x, (rows, fixed), binding = bound(tiny.positive_rows(tmp_path), (8,))
    assert (rows.shape, fixed.shape) == ((1024, 1), (8,))
    assert not binding.in_place
    assert ["depends on the picture" in notice for notice in model.notices] == [True]
    for wanted in ([1, 4, 7], [], [0, 1, 2, 3, 4, 5, 6, 7], [2]):
        x.array[:] = -1
        x.array[wanted] = 1
        binding.run()
        assert binding.shapes == ((len(wanted), 1), (8,))
        assert rows.array[: len(wanted), 0].tolist() == wanted
        assert not rows.array[len(wanted) :].any()
        np.testing.assert_array_equal(fixed.array, np.zeros(8))


def test_rows_that_do_not_fit_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = OnnxModel(tiny.positive_rows(tmp_path), threads=1)
    x, rows, fixed = HostTensor((8,)), HostTensor((5, 1), np.int64), HostTensor((8,))
    x.array[:] = 1
    binding = model.bind([x], [rows, fixed])
    binding.run()
    assert binding.dropped == 3
    assert rows.array[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert "3 rows of a frame do not fit" in caplog.text


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 4, 5), r"dimension 3 of input 'x' is fixed at 4, not 5; .* dynamic"),
        ((2, 3, 4, 4), r"a batch of 2 was asked for and the file fixes 1; export it with a dynamic batch"),
        ((3, 4, 4), r"input 'x' has 4 dimensions, not 3"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...], message: str) -> None:
    model = OnnxModel(tiny.affine(tmp_path), threads=1)
    with refused(message):
        model.resolve(shape)
    with refused(message):
        model.bind([HostTensor(shape)], [HostTensor((1, 3, 4, 4))])


def test_tensors_that_do_not_fit(tmp_path: Path) -> None:
    model = OnnxModel(tiny.affine(tmp_path), threads=1)
    good, half, short = HostTensor((1, 3, 4, 4)), HostTensor((1, 3, 4, 4), np.float16), HostTensor((1, 3, 4, 3))
    hidden = HostTensor((1, 3, 4, 4))
    hidden.__class__ = type("Hidden", (HostTensor,), {"data_pointer": 0})
    with refused("input 'x' is float32, its tensor float16; make the tensor float32"):
        model.bind([half], [good])
    with refused(r"output 'y' has shape \[1, 3, 4, 4\], its tensor \[1, 3, 4, 3\]"):
        model.bind([good], [short])
    with refused("0 output tensors were given and it has 1 outputs"):
        model.bind([good], [])
    with refused("not visible to the host"):
        model.bind([good], [hidden])


def test_size_input_is_filled(tmp_path: Path) -> None:
    """RT-DETR's own export wants the picture's size; it is given the model's, width first."""
    node = helper.make_node("Identity", ["orig_target_sizes"], ["y"])
    inputs = [tiny.value("images", (1, 3, 4, 6)), tiny.value("orig_target_sizes", (1, 2), "int64")]
    path = tiny.save(tiny.model([node], inputs, [tiny.value("y", (1, 2), "int64")]), tmp_path / "sized.onnx")
    model, _, (y,), binding = bound(path, (1, 3, 4, 6))
    assert [spec.name for spec in model.inputs] == ["images"]
    binding.run()
    assert y.array.tolist() == [[6, 4]]


# -- end ---------------------------------------------------------------------------------------------------------------


def test_closing_is_idempotent_and_final(tmp_path: Path) -> None:
    model, x, (y,), binding = bound(tiny.affine(tmp_path), (1, 3, 4, 4))
    model.close()
    model.close()
    binding.run()
    assert y.array.min() == 1
    binding.close()
    binding.close()
    with refused("its binding is closed"):
        binding.run()
    with refused("the model is closed"):
        model.bind([x], [y])


class Watched:
    """A session that notes whether two runs overlap."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self.session, self.inside, self.most = session, 0, 0

    def run_with_iobinding(self, io: object) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.002)
        self.session.run_with_iobinding(io)
        self.inside -= 1


def test_threads_may_share_a_binding(tmp_path: Path) -> None:
    """Their runs come one after the other."""
    _, x, (y,), binding = bound(tiny.affine(tmp_path), (1, 3, 4, 4))
    x.array[:] = 3
    binding._session = watched = Watched(binding._session)
    with ThreadPoolExecutor(4) as threads:
        for run in [threads.submit(binding.run) for _ in range(20)]:
            run.result()
    assert watched.most == 1
    np.testing.assert_array_equal(y.array, np.full(y.shape, 7))


# -- files that are no models ------------------------------------------------------------------------------------------


def refused(message: str) -> pytest.RaisesExc:
    """A ModelError of one line that matches."""
    return pytest.RaisesExc(ModelError, match=message, check=lambda error: "\n" not in str(error))


def write_bytes(content: bytes, name: str = "m.onnx") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def truncated(folder: Path) -> Path:
    weights = {"w": RNG.random((64, 64)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = tiny.model([node], [tiny.value("x", (1, 64))], [tiny.value("y", (1, 64))], weights)
    content = made.SerializeToString()
    return write_bytes(content[: len(content) // 2])(folder)


def external(folder: Path, keep: int) -> Path:
    """A model with its weights in a second file, of which some bytes are kept."""
    weights = {"w": RNG.random((64, 64)).astype(np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    made = tiny.model([node], [tiny.value("x", (1, 64))], [tiny.value("y", (1, 64))], weights)
    external_data_helper.convert_model_to_external_data(made, location="m.weights", size_threshold=0)
    path = tiny.save(made, folder / "m.onnx")
    content = (folder / "m.weights").read_bytes()
    (folder / "m.weights").unlink()
    if keep:
        (folder / "m.weights").write_bytes(content[:keep])
    return path


def one_node(op: str, *, domain: str = "", opset: int = tiny.OPSET, dtype: str = "float32") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        node = helper.make_node(op, ["x"], ["y"], domain=domain)
        inputs, outputs = [tiny.value("x", (1, 3), dtype)], [tiny.value("y", (1, 3), dtype)]
        return tiny.save(tiny.model([node], inputs, outputs, opset=opset), folder / "m.onnx")

    return make


def future_ir(folder: Path) -> Path:
    path = tiny.affine(folder)
    made = onnx.load(path)
    made.ir_version = 99
    return tiny.save(made, path)


BAD = {
    "missing": (lambda folder: folder / "none.onnx", r"none\.onnx: no such file; give an \.onnx file"),
    "directory": (lambda folder: folder, r"a directory; give an \.onnx file"),
    "empty": (write_bytes(b""), r"m\.onnx: the file is empty; copy or export it again"),
    "text": (write_bytes(b"<!DOCTYPE html><html>404</html>\n" * 20), r"not a whole ONNX file; copy or export it again"),
    "noise": (write_bytes(bytes(range(256)) * 8), r"not a whole ONNX file; copy or export it again"),
    "truncated": (truncated, r"m\.onnx: not a whole ONNX file; copy or export it again"),
    "pytorch": (write_bytes(b"PK", "m.pt"), r"\.pt is not ONNX; export it with `yolo export"),
    "weights missing": (lambda folder: external(folder, 0), r"its weights file m\.weights is missing; put it beside"),
    "weights cut": (lambda folder: external(folder, 1000), r"its weights file is cut short at 1000 bytes; copy it"),
    "unknown operator": (one_node("Frobnicate"), r"operator Frobnicate does not exist in opset 17; export with"),
    "custom operator": (one_node("EfficientNMS", domain="vendor"), r"needs custom operators of vendor"),
    "unimplemented": (one_node("Relu", dtype="int64"), r"operator Relu is not implemented for the types.*float32"),
    "future opset": (one_node("Relu", opset=99), r"opset 99 is newer than the runtime's \d+; export with opset"),
    "future IR": (future_ir, r"IR version 99 is newer than the runtime's \d+; update onnxruntime"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, capfd: pytest.CaptureFixture[str], case: str) -> None:
    """One line, with the remedy; and the runtime's own log stays quiet."""
    make, message = BAD[case]
    with refused(message):
        load_model(make(tmp_path), "cpu")
    assert capfd.readouterr() == ("", "")


def test_failure_while_running(tmp_path: Path) -> None:
    """A reshape that fits no other size than the exporter's."""
    node = helper.make_node("Reshape", ["x", "to"], ["y"])
    inputs, outputs = [tiny.value("x", (1, 3, "h", "w"))], [tiny.value("y", (1, 48))]
    path = tiny.save(tiny.model([node], inputs, outputs, {"to": np.array([1, 48])}), tmp_path / "stiff.onnx")
    bound(path, (1, 3, 4, 4))[3].run()
    with refused("stiff: ONNX Runtime failed while running it: .*check the input size in its card"):
        bound(path, (1, 3, 4, 5))[3].run()


def test_model_without_a_picture_input(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["y"], value_float=1.0)
    path = tiny.save(tiny.model([node], [], [tiny.value("y", ())]), tmp_path / "m.onnx")
    with refused("it has no input for a picture"):
        OnnxModel(path)


# -- backends ----------------------------------------------------------------------------------------------------------


def test_auto_says_what_it_took(tmp_path: Path) -> None:
    path = tiny.affine(tmp_path)
    chosen = available_backends()[0]
    assert load_model(path).notices[-1].startswith(f"backend: {chosen} (")
    assert load_model(path, "cpu").notices == []


def test_auto_takes_the_cpu_where_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_obstacle", lambda name: None if name == "cpu" else "absent")
    model = load_model(tiny.affine(tmp_path), "auto")
    assert model.backend == "onnxruntime-cpu"
    assert model.notices[-1].startswith("backend: cpu (not available: ")
    assert "cuda" in model.notices[-1]


@pytest.mark.parametrize("name", ["cuda", "tensorrt", "tensorrt-rtx"])
def test_absent_backends_are_not_replaced_in_silence(tmp_path: Path, name: str) -> None:
    if name in available_backends():
        pytest.skip(f"{name} is there")
    with pytest.raises(BackendError) as caught:
        load_model(tiny.affine(tmp_path), name)
    assert str(caught.value).startswith(f"backend {name!r} is not available: ")
    assert "\n" not in str(caught.value)


def test_absent_runtime_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_exists", lambda module: module.startswith("raven."))
    with pytest.raises(BackendError, match=r"onnxruntime is not installed, pip install 'raven-gpu\[cpu\]'"):
        choose_backend("cpu")
    with pytest.raises(BackendError, match=r"no inference runtime is installed; pip install 'raven-gpu\[cpu\]'"):
        choose_backend("auto")


def test_runtime_built_without_cuda_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(BackendError, match=r"lacks CUDAExecutionProvider, pip uninstall onnxruntime && pip install"):
        choose_backend("cuda")


def test_unknown_backend() -> None:
    with pytest.raises(UsageError, match="backend 'gpu' is not known; use one of auto, cpu, cuda, tensorrt"):
        choose_backend("gpu")


def test_threads() -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
    with pytest.raises(UsageError, match="0 threads for the model: give 1 or more"):
        OnnxModel(models_folder() / "nanodet_416.onnx", threads=0)


# -- models by name ----------------------------------------------------------------------------------------------------


def test_bundled_models_are_found() -> None:
    assert {"nanodet_416", "centerface"} <= {model.name for model in list_models()}
    for model in list_models():
        assert find_model(model.name) == find_model(f"{model.name}.onnx") == model.path


def test_unknown_model_lists_what_there_is() -> None:
    with refused(r"'nanodet-416'.*did you mean 'nanodet_416'.*bundled models \(centerface, nanodet_416"):
        find_model("nanodet-416")
    with refused(r"'zzz': no such file, and not one of the bundled models \(.*\); give an \.onnx file"):
        find_model("zzz")


def test_a_file_of_the_user_comes_before_a_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny.affine(tmp_path, name="nanodet_416")
    assert find_model("nanodet_416.onnx").resolve() == tmp_path / "nanodet_416.onnx"
    assert find_model("nanodet_416").parent == models_folder()


def test_nanodet_runs_as_without_a_binding() -> None:
    """The bundled model in place gives the bits that the plain call gives, at every stride."""
    path = models_folder() / "nanodet_416.onnx"
    model, x, outputs, binding = bound(path, (1, 3, 416, 416))
    assert sorted(y.shape for y in outputs) == sorted((1, n, c) for n in (2704, 676, 169) for c in (80, 44))
    x.array[:] = RNG.normal(size=x.shape)
    binding.run()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for ours, theirs in zip(outputs, session.run(None, {model.inputs[0].name: x.array}), strict=True):
        np.testing.assert_array_equal(ours.array, theirs)


def test_centerface_takes_any_multiple_of_32() -> None:
    model = OnnxModel(models_folder() / "centerface.onnx", threads=1)
    assert [spec.name for spec in model.inputs] == ["image"]
    for height, width in ((64, 96), (32, 32)):
        rows, columns = height // 4, width // 4
        wanted = tuple((1, channels, rows, columns) for channels in (1, 2, 2, 10))
        assert model.resolve((1, 3, height, width)) == wanted
