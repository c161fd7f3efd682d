"""Fixtures for every test: the validation layer is on, and any message of it fails the test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("RAVEN_VALIDATION", "1")

from raven.gpu import Device
from raven.gpu.instance import validation_messages


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    """One device for the whole session; it must be empty at the end."""
    one = Device()
    yield one
    one.close()
    assert not +one.counts, f"left on the device: {dict(one.counts)}"


@pytest.fixture(autouse=True)
def _validation_is_silent() -> Iterator[None]:
    before = len(validation_messages)
    yield
    assert validation_messages[before:] == []
