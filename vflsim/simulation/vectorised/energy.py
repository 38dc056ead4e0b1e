"""The energy of a run from arrays of what parties do: the meter's sums, of the same times, in another order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import Chunk, Stretches
from vflsim.recurrences.errors import undecided
from vflsim.recurrences.stages import Ints
from vflsim.setting import Setting
from vflsim.simulation.vectorised.amounts import Amounts, Asked
from vflsim.simulation.vectorised.ends import End
from vflsim.streams import SERVER
from vflsim.timing.base import Floats
from vflsim.world.energy import Meter, Span


@final
@dataclass(frozen=True, slots=True)
class _Terms:
    """Beginnings and ends of a state: times, whether it ends (1) or begins (-1), and the parties' numbers, (n,)."""

    times: Floats
    signs: Ints
    parties: Ints

    @classmethod
    def of(cls, *parts: tuple[Floats, int, Ints]) -> _Terms:
        """Join times of one sign each."""
        signs = [np.full(len(times), sign) for times, sign, _ in parts]
        return cls(
            np.concatenate([part[0] for part in parts]),
            np.concatenate(signs),
            np.concatenate([part[2] for part in parts]),
        )

    def only(self, chosen: NDArray[Any] | slice) -> _Terms:
        """Select some."""
        return _Terms(self.times[chosen], self.signs[chosen], self.parties[chosen])

    def and_then(self, later: _Terms) -> _Terms:
        """Return these and ``later``."""
        pairs = zip((self.times, self.signs, self.parties), (later.times, later.signs, later.parties), strict=True)
        return _Terms(*(np.concatenate(pair) for pair in pairs))

    def reversed(self) -> _Terms:
        """Return the beginnings and ends of the opposite state."""
        return _Terms(self.times, -self.signs, self.parties)

    def tell(self, span: Span) -> None:
        """Add all to a sum."""
        span.extend((self.signs * self.times).tolist(), -int(self.signs.sum()))


_NOTHING = _Terms(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
_NO_SPANS = (np.empty(0), np.empty(0), np.empty(0, np.int64))


class EnergyBooks:
    """The energy of one run, chunk by chunk."""

    def __init__(self, meter: Meter, clients: Ints) -> None:
        self.meter = meter
        self._numbers = np.concatenate([clients, [SERVER]])  # place -1: the server
        self._counts = np.isin(np.arange(int(self._numbers.max()) + 1), list(meter.parties))
        self._amounts = Amounts(meter, self._numbers)
        self._until = 0.0
        self._later = dict.fromkeys(("compute", "radio"), _NO_SPANS)
        self._open = dict.fromkeys(("compute", "radio"), _NOTHING)
        self._reach = {state: np.zeros(len(self._counts)) for state in ("compute", "radio")}

    @classmethod
    def of(cls, setting: Setting, clients: Ints) -> EnergyBooks | None:
        """Make the books of a run; None if no party says what it draws."""
        meter = Meter.of(setting.timings, (SERVER, *setting.clients))
        return None if meter is None else cls(meter, clients)

    def take(self, chunk: Chunk, moments: Asked, end: End | None) -> list[float]:
        """Add what parties do in the rounds of a chunk, in which the run may ``end``; return the energies at moments.

        Raises ``UndecidedError`` if the chunk does not tell all of it, or the order within an instant decides.
        """
        spans, first = chunk.spans, chunk.first
        if spans is None:
            raise undecided("the recurrence does not tell when parties compute and send", first, self._until)
        until = float(chunk.ends[-1]) if end is None else end.time
        amounts = self._amounts.take(chunk, spans, moments, end)
        settled = {state: self._settled(state, spans, first, until) for state in ("compute", "radio")}
        settled["idle"] = settled["compute"].reversed()
        for state, terms in settled.items():
            order = np.argsort(terms.parties, kind="stable")
            ends = np.flatnonzero(np.diff(terms.parties[order])) + 1
            for own in np.split(order, ends) if len(order) else ():
                terms.only(own).tell(self.meter.own(int(terms.parties[own[0]]), state))
        groups = [(_within(settled[state], parties), span) for state, parties, span in self.meter.shared()]
        self._until = until
        times = moments.times.tolist()
        places = [np.searchsorted(terms.times, moments.times, "right").tolist() for terms, _ in groups]
        found, done = [], [0] * len(groups)
        for number, now in enumerate([*times, until]):
            for group, (terms, span) in enumerate(groups):
                stop = places[group][number] if number < len(times) else len(terms.times)
                if stop > done[group]:
                    terms.only(slice(done[group], stop)).tell(span)
                    done[group] = stop
            if number < len(times):
                for joules, counted in amounts:
                    self.meter.count(joules, counted[number])
                found.append(self.meter.joules(now))
        return found

    def _settled(self, state: str, spans: tuple[Stretches, ...], first: int, until: float) -> _Terms:
        """Return the beginnings and ends until ``until`` of a state, of spans that do not overlap any more."""
        began, ends, parties = self._later[state]
        for each in spans:
            if each.state == state:
                numbers = np.broadcast_to(self._numbers[each.places], each.began.shape)
                kept = self._counts[numbers] & (each.ends > each.began)
                if np.any(each.began[kept] < self._until):
                    raise undecided("an activity begins before the rounds so far have ended", first, self._until)
                pairs = zip((began, ends, parties), (each.began, each.ends, numbers), strict=True)
                began, ends, parties = (np.concatenate([old, new[kept]]) for old, new in pairs)
        later = began >= until
        self._later[state] = began[later], ends[later], parties[later]
        began, ends, parties = began[~later], ends[~later], parties[~later]
        order = np.lexsort((began, parties))
        began, ends, parties = began[order], ends[order], parties[order]
        begins, stops = np.empty(len(began)), np.empty(len(began))
        borders = np.flatnonzero(np.diff(parties, prepend=-1))
        for start, stop in pairwise([*borders.tolist(), len(parties)]):
            party, own = parties[start], slice(start, stop)
            reach = np.maximum.accumulate(np.concatenate([[self._reach[state][party]], ends[own]]))
            begins[own], stops[own] = np.maximum(began[own], reach[:-1]), reach[1:]
            self._reach[state][party] = reach[-1]
        terms = self._open[state].and_then(_Terms.of((begins, -1, parties), (stops, 1, parties)))
        still = terms.times > until
        self._open[state] = terms.only(still)
        return terms.only(~still)


def _within(terms: _Terms, parties: list[int]) -> _Terms:
    """Select the terms of some parties, in the order of time."""
    own = terms.only(np.isin(terms.parties, parties))
    return own.only(np.argsort(own.times, kind="stable"))
