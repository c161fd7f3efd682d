"""Strict reading of a card's TOML: every key known, every value of its kind and in its range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raven.errors import ModelError

#: Turns a raw value into the card's, or raises ValueError with what is wanted.
Reader = Callable[[Any], Any]


def text(value: Any) -> str:
    """Any string."""
    if not isinstance(value, str):
        raise ValueError("a string")
    return value


def choice(*allowed: str) -> Reader:
    """One of some words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(map(repr, allowed))}")
        return str(value)

    return read


def number(low: float, high: float, *, above: bool = False) -> Reader:
    """A number in a range; ``above`` excludes the lower end."""

    def read(value: Any) -> float:
        if not _is_number(value) or not low <= value <= high or (above and value == low):
            raise ValueError(f"a number {'above' if above else 'from'} {low:g} to {high:g}")
        return float(value)

    return read


def integer(low: int, high: int) -> Reader:
    """A whole number in a range."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return read


def integers(low: int, high: int, count: int | None = None) -> Reader:
    """A list of whole numbers."""
    one = integer(low, high)
    wanted = f"a list of {count if count is not None else '1 to 8'} whole numbers from {low} to {high}"

    def read(value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not (len(value) == count if count is not None else 0 < len(value) <= 8):
            raise ValueError(wanted)
        try:
            return tuple(one(item) for item in value)
        except ValueError:
            raise ValueError(wanted) from None

    return read


def triple(low: float, high: float, *, above: bool = False, spread: bool = False) -> Reader:
    """Three numbers, one a channel; with ``spread`` one number stands for all three."""
    one = number(low, high, above=above)

    def read(value: Any) -> tuple[float, float, float]:
        values = [value] * 3 if spread and _is_number(value) else value
        try:
            if not isinstance(values, list) or len(values) != 3:
                raise ValueError
            first, second, third = (one(item) for item in values)
        except ValueError:
            either = "one number or " if spread else ""
            raise ValueError(
                f"{either}a list of 3 numbers {'above' if above else 'from'} {low:g} to {high:g}"
            ) from None
        return first, second, third

    return read


def names(lists: Mapping[str, tuple[str, ...]]) -> Reader:
    """A list of names, or the name of a known list."""

    def read(value: Any) -> tuple[str, ...]:
        if isinstance(value, str) and value in lists:
            return lists[value]
        if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
            raise ValueError(f"a list of names or one of {', '.join(map(repr, lists))}")
        return tuple(value)

    return read


def roles(*allowed: str) -> Reader:
    """A table that gives outputs' names by role."""

    def read(value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not set(value) <= set(allowed) or not _all_text(value.values()):
            raise ValueError(f"a table of output names for {', '.join(allowed)}")
        return dict(value)

    return read


def read_table(raw: Mapping[str, Any], table: str, readers: Mapping[str, Reader], origin: str) -> dict[str, Any]:
    """Read one table of a card.

    Parameters
    ----------
    raw : mapping
        The whole card.
    table : str
    readers : mapping of str to callable
        By key.
    origin : str
        The card's file, for messages.

    Raises
    ------
    ModelError
        An unknown key or an impossible value; the message names it and what is allowed.
    """
    given = raw.get(table, {})
    _refuse_unknown(given, readers, f"[{table}]", origin)
    return {key: _read(readers[key], value, f"{table}.{key}", origin) for key, value in given.items()}


def check_tables(raw: Mapping[str, Any], tables: Sequence[str] | Mapping[str, Any], origin: str) -> None:
    """Raise ModelError unless a card consists of known tables."""
    _refuse_unknown(raw, tables, "the card", origin)
    for table, given in raw.items():
        if not isinstance(given, Mapping):
            raise ModelError(f"{origin}: {table} = {_shown(given)} is not a table; write [{table}] above its keys")


def _refuse_unknown(
    given: Mapping[str, Any], allowed: Mapping[str, Any] | Sequence[str], where: str, origin: str
) -> None:
    for key in given:
        if key not in allowed:
            raise ModelError(f"{origin}: {where} has no key {key!r}; allowed: {', '.join(allowed)}")


def _read(reader: Reader, value: Any, key: str, origin: str) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        raise ModelError(f"{origin}: {key} = {_shown(value)} is not possible; give {error}") from None


def _shown(value: Any, limit: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}…"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all_text(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)
