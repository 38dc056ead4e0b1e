"""The timing of one party: its computation, link, delays, activations and availability."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, final

from pydantic import model_validator

from vflsim.timing.activation import AnyActivation, Immediate
from vflsim.timing.availability import Alternating, Always, AnyAvailability
from vflsim.timing.capacity import Link, capacity_profile
from vflsim.timing.compute import AnyCompute, law
from vflsim.timing.delays import AnyDelay, Constant
from vflsim.timing.delays.base import Delay
from vflsim.vocabulary import Joules, Part, Watts


@final
class Power(Part):
    """The power that a party draws by what it does, and the energy of each byte and each operation; all add up.

    Examples: ``{idle: 2 W, compute: 6 W, radio: 1.2 W}``, ``{per_byte: 0.1 uJ, per_flop: 50 pJ}``
    """

    idle: Watts = 0.0
    """What it draws while it is up and does not compute."""
    compute: Watts | None = None
    """All that it draws, but for the radio, while it computes; by default as much as idle."""
    radio: Watts = 0.0
    """What it draws besides while a message moves from it or to it, and in its upload delays."""
    per_byte: Joules = 0.0
    """The energy of each byte that it sends or receives."""
    per_flop: Joules = 0.0
    """The energy of each floating-point operation that it performs."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("no power and no energy is named; allowed: any of its keys; name one, or leave it out")
        if self.compute is not None and self.compute < self.idle:
            raise ValueError(
                f"a party draws {self.compute:g} W while it computes, and {self.idle:g} W while it does not; allowed: "
                "compute from idle on; compute is the whole power, not what computing adds"
            )
        return self

    @property
    def computing(self) -> float:
        """The power while it computes, without the radio."""
        return self.idle if self.compute is None else self.compute


def by_timing(timings: Sequence[PartyTiming], parties: Iterable[int]) -> list[list[int]]:
    """Return the parties by timing, in the order of the first of each; alike parties share one timing object."""
    groups: dict[int, list[int]] = {}
    for party in parties:
        groups.setdefault(id(timings[party]), []).append(party)
    return list(groups.values())


class PartyTiming(Part):
    """The speed of one party, with every formula evaluated. Omitted activities take no time."""

    compute: AnyCompute = Constant(value=0.0)
    link: Link = Link()
    upload_delay: AnyDelay = Constant(value=0.0)
    activation: AnyActivation = Immediate()
    availability: AnyAvailability = Always()
    power: Power | None = None
    concurrency: int | None = None
    """The most messages that move from and to the party at a time; of the server alone."""

    def refined(self, by: Part, links: dict[tuple[int, int], Link] | None = None) -> PartyTiming:
        """Replace the fields that ``by``, a part with some of these fields, sets; refine the link key by key.

        ``links``: those that are already refined, by the identity of both; equal links of many parties stay one object.
        """
        values = {key: value for key in by.model_fields_set if (value := getattr(by, key)) is not None}
        if (link := values.get("link")) is not None:
            known, key = {} if links is None else links, (id(self.link), id(link))
            if key not in known:
                known[key] = self.link.model_copy(update={key: getattr(link, key) for key in link.model_fields_set})
            values["link"] = known[key]
        return self.changed(values)


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
    cycles = law(timing.compute).cycle_s, timing.upload_delay.cycle_s
    return *cycles, id(timing.link), id(timing.availability), id(timing.activation)


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
