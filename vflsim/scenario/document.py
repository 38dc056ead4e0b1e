"""A scenario as written: plain values with their positions, and the problems found there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.files import opened, size
from vflsim.shipped import scenario_file
from vflsim.vocabulary.plain_yaml import MAX_DEPTH, PLAIN, Location, Origins, parse_value

MAX_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Document:
    """The plain values of a scenario, and the line (or override) that each location comes from."""

    raw: dict[str, Any]
    name: str = ""
    origins: Origins = field(default_factory=dict)

    def line(self, loc: Location) -> int | None:
        """Return the line (from 1) of the value at ``loc``, or of its nearest ancestor; None without a file."""
        origin = self._origin(loc)
        return origin if isinstance(origin, int) else None

    def where(self, loc: Location) -> str:
        """Return ``file:line``, or the override, of the value at ``loc`` or its nearest ancestor."""
        origin = self._origin(loc)
        if isinstance(origin, str):
            return origin
        return f"{self.name}:{origin}" if self.name and origin else self.name

    def _origin(self, loc: Location) -> int | str | None:
        for end in range(len(loc), -1, -1):
            if loc[:end] in self.origins:
                return self.origins[loc[:end]]
        return None


def read(path: str | Path) -> Document:
    """Read the document in a file. Raises ScenarioError if the file holds no plain YAML mapping."""
    path = scenario_file(path)
    name = str(path)
    try:
        with opened(path) as file:
            if size(file) > MAX_BYTES:
                raise ScenarioError(
                    f"the file is too large for a scenario ({size(file):,} bytes)",
                    name,
                    f"at most {MAX_BYTES:,} bytes",
                    "give the scenario file; data belong in files that it names",
                )
            content = file.read(MAX_BYTES)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        what = f"the file cannot be read: {reason}"
        raise ScenarioError(what, name, remedy="check the path and who may read it") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content[: problem.start].count(b"\n") + 1
        what = f"the byte 0x{content[problem.start]:02x} is not UTF-8"
        raise ScenarioError(what, f"{name}:{line}", "UTF-8 text", "save the file as UTF-8") from None
    return parse(text, name)


def parse(text: str, name: str = "scenario") -> Document:
    """Parse the document in a YAML text."""
    raw, origins = parse_value(text, name)
    if raw is None:
        raise ScenarioError("the scenario is empty", name, remedy="start from what `vflsim new NAME` writes")
    if not isinstance(raw, dict):
        kind = "a list" if isinstance(raw, list) else f"the single value {raw!r}"
        remedy = "write `name: …`, `data: …` and so on"
        raise ScenarioError(f"the scenario is {kind}", f"{name}:1", "a mapping of keys to values", remedy)
    return Document(raw, name, origins)


def from_mapping(value: Mapping[str, Any]) -> Document:
    """Make the document of a Python mapping; numpy numbers and paths become plain values."""
    raw = plain(value)
    assert isinstance(raw, dict)
    return Document(raw, "")


def plain(value: Any, loc: Location = ()) -> Any:
    """Copy ``value`` as plain values. Raises ScenarioError for values that YAML cannot hold."""
    if len(loc) > MAX_DEPTH:
        where = ".".join(map(str, loc[:5])) + "…"
        raise ScenarioError("the scenario is nested too deeply, or contains itself", where, f"{MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item, (*loc, str(key))) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, (*loc, index)) for index, item in enumerate(value)]
    raise ScenarioError(f"a {type(value).__name__} cannot stand in a scenario", ".".join(map(str, loc)), PLAIN)


# --- problems ---------------------------------------------------------------------------------------------------------


_SHOWN = 20
_LONG = 400


@dataclass(frozen=True)
class Problem:
    """One problem: location, description (with the value, if any), allowed values, remedy."""

    loc: Location
    what: str
    allowed: str = ""
    remedy: str = ""

    @property
    def key(self) -> str:
        """The dotted key, as in ``--set``."""
        return ".".join(map(str, self.loc))

    @classmethod
    def of_message(cls, loc: Location, text: str, value: Any = None) -> Problem:
        """Read a message ``what; allowed: …; how to mend it``; add the value if the message lacks it."""
        what, *rest = (part if len(part) <= _LONG else part[:_LONG] + "…" for part in text.split("; "))
        allowed = "; ".join(part.removeprefix("allowed: ") for part in rest if part.startswith("allowed: "))
        remedy = "; ".join(part.removeprefix("remedy: ") for part in rest if not part.startswith("allowed: "))
        if value is not None and not _names(what, value):
            what = f"{what} (value {shown(value)})"
        return cls(loc, what, allowed, remedy)


def failure(problems: Iterable[Problem], document: Document) -> ScenarioError:
    """Make one error that lists every problem, in the order of the file."""
    distinct = sorted(dict.fromkeys(problems), key=lambda problem: document.line(problem.loc) or 0)
    if len(distinct) == 1:
        only = distinct[0]
        return ScenarioError(only.what, _place(only, document), only.allowed, only.remedy)
    lines = [_line(problem, document) for problem in distinct[:_SHOWN]]
    if len(distinct) > _SHOWN:
        lines.append(f"… and {len(distinct) - _SHOWN} more")
    return ScenarioError("\n  ".join([f"{len(distinct)} problems", *lines]), document.name)


def shown(value: Any) -> str:
    """Format a value as in a scenario, shortened to one line."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, dict):
        return "a mapping with the keys " + ", ".join(map(str, [*value][:8])) if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _place(problem: Problem, document: Document) -> str:
    return ": ".join(filter(None, [document.where(problem.loc), problem.key]))


def _line(problem: Problem, document: Document) -> str:
    text = f"{_place(problem, document)}: {problem.what}"
    text += f" — allowed: {problem.allowed}" if problem.allowed else ""
    return text + (f" — remedy: {problem.remedy}" if problem.remedy else "")


def _names(text: str, value: Any) -> bool:
    """Return whether a message already shows the value (messages about mappings name their keys)."""
    return isinstance(value, dict | list) or (str(value) in text if str(value) else "empty" in text)
