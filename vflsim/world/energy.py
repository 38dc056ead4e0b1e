"""The energy of a run: exact sums of what its parties do, as the time goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vflsim.streams import party_name
from vflsim.timing.party import PartyTiming
from vflsim.timing.power import Power

STATES = ("idle", "compute", "radio")
_MANY = 256
"""Terms of a sum that are kept before they are joined."""


def exact(terms: Iterable[float]) -> list[float]:
    """Return a few floats with the very sum of ``terms``."""
    kept, parts = list(terms), list[float]()
    while part := math.fsum((*kept, *(-part for part in parts))):
        parts.append(part)
    return parts


class Span:
    """How many seconds something has been the case, for one party or for several, summed over these.

    The sum is rounded once, when it is asked for: the order of its beginnings and ends plays no part.
    """

    __slots__ = ("_on", "_terms")

    def __init__(self) -> None:
        self._terms: list[float] = []
        self._on = 0

    def begin(self, now: float) -> None:
        """Note that it begins for a party."""
        self._on += 1
        self._terms.append(-now)
        if len(self._terms) > _MANY:
            self._terms = exact(self._terms)

    def end(self, now: float) -> None:
        """Note that it ends for a party."""
        self._on -= 1
        self._terms.append(now)
        if len(self._terms) > _MANY:
            self._terms = exact(self._terms)

    def extend(self, terms: list[float], on: int) -> None:
        """Note several beginnings (minus their time) and ends (their time), ``on`` more beginnings than ends."""
        self._on += on
        self._terms += terms
        if len(self._terms) > _MANY:
            self._terms = exact(self._terms)

    def seconds(self, now: float) -> float:
        """Return the seconds until ``now``, which is no earlier than any beginning or end."""
        return math.fsum((*self._terms, *[now] * self._on))


class _Drawing:
    """One party: what it does now, and the sums that this counts for. A party that is down draws nothing."""

    def __init__(self, power: Power, shared: Mapping[str, Span]) -> None:
        self.power, self.shared = power, shared
        self.own = {state: Span() for state in STATES}
        self._idle, self._compute, self._radio = ((self.own[state], shared[state]) for state in STATES)
        self._up, self._working, self._on_air = True, 0, 0
        self.bytes = self.flops = 0
        for span in self._idle:
            span.begin(0.0)

    def begin_compute(self, now: float) -> None:
        """Begin a computation."""
        self._working += 1
        if self._up and self._working == 1:
            for span in self._idle:
                span.end(now)
            for span in self._compute:
                span.begin(now)

    def end_compute(self, now: float) -> None:
        """End a computation."""
        self._working -= 1
        if self._up and self._working == 0:
            for span in self._compute:
                span.end(now)
            for span in self._idle:
                span.begin(now)

    def begin_radio(self, now: float) -> None:
        """Begin an upload delay, or a message's way."""
        self._on_air += 1
        if self._up and self._on_air == 1:
            for span in self._radio:
                span.begin(now)

    def end_radio(self, now: float) -> None:
        """End an upload delay, or a message's way."""
        self._on_air -= 1
        if self._up and self._on_air == 0:
            for span in self._radio:
                span.end(now)

    def set_up(self, now: float, up: bool) -> None:
        """Come up or go down."""
        if up != self._up:
            self._up = up
            spans = (self._compute if self._working > 0 else self._idle) + (self._radio if self._on_air > 0 else ())
            for span in spans:
                (span.begin if up else span.end)(now)


