"""Drawing a frame into a model's input tensor: one pass, two routes with the same bits."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raven.errors import ModelError
from raven.frame.colour import source_constants, source_view
from raven.frame.format import FrameFormat
from raven.frame.geometry import Placement
from raven.frame.planes import PlaneSet
from raven.gpu import ComputePipeline, Device, GraphicsPipeline, Pipeline, Recorder
from raven.tensor import Tensor, header

Route = Literal["raster", "compute"]
#: Types that an input tensor may have.
DTYPES = ("float32", "float16", "uint8", "int8", "int32")
_SHADER = "frame/rasterise"
_BINDINGS = [("sampled", 3)]
_GROUP = (16, 8)
# Address, view, content, size, then factor, bias and pad for three channels; rounded up to 16 bytes.
_PUSH_BYTES = 8 + 40 + 16 + 8 + 36 + 4


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
    dtype: Any = np.dtype(np.float32)
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
    """Pipelines that draw frames into input tensors by one route; one a pixel format, made when first needed.

    Parameters
    ----------
    device : Device
    spec : InputSpec
    route : {'raster', 'compute'}
    """

    def __init__(self, device: Device, spec: InputSpec, route: Route) -> None:
        self.device, self.spec, self.route = device, spec, route
        self._constants = spec.constants()
        self._pipelines: dict[tuple[tuple[int, int], ...], Pipeline] = {}

    def pipeline(self, format: FrameFormat) -> Pipeline:
        """The pipeline that reads frames of a format."""
        constants = {**source_constants(format), **self._constants}
        key = tuple(constants.items())
        if key not in self._pipelines:
            self._pipelines[key] = self._make(constants)
        return self._pipelines[key]

    def _make(self, constants: dict[int, int]) -> Pipeline:
        common: dict[str, Any] = {"push_size": _PUSH_BYTES, "bindings": _BINDINGS, "constants": constants}
        if self.route == "compute":
            return ComputePipeline(self.device, _SHADER, **common)
        return GraphicsPipeline(self.device, _SHADER, target=None, **common)

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
        self.route, self.size = rasteriser.route, rasteriser.spec.size
        self.pipeline = rasteriser.pipeline(planes.format)
        self.descriptors = self.pipeline.descriptors([planes.images])
        width, height = self.size
        data = tensor.address + batch_index * 3 * width * height * tensor.dtype.itemsize
        self._push = _push(rasteriser.spec, planes.format, placement, data)

    def record(self, rec: Recorder) -> None:
        """Record the pass: it reads the planes and writes all of the target picture."""
        width, height = self.size
        if self.route == "compute":
            rec.bind(self.pipeline, self._push, self.descriptors)
            rec.dispatch(-(-width // _GROUP[0]), -(-height // _GROUP[1]))
            return
        rec.begin_rendering(None, self.size)
        rec.bind(self.pipeline, self._push, self.descriptors)
        rec.draw(3)
        rec.end_rendering()

    def destroy(self) -> None:
        """Release the descriptors; the GPU must have finished with them."""
        self.descriptors.destroy()


def target_to_upright(placement: Placement) -> np.ndarray:
    """Affine map ``(3, 3)`` from a target point to the upright source."""
    (sx, sy), (x, y), (cx, cy) = placement.scale, placement.content[:2], placement.crop[:2]
    return np.array([[1 / sx, 0, cx - x / sx], [0, 1 / sy, cy - y / sy], [0, 0, 1]])


def _push(spec: InputSpec, format: FrameFormat, placement: Placement, data: int) -> bytes:
    """Push constants of shaders/frame/rasterise.slang."""
    mean, std, pad = (np.array(spec.rgb(values), np.float64) for values in (spec.mean, spec.std, spec.pad))
    numbers = (*(255 / (spec.scale * std)), *(-mean / std), *(pad / 255))
    view = source_view(format, target_to_upright(placement))
    return struct.pack("<Q", data) + view + struct.pack("<4i2i9f4x", *placement.content, *placement.target, *numbers)
