"""Rounds that need not wait for everybody: messages between clients, and the first answers that the server uses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflsim.recurrences.chunk import Bools, Moves, undecided
from vflsim.recurrences.stages import Ints, Stage
from vflsim.recurrences.timed import Draw, PeerWay, Way
from vflsim.recurrences.trail import Now
from vflsim.timing.floats import Floats
from vflsim.tracing.acts import Late


class PeerMessages:
    """One message of every client to each other client in n rounds: ``ends`` are their arrivals, (n, S, M).

    They are kept for every sort of receivers (S) and every sender, as in ``PeerWay``. ``latency`` (n, S M) is drawn.
    """

    def __init__(self, way: PeerWay, kinds: Ints, latency: Floats) -> None:
        shape = len(kinds), *way.rates.shape
        self._way, self._kinds, self._seconds = way, kinds, way.seconds
        self._latency = latency.reshape(shape)
        self._began = np.empty(shape)
        self.ends = np.empty(shape)
        self._places = np.arange(len(way.sort))
        self._alone = bool((np.bincount(way.sort) == 1).all())
        self._sent: Floats | None = None
        self.latest = 0.0
        """The arrival of the last message of the latest round."""

    def send(self, k: int, kind: int, now: Floats) -> None:
        """Let every client send its messages of round k at ``now`` (M,)."""
        self._sent = now
        np.add(now, self._latency[k], out=self._began[k])
        np.add(self._began[k], self._seconds[kind], out=self.ends[k])

    def there(self, k: int, out: Floats) -> Floats:
        """Put into ``out`` (M,) when each client has sent its own messages of round k and has those of all others."""
        ends, sent = self.ends[k], self._sent
        assert sent is not None, "messages are sent before they are waited for"
        if len(ends) == 1:  # only the sender of the last message does not wait for it
            row = ends[0]
            last = int(row.argmax())
            self.latest = latest = float(row[last])
            row[last] = -np.inf
            others = np.maximum.reduce(row)
            row[last] = latest
            out.fill(latest)
            out[last] = max(others, sent[last])
            return out
        last_of = ends.argmax(axis=1)
        rows = np.arange(len(ends))
        latest_of = ends[rows, last_of]
        self.latest = float(latest_of.max())
        out[:] = latest_of[self._way.sort]
        if not self._alone:
            senders = np.flatnonzero(last_of[self._way.sort] == self._places)
            ends[rows, last_of] = -np.inf
            out[senders] = ends.max(axis=1)[self._way.sort[senders]]
            ends[rows, last_of] = latest_of
        return np.maximum(out, sent, out=out)

    def without(self, k: int, over: Floats) -> Ints:
        """Return the clients to whom a message of round k is still under way when its sender hears ``over`` (M,)."""
        cut = self.ends[k] > over
        lacking = cut.sum(axis=1)[self._way.sort] - cut[self._way.sort, self._places]
        return np.flatnonzero(lacking > 0)

    def ties(self, k: int, over: Floats) -> bool:
        """Return whether a message of round k arrives as its sender hears ``over`` (M,)."""
        return bool(((self.ends[k] == over) & (self._way.copies > 0)).any())

    def moves(self, over: Floats | None = None) -> Moves:
        """Return the transfers. ``over`` (n, M) ends those of a sender that are still under way."""
        way, ends = self._way, self.ends
        sizes = np.broadcast_to(way.sizes[self._kinds][:, None], ends.shape)
        counted = sizes * way.copies
        if over is not None and (late := ends > over[:, None]).any():
            until = np.broadcast_to(over[:, None], ends.shape)[late]
            rates, began = np.broadcast_to(way.rates, ends.shape)[late], self._began[late]
            lasted = np.maximum(0, until - began)
            bits = np.multiply(lasted, rates, where=lasted > 0, out=np.zeros_like(lasted))  # a rate may be infinite
            through = np.minimum(sizes[late], bits / 8)
            counted[late] = through.astype(np.int64) * np.broadcast_to(way.copies, ends.shape)[late]
            ends = np.where(late, over[:, None], ends)
        flat = len(ends), -1
        return Moves(
            "peer",
            self._began.reshape(flat),
            ends.reshape(flat),
            sizes.reshape(flat),
            counted.reshape(flat),
            way.rates.ravel(),
            way.copies.ravel(),
        )


Play = Callable[[int, int], None]
"""Plays one act in round k of the chunk, whose batch is of a kind."""


class Skipped:
    """How many draws of one activity each client has not taken: ``of`` (M,), None where all have taken all."""

    def __init__(self) -> None:
        self.of: Ints | None = None

    def add(self, clients: Bools) -> None:
        """Let these clients (M,) leave out one draw more."""
        if clients.any():
            self.of = clients + (0 if self.of is None else self.of)


class FirstAnswers:
    """The clients' work in n rounds, from their wait for each other to a message of the server that waits for a few.

    ``ready`` (n, M) are the ends of that wait. The activities of a client follow each other. If ``late`` work is
    abandoned, an activity takes its draw if it begins before the message reaches the client. If it is finished, the
    client takes all draws if it is ready before. ``peers`` are the messages that the clients have waited for.
    """

    def __init__(self, skipped: dict[Draw, Skipped], first: int, kinds: Ints, now: Now, peers: PeerMessages) -> None:
        self._skipped, self._first, self._kinds, self._now, self._peers = skipped, first, kinds, now, peers
        self._shape = len(kinds), len(now.clients)
        self.ready = np.empty(self._shape)
        self._latest = self.ready
        """When the activity before ends, or (the first) the wait."""
        self._random: list[tuple[Stage, Skipped, Floats]] = []
        """The random activities: their draws, and when they begin (n, M)."""
        self._sent = self._began = self._arrives = self._heard = self.ready
        self._way: Way | None = None
        self._count, self._last = 0, np.empty(len(kinds))
        self._late: Late = "abandoned"

    # --- the acts, in their order -----------------------------------------------------------------------------------

    def activity(self, draw: Draw, drawn: Callable[[Draw], Floats], factors: Floats | None = None) -> Play:
        """Add an activity of the clients, whose draws are multiplied by ``factors`` (kinds, M).

        Raises ValueError if it is not the only one of its purpose in a round: then a client that skips it may take the
        draw later in the same round.
        """
        now, first, series = self._now, self._first, draw.series
        skipped = self._skipped.setdefault(draw, Skipped())
        if series.stage.varies:
            if series.each > 1:
                raise ValueError("clients may skip an activity that is not the only one of its purpose in a round")
            self._random.append((series.stage, skipped, self._latest))
        ends = self._latest = np.empty(self._shape)
        scaled = factors if factors is not None and (factors != 1.0).any() else None
        taken = np.empty(0)
        if skipped.of is None:
            taken = drawn(draw) if scaled is None else drawn(draw) * scaled[self._kinds]

        def play(k: int, kind: int) -> None:
            if skipped.of is None:
                seconds = taken[k]
            else:
                seconds = series.stage.take(series.skipped + first + k - skipped.of)
                seconds = seconds if scaled is None else seconds * scaled[kind]
            now.clients = np.add(now.clients, seconds, out=ends[k])

        return play

    def sending(self, way: Way, drawn: Callable[[Draw], Floats]) -> tuple[Play, Play]:
        """Add the message to the server, whose upload delay is over."""
        self._way, self._sent = way, self._latest
        begin = self.activity(way.latency, drawn)
        now, seconds, began = self._now, way.seconds, self._latest
        arrives = np.empty(self._shape)
        self._began, self._arrives = began, arrives

        def end(k: int, kind: int) -> None:
            now.arrives = np.add(began[k], seconds[kind], out=arrives[k])

        return begin, end

    def waiting(self, count: int) -> Play:
        """Add the server's wait for the first ``count`` messages."""
        now, arrives, last, scratch = self._now, self._arrives, self._last, np.empty(self._shape[1])
        self._count, place = count, count - 1

        def play(k: int, _: int) -> None:
            scratch[:] = arrives[k]
            scratch.partition(place)
            last[k] = now.server = max(now.server, float(scratch[place]))

        return play

    def hearing(self, late: Late, heard: Floats) -> Play:
        """Add that the clients hear the server's message, which they have received at ``heard`` (n, M)."""
        self._late, self._heard = late, heard
        return self._abandon if late == "abandoned" else self._finish

    def _abandon(self, k: int, _: int) -> None:
        """End the work of all clients. No client hears of it before the server's step has ended."""
        heard, ended = self._heard[k], self._now.server
        if self._peers.latest >= ended:
            self._cut_peers(k, heard)
        # An activity begins after those before it: mostly the last one has begun, and so have all.
        for stage, skipped, begins in reversed(self._random):
            if np.maximum.reduce(begins[k]) < ended:
                break
            late = ~self._in_time(k)
            if np.any(late & stage.random & (begins[k] == heard)):
                self._refuse("a message arrives as its client begins another activity", k)
            skipped.add(late & (begins[k] >= heard))

    def _finish(self, k: int, _: int) -> None:
        now, heard, ready = self._now, self._heard[k], self.ready[k]
        done = np.maximum(self._sent[k], heard)
        if np.maximum.reduce(ready) >= now.server:
            late = ~self._in_time(k)
            if np.any(late & (ready == heard)):
                self._refuse("a message arrives as its client begins another activity", k)
            skipped = late & (ready > heard)
            for _stage, each, _begins in self._random:
                each.add(skipped)
            done[skipped] = heard[skipped]
            self._leave_out(k, np.flatnonzero(skipped))
        now.clients = done

    def _cut_peers(self, k: int, heard: Floats) -> None:
        """Leave out the clients whom not all messages of the others reach, since the round is over for the senders."""
        if self._peers.ties(k, heard):
            self._refuse("a client's message arrives as the round is over for it", k)
        self._leave_out(k, self._peers.without(k, heard))

    def _leave_out(self, k: int, clients: Ints) -> None:
        if len(clients):
            begun = [begins for _, _, begins in self._random]
            for times in (self.ready, *begun, self._sent, self._began, self._arrives):
                times[k, clients] = np.inf

    def _in_time(self, k: int) -> Bools:
        in_time: Bools = self._arrives[k] <= self._last[k]
        return in_time

    def _refuse(self, what: str, k: int) -> None:
        raise undecided(what, self._first + k, float(self._last[k]))

    # --- what the rounds leave --------------------------------------------------------------------------------------

    @property
    def waited(self) -> Floats:
        """When the server has the answers that it waits for (n,)."""
        return self._last

    def used(self) -> Bools:
        """Return whose answers the server uses (n, M). Raises ``UndecidedError``."""
        arrives, last = self._arrives, self._last[:, None]
        used = arrives <= last
        if np.any(used & (arrives == last) & (self.ready == last)):
            k = int(np.flatnonzero((used & (arrives == last) & (self.ready == last)).any(axis=1))[0])
            self._refuse("an answer takes no time, and arrives as the server begins", k)
        for k in np.flatnonzero(used.sum(axis=1) != self._count).tolist():
            used[k] = first_of(arrives[k], self._count)[1]
        return used

    def moves(self) -> tuple[Moves, ...]:
        """Return the transfers to the server, and between clients. Raises ``UndecidedError``."""
        way, heard, arrives = self._way, self._heard, self._arrives
        assert way is not None, "an answer is a message"
        sizes = way.sizes[self._kinds]
        if self._late == "finished":
            return Moves("up", self._began, arrives, sizes, sizes, way.rates), self._peers.moves()
        in_time = arrives <= self._last[:, None]
        tied = ~in_time & (arrives == heard)
        if tied.any():
            self._refuse("a message arrives as its client ends another", int(np.flatnonzero(tied.any(axis=1))[0]))
        delivered = in_time | (arrives < heard)
        if delivered.all():
            return Moves("up", self._began, arrives, sizes, sizes, way.rates), self._peers.moves(heard)
        ends = np.where(delivered, arrives, np.where(self._sent < heard, heard, np.inf))
        counted = np.where(delivered, sizes, 0)
        moves = Moves("up", self._began, ends, sizes, counted, np.broadcast_to(way.rates, self._shape))
        cut = ~delivered & (self._began < heard)
        counted[cut] = moves.only(cut).through(heard[cut])
        return moves, self._peers.moves(heard)


def first_of(arrives: Floats, count: int) -> tuple[float, Bools]:
    """Return when the ``count``-th arrives, and which the first are: by time, then by client."""
    last = np.partition(arrives, count - 1)[count - 1]
    used = arrives < last
    short = count - np.count_nonzero(used)
    used[np.flatnonzero(arrives == last)[:short]] = True
    return float(last), used