class Meter:
    """Sums the energy of the parties that have a ``Power``, while these tell what they begin and end.

    A party draws ``compute`` while it computes, else ``idle``, and ``radio`` besides while it waits for its upload
    delay or a message moves from it or to it; nothing while it is down. Bytes and operations count when their message
    or computation ends, those of one that was cut short as far as it got. All times are seconds since the start.
    """

    def __init__(self, powers: Mapping[int, Power]) -> None:
        self._spans: dict[tuple[str, float], Span] = {}
        """By state and power: the total needs no sum over parties that are alike."""
        self._parties = {party: _Drawing(power, self._shared(power)) for party, power in powers.items()}
        self._amounts: dict[float, int] = {}
        """Bytes and operations, by the joules of each."""

    @classmethod
    def of(cls, timings: Sequence[PartyTiming], parties: Iterable[int]) -> Meter | None:
        """Make the meter of these parties; None if none of them says what it draws."""
        powers = {party: power for party in parties if (power := timings[party].power) is not None}
        return cls(powers) if powers else None

    def _shared(self, power: Power) -> dict[str, Span]:
        powers = zip(STATES, (power.idle, power.computing, power.radio), strict=True)
        return {state: self._spans.setdefault((state, watts), Span()) for state, watts in powers}

    @property
    def parties(self) -> tuple[int, ...]:
        """The parties whose energy is counted."""
        return tuple(self._parties)

    def own(self, party: int, state: str) -> Span:
        """Return how long a party was in a state."""
        return self._parties[party].own[state]

    def shared(self) -> list[tuple[str, list[int], Span]]:
        """Return the sums over parties that draw the same in a state."""
        found: dict[tuple[str, int], tuple[str, list[int], Span]] = {}
        for party, each in self._parties.items():
            for state, span in each.shared.items():
                found.setdefault((state, id(span)), (state, [], span))[1].append(party)
        return [*found.values()]

    def begin_compute(self, party: int, now: float) -> None:
        """Note that a computation begins."""
        if (own := self._parties.get(party)) is not None:
            own.begin_compute(now)

    def end_compute(self, party: int, now: float) -> None:
        """Note that a computation ends."""
        if (own := self._parties.get(party)) is not None:
            own.end_compute(now)

    def power(self, party: int) -> Power | None:
        """Return what a party draws, None if its energy is not counted."""
        own = self._parties.get(party)
        return None if own is None else own.power

    def tally(self, party: int, sent: int = 0, flops: int = 0) -> None:
        """Count bytes and operations for a party alone: ``count`` adds them to the total."""
        own = self._parties[party]
        own.bytes += sent
        own.flops += flops

    def count(self, joules: float, amount: int) -> None:
        """Count bytes or operations of so many ``joules`` each for the total of all parties."""
        self._amounts[joules] = self._amounts.get(joules, 0) + amount

    def counts_flops(self, party: int) -> bool:
        """Whether the operations of a party have an energy."""
        return (own := self._parties.get(party)) is not None and own.power.per_flop > 0

    def performed(self, party: int, flops: int) -> None:
        """Count operations of a party whose operations have an energy."""
        own = self._parties[party]
        own.flops += flops
        self.count(own.power.per_flop, flops)

    def begin_transfer(self, sender: int, receiver: int, now: float) -> None:
        """Note that a message begins to move."""
        for party in (sender, receiver):
            if (own := self._parties.get(party)) is not None:
                own.begin_radio(now)

    def end_transfer(self, sender: int, receiver: int, now: float, sent: int) -> None:
        """Note that a message ends to move, after ``sent`` bytes."""
        for party in (sender, receiver):
            if (own := self._parties.get(party)) is not None:
                own.end_radio(now)
                if own.power.per_byte:
                    own.bytes += sent
                    self.count(own.power.per_byte, sent)

    def begin_radio(self, party: int, now: float) -> None:
        """Note that an upload delay begins: the radio is on."""
        if (own := self._parties.get(party)) is not None:
            own.begin_radio(now)

    def end_radio(self, party: int, now: float) -> None:
        """Note that an upload delay ends."""
        if (own := self._parties.get(party)) is not None:
            own.end_radio(now)

    def set_up(self, party: int, now: float, up: bool) -> None:
        """Note that a party comes up or goes down."""
        if (own := self._parties.get(party)) is not None:
            own.set_up(now, up)

    def joules(self, now: float) -> float:
        """Return the energy of all parties until ``now``, which is no earlier than anything noted."""
        powers = (watts * span.seconds(now) for (_, watts), span in self._spans.items() if watts)
        return math.fsum((*powers, *(joules * amount for joules, amount in self._amounts.items())))

    def by_party(self, now: float) -> dict[str, list[Any]]:
        """Return the columns of the table of energy by party and state until ``now``.

        ``amount`` has bytes (radio) or operations (compute), where these have an energy ``joules_each``.
        """
        columns: dict[str, list[Any]] = {name: [] for name in BY_PARTY}
        for party, own in self._parties.items():
            power = own.power
            each = {
                "idle": (power.idle, 0.0, 0),
                "compute": (power.computing, power.per_flop, own.flops),
                "radio": (power.radio, power.per_byte, own.bytes),
            }
            for state, (watts, joules, amount) in each.items():
                seconds = own.own[state].seconds(now)
                total = math.fsum((watts * seconds, joules * amount))
                row = party_name(party), state, seconds, watts, amount, joules, total
                for name, value in zip(BY_PARTY, row, strict=True):
                    columns[name].append(value)
        return columns


BY_PARTY = ("party", "state", "seconds", "watts", "amount", "joules_each", "joules")
"""The columns of the table of energy by party and state."""
