"""Who was waited for: the client whose message arrived in the very instant in which a server step began.

``rounds.used`` names clients in client order, not by arrival, so this is read from the events. A step begins at the end
of the instant in which the last message it needs has arrived: the clients among ``used`` one of whose messages arrived
in that instant were waited for (all of them, where several arrive at once), and so were those who answered a re-query.
A step for which everything was there already, or which began because a deadline was over, waited for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from vflsim.results.activities import Activities, Floats, Ints, activities
from vflsim.results.read import NotRecordedError, StoredRun
from vflsim.streams import SERVER


@final
@dataclass(frozen=True, eq=False)
class Waits:
    """The rounds of one run, one array element each, and who was waited for.

    Round k begins at ``start[k]``, its server step at ``step[k]``, and both end at ``end[k]`` (seconds). ``round`` and
    ``client`` are pairs: client ``client[j]`` was waited for in the round at position ``round[j]``; ascending.
    """

    start: Floats
    step: Floats
    end: Floats
    round: Ints
    client: Ints

    def last(self) -> Ints:
        """For each round the client waited for, the last in client order where there are several; 0: nobody."""
        found = np.zeros(len(self.start), np.int64)
        found[self.round] = self.client  # ascending: the last one stays
        return found

    def shares(self, clients: npt.ArrayLike) -> Floats:
        """For each of ``clients`` the share of rounds in which it was waited for; several at once share a round."""
        several = np.bincount(self.round, minlength=len(self.start))
        weights = np.bincount(self.client, 1 / several[self.round], minlength=int(np.max(clients, initial=0)) + 1)
        return weights[np.asarray(clients, np.int64)] / max(len(self.start), 1)


def waits(run: StoredRun, events: Activities | None = None) -> Waits:
    """Who was waited for in a run, whose events may be given where they have been read already.

    Raises NotRecordedError where rounds or events were not kept, or rounds are not server steps that left events.
    """
    events = activities(run) if events is None else events
    rounds = run.table("rounds")
    start, end = (rounds[name].to_numpy() for name in ("start_s", "end_s"))
    steps = events.where(events.is_kind("compute.server_step") & (events.party == SERVER) & events.done)
    if len(steps) != len(start):
        raise NotRecordedError(f"{len(start)} rounds, but {len(steps)} server steps", str(run.folder))
    delivered = events.is_a("transfer") & (events.peer == SERVER) & events.done & ~events.is_kind("transfer.evaluation")
    arrivals = events.where(delivered)
    first = np.searchsorted(steps.start, arrivals.end, side="left")
    count = np.searchsorted(steps.start, arrivals.end, side="right") - first  # steps may begin at one instant
    message = np.repeat(np.arange(len(arrivals)), count)
    at = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count) + first[message]
    client, answer = arrivals.party[message], arrivals.is_kind("transfer.answer")[message]
    needed = answer | np.isin(_pair(at, client), _pair(*used(run)))
    pairs = np.unique(_pair(at[needed], client[needed]))
    return Waits(start, steps.start, end, *_unpair(pairs))


def used(run: StoredRun) -> tuple[Ints, Ints]:
    """(position of the round, client) for every client that a round used. Raises NotRecordedError without rounds."""
    column = run.table("rounds")["used"].combine_chunks()
    clients = column.flatten().to_numpy().astype(np.int64)
    counts = column.value_lengths().fill_null(0).to_numpy()
    return np.repeat(np.arange(len(counts)), counts), clients


_MOST = 2**31
"""Clients have smaller numbers than this."""


def _pair(position: Ints, client: Ints) -> Ints:
    return position * _MOST + client


def _unpair(pairs: Ints) -> tuple[Ints, Ints]:
    return pairs // _MOST, pairs % _MOST
