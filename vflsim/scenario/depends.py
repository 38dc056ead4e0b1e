"""The part of a scenario that one run of a study depends on, because it can change the run's bytes."""

import re
from collections.abc import Collection, Mapping
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

from vflsim.scenario.emit import dump, flow
from vflsim.scenario.models import Scenario

_OF_THE_STUDY = {"name", "protocols", "seeds", "target", "budget"}
"""Keys without effect on a run: ``target`` and ``budget`` are for tables and figures (``stop.target`` ends runs)."""
_REFINED = ("models", "training", "stop", "evaluate")
"""Sections that a protocol's entry refines key by key; null stands for "not set", or removes a criterion."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def run_text(scenario: Scenario, protocol: str) -> str:
    """Return the part of a scenario that a run of ``protocol`` depends on, as YAML.

    Two scenarios with equal texts give byte-identical runs with the same seed, if the files that they name, and the
    modules of the user, have the same content. The text leaves out the study's name, seeds, targets and budgets, other
    protocols, the protocol's own name, and constants that no formula of this run uses. The overrides of the protocol's
    entry are merged. Texts may differ without effect (``20 ms`` and ``0.02 s``).
    """
    return dump(run_part(scenario, protocol))


def run_part(scenario: Scenario, protocol: str) -> dict[str, Any]:
    """Return the content of ``run_text``."""
    return part_of(scenario.document.raw, protocol, owns_code(scenario, protocol))


def course_part(scenario: Scenario, protocol: str) -> dict[str, Any]:
    """Return the run's part of the scenario without stop rules, unless its noise follows from them."""
    mechanism = scenario.protocols[protocol].mechanism
    if mechanism is not None and mechanism.needs_plan:
        return run_part(scenario, protocol)
    return part_of(scenario.document.raw, protocol, owns_code(scenario, protocol), ("stop",))


def course_digest(scenario: Scenario, protocol: str) -> str:
    """Return the digest of ``course_part``, 32 hexadecimal digits, wherever the files that it names lie."""
    return blake2b(dump(_without_folders(course_part(scenario, protocol))).encode(), digest_size=16).hexdigest()


def _without_folders(value: Any) -> Any:
    """Reduce absolute paths to the names of their files."""
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def owns_code(scenario: Scenario, protocol: str) -> bool:
    """Whether the protocol is a class of the user's own."""
    return not type(scenario.protocols[protocol].protocol).__module__.startswith("vflsim.")


def part_of(raw: Mapping[str, Any], protocol: str, code: bool = False, without: Collection[str] = ()) -> dict[str, Any]:
    """Restrict a scenario's plain values to those that a run of ``protocol`` depends on, and leave out sections.

    ``code``: the protocol is code of the user's, which may read any constant.
    """
    entry = raw["protocols"][protocol]
    entry = dict(entry) if isinstance(entry, Mapping) else {"kind": entry}
    part = {key: value for key, value in raw.items() if key not in _OF_THE_STUDY and value is not None}
    for section in _REFINED:
        part[section] = _refined(part.get(section) or {}, entry.pop(section, None) or {}, section)
    if (codec := entry.pop("codec", None)) is not None:
        part["codec"] = codec
    part["protocol"] = entry
    part = {key: value for key, value in part.items() if key not in without}
    if not code and not _names_a_module(part):  # a user's class may read any symbol
        part.pop("modules", None)
        part |= _used_constants(part, part.pop("constants", None) or {})
    return {key: part[key] for key in sorted(part) if part[key] != {}}


def _refined(section: Mapping[str, Any], by: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Merge a protocol's override as the loader does: null leaves a key as it is, or removes it where it may."""
    removes = {"models": {"active"}, "training": set[str]()}.get(name, set(by))
    merged = {**section, **{key: value for key, value in by.items() if value is not None or key in removes}}
    return {key: merged[key] for key in sorted(merged) if merged[key] is not None}


def _used_constants(part: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that the formulas of ``part`` use, directly or through others, as a section if any."""
    if not constants:
        return {}
    words = set(_WORD.findall(flow(dict(part))))
    used: dict[str, Any] = {}
    for name in reversed(list(constants)):  # each may use those before it
        if name in words:
            used[name] = constants[name]
            words |= set(_WORD.findall(str(constants[name])))
    return {"constants": dict(reversed(used.items()))} if used else {}


def _names_a_module(value: Any) -> bool:
    """Whether a part is a class of the user's own."""
    if isinstance(value, Mapping):
        return value.get("kind") == "module" or any(map(_names_a_module, value.values()))
    return isinstance(value, list) and any(map(_names_a_module, value))
