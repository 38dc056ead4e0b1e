"""The scenario that one begins with, which of its parts the knobs hold, and the scenario that moved knobs describe."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vflsim.errors import ScenarioError
from vflsim.exploring.knobs import NETWORKS, PLAYED, PROTOCOL_KEYS, Knobs, as_said, bandwidth_text, read, seconds_text
from vflsim.scenario.load import rooted_document_of, validate
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings
from vflsim.shipped import started
from vflsim.timing.delays import Constant
from vflsim.vocabulary import plain_yaml
from vflsim.vocabulary.plain_yaml import Location

NAME = "explored"
"""The name of a scenario that begins with no file."""


_LONG = 110


_DEPTHS = {"partition": 2, "training": 2, "timing": 3}
"""Steps of the location of a part that is shown on one line; of others one."""


class NotHeldError(Exception):
    """Says why a knob cannot hold its part of a scenario."""


@dataclass(frozen=True)
class Base:
    """The scenario to begin with, as plain values with absolute paths.

    ``held`` are the positions of the knobs that say what it says; ``unheld`` says of each other knob why there is none,
    and ``kept`` lists the parts that no knob touches. ``begin`` are the positions that the page begins with; ``having``
    names the protocols that have ``t``, ``K`` or ``T``.
    """

    name: str
    raw: Mapping[str, Any]
    held: Mapping[str, Any]
    begin: Mapping[str, Any]
    unheld: Mapping[str, str]
    kept: tuple[str, ...]
    having: Mapping[str, tuple[str, ...]]

    @cached_property
    def knobs(self) -> Knobs:
        """The positions that say what it says, validated."""
        return read(Knobs, dict(self.held))


def base_of(source: Path | str | None = None) -> Base:
    """Begin with a scenario's file or name, or without one with the template of ``vflsim new``.

    Raises ScenarioError. The template's links are made dedicated, so that rounds have closed forms.
    """
    text = started(NAME) if source is None else source
    document = rooted_document_of(text)
    scenario = validate(document)
    held, unheld = dict[str, Any](), dict[str, str]()
    for name, find in _KNOBS.items():
        try:
            held |= find(scenario, document.raw)
        except NotHeldError as reason:
            unheld |= dict.fromkeys(_TOGETHER.get(name, (name,)), str(reason))
    begin = {**held, "network": "dedicated"} if source is None else held
    having = {key: tuple(protocols_with(scenario, key)) for key in PROTOCOL_KEYS}
    return Base(scenario.name, document.raw, held, begin, unheld, tuple(_kept(document.raw, held)), having)


def protocols_with(scenario: Scenario, key: str) -> list[str]:
    """Name the protocols that have a key."""
    return [name for name, entry in scenario.protocols.items() if key in type(entry.protocol).model_fields]


def _clients(scenario: Scenario, raw: Mapping[str, Any]) -> dict[str, Any]:
    partition = raw["partition"]
    if not isinstance(partition, Mapping) or partition.get("clients") is None:
        raise NotHeldError("the data decide how many clients there are")
    return {"clients": scenario.clients}


def _stragglers(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
    delays = [timing.upload_delay for timing in party_timings(scenario)[1:]]
    slow = [place for place, delay in enumerate(delays) if delay != Constant(value=0.0)]
    if not slow:
        return {"stragglers": 0, "delay": {"kind": "exponential", "mean": "1 s"}}
    several = {repr(delays[place]) for place in slow}
    if len(several) > 1:
        raise NotHeldError("the upload delays of clients differ from each other")
    if slow != list(range(len(delays) - len(slow), len(delays))):
        raise NotHeldError("the clients with an upload delay are not the last ones")
    delay = delays[slow[0]]
    if not isinstance(delay, PLAYED):
        raise NotHeldError(f"an upload delay of kind {delay.kind} has parameters that are no numbers")
    return {"stragglers": len(slow), "delay": as_said(delay)}


def _network(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
    network = scenario.timing.network
    if network.latency is not None:
        raise NotHeldError("the network has a table of latencies")
    if network.kind not in NETWORKS:
        raise NotHeldError(f"the network is of kind {network.kind}")
    return {"network": network.kind}


def _bandwidth(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
    rates = {repr(rate) for each in party_timings(scenario) for rate in (each.link.up, each.link.down)}
    rate = party_timings(scenario)[0].link.up
    if len(rates) > 1:
        raise NotHeldError("the bandwidths of parties, or of up and down, differ from each other")
    if not isinstance(rate, float | int):
        raise NotHeldError("bandwidths change in time")
    return {"bandwidth": bandwidth_text(float(rate))}


def _latency(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
    latencies = {repr(each.link.latency): each.link.latency for each in party_timings(scenario)}
    if len(latencies) > 1:
        raise NotHeldError("the latencies of parties differ from each other")
    (latency,) = latencies.values()
    if not isinstance(latency, Constant):
        raise NotHeldError(f"latencies are random ({latency.kind})")
    return {"latency": seconds_text(latency.value)}


def _batch(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
    batches = {scenario.training_of(name).batch for name in scenario.protocols}
    if len(batches) > 1:
        raise NotHeldError("protocols have batches of their own")
    return {"batch": batches.pop()}


def _key(key: str) -> Callable[[Scenario, Mapping[str, Any]], dict[str, Any]]:
    def find(scenario: Scenario, _: Mapping[str, Any]) -> dict[str, Any]:
        named = protocols_with(scenario, key)
        values = {getattr(scenario.protocols[name].protocol, key) for name in named}
        if not values:
            raise NotHeldError(f"no protocol here has a {key}")
        if len(values) > 1:
            raise NotHeldError(f"the protocols {', '.join(named)} differ in {key}")
        return {key: values.pop()}

    return find


_KNOBS: Mapping[str, Callable[[Scenario, Mapping[str, Any]], dict[str, Any]]] = {
    "clients": _clients,
    "delay": _stragglers,
    "network": _network,
    "bandwidth": _bandwidth,
    "latency": _latency,
    "batch": _batch,
    **{key: _key(key) for key in PROTOCOL_KEYS},
}


_TOGETHER = {"delay": ("stragglers", "delay")}
"""Knobs that are held together or not at all."""


def _kept(raw: Mapping[str, Any], held: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts that no knob holds, each on a line: key and value."""
    owned: list[tuple[str, ...]] = [
        *([("partition", "clients")] if "clients" in held else []),
        *([("timing", "clients", "*", "upload_delay")] if "delay" in held else []),
        *([("timing", "network")] if "network" in held else []),
        *(("timing", *party, "link", key) for party in (("server",), ("clients", "*")) for key in _links(held)),
        *([("training", "batch"), ("protocols", "*", "training", "batch")] if "batch" in held else []),
        *(("protocols", "*", key) for key in PROTOCOL_KEYS if key in held),
        ("protocols", "*", "kind"),
        ("timing", "clients", "*", "select"),
        ("name",),
    ]
    parts: dict[Location, Any] = {}
    for loc, value in _leaves(raw):
        if not any(_covers(pattern, loc) for pattern in owned):
            _keep(parts, raw, loc, value)
    for loc, value in parts.items():
        text = f"{'.'.join(map(str, loc))}: {plain_yaml.flow(value)}"
        yield text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _keep(parts: dict[Location, Any], raw: Mapping[str, Any], loc: Location, value: Any) -> None:
    """Add a value to the part of the scenario that is shown on one line with it."""
    if loc[0] == "protocols" and len(loc) > 2:  # an entry's keys together
        whole: Any = raw["protocols"][loc[1]][loc[2]] if loc[2] != "training" or len(loc) < 4 else None
        entry = parts.setdefault(loc[:2], {})
        if whole is not None:
            entry[loc[2]] = whole
        else:
            entry.setdefault("training", {})[loc[3]] = raw["protocols"][loc[1]]["training"][loc[3]]
        return
    depth = _DEPTHS.get(str(loc[0]), 1)
    depth += loc[0] == "timing" and isinstance(loc[2:3] and loc[2], int)
    depth += "link" in loc[:depth]  # of which some keys are knobs
    part: Any = raw
    for step in loc[:depth]:
        part = part[step]
    parts[loc[:depth]] = part


