"""Drawing a frame into a model's input tensor: one pass, two routes with the same bits."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raven.errors import ModelError
from raven.frame import strips
from raven.frame.colour import source_constants, source_view
from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement
from raven.frame.planes import PlaneSet
from raven.gpu import ComputePipeline, DescriptorSet, Device, GraphicsPipeline, Image, Pipeline, Recorder
from raven.tensor import Tensor, header

Route = Literal["raster", "compute"]
#: Types that an input tensor may have.
DTYPES = ("float32", "float16", "uint8", "int8", "int32")
Kind = Literal["pixels", "strips", "padding"]
# Shader, compute entry and fragment entry.
_SHADERS: dict[Kind, tuple[str, str, str]] = {
    "pixels": ("frame/rasterise", "computeMain", "fragmentMain"),
    "strips": ("frame/rasterise_strips", "computeMain", "fragmentMain"),
    "padding": ("frame/rasterise_strips", "paddingComputeMain", "paddingFragmentMain"),
}
_GROUP = (16, 8)
# Address, view, content, size, first and last pixel, then factor, bias and pad for three channels.
_PUSH = struct.Struct("<Q40s4i2i2i2i9f4x")
_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class InputSpec:
    """What a model wants its input to be: value = (pixel / scale - mean) / std, pixel from 0 to 255.

    Attributes
    ----------
    size : (int, int)
        Width and height.
    layout : {'NCHW', 'NHWC'}
    channels : {'rgb', 'bgr'}
        Order in the tensor; ``mean``, ``std`` and ``pad`` are in this order too.
    dtype : numpy.dtype
    mean, std : (float, float, float)
    scale : float
    pad : (float, float, float)
        Around a letterboxed picture, as pixel values before normalisation.
    """

    size: tuple[int, int]
    layout: str = "NCHW"
    channels: str = "rgb"
    dtype: Any = _FLOAT32
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    scale: float = 1.0
    pad: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def constants(self) -> dict[int, int]:
        """Specialisation constants 20 to 22.

        Raises
        ------
        ModelError
            A type that pictures are not drawn into.
        """
        name = np.dtype(self.dtype).name
        if name not in DTYPES:
            raise ModelError(f"the model's input is {name}; pictures can be {', '.join(DTYPES)}: export it anew")
        return {20: header.DTYPES[name], 21: int(self.layout == "NCHW"), 22: int(self.channels == "bgr")}

    def rgb(self, values: tuple[float, float, float]) -> tuple[float, float, float]:
        """Values given in the tensor's channel order, as red, green, blue."""
        return values if self.channels == "rgb" else (values[2], values[1], values[0])


class Rasteriser:
    """Pipelines that draw frames into input tensors by one route, made when first needed.

    Parameters
    ----------
    device : Device
    spec : InputSpec
    route : {'raster', 'compute'}
    by_strips : bool
        Four pixels a thread where the planes offer words (they do on CPU devices); the results are the same.
    """

    def __init__(self, device: Device, spec: InputSpec, route: Route, by_strips: bool = True) -> None:
        self.device, self.spec, self.route, self.by_strips = device, spec, route, by_strips
        self._constants = spec.constants()
        self._pipelines: dict[tuple[Any, ...], Pipeline] = {}

    def pipeline(self, kind: Kind, constants: dict[int, int]) -> Pipeline:
        """The pipeline of a kind with specialisation constants, beside those of the model's input."""
        key = (kind, *constants.items())
        if key not in self._pipelines:
            self._pipelines[key] = self._make(kind, {**constants, **self._constants})
        return self._pipelines[key]

    def _make(self, kind: Kind, constants: dict[int, int]) -> Pipeline:
        shader, compute, fragment = _SHADERS[kind]
        bindings = [("sampled", 3)] * (1 if kind == "pixels" else 2)
        common: dict[str, Any] = {"push_size": _PUSH.size, "bindings": bindings, "constants": constants}
        if self.route == "compute":
            return ComputePipeline(self.device, shader, compute, **common)
        return GraphicsPipeline(self.device, shader, ("vertexMain", fragment), target=None, **common)

    def bind(self, planes: PlaneSet, placement: Placement, tensor: Tensor, batch_index: int = 0) -> BoundRasteriser:
        """Fix source, target and geometry for one slot.

        Parameters
        ----------
        tensor : Tensor
            ``(N, 3, H, W)`` or ``(N, H, W, 3)``.
        batch_index : int
            Which of the N pictures is drawn.
        """
        return BoundRasteriser(self, planes, placement, tensor, batch_index)

    def destroy(self) -> None:
        """Release the pipelines."""
        for pipeline in self._pipelines.values():
            pipeline.destroy()
        self._pipelines.clear()


