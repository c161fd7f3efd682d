"""The run: options in, frames through the ring, a report out."""

from raven.pipeline.options import RunOptions
from raven.pipeline.report import Report
from raven.pipeline.run import run

__all__ = ["Report", "RunOptions", "run"]
