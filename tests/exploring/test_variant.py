"""From a scenario to knobs, and from knobs to the scenario that runs: nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vflsim.errors import ScenarioError
from vflsim.exploring.base import Base, base_of, differences, turned
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings
from vflsim.shipped import shipped
from vflsim.timing.delays import Constant, Weibull
from vflsim.vocabulary import plain_yaml

WEIBULL = {"kind": "weibull", "shape": 0.7, "mean": "2 s"}
FREE = [name for name in shipped() if name.split("/")[0] not in {"easter", "vim", "vafl", "rounding"}]


def begun(tmp_path: Path, template: Base, **changed: Any) -> Base:
    """The template with some parts replaced, from a file."""
    file = tmp_path / "begun.json"
    file.write_text(json.dumps({**template.raw, **changed}))
    return base_of(file)


def held_by(scenario: Scenario, tmp_path: Path) -> Mapping[str, Any]:
    file = tmp_path / "written.yaml"
    file.write_text(plain_yaml.dump(scenario.document.raw))
    return base_of(file).held


def test_the_template_is_held_whole_and_begins_with_dedicated_links(template: Base) -> None:
    assert template.unheld == {}
    assert template.held == {
        "clients": 8,
        "stragglers": 2,
        "delay": {"kind": "exponential", "mean": "2 s"},
        "network": "fair",
        "bandwidth": "100 Mbps",
        "latency": "5 ms",
        "batch": 64,
        "t": 4,
        "K": 1,
        "T": 1,
    }
    assert template.begin == {**template.held, "network": "dedicated"}
    assert template.having == {"t": ("t-sync",), "K": ("coded",), "T": ("coded",)}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FREE)
def test_without_a_move_a_scenario_stays_as_it_is(name: str) -> None:
    base = base_of(name)
    assert turned(base, base.held) == turned(base, {}) == base.raw
    assert differences(base, base.raw) == []


@pytest.mark.parametrize("name", FREE)
def test_every_part_is_held_by_a_knob_or_named_as_kept_or_as_not_held(name: str) -> None:
    base = base_of(name)
    assert base.held.keys() | base.unheld.keys() == {
        "clients", "stragglers", "delay", "network", "bandwidth", "latency", "batch", "t", "K", "T"
    }  # fmt: skip
    kept = {line.partition(": ")[0] for line in base.kept}
    knobs = {"clients", "select", "kind", "upload_delay", "network", "up", "down", "latency", "batch", "t", "K", "T"}
    for loc in leaves(base.raw):
        named = any(".".join(loc[:end]) in kept for end in range(1, len(loc) + 1))
        assert named or loc[0] == "name" or knobs & {*loc}, f"nobody names {loc}"


def leaves(value: Any, loc: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from leaves(item, (*loc, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from leaves(item, (*loc, str(number)))
    else:
        yield loc


@pytest.mark.parametrize(
    "moved",
    [
        {"clients": 28},
        {"stragglers": 0},
        {"stragglers": 1, "delay": {"kind": "constant", "value": "300 ms"}},
        {"stragglers": 8, "delay": WEIBULL},
        {"network": "fair", "bandwidth": "2.5 Gbps"},
        {"bandwidth": "unlimited", "latency": "0 s"},
        {"latency": "12 ms", "batch": "all"},
        {"clients": 28, "stragglers": 7, "delay": WEIBULL, "t": 20, "K": 4, "T": 2, "batch": 256},
    ],
    ids=lambda each: ",".join(each),
)
def test_the_scenario_of_moved_knobs_loads_and_holds_their_positions(
    moved: dict[str, Any], template: Base, tmp_path: Path
) -> None:
    said = {**template.held, **moved}
    scenario = load(turned(template, said))
    held = dict(held_by(scenario, tmp_path))
    if said["stragglers"] == 0:  # whose delay is nobody's
        assert held.pop("delay")
        del said["delay"]
    assert held == said


def test_stragglers_are_the_last_clients(template: Base) -> None:
    raw = turned(template, {**template.begin, "clients": 28, "stragglers": 7, "delay": WEIBULL})
    delays = [timing.upload_delay for timing in party_timings(load(raw))[1:]]
    assert delays == [Constant(value=0.0)] * 21 + [Weibull(shape=0.7, mean=2.0)] * 7


def test_what_a_moved_knob_replaces_is_named(template: Base) -> None:
    raw = turned(template, {**template.held, "bandwidth": "unlimited", "stragglers": 3})
    assert differences(template, raw) == [
        "timing.clients.1.select",
        "−timing.server.link.up",
        "−timing.server.link.down",
        "−timing.clients.0.link.up",
        "−timing.clients.0.link.down",
    ]


def test_unlike_delays_are_not_held_and_stay_until_a_knob_replaces_them() -> None:
    base = base_of("quickstart")
    assert {*base.unheld} == {"stragglers", "delay"}
    assert base.unheld["delay"] == "the upload delays of clients differ from each other"
    assert "timing.clients.2.upload_delay: {kind: exponential, mean: 2 + 4*i/N}" in base.kept
    raw = turned(base, {**base.held, "t": 5})
    assert raw["timing"] == base.raw["timing"]
    raw = turned(base, {**base.held, "stragglers": 2, "delay": WEIBULL})
    assert raw["timing"]["clients"][1:] == [{"select": "N-1..N", "upload_delay": WEIBULL}]
    assert "−timing.clients.2.upload_delay.mean" in differences(base, raw)


@pytest.mark.parametrize(
    ("timing", "unheld"),
    [
        ({"clients": [{"select": "1..2", "upload_delay": "1 s"}]}, {"stragglers", "delay"}),
        ({"clients": {"upload_delay": {"kind": "sum", "parts": ["1 s", "2 s"]}}}, {"stragglers", "delay"}),
        ({"clients": {"link": {"up": "1 Mbps", "down": "2 Mbps"}}}, {"bandwidth"}),
        ({"server": {"link": {"latency": "1 ms"}}}, {"latency"}),
        ({"clients": {"link": {"latency": {"kind": "exponential", "mean": "1 ms"}}}}, {"latency"}),
        ({"clients": {"compute": "1 ms"}}, set()),
    ],
)
def test_timing_that_a_knob_cannot_say_is_named(
    timing: dict[str, Any], unheld: set[str], template: Base, tmp_path: Path
) -> None:
    base = begun(tmp_path, template, timing=timing)
    assert {*base.unheld} == unheld
    everything = {"stragglers": 1, "delay": "1 s", "bandwidth": "1 Gbps", "latency": "1 ms"}
    assert not base_of_raw(turned(base, everything), tmp_path).unheld


def base_of_raw(raw: dict[str, Any], tmp_path: Path) -> Base:
    file = tmp_path / "again.json"
    file.write_text(json.dumps(raw))
    return base_of(file)


def test_protocols_that_differ_in_a_key_keep_theirs_until_the_knob_moves(template: Base, tmp_path: Path) -> None:
    both = {"few": {"kind": "t_synchronous", "t": 2}, "many": {"kind": "t_synchronous", "t": 6}}
    base = begun(tmp_path, template, protocols=both)
    assert base.unheld["t"] == "the protocols few, many differ in t"
    assert base.unheld["K"] == "no protocol here has a K"
    assert turned(base, base.held)["protocols"] == both
    moved = turned(base, {**base.held, "t": 3})["protocols"]
    assert [entry["t"] for entry in moved.values()] == [3, 3]


def test_a_protocol_whose_batch_is_its_own_gets_the_common_one(template: Base, tmp_path: Path) -> None:
    own = {"a": {"kind": "synchronous", "training": {"batch": 16}}, "b": {"kind": "asynchronous"}}
    base = begun(tmp_path, template, protocols=own)
    assert base.unheld["batch"] == "protocols have batches of their own"
    scenario = load(turned(base, {**base.held, "batch": 32}))
    assert [scenario.training_of(name).batch for name in ("a", "b")] == [32, 32]


def test_more_stragglers_than_clients_are_refused(template: Base) -> None:
    with pytest.raises(ScenarioError, match="9 stragglers of 4 clients") as caught:
        turned(template, {**template.begin, "clients": 4, "stragglers": 9})
    assert (caught.value.where, caught.value.allowed) == ("stragglers", "0 to 4")


def test_a_name_renames_the_scenario(template: Base) -> None:
    assert turned(template, template.begin, "other")["name"] == "other"
