"""The errors that Raven raises on purpose.

Every message names the value, the limit and the remedy in one line, because the command line prints it as is.
Anything else that escapes is a fault of Raven's own and keeps its traceback.
"""

from __future__ import annotations


class RavenError(Exception):
    """Base class: a run cannot go on, and the message says why in one line."""

    exit_code = 1


class UsageError(RavenError):
    """An argument is impossible: a threshold above 1, an unknown device, an output that is the input."""

    exit_code = 2


class SourceError(RavenError):
    """The input cannot be opened, holds no picture, or breaks off."""


class SinkError(RavenError):
    """The output cannot be written."""


class ModelError(RavenError):
    """The model cannot be loaded, understood, or run as asked."""


class BackendError(RavenError):
    """The inference runtime asked for is absent or failed."""


class DeviceError(RavenError):
    """No Vulkan driver or device, a missing capability, memory exhausted, or the device was lost."""


class ShaderError(RavenError):
    """A shader does not compile: the message holds file, line and the compiler's words."""
