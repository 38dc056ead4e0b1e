"""The keys of a sweep and their values: from the command line, from a file, from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.files import text
from vflsim.scenario.document import plain
from vflsim.scenario.load import document_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.overrides import values_of
from vflsim.vocabulary.plain_yaml import parse_value

_FORM = "KEY: [V1, V2, …] or KEY: V1, V2, … for every key"


@dataclass(frozen=True, slots=True)
class Axis:
    """A key of a sweep and its values. A key may name several keys, with commas: all get the same value."""

    key: str
    values: tuple[Any, ...]

    @property
    def keys(self) -> list[str]:
        """The dotted keys. Raises ScenarioError for empty and repeated ones."""
        keys = [each.strip() for each in self.key.split(",")]
        for each in keys:
            if not all(each.split(".")) or keys.count(each) > 1:
                what = f"the key {each} stands twice" if each else "a key is missing"
                allowed = "KEY=V1,V2,… or KEY,KEY=V1,V2,… for keys that go together"
                raise ScenarioError(what, f"--over {self.key}", allowed)
        return keys


def axes_of(
    source: str | Path | Mapping[str, Any],
    over: Iterable[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> list[Axis]:
    """Read ``KEY=V1,V2,…`` of the command line, or a mapping of keys to lists or to such texts.

    A short key is completed: a constant, or the end of only one key that the scenario writes (``t``, ``t-sync.t``).
    Raises ScenarioError, with the possible keys if there are several.
    """
    pairs = _pairs(over.items()) if isinstance(over, Mapping) else (values_of(each, "--over") for each in over)
    raw = document_of(source, overrides)[0].raw
    axes = []
    for key, values in pairs:
        names = (_complete(raw, each.strip(), key) for each in key.split(","))
        axes.append(Axis(",".join(names), tuple(values)))
    return axes


def axes_given(
    source: str | Path | Mapping[str, Any], over: Sequence[str], file: Path | None, overrides: Sequence[str]
) -> list[Axis]:
    """Return the axes of ``--over`` and then those of ``--over-file``. Raises ScenarioError."""
    return axes_of(source, over, overrides) + ([] if file is None else axes_of(source, over_in(file), overrides))


def over_in(path: Path) -> dict[str, Any]:
    """Read a YAML file with a mapping of keys to values, for ``axes_of``. Raises ScenarioError."""
    try:
        raw, _ = parse_value(text(path), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"the file cannot be read: {reason}", str(path), remedy="check the path") from None
    if not isinstance(raw, dict) or not raw:
        raise ScenarioError("the file holds no keys with values", str(path), _FORM)
    return raw


def _pairs(over: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    for key, values in over:
        if isinstance(values, str):
            yield values_of(f"{key}={values}", "--over")
        else:
            listed = plain(values, (str(key),)) if not isinstance(values, int | float | Mapping) else [plain(values)]
            yield str(key), listed


def _complete(raw: Mapping[str, Any], name: str, key: str) -> str:
    """Return the whole key of a short one; unknown ones stay, since the loader's message says more."""
    if name.partition(".")[0] in Scenario.model_fields:
        return name
    if name in (raw.get("constants") or {}):
        return f"constants.{name}"
    found = [path for path in _paths(raw) if path.endswith(f".{name}")]
    if len(found) > 1:
        what = f"there are {len(found)} keys that end in {name}"
        raise ScenarioError(what, f"--over {key}", ", ".join(found), "write one of them")
    return found[0] if found else name


def _paths(value: Any, start: str = "") -> Iterator[str]:
    """Yield the dotted keys of a value, in depth."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (path := f"{start}{key}")
        yield from _paths(item, f"{path}.")