def _links(held: Mapping[str, Any]) -> list[str]:
    return [*(["up", "down"] if "bandwidth" in held else []), *(["latency"] if "latency" in held else [])]


def _leaves(value: Any, loc: Location = (), every: bool = False) -> Iterator[tuple[Location, Any]]:
    """Yield the values and their locations; a list of plain values is one, unless ``every`` one is asked for."""
    listed = isinstance(value, list) and (every or any(isinstance(item, Mapping) for item in value))
    if value and (listed or isinstance(value, Mapping)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(item, (*loc, key), every)
    else:
        yield loc, value


def _covers(pattern: tuple[str, ...], loc: Location) -> bool:
    """Return whether a location is at or inside a pattern, in which ``*`` stands for any step, or for none."""
    if (
        len(pattern) > 2
        and pattern[2] == "*"
        and pattern[1] == "clients"
        and not any(isinstance(each, int) for each in loc[2:3])
    ):
        pattern = (*pattern[:2], *pattern[3:])  # a single entry need not stand in a list
    return len(loc) >= len(pattern) and all(want in ("*", step) for want, step in zip(pattern, loc, strict=False))


def turned(base: Base, said: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return the scenario of these positions of knobs, as plain values; ``name`` renames it.

    Knobs in the position that says what the base says leave it as it is, so that without a moved knob the scenario is
    the base itself. Raises ScenarioError for wrong positions; the result may still be no valid scenario.
    """
    knobs, held = read(Knobs, dict(said)), base.knobs
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
    before, after = (dict(_leaves(each, every=True)) for each in (base.raw, raw))
    changed = [loc for loc, value in after.items() if before.get(loc, after) != value]
    gone = [loc for loc in before if loc not in after]
    return [".".join(map(str, loc)) for loc in changed] + [f"−{'.'.join(map(str, loc))}" for loc in gone]


def _entries(raw: dict[str, Any]) -> list[dict[str, Any]]:
    timing = raw.setdefault("timing", {})
    entries = timing.get("clients") or []
    timing["clients"] = entries if isinstance(entries, list) else [entries]
    groups: list[dict[str, Any]] = timing["clients"]
    return groups


def _straggle(entries: list[dict[str, Any]], stragglers: int, delay: Any, all_of_them: bool) -> None:
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