class BoundRasteriser:
    """A rasteriser with its source and target: records itself into a command buffer."""

    def __init__(
        self, rasteriser: Rasteriser, planes: PlaneSet, placement: Placement, tensor: Tensor, batch_index: int
    ) -> None:
        self.rasteriser, self.planes, self.placement = rasteriser, planes, placement
        width, height = rasteriser.spec.size
        self._data = tensor.address + batch_index * 3 * width * height * tensor.dtype.itemsize
        self._steps: list[_Step] = []
        if rasteriser.by_strips and planes.words and strips.fit(planes.format, placement):
            self._bind_strips()
        else:
            pipeline = rasteriser.pipeline("pixels", source_constants(planes.format))
            self._steps.append(self._step(pipeline, [planes.images], (0, 0, width, height), rasteriser.spec.size))

    def _bind_strips(self) -> None:
        format, make = self.planes.format, self.rasteriser.pipeline
        images, own = [self.planes.images, self.planes.words], strips.constants(format, self.placement)
        content, around = strips.regions(format, self.placement)
        pipeline = make("strips", {**source_constants(format), **own})
        self._steps.append(self._step(pipeline, images, content, strips.threads(format, content)))
        for area in around:
            pipeline = make("padding", {strips.DIRECTION: own[strips.DIRECTION]})
            self._steps.append(self._step(pipeline, images, area, strips.threads(format, area)))

    def _step(
        self, pipeline: Pipeline, images: list[list[Image]], area: strips.Area, threads: tuple[int, int]
    ) -> _Step:
        push = _push(self.rasteriser.spec, self.planes.format, self.placement, self._data, area)
        return _Step(pipeline, pipeline.descriptors(images), push, threads)

    def record(self, rec: Recorder) -> None:
        """Record the pass: it reads the planes and writes all of the target picture."""
        for step in self._steps:
            step.record(rec)

    def destroy(self) -> None:
        """Release the descriptors; the GPU must have finished with them."""
        for step in self._steps:
            step.descriptors.destroy()


@dataclass
class _Step:
    """One dispatch or draw; ``threads`` wide and high."""

    pipeline: Pipeline
    descriptors: DescriptorSet
    push: bytes
    threads: tuple[int, int]

    def record(self, rec: Recorder) -> None:
        width, height = self.threads
        if isinstance(self.pipeline, ComputePipeline):
            rec.bind(self.pipeline, self.push, self.descriptors)
            rec.dispatch(-(-width // _GROUP[0]), -(-height // _GROUP[1]))
            return
        rec.begin_rendering(None, self.threads)
        rec.bind(self.pipeline, self.push, self.descriptors)
        rec.draw(3)
        rec.end_rendering()


def target_to_upright(placement: Placement) -> np.ndarray:
    """Affine map ``(3, 3)`` from a target point to the upright source."""
    (sx, sy), (x, y), (cx, cy) = placement.scale, placement.content[:2], placement.crop[:2]
    return np.array([[1 / sx, 0, cx - x / sx], [0, 1 / sy, cy - y / sy], [0, 0, 1]])


def _push(spec: InputSpec, format: FrameFormat, placement: Placement, data: int, area: strips.Area) -> bytes:
    """Push constants of shaders/frame/target.slang."""
    mean, std, pad = (np.array(spec.rgb(values), np.float64) for values in (spec.mean, spec.std, spec.pad))
    numbers = (*(1 / (spec.scale * std)), *(-mean / std), *pad)
    view = source_view(format, target_to_upright(placement))
    x, y, width, height = area
    return _PUSH.pack(data, view, *placement.content, *placement.target, x, y, x + width, y + height, *numbers)
