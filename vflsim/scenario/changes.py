"""Differences between two scenarios as written: one line per key."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vflsim.scenario.emit import flow

_LONG = 60
_ABSENT = object()


def changed(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """Yield the differences between two resolved scenarios, one line per key: ``training.batch: 20 → 32``."""
    if isinstance(old, list) and isinstance(new, list) and any(isinstance(each, Mapping) for each in (*old, *new)):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from changed(old.get(name, _ABSENT), new.get(name, _ABSENT), f"{key}.{name}" if key else str(name))
    elif old is _ABSENT or new is _ABSENT or flow(old) != flow(new):
        yield f"{key}: {_shown(old)} → {_shown(new)}"


def at_most(lines: Iterable[str], most: int = 8) -> list[str]:
    """Return the first lines, and how many more there are."""
    every = list(lines)
    return [*every[:most], *([f"… and {len(every) - most} more"] if len(every) > most else [])]


def _shown(value: object) -> str:
    text = "absent" if value is _ABSENT else flow(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
