"""Pictures that a decoder left in CUDA memory, copied into memory that Vulkan reads."""

from __future__ import annotations

from typing import Any

from raven.gpu import Buffer
from raven.interop.cuda import CudaSeam, CudaTimeline, call, cu

Rows = list[tuple[int, int, int, int]]


class SurfaceCopier:
    """Enqueues copies on a stream of its own; the decoder works on the same one.

    Attributes
    ----------
    stream : CUstream
    """

    def __init__(self, seam: CudaSeam) -> None:
        self.seam = seam
        seam.make_current()
        self.stream: Any = call(cu.cuStreamCreate(1), "cuStreamCreate")
        self._copy = cu.CUDA_MEMCPY2D()
        self._copy.srcMemoryType = self._copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE

    def enqueue(self, planes: Any, rows: Rows, target: Buffer, timeline: CudaTimeline, value: int) -> None:
        """Copy planes into a shared staging buffer, then signal a value; the host goes on at once.

        Parameters
        ----------
        planes : sequence of (int, int)
            Address and bytes from row to row of each plane.
        rows : list of (int, int, int, int)
            Where they go: :meth:`raven.frame.planes.PlaneSet.rows`.
        """
        base, copy = self.seam.address(target), self._copy
        for (address, pitch), (offset, target_pitch, size, count) in zip(planes, rows, strict=True):
            copy.srcDevice, copy.srcPitch = address, pitch
            copy.dstDevice, copy.dstPitch = base + offset, target_pitch
            copy.WidthInBytes, copy.Height = size, count
            call(cu.cuMemcpy2DAsync(copy, self.stream), "cuMemcpy2DAsync")
        timeline.signal(value, self.stream)

    def synchronise(self) -> None:
        """Wait for the copies so far; once a batch, before the decoder gets its surfaces back."""
        call(cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def close(self) -> None:
        """Release the stream; idempotent."""
        if self.stream is not None:
            self.seam.make_current()
            self.synchronise()
            call(cu.cuStreamDestroy(self.stream), "cuStreamDestroy")
            self.stream = None
