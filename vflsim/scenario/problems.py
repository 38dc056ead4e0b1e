"""Problems of a scenario: location, value, allowed values and remedy of each, all in one error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.scenario.document import Document
from vflsim.vocabulary.plain_yaml import Location

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
    found = sorted(dict.fromkeys(problems), key=lambda problem: document.line(problem.loc) or 0)
    if len(found) == 1:
        only = found[0]
        return ScenarioError(only.what, _place(only, document), only.allowed, only.remedy)
    lines = [_line(problem, document) for problem in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"… and {len(found) - _SHOWN} more")
    return ScenarioError("\n  ".join([f"{len(found)} problems", *lines]), document.name)


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
