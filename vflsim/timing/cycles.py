"""The cycle times of a party's timing: states of bursts, times up and down, periods of traces and rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vflsim.timing.activation import Immediate
from vflsim.timing.availability import Alternating, Always
from vflsim.timing.base import Delay
from vflsim.timing.capacity import capacity_profile
from vflsim.timing.compute import law
from vflsim.timing.party import PartyTiming


def work_of(timing: PartyTiming) -> Iterator[tuple[str, Delay]]:
    """Yield the times of a party's work and messages, by their keys."""
    yield "compute", law(timing.compute)
    yield "upload_delay", timing.upload_delay
    yield "link.latency", timing.link.latency


def delays_of(timing: PartyTiming) -> Iterator[tuple[str, Delay]]:
    """Yield, by key, the delays that a party draws repeatedly: times of its work, and times up and down."""
    yield from work_of(timing)
    if isinstance(timing.availability, Alternating):
        yield "availability.up", timing.availability.up
        yield "availability.down", timing.availability.down


@dataclass(frozen=True)
class Cycle:
    """A cycle in a party's timing, by its key: its mean duration (s), and whether it is a fixed period."""

    key: str
    seconds: float
    regular: bool


def sort_of(timing: PartyTiming) -> tuple[object, ...]:
    """Return a key that is equal for timings with the same cycles, if both are there at the same time."""
    own = law(timing.compute).cycle_s, timing.upload_delay.cycle_s
    return *own, id(timing.link), id(timing.availability), id(timing.activation)


def cycles_of(timing: PartyTiming) -> Iterator[Cycle]:
    """Yield the cycles in a party's timing; the duration is 0 s for keys without a cycle."""
    for key, delay in delays_of(timing):
        yield Cycle(key, delay.cycle_s, regular=False)
    for key, capacity in (("link.up", timing.link.up), ("link.down", timing.link.down)):
        yield Cycle(key, capacity_profile(capacity).cycle_s, regular=True)
    if not isinstance(timing.availability, Always):
        yield Cycle("availability", timing.availability.cycle_s, timing.availability.regular)
    if not isinstance(timing.activation, Immediate):
        yield Cycle("activation", timing.activation.cycle_s, regular=True)
