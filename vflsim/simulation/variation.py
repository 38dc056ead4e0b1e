"""Find what a setting says of how rounds vary: its slowest change, and times without a finite variance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.intervals.steady import CYCLES, MOST_ROUNDS, PERIODS, SKEWED, Variation
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import closed_forms_of
from vflsim.setting import Setting
from vflsim.streams import SERVER, few, party_name
from vflsim.timing.delays.base import Delay
from vflsim.timing.laws.law import Law
from vflsim.timing.laws.order import skewness
from vflsim.timing.party import Cycle, by_timing, cycles_of, delays_of, sort_of, work_of

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
