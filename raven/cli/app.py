"""The ``raven`` command and its sub-commands' flags.

Only typer is imported here: what a command needs is imported when it runs, so that ``raven --help`` is quick.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import raven
from raven.cli.failures import reported

app = typer.Typer(
    name="raven",
    help="Detect objects in videos and images, draw them, and write the result: one stream of GPU work.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Debug = Annotated[bool, typer.Option("--debug", help="Log what happens, and show tracebacks.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"raven {raven.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def run(
    input: Annotated[str, typer.Argument(metavar="INPUT", help="Video, URL, image, directory or glob of images.")],
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="OUT", help="Video file, or directory for images.")
    ] = None,
    model: Annotated[str, typer.Option("-m", "--model", help="Bundled name or .onnx file.")] = "nanodet_416",
    backend: Annotated[str, typer.Option(help="auto, cpu, cuda, tensorrt or tensorrt-rtx.")] = "auto",
    conf: Annotated[float | None, typer.Option(help="Least score, 0 to 1 (default: the model's).")] = None,
    iou: Annotated[float | None, typer.Option(help="Overlap that suppresses, 0 to 1 (default: the model's).")] = None,
    classes: Annotated[str, typer.Option(metavar="A,B", help="Names or ids to keep (default: all).")] = "",
    max_det: Annotated[int, typer.Option(help="Most detections a frame.")] = 300,
    agnostic: Annotated[bool, typer.Option("--agnostic", help="Suppress across classes.")] = False,
    detections: Annotated[
        str | None, typer.Option("-d", "--detections", metavar="FILE", help="JSON Lines file; - is standard output.")
    ] = None,
    frames: Annotated[int | None, typer.Option(metavar="N", help="Stop after N frames.")] = None,
    device: Annotated[str | None, typer.Option(help="Vulkan device: index, name or UUID.")] = None,
    route: Annotated[str, typer.Option(help="Way into the model: auto, raster or compute.")] = "auto",
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write the figures of the run as JSON.")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Write a trace for Perfetto.")] = None,
    draw: Annotated[bool, typer.Option("--draw/--no-draw", help="Draw the detections.")] = True,
    decoder: Annotated[str, typer.Option(help="auto, nvdec or cpu.")] = "auto",
    encoder: Annotated[str, typer.Option(help="auto, or an encoder that `raven doctor` lists.")] = "auto",
    quality: Annotated[int | None, typer.Option(metavar="N", help="0 (best) to 51.")] = None,
    preset: Annotated[str | None, typer.Option(metavar="P", help="Speed against size, in the encoder's words.")] = None,
    debug: Debug = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Run a model over INPUT; write the annotated video, the detections, or both."""
    values = {k: v for k, v in locals().items() if k not in ("debug", "quiet")}
    with reported(debug):
        from raven.cli.run import run_command

        values["classes"] = tuple(word.strip() for word in classes.split(",") if word.strip())
        code = run_command(values, quiet=quiet)
    raise typer.Exit(code)


@app.command()
def inspect(
    target: Annotated[str, typer.Argument(metavar="MODEL|VIDEO", help="A model or anything that `run` takes.")],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Say what a model or a video is made of."""
    with reported(debug):
        from raven.cli.inspect import inspect_command

        inspect_command(target, json)


@app.command()
def doctor(json: Json = False, debug: Debug = False) -> None:
    """Check that this machine can do the job; exit 1 when it cannot."""
    with reported(debug):
        from raven.cli.doctor import doctor_command

        code = doctor_command(json)
    raise typer.Exit(code)


@app.command()
def models(json: Json = False, debug: Debug = False) -> None:
    """List the bundled models."""
    with reported(debug):
        from raven.cli.models import models_command

        models_command(json)


def main(args: list[str] | None = None) -> Any:
    """Entry point of the ``raven`` script."""
    return app(args=sys.argv[1:] if args is None else args, prog_name="raven")
