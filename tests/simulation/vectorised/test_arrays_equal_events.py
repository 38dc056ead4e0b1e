"""Arrays leave the very bytes of events: rounds, metrics, energy and facts, for every protocol in every world."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from both_paths import assert_same_bytes, quick
from outside_worlds import PATHS, SECTIONS, entry
from protocols_by_kind import KEYS, KINDS
from thorough import in_turn, is_thorough
from tiny_worlds import data_of
from worlds_by_name import DELAYS, WORLDS

from vflsim.errors import ScenarioError
from vflsim.protocols.secureboost import SecureBoost
from vflsim.recurrences import stages
from vflsim.scenario.models import Scenario
from vflsim.simulation.vectorised import UndecidedError, obstacles, run as vectorised, run_vectorised
from vflsim.timing.delays import DELAYS as DELAY_KINDS

PROTOCOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **{name: (said, {}) for name, said in {**KINDS, **KEYS}.items()},
    "first": ({"kind": "module", "path": "outside_protocols.first:First"}, {}),
    **{kind: (entry(kind), SECTIONS[kind]) for kind in PATHS},
}
"""Entries of a scenario, and what else it says: of every kind, and three from outside without a line for arrays."""
EVENTS_ALONE = {
    "t-synchronous-bounded": "max_staleness",
    "asynchronous-bounded": "max_staleness",
    "fedvs-partial": "sharers",
    "ignore-blinded": "blinding",
}
"""Protocols that arrays never know, and the key that is the reason."""
TREES = SecureBoost.model_fields["trees"].default
"""The rounds after which ``secureboost`` ends by itself, which arrays know of no run."""
UNTRACED = {
    "few_shot": "the server ends a round before it begins to repeat itself",
    "flex_vfl": "a client reads the clock",
    "pubsub_vfl": "a client looks which 'gradient' messages are here",
    "pubsub_vfl-late": "a client looks which 'gradient' messages are here",
}
"""Protocols whose rounds no trace shows, since they depend on times or are not alike, and the reason."""
ON_ARRAYS = [name for name in PROTOCOLS if name not in {*EVENTS_ALONE, *UNTRACED}]
CASES = [
    pytest.param(name, world, id=f"{name}-{world}")
    for (p, name), (w, world) in product(enumerate(ON_ARRAYS), enumerate(WORLDS))
    if is_thorough() or (4 * p + w) % 11 == 0
]
"""Every protocol in every eleventh world, and every world with every eleventh protocol; ``--thorough``: all."""
NEEDS = {
    **dict.fromkeys(["few active", "activations in a queue", "activations by a schedule"], "activation"),
    **dict.fromkeys(["pauses", "a pause a day", "one is repaired"], "availability"),
    **dict.fromkeys(["energy", "energy of some"], "power"),
}
PASSING_OVER = {"activation", "availability", "power"}
LACKS: dict[str, set[str]] = {
    "fedvs": {"availability", "power"},
    **dict.fromkeys(["ignore-fastest", "ignore-deadline", "laser_vfl", "laser_vfl-fastest"], PASSING_OVER),
    **dict.fromkeys(["t-synchronous-cancel", "t-synchronous-cancel-upload"], PASSING_OVER),
}
"""What worlds need and protocols lack: where others need not wait for a client, or its work is abandoned."""
INTEGERS = {"two sizes of batches", "codecs both ways", "local steps", "two sizes on shared links"}
"""Worlds with models or codecs that coded protocols refuse."""
OVERTAKEN = {"ignore-fastest", "ignore-deadline", "laser_vfl", "laser_vfl-fastest"}
"""Where latencies that are drawn let one gradient overtake another, which arrays do not decide."""
ON_THE_WAY = {"exponential delays", "hyper_exponential delays", "mixture delays"}
"""Worlds in which one gradient overtakes another."""
SHARED = {world for world in WORLDS if "shared links" in world}
"""Worlds in which messages share the server's link."""
UNSHARED = ("fedvs", "t-synchronous-cancel", "ignore-fastest", "ignore-deadline", "bs_vfl")
"""Beginnings of the names of protocols that have a recurrence of their own, without shared links."""
STOPS = {"two rules at one instant", "one rule just before", "an update in a round"}
SECONDS = {"whole seconds", *STOPS, *(world for world in WORLDS if world.startswith("an end at"))}
SERVER_ALONE = {"only the server", "only the server, in time"}
UNDECIDED: dict[str, set[str]] = {
    **{key: {"whole seconds", "one rule just before", *ON_THE_WAY} for key in ["ignore-fastest", "laser_vfl-fastest"]},
    **{key: {"one rule just before", "ties", *ON_THE_WAY} for key in ["ignore-deadline", "laser_vfl"]},
    "t-synchronous": {"an update in a round"},
    "t-synchronous-upload": {"whole seconds"},
    **dict.fromkeys(["t-synchronous-cancel", "t-synchronous-cancel-upload"], SECONDS),
    **{key: {*STOPS, "ties"} for key in ["asynchronous", "asynchronous-own", "asynchronous-upload"]},
    **{key: {*STOPS, "ties"} for key in ["czofo", "czofo-weights", "dpzv"]},
    **dict.fromkeys(["fedvs", "fedvs-delay"], SECONDS | SERVER_ALONE),
    "fedvs-finished": {"whole seconds", *SERVER_ALONE},
    **{
        key: {"pauses", "a pause a day", "one is repaired"} for key in ["fedbcd-sequential", "fedbcd-server-sequential"]
    },
    "bs_vfl": {
        *SECONDS,
        *("two sizes of batches", "last batches dropped", "one batch", "rows drawn"),
        *("constant delays", "mixture delays", "empirical delays"),
    },
    "celu_vfl": {"ties", *SERVER_ALONE},
    "celu_vfl-often": {*SECONDS, "ties", *SERVER_ALONE, "constant delays"},
    "first": {"few active", "activations in a queue", "activations by a schedule"},
}
"""Where things coincide in a way that the event path alone tells apart, or rounds begin without an activation."""


