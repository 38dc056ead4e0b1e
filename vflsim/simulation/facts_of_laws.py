"""What laws of delays say of a run, for ``run.json``; the simulation does without."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from vflsim.learning.data.loaded import LoadedData
from vflsim.results.facts import HeavyTail
from vflsim.results.store.schema import RunInfo
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings, setting
from vflsim.simulation.run import Outcome
from vflsim.simulation.variation import variation_of
from vflsim.timing.compute import law
from vflsim.timing.delays.base import Delay
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import tail_share
from vflsim.timing.party import PartyTiming, by_timing


def heaviest(
    timings: Sequence[PartyTiming], participants: Sequence[int], rounds: int, seconds: float
) -> HeavyTail | None:
    """Find the delay of the participants (from 1) with the largest share of variance in one of ``rounds`` draws.

    Bursts count by their cycles within so many ``seconds``, if those are fewer. None without rounds, or if no delay
    varies. ``timings`` are those of the server (0) and of all clients.
    """
    if not rounds:
        return None
    owners: dict[tuple[str, int], list[int]] = {}  # by identity: an own delay may have fields without a hash
    delays: dict[tuple[str, int], Delay] = {}
    for clients in by_timing(timings, participants):
        for activity, delay in _delays(timings[clients[0]]):
            owners.setdefault((activity, id(delay)), []).extend(clients)
            delays[activity, id(delay)] = delay
    shares = {key: _share(delay, _draws(delay, rounds, seconds)) for key, delay in delays.items()}
    worst = max(shares, key=lambda key: shares[key], default=None)
    if worst is None or shares[worst] <= 0:
        return None
    activity, delay = worst[0], delays[worst]
    alike = [key for key, share in shares.items() if key[0] == activity and math.isclose(share, shares[worst])]
    return HeavyTail(
        activity=activity,
        kind=delay.kind,
        draws=_draws(delay, rounds, seconds),
        clients=tuple(sorted(client for key in alike for client in owners[key])),
        share=round(shares[worst], 6),
        infinite=math.isinf(delay.variance()),
    )


def _draws(delay: Delay, rounds: int, seconds: float) -> float:
    return min(rounds, seconds / delay.cycle_s) if delay.cycle_s > 0 else rounds


def _share(delay: Delay, draws: float) -> float:
    try:
        return _remembered(delay.standard, float(f"{draws:.2g}"))  # a share does not depend on the scale
    except TypeError:  # not to be hashed
        return tail_share(delay, draws)


@lru_cache(maxsize=4096)  # the runs of a study have the same delays, and about as many rounds
def _remembered(delay: Law, draws: float) -> float:
    return tail_share(delay, draws)


def _delays(timing: PartyTiming) -> Iterator[tuple[str, Delay]]:
    yield "upload delay", timing.upload_delay
    yield "compute time", law(timing.compute)
    yield "latency", timing.link.latency


def with_facts_of_laws(outcome: Outcome, scenario: Scenario, data: LoadedData) -> RunInfo:
    """Return the run's facts with its delay of the heaviest tail, and how its rounds vary."""
    info, metrics = outcome.info, outcome.tables.metrics
    seconds = metrics.column("time_s")[-1].as_py() if metrics.num_rows else 0.0
    variation = variation_of(scenario.protocols[info.protocol].protocol, setting(scenario, info.protocol, data))
    tail = heaviest(party_timings(scenario), info.participants, info.counts["rounds"], seconds)
    return info.model_copy(update={"heavy_tail": tail, "variation": variation})
