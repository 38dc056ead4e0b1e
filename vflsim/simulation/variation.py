"""What laws of delays say of a run, for run.json: how its rounds vary, and its delay of the heaviest tail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.intervals import CYCLES, MOST_ROUNDS, PERIODS, SKEWED, Variation
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import closed_forms_of
from vflsim.results.facts import HeavyTail
from vflsim.results.store.pages import RunInfo
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import party_timings, setting
from vflsim.setting import Setting
from vflsim.streams import SERVER, few, party_name
from vflsim.timing.compute import law
from vflsim.timing.delays.base import Delay
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import skewness, tail_share
from vflsim.timing.party import Cycle, PartyTiming, by_timing, cycles_of, delays_of, sort_of, work_of

MOST_CLIENTS = 2_000
"""Most clients for which the law of a round is computed to see how its tail is."""
FEW = 200
"""Rounds that need no mention: intervals from within a run need about as many in any case."""


def variation_of(protocol: Protocol, setting: Setting) -> Variation | None:
    """Return what is known of the rounds' variation; None if nothing is slow or heavy-tailed."""
    firsts = [parties[0] for parties in by_timing(setting.timings, _parties(protocol, setting))]
    sorts: dict[object, int] = {}
    for party in firsts:
        sorts.setdefault(sort_of(setting.timings[party]), party)
    slow = [
        Variation(cycle_s=cycle.seconds, cycle=f"{party_name(party)}'s {cycle.key}", cycles=_times(cycle))
        for party in sorts.values()
        for cycle in cycles_of(setting.timings[party])
        if 0 < cycle.seconds < math.inf
    ]
    slowest = max(slow, key=lambda each: each.needed_s, default=Variation())
    heavy = list(_heavy_delays(protocol, setting))
    rounds, skewed = _skewed(setting, firsts)
    needed = _rounds_of_law(protocol, setting) if heavy or rounds > FEW else None
    if needed is not None:
        heavy, rounds, skewed = [], needed, "the law of a round"
    if not slow and not heavy and rounds <= FEW:
        return None
    known = {"rounds": rounds, "skewed": skewed} if rounds > FEW and not heavy else {}
    return slowest.model_copy(update={"heavy": few(heavy), **known} if heavy else known)


def _times(cycle: Cycle) -> int:
    return PERIODS if cycle.regular else CYCLES


def _parties(protocol: Protocol, setting: Setting) -> tuple[int, ...]:
    return (SERVER,) if protocol.traits.reference else (SERVER, *setting.clients)


def _heavy_delays(protocol: Protocol, setting: Setting) -> Iterator[str]:
    known: dict[int, list[str]] = {}  # by the timing, which lives as long as the setting
    for party in _parties(protocol, setting):
        timing = setting.timings[party]
        if id(timing) not in known:
            infinite = [(key, delay) for key, delay in delays_of(timing) if math.isinf(delay.variance())]
            known[id(timing)] = [f"'s {key} ({delay.kind})" for key, delay in infinite]
        if whats := known[id(timing)]:
            yield from (party_name(party) + what for what in whats)


def _skewed(setting: Setting, parties: Iterable[int]) -> tuple[int, str]:
    """Return how many rounds the most skewed delay of the parties' work needs, and whose it is."""
    delays: dict[int, tuple[Delay, int, str]] = {}  # by identity: an own delay may have fields without a hash
    for party in parties:
        for key, delay in work_of(setting.timings[party]):
            delays.setdefault(id(delay), (delay, party, key))
    most, whose = 0, ""
    for delay, party, key in delays.values():
        needed = _needed(delay)
        if needed > most or not whose:
            most, whose = needed, f"{party_name(party)}'s {key} ({delay.kind})"
    return most, whose


def _needed(delay: Delay) -> int:
    """Return ``rounds_for`` a delay. Skewness does not depend on the scale: many delays have one standard law."""
    try:
        return _remembered(delay.standard)
    except TypeError:  # not to be hashed
        return rounds_for(delay)


@lru_cache(maxsize=4096)
def _remembered(law: Law) -> int:
    return rounds_for(law)


def rounds_for(law: Law) -> int:
    """Return how many rounds of this law a mean needs before its interval can be trusted: 25 × the squared skewness."""
    skewed = max(0.0, skewness(law))
    return int(min(MOST_ROUNDS, math.ceil(SKEWED * skewed * skewed))) if math.isfinite(skewed) else MOST_ROUNDS


def _rounds_of_law(protocol: Protocol, setting: Setting) -> int | None:
    """Return how many rounds the law of a round needs; None if none is known, or none with a finite variance.

    The t-th order statistic of heavy-tailed delays may be light.
    """
    if len(setting.clients) > MOST_CLIENTS:
        return None
    try:
        findings = closed_forms_of(protocol, setting)
        rounds = [each for each in findings if isinstance(each, ClosedForm) and each.name == ROUND]
        laws = [law for each in rounds for law in (each.law, each.slower) if law is not None]
        finite = bool(laws) and all(math.isfinite(law.variance()) for law in laws)
        return max(map(rounds_for, laws)) if finite else None
    except Exception:  # no closed form, or none whose numbers can be computed: nothing speaks for a light tail
        return None


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
        return _share_of(delay.standard, float(f"{draws:.2g}"))  # a share does not depend on the scale
    except TypeError:  # not to be hashed
        return tail_share(delay, draws)


@lru_cache(maxsize=4096)  # the runs of a study have the same delays, and about as many rounds
def _share_of(delay: Law, draws: float) -> float:
    return tail_share(delay, draws)


def _delays(timing: PartyTiming) -> Iterator[tuple[str, Delay]]:
    yield "upload delay", timing.upload_delay
    yield "compute time", law(timing.compute)
    yield "latency", timing.link.latency


def with_facts_of_laws(info: RunInfo, metrics: pa.Table, scenario: Scenario, data: LoadedData) -> RunInfo:
    """Return a run's facts with its delay of the heaviest tail, and how its rounds vary."""
    seconds = metrics.column("time_s")[-1].as_py() if metrics.num_rows else 0.0
    variation = variation_of(scenario.protocols[info.protocol].protocol, setting(scenario, info.protocol, data))
    tail = heaviest(party_timings(scenario), info.participants, info.counts["rounds"], seconds)
    return info.model_copy(update={"heavy_tail": tail, "variation": variation})
