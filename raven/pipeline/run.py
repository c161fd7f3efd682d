"""Open everything a run needs, run it, and close everything, whatever happens."""

from __future__ import annotations

import os
from collections.abc import Sequence

from raven.errors import UsageError
from raven.infer import choose_backend
from raven.pipeline.engine import Engine
from raven.pipeline.options import RunOptions
from raven.pipeline.report import Report
from raven.pipeline.runner import Progress, Runner, abort_all, stream_info
from raven.pipeline.trace import Trace
from raven.sinks import JsonLinesSink, Sink, check_output, open_sink
from raven.sources import Source, VideoSource, open_source
from raven.sources.nvdec import NvdecSource, obstacle

_PICTURES = frozenset({"nv12", "rgba"})


def run(options: RunOptions, progress: Progress | None = None) -> Report:
    """Run the main job: decode, rasterise, infer, draw, write.

    Parameters
    ----------
    options : RunOptions
    progress : callable, optional
        Called after each frame with the frames done and the total (None where it is not known).

    Returns
    -------
    Report

    Raises
    ------
    RavenError
        With one line that says what is wrong and what to do. What the sinks had finished is kept: a video up to the
        last frame, under a name that says that it is partial.
    """
    outputs = [path for path in (options.output, options.detections, options.report, options.trace) if path]
    for path in outputs:
        check_output(path, [options.input])
    _distinct(options)
    source = open_source(options.input, frames=options.frames)
    try:
        source = on_gpu(options, source)
        return _run_source(options, source, progress)
    finally:
        source.close()


def _distinct(options: RunOptions) -> None:
    """Refuse two outputs of one name: the later would overwrite the earlier."""
    seen: dict[str, str] = {}
    for flag in ("output", "detections", "report", "trace"):
        path = getattr(options, flag)
        if not path or path == "-":
            continue
        place = os.path.realpath(path)
        if place in seen:
            raise UsageError(f"{path} is named twice, as {seen[place]} and as {flag}; give each its own file")
        seen[place] = flag


def on_gpu(options: RunOptions, source: Source) -> Source:
    """The same source decoded by NVDEC, where that is asked for or, with ``auto``, possible.

    Raises
    ------
    UsageError
        NVDEC was asked for by name and cannot be used.
    """
    if options.decoder == "cpu":
        return source
    reason = _no_nvdec(options, source)
    if reason is None:
        assert isinstance(source, VideoSource)
        return NvdecSource(source, options.frames)
    if options.decoder == "nvdec":
        raise UsageError(f"--decoder nvdec cannot be used: {reason}; use --decoder auto")
    return source


def _no_nvdec(options: RunOptions, source: Source) -> str | None:
    if not isinstance(source, VideoSource):
        return "the input is no video"
    if choose_backend(options.backend)[0] != "cuda":
        return "the model does not run on CUDA"
    return obstacle(source)


def _run_source(options: RunOptions, source: Source, progress: Progress | None) -> Report:
    sinks = _sinks(options)
    wants = frozenset().union(*(sink.wants for sink in sinks))
    trace = Trace(options.trace)
    engine = None
    try:
        on_device = isinstance(source, NvdecSource)
        engine = Engine(options, source.info.format, wants & _PICTURES, "detections" in wants, on_device)
        engine.warm_up()
        if isinstance(source, NvdecSource):
            engine.start_decoder(source)
        return _run_engine(options, source, sinks, engine, trace, progress)
    finally:
        trace.close()
        source.close()  # a decoder on the GPU must end before the GPU's context does
        if engine is not None:
            engine.close()


def _run_engine(
    options: RunOptions,
    source: Source,
    sinks: Sequence[Sink],
    engine: Engine,
    trace: Trace,
    progress: Progress | None,
) -> Report:
    info = stream_info(source, engine)
    opened: list[Sink] = []
    try:
        for sink in sinks:
            sink.open(info)
            opened.append(sink)
        runner = Runner(options, source, sinks, engine, trace, progress)
        runner.run()
        while opened:
            opened[0].close()
            opened.pop(0)
        report = runner.finish()
    except BaseException:
        abort_all(opened)
        raise
    report.notices += [*source.notices, *engine.notices, *(note for sink in sinks for note in sink.notices)]
    report.outputs = [path for path in (options.output, options.detections) if path]
    if options.report:
        report.write(options.report)
    return report


def _sinks(options: RunOptions) -> list[Sink]:
    sinks: list[Sink] = []
    if options.output:
        sinks.append(open_sink(options.output, encoder=options.encoder, quality=options.quality, preset=options.preset))
    if options.detections:
        sinks.append(JsonLinesSink(options.detections))
    return [*sinks, *options.sinks]
