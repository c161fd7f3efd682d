"""Work on a CUDA stream, captured once and launched for every frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raven.errors import BackendError
from raven.interop.cuda import call, cu

#: Runs before a capture: runtimes choose algorithms and allocate workspaces in their first ones.
WARM_UP = 10


class CudaGraph:
    """A captured piece of work.

    Parameters
    ----------
    work : callable
        Enqueues onto ``stream`` and neither waits nor allocates once it is warm.
    stream : CUstream

    Raises
    ------
    BackendError
        The work cannot be captured (it synchronises, or part of it runs on the host).
    """

    def __init__(self, work: Callable[[], None], stream: Any) -> None:
        self.stream = stream
        self._executable: Any = None
        self._graph: Any = None
        for _ in range(WARM_UP):
            work()
        call(cu.cuStreamSynchronize(stream), "cuStreamSynchronize")
        self._capture(work)

    def _capture(self, work: Callable[[], None]) -> None:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        call(cu.cuStreamBeginCapture(self.stream, mode), "cuStreamBeginCapture")
        try:
            work()
        except Exception as error:
            cu.cuStreamEndCapture(self.stream)
            raise BackendError(
                f"the model's run cannot be captured as a CUDA graph: {str(error).splitlines()[0]}"
            ) from None
        self._graph = call(cu.cuStreamEndCapture(self.stream), "cuStreamEndCapture")
        self._executable = call(cu.cuGraphInstantiate(self._graph, 0), "cuGraphInstantiate")

    def launch(self) -> None:
        """Enqueue the captured work; 2 to 4 microseconds of host time."""
        call(cu.cuGraphLaunch(self._executable, self.stream), "cuGraphLaunch")

    def close(self) -> None:
        """Release it, once the stream has finished; idempotent."""
        if self._executable is not None:
            call(cu.cuStreamSynchronize(self.stream), "cuStreamSynchronize")
            call(cu.cuGraphExecDestroy(self._executable), "cuGraphExecDestroy")
            call(cu.cuGraphDestroy(self._graph), "cuGraphDestroy")
            self._executable = None