def scenario(name: str, world: str, **changes: Any) -> Scenario:
    said, its = PROTOCOLS[name]
    return quick(said, **{**its, **WORLDS[world], **changes})


def found(name: str, world: str) -> str:
    """Whether both paths leave the ``same`` bytes, or else why not."""
    try:
        made = scenario(name, world)
    except ScenarioError:
        return "refused"
    if problems := obstacles(made, "it"):
        return problems[-1].key.rpartition(".")[2]
    try:
        outcome = assert_same_bytes(made)
    except UndecidedError:
        return "undecided"
    if world == "local steps" and PROTOCOLS[name][0].get("local_steps", 1) != 1:
        assert outcome.info.counts["updates"] > outcome.info.counts["rounds"]
    return "same"


def expected(name: str, world: str) -> str:
    coded = name.startswith("fedvs")
    if coded and world in INTEGERS:
        return "refused"
    if name.startswith("secureboost") and world in {"codecs both ways", "local steps"}:
        return "refused"
    if name.startswith("he_lr") and world in ("codecs both ways", "local steps"):
        return "refused"
    if name.startswith("secureboost") and (scenario(name, world).stop_of("it").rounds or math.inf) > TREES:
        return "rounds"
    if world in SHARED and (name.startswith(UNSHARED) or name in {"laser_vfl", "laser_vfl-fastest"}):
        return "network"
    if (key := NEEDS.get(world)) and key in LACKS.get("fedvs" if coded else name, set()):
        return key
    return "undecided" if world in UNDECIDED.get(name, set()) else "same"


@pytest.mark.sampled(32)
@pytest.mark.parametrize(("name", "world"), CASES)
def test_every_protocol_leaves_the_same_bytes_in_every_world(name: str, world: str) -> None:
    assert found(name, world) == expected(name, world)


def test_every_kind_of_delay_that_is_drawn_by_index_has_a_world() -> None:
    assert {kind.model_fields["kind"].default for kind in DELAY_KINDS if not kind.in_time} == set(DELAYS)


@pytest.mark.parametrize("name", EVENTS_ALONE)
def test_what_arrays_never_know_is_an_obstacle(name: str) -> None:
    assert [each.key for each in obstacles(scenario(name, "rounds"), "it")] == [f"protocols.it.{EVENTS_ALONE[name]}"]


@pytest.mark.parametrize("name", UNTRACED)
def test_rounds_that_no_trace_shows_are_left_to_events(name: str) -> None:
    made = scenario(name, "rounds")
    outcome = run_vectorised(made, "it", 0, data_of(made))
    assert isinstance(outcome.error, UndecidedError)
    assert UNTRACED[name] in str(outcome.error)


ALONE = [
    name
    for name, (said, its) in PROTOCOLS.items()
    if name in ON_ARRAYS and not its and "exclude" not in said and not {"fedvs", "easter"} & {said["kind"]}
    and said.get("blinding") != "on"
]  # fmt: skip
"""Protocols that may have a single client: shares and masks need more."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", ALONE)
def test_so_does_every_protocol_with_one_client(name: str) -> None:
    said, _ = PROTOCOLS[name]
    said = said | {key: 1 for key in ("t", "fastest") if key in said}
    said |= {"local_steps": [4, 2]} if name.startswith("flex") else {}
    delay = {"kind": "exponential", "mean": "3 ms"}
    timing = {"server": {"compute": "1 ms"}, "clients": {"select": "all", "compute": delay, "upload_delay": delay}}
    assert_same_bytes(quick(said, timing=timing, partition={"clients": 1, "by": "columns"}, stop={"rounds": 90}))


@pytest.mark.sampled(8)
@in_turn(
    name=[name for name in ON_ARRAYS if not name.startswith(("fedvs", "secureboost"))],
    stop={
        "few": {"rounds": 10},
        "many": {"rounds": 130},
        "time": {"time": "3 s"},
        "updates": {"updates": 77, "rounds": 130},
    },
)
def test_very_many_clients_go_through_parts_of_a_block(
    name: str, stop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With clients that count as very many: eight rounds at a time, and short windows of draws."""
    monkeypatch.setattr(vectorised, "WIDE", 2)
    monkeypatch.setattr(stages, "WIDE", 2)
    random = {"kind": "exponential", "mean": "(5*m) ms"}
    everybody = {"select": "all", "compute": random, "upload_delay": random, "link": {"latency": random}}
    timing = {"server": {"compute": {"kind": "uniform", "low": "1 ms", "high": "2 ms"}}, "clients": everybody}
    with suppress(*([UndecidedError] if name in OVERTAKEN else [])):
        assert_same_bytes(scenario(name, "rounds", timing=timing, stop=stop, evaluate={"every": "7 rounds"}))
