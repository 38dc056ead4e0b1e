"""Find the clients that each server step waited for, from the events.

``rounds.used`` lists clients in client order, not by arrival. A step begins at the end of the instant in which its last
needed message arrives, or once the server has worked on those messages. The step waited for the clients among ``used``
with a message that arrived in that instant (for all of them if several arrive at once), and for clients that answered a
re-query then. A step waited for nobody if every message was there before, or if a deadline started it.

A message may itself have waited for others in its round: for shares of other clients, or for a query that the server
sent when another message arrived. :mod:`vflsim.plotting.critical_path` follows it back, message by message, to the
beginning of the round; the senders on that path were waited for *before*. If a client already had its peers' messages
when its own work ended, the client itself was the last that the round waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from vflsim.plotting.causes import Causes
from vflsim.plotting.critical_path import CriticalPath, critical_path
from vflsim.results.events import Activities, Ints, Mask, activities
from vflsim.results.read import NotRecordedError
from vflsim.results.store.run import RecordedRun
from vflsim.streams import SERVER
from vflsim.timing.floats import Floats


@final
@dataclass(frozen=True, eq=False)
class StepWaits:
    """The rounds of one run, one array element each, and the clients that they waited for.

    Round k begins at ``start[k]``, its server step at ``step[k]``, and both end at ``end[k]`` (seconds). Its last
    message arrived at ``ready[k]``, which is before ``step[k]`` if the server first works on the messages. ``round``
    and ``client`` are ascending pairs: the round at position ``round[j]`` waited for client ``client[j]``. ``path``
    holds the critical paths.
    """

    start: Floats
    ready: Floats
    step: Floats
    end: Floats
    round: Ints
    client: Ints
    path: CriticalPath

    def last(self) -> Ints:
        """Return the client that each round waited for (of several the highest number); 0: nobody."""
        return _last(len(self.start), self.round, self.client)

    def shares(self, clients: npt.ArrayLike) -> Floats:
        """Return the share of rounds that waited for each of ``clients``; clients waited for together share a round."""
        several = np.bincount(self.round, minlength=len(self.start))
        return self._shares(self.client, 1 / several[self.round], clients)

    def shares_before(self, clients: npt.ArrayLike) -> Floats:
        """Return the same for clients waited for *before*; a round with several such waits counts each."""
        return self._shares(self.path.client, self.path.weight, clients)

    def _shares(self, client: Ints, weights: Floats, clients: npt.ArrayLike) -> Floats:
        wanted = np.asarray(clients, np.int64)
        found = np.bincount(client, weights, minlength=int(np.max(wanted, initial=0)) + 1)
        return found[wanted] / max(len(self.start), 1)


def step_waits(run: RecordedRun, events: Activities | None = None) -> StepWaits:
    """Find the clients that a run's rounds waited for; ``events`` saves reading them again.

    Raises NotRecordedError if rounds or events were not kept, or if rounds and server steps do not match.
    """
    events = activities(run) if events is None else events
    causes = Causes(events)
    events, rounds = causes.events, run.table("rounds")
    start, end = (rounds[name].to_numpy() for name in ("start_s", "end_s"))
    steps = np.flatnonzero(events.is_kind("compute.server_step") & (events.party == SERVER) & events.done)
    if len(steps) != len(start):
        raise NotRecordedError(f"{len(start)} rounds, but {len(steps)} server steps", str(run.folder))
    needed = named(run, "used")
    ready = events.start[steps]
    while True:
        at, client = _arrived(events, causes.arrivals, needed, ready, run.info.awaited_replies)
        waiting = np.ones(len(start), np.bool_)
        waiting[at] = False
        earlier = causes.server_work_before(ready, steps, start)
        if not (waiting & (earlier < ready)).any():
            break
        ready = np.where(waiting, earlier, ready)
    last = _last(len(start), at, client)
    return StepWaits(start, ready, events.start[steps], end, at, client, critical_path(causes, start, ready, last))


def named(run: RecordedRun, column: str) -> tuple[Ints, Ints]:
    """Return (position of the round, client) for every client in a column of lists: ``used``, ``missing``, ``fresh``.

    Raises NotRecordedError if rounds were not kept.
    """
    lists = run.table("rounds")[column].combine_chunks()
    clients = lists.flatten().to_numpy().astype(np.int64)
    counts = lists.value_lengths().fill_null(0).to_numpy()
    return np.repeat(np.arange(len(counts)), counts), clients


def _arrived(
    events: Activities, arrivals: Mask, needed: tuple[Ints, Ints], ready: Floats, replies: tuple[str, ...]
) -> tuple[Ints, Ints]:
    """Return ascending (round, client) pairs of needed messages that arrived at the server in the instant ``ready``."""
    found = events.where(arrivals & (events.peer == SERVER))
    first = np.searchsorted(ready, found.end, side="left")
    count = np.searchsorted(ready, found.end, side="right") - first  # several steps may begin in one instant
    message = np.repeat(np.arange(len(found)), count)
    at = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count) + first[message]
    client = found.party[message]
    reply = found.is_kind(*(f"transfer.{kind}" for kind in replies))[message]
    wanted = reply | np.isin(_pair(at, client), _pair(*needed))
    pairs = np.unique(_pair(at[wanted], client[wanted]))
    return pairs // _MOST, pairs % _MOST


def _last(rounds: int, at: Ints, client: Ints) -> Ints:
    found = np.zeros(rounds, np.int64)
    found[at] = client  # ascending: the highest one stays
    return found


_MOST = 2**31
"""Larger than any client's number."""


def _pair(position: Ints, client: Ints) -> Ints:
    return position * _MOST + client
