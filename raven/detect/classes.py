"""Class names to ids, with a useful answer to a misspelt name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from raven.errors import UsageError


def class_ids(wanted: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    """Ids of classes given by name (any case) or number.

    Returns
    -------
    tuple of int or None
        None when nothing is asked for: all classes.

    Raises
    ------
    UsageError
        A name or number that the model does not have.
    """
    if not wanted:
        return None
    return tuple(dict.fromkeys(_one(word.strip(), names) for word in wanted))


def _one(word: str, names: Sequence[str]) -> int:
    lower = [name.lower() for name in names]
    if word.lower() in lower:
        return lower.index(word.lower())
    if word.isdigit() and int(word) < len(names):
        return int(word)
    close = difflib.get_close_matches(word.lower(), lower, 1)
    hint = f"did you mean {names[lower.index(close[0])]!r}?" if close else "see `raven inspect MODEL`"
    raise UsageError(f"class {word!r} is not among the model's {len(names)} classes; {hint}")
