"""The keys of a sweep: short names, words, and values as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from vflsim.vocabulary.plain_yaml import flow
from vflsim.vocabulary.quantities import DIMENSIONS, Quantity, split_unit

_WORDS = {
    "batch": "batch size",
    "down": "bandwidth",
    "embedding": "embedding size",
    "lr": "learning rate",
    "mean": "mean delay",
    "up": "bandwidth",
}
"""The words for the last part of a key, where it does not speak for itself."""
_UNITS = frozenset(unit for dimension in DIMENSIONS for unit in dimension.units)
_SYMBOLS = {"t": "t (clients waited for)"}
"""What a symbol means that is a key of protocols; the meaning of a constant is its user's."""


@final
@dataclass(frozen=True)
class SweepAxis:
    """A key with its values, point by point. ``name`` is the last part of the key, or all of it if keys share that."""

    key: str
    name: str
    values: tuple[Any, ...]

    @property
    def label(self) -> str:
        """The key in words: ``clients``, ``learning rate``; of a constant that names its unit, ``bandwidth [Mbps]``."""
        names = (key.rpartition(".")[2] for key in self.key.split(","))
        return ", ".join(dict.fromkeys(map(_in_words, names)))

    @property
    def title(self) -> str:
        """The label for the axis of a figure, which has room for what a symbol means: ``t (clients waited for)``."""
        return _SYMBOLS.get(self.label, self.label) if self.key.startswith("protocols.") else self.label

    @cached_property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers in SI units (``5 Mbps`` is 5e6, ``unlimited`` infinite); None unless all are."""
        numbers = [_number(value) for value in self.values]
        return None if None in numbers else tuple(number for number in numbers if number is not None)

    @property
    def distinct(self) -> SweepAxis:
        """Every value once, in ascending order if all are numbers."""
        places = {flow(value): place for place, value in reversed([*enumerate(self.values)])}
        order = sorted(places.values(), key=None if self.numbers is None else self.numbers.__getitem__)
        return SweepAxis(self.key, self.name, tuple(self.values[place] for place in order))

    def place(self, value: Any) -> int:
        """Return where a value stands among the axis's."""
        return [flow(each) for each in self.values].index(flow(value))

    @property
    def unit(self) -> tuple[str, float]:
        """The unit of the first value and its size in SI units; for plain numbers ("", 1)."""
        text = self.values[0]
        for dimension in DIMENSIONS if isinstance(text, str) else ():
            _, unit = split_unit(text, dimension)
            if unit in dimension.units:
                return unit, float(dimension.units[unit])
        return "", 1.0


def axes_of(keys: Sequence[str], points: Sequence[Sequence[Any]]) -> tuple[SweepAxis, ...]:
    """Return the axis of every key; each point has a value for each."""
    return tuple(
        SweepAxis(key, name, tuple(point[position] for point in points))
        for position, (key, name) in enumerate(zip(keys, short_names(keys), strict=True))
    )


def short_names(keys: Sequence[str]) -> list[str]:
    """Shorten every key to its last part, unless keys share that: ``t`` of ``protocols.t-sync.t``."""
    lasts = [key.rpartition(".")[2] for key in keys]
    return [last if lasts.count(last) == 1 else key for key, last in zip(keys, lasts, strict=True)]


def setting_of(keys: Sequence[str], point: Sequence[Any]) -> str:
    """Write a point with its keys: ``t = 2, mean = 5 ms``."""
    return ", ".join(f"{name} = {flow(value)}" for name, value in zip(short_names(keys), point, strict=True))


def _in_words(name: str) -> str:
    words, _, unit = name.rpartition("_")
    if words and unit in _UNITS:
        return f"{words.replace('_', ' ')} [{unit}]"
    return _WORDS.get(name, name.replace("_", " "))


def _number(value: Any) -> float | None:
    """Convert a value as a scenario would, in any dimension; None if it is not a number."""
    for dimension in DIMENSIONS:
        try:
            return float(Quantity(dimension, unlimited=True).convert(value, {}))
        except ValueError:
            continue
    return None


CHOSEN = frozenset({"protocols", "training", "models", "codec"})
"""The sections of a scenario that a user decides on. Others describe the world, or what is measured and how long."""
_MEASURED = frozenset({"stop", "evaluate"})
"""The keys of a protocol's entry that override sections of the other sort."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def sections_of(key: str, scenario: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections that a dotted key lies in; of a constant those whose formulas use it, directly or not.

    Keys that get the same value are separated by commas.
    """
    return tuple(dict.fromkeys(section for each in key.split(",") for section in _sections(each.split("."), scenario)))


def is_choice(key: str, scenario: Mapping[str, Any]) -> bool:
    """Whether all that a key changes is a choice; a constant that nothing uses changes nothing, and is none."""
    sections = sections_of(key, scenario)
    return bool(sections) and CHOSEN.issuperset(sections)


def _sections(path: list[str], scenario: Mapping[str, Any]) -> Iterator[str]:
    if path[0] != "constants":
        yield path[2] if path[0] == "protocols" and len(path) > 2 and path[2] in _MEASURED else path[0]
        return
    constants, names = scenario.get("constants") or {}, {*path[1:2]}
    for name, formula in constants.items():  # each may use those before it
        if names & {*_NAME.findall(str(formula))}:
            names.add(name)
    for section, content in scenario.items():
        if section == "protocols":
            for entry in (content or {}).values():
                parts = entry.items() if isinstance(entry, Mapping) else ()
                yield from (part if part in _MEASURED else section for part, each in parts if names & _used(each))
        elif section not in ("constants", "name") and names & _used(content):
            yield section


def _used(value: Any) -> set[str]:
    """Return all names in the texts of a value, in depth: those of constants in formulas, and words."""
    if isinstance(value, Mapping):
        return {name for each in value.values() for name in _used(each)}
    if isinstance(value, list | tuple):
        return {name for each in value for name in _used(each)}
    return {*_NAME.findall(value)} if isinstance(value, str) else set()


def key_column(axis: SweepAxis, taken: set[str]) -> tuple[str, Sequence[Any]]:
    """Return the name and the values of a key's column, point by point; the name is none of those ``taken``."""
    unit, factor = axis.unit
    values: Sequence[Any] = [value if isinstance(value, str) else flow(value) for value in axis.values]
    if (numbers := axis.numbers) is not None:
        values = [int(number) if number == value else number / factor
                  for number, value in zip(numbers, axis.values, strict=True)]  # fmt: skip
    name = axis.key if axis.name in taken else axis.name
    return f"{name}_{unit}" if unit and numbers is not None else name, values
