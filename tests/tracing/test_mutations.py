"""A trace in which one fact is wrong leaves other rounds than events do: comparisons of the two would find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from both_paths import quick
from protocols_by_kind import KEYS, KINDS
from tiny_worlds import data_of

from vflsim.errors import VflsimError
from vflsim.recurrences import world
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import run_vectorised
from vflsim.tracing.acts import (
    Act,
    Acts,
    ClientDelay,
    ClientSleep,
    ClientWork,
    InTurn,
    ServerWork,
    ToClients,
    ToServer,
)
from vflsim.tracing.trace import RoundTrace, trace

DRAWN = {"kind": "exponential", "mean": "3 ms"}
LINK = {"up": "3 Mbps", "down": "5 Mbps", "latency": DRAWN}
CLIENTS = [
    {"select": "all", "compute": DRAWN, "link": LINK, "activation": {"kind": "poisson", "rate": "200 /s"}},
    {"select": "all", "upload_delay": {"kind": "exponential", "mean": "(2*m) ms"}},
]
SERVERS = [
    {"compute": {"kind": "exponential", "mean": mean}, "link": {**LINK, "up": "4 Mbps"}}
    for mean in ("3 ms", "20 ms", "20 s")
]
"""Quick ones, and one for which clients wait: everything that a party does takes a time of its own."""
TRACED = [
    "synchronous", "ignore-exclude", "pyvertical", "agg_vfl", "easter", "fedbcd", "fedbcd-server", "fedbcd-sequential",
    "c_vfl-steps", "ef_vfl", "ef_vfl-private-steps", "vimsgd", "vimadmm", "vimadmm_j", "fdml", "secureboost", "he_lr",
]  # fmt: skip
HIDDEN = {"he_lr": {"8 ServerWork is missing", "8 ServerWork is done twice"}}
"""The server's own ciphertexts, which take fixed seconds, fewer than those of clients for which it then waits."""
TIMED = ClientWork | ServerWork | ClientDelay | ClientSleep | ToServer | ToClients


def mutants(acts: Acts) -> Iterator[tuple[str, Acts]]:
    """Yield the acts of a round with one fact changed: an act that is missing or done twice, two in another order."""
    for place, act in enumerate(acts):
        name = f"{place} {type(act).__name__}"
        if takes_no_time(act):
            continue
        yield f"{name} is missing", acts[:place] + acts[place + 1 :]
        if isinstance(act, TIMED):
            yield f"{name} is done twice", acts[: place + 1] + acts[place:]
        if isinstance(act, InTurn):
            yield from (
                (f"{name}: {what}", _with(acts, place, replace(act, acts=inner)))
                for what, inner in mutants(act.acts)
                if "change" not in what
            )  # a turn is a chain
        if isinstance(act, ClientDelay):
            yield f"{name} has half the factor", _with(acts, place, replace(act, factor=act.factor / 2))
    for place, (one, other) in enumerate(pairwise(acts)):
        if type(one) is not type(other) and of_server(one) == of_server(other) and not takes_no_time(one, other):
            name = f"{place} {type(one).__name__}, {type(other).__name__}"
            yield f"{name} change places", (*acts[:place], other, one, *acts[place + 2 :])


def takes_no_time(*acts: Act) -> bool:
    return any(isinstance(act, ServerWork) and act.operation.units == 0 for act in acts)


def of_server(act: Act) -> bool:
    return isinstance(act, ServerWork | ToClients) or type(act).__name__ in {"ServerWaits", "InTurn"}


def _with(acts: Acts, place: int, act: Act) -> Acts:
    return (*acts[:place], act, *acts[place + 1 :])


def left_by(run: Callable[[], Outcome]) -> object:
    """What a run leaves, or the reason why it leaves nothing."""
    try:
        outcome = run()
    except (VflsimError, AssertionError, LookupError, ValueError, TypeError) as error:
        return repr(error)
    return repr(outcome.error) if outcome.error else (outcome.tables.rounds.to_pydict(), outcome.info.counts)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRACED)
def test_a_wrong_fact_leaves_other_rounds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[RoundTrace] = []
    changed = ""

    def tracing(*said: Any, **more: Any) -> RoundTrace:
        found.append(right := trace(*said, **more))
        if not changed:
            return right
        return replace(right, round={who: dict(mutants(acts)).get(changed, acts) for who, acts in right.round.items()})

    monkeypatch.setattr(world, "trace", tracing)
    survivors: dict[str, None] | None = None
    for server in SERVERS:
        scenario = quick({**KINDS, **KEYS}[name], timing={"server": server, "clients": CLIENTS}, stop={"rounds": 12})
        data, changed = data_of(scenario, "it"), ""
        by_arrays = partial(run_vectorised, scenario, "it", 0, data)
        events = left_by(partial(run_protocol, scenario, "it", 0, data, timing_only=True))
        assert left_by(by_arrays) == events
        alive = {}
        for changed in survivors if survivors is not None else dict(mutants(next(iter(found[0].round.values())))):
            if left_by(by_arrays) == events:
                alive[changed] = None
        survivors = alive
    assert {*(survivors or ())} == HIDDEN.get(name, set())
