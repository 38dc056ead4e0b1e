"""Find what a setting says of how rounds vary: its slowest change, and times without a finite variance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from vflsim.analysis.findings import ClosedForm
from vflsim.analysis.rounds import ROUND
from vflsim.protocols.base import Protocol
from vflsim.results.variation import CYCLES, PERIODS, Variation
from vflsim.setting import Setting
from vflsim.streams import SERVER, few, party_name
from vflsim.timing.cycles import Cycle, cycles_of, delays_of

MOST_CLIENTS = 2_000
"""Most clients for which the law of a round is computed to see whether its variance is finite."""


def variation_of(protocol: Protocol, setting: Setting) -> Variation | None:
    """Return what is known of the rounds' variation; None if nothing is slow or heavy-tailed."""
    slow = [
        Variation(cycle_s=cycle.seconds, cycle=f"{party_name(party)}'s {cycle.key}", cycles=_times(cycle))
        for party in _parties(protocol, setting)
        for cycle in cycles_of(setting.timings[party])
        if 0 < cycle.seconds < math.inf
    ]
    slowest = max(slow, key=lambda each: each.needed_s, default=Variation())
    heavy = list(_heavy_delays(protocol, setting))
    if heavy and _round_is_light(protocol, setting):
        heavy = []
    if not slow and not heavy:
        return None
    return slowest.model_copy(update={"heavy": few(heavy)}) if heavy else slowest


def _times(cycle: Cycle) -> int:
    return PERIODS if cycle.regular else CYCLES


def _parties(protocol: Protocol, setting: Setting) -> tuple[int, ...]:
    return (SERVER,) if protocol.clients_at_server else (SERVER, *setting.clients)


def _heavy_delays(protocol: Protocol, setting: Setting) -> Iterator[str]:
    for party in _parties(protocol, setting):
        for key, delay in delays_of(setting.timings[party]):
            if math.isinf(delay.variance()):
                yield f"{party_name(party)}'s {key} ({delay.kind})"


def _round_is_light(protocol: Protocol, setting: Setting) -> bool:
    """Return whether the law of a round is known and its variance is finite, such as that of an order statistic."""
    if len(setting.clients) > MOST_CLIENTS:
        return False
    try:
        findings = protocol.closed_forms(setting)
        rounds = [each for each in findings if isinstance(each, ClosedForm) and each.name == ROUND]
        laws = [law for each in rounds for law in (each.law, each.slower) if law is not None]
        return bool(laws) and all(math.isfinite(law.variance()) for law in laws)
    except Exception:  # no closed form, or none whose numbers can be computed: nothing speaks for a finite variance
        return False
