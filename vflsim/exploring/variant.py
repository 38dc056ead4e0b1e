"""The scenario that knobs describe: the one to begin with, with the parts of all moved knobs replaced."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.exploring.base import Base
from vflsim.exploring.knobs import PROTOCOL_KEYS, Knobs, read_knobs
from vflsim.vocabulary.plain_yaml import Location


def turned(base: Base, said: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return the scenario of these positions of knobs, as plain values; ``name`` renames it.

    Knobs in the position that says what the base says leave it as it is, so that without a moved knob the scenario is
    the base itself. Raises ScenarioError for wrong positions; the result may still be no valid scenario.
    """
    knobs, held = read_knobs(dict(said)), base.knobs
    moved = {key for key in Knobs.model_fields if getattr(knobs, key) not in (None, getattr(held, key))}
    if "stragglers" in said and knobs.stragglers is not None:
        clients = knobs.clients or held.clients or knobs.stragglers
        if knobs.stragglers > clients:
            what, allowed = f"{knobs.stragglers} stragglers of {clients} clients", f"0 to {clients}"
            raise ScenarioError(what, "stragglers", allowed, "fewer stragglers, or more clients")
    raw: dict[str, Any] = copy.deepcopy(dict(base.raw))
    raw["name"] = name or base.name
    if "clients" in moved:
        raw["partition"]["clients"] = said["clients"]
    if moved & {"delay", "stragglers"} or ("clients" in moved and knobs.delay is not None):
        clients_are = knobs.clients or held.clients
        _straggle(_entries(raw), said["stragglers"], said["delay"], all_of_them=knobs.stragglers == clients_are)
    if "network" in moved:
        raw.setdefault("timing", {})["network"] = said["network"]
    if "bandwidth" in moved:
        rate = {} if said["bandwidth"] == "unlimited" else dict.fromkeys(("up", "down"), said["bandwidth"])
        _link(raw, ("up", "down"), rate)
    if "latency" in moved:
        _link(raw, ("latency",), {"latency": said["latency"]})
    if "batch" in moved:
        raw["training"]["batch"] = said["batch"]
        for entry in raw["protocols"].values():
            _drop(entry, "training", "batch")
    for key in moved.intersection(PROTOCOL_KEYS):
        for each in base.having[key]:
            raw["protocols"][each][key] = said[key]
    return _without_empty(raw)


def differences(base: Base, raw: Mapping[str, Any]) -> list[str]:
    """Name the keys in which a scenario differs from the base; those that are gone have a minus."""
    before, after = dict(_leaves(base.raw)), dict(_leaves(raw))
    changed = [loc for loc, value in after.items() if before.get(loc, after) != value]
    gone = [loc for loc in before if loc not in after]
    return [".".join(map(str, loc)) for loc in changed] + [f"−{'.'.join(map(str, loc))}" for loc in gone]


def _entries(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of ``timing.clients`` as a list in its place."""
    timing = raw.setdefault("timing", {})
    entries = timing.get("clients") or []
    timing["clients"] = entries if isinstance(entries, list) else [entries]
    groups: list[dict[str, Any]] = timing["clients"]
    return groups


def _straggle(entries: list[dict[str, Any]], stragglers: int, delay: Any, all_of_them: bool) -> None:
    """Give the last clients this upload delay, and nobody else any."""
    for entry in entries:
        entry.pop("upload_delay", None)
    entries[:] = [entry for entry in entries if entry.keys() - {"select"}]
    if stragglers:
        first = "N" if stragglers == 1 else f"N-{stragglers - 1}..N"
        entries.append({"select": "all" if all_of_them else first, "upload_delay": delay})


def _link(raw: dict[str, Any], keys: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Give everybody's link these values, and no other of these keys."""
    entries = _entries(raw)
    for holder in (raw["timing"].get("server", {}), *entries):
        for key in keys:
            _drop(holder, "link", key)
    entries[:] = [entry for entry in entries if entry.keys() - {"select"}]
    if values:
        if not entries or entries[0].get("select", "all") != "all":
            entries.insert(0, {"select": "all"})
        for holder in (raw["timing"].setdefault("server", {}), entries[0]):
            holder["link"] = {**holder.get("link", {}), **values}


def _drop(holder: Any, part: str, key: str) -> None:
    """Remove a key from a part of a mapping, and the part if nothing else is in it."""
    if isinstance(holder, dict) and isinstance(holder.get(part), dict):
        holder[part].pop(key, None)
        if not holder[part]:
            del holder[part]


def _without_empty(raw: dict[str, Any]) -> dict[str, Any]:
    timing = raw.get("timing")
    if isinstance(timing, dict):
        for key in ("clients", "server"):
            if key in timing and not timing[key]:
                del timing[key]
        if not timing:
            del raw["timing"]
    return raw


def _leaves(value: Any, loc: Location = ()) -> Iterator[tuple[Location, Any]]:
    if isinstance(value, Mapping | list) and value:
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(item, (*loc, key))
    else:
        yield loc, value
