"""Messages of all clients on the server's link, at once or one after the other, with the event path's times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from vflsim.recurrences.chunk import Direction, Moves, undecided
from vflsim.recurrences.stages import Ints
from vflsim.recurrences.timed_acts import Timed, TimedAnswers, TimedSending, TimedToPeers, TimedTurns, Way
from vflsim.recurrences.trail import Now
from vflsim.timing.capacity import Link
from vflsim.timing.floats import Floats
from vflsim.timing.profile import TRACE
from vflsim.tracing.acts import ServerWaits
from vflsim.world.hub import MOST_CAPS, REBASED, TICKS, Hub
from vflsim.world.transfers import Transfer

Carry: TypeAlias = Callable[[int, int], Floats]
"""Sets when the messages of a round, with a batch of a kind, begin to move and end, and returns their ends (M,)."""
Entered: TypeAlias = tuple[float, int, float, int]
"""When a message enters a link; the place of its client, the capacity of that one's link in bit/s; its bytes."""
_MARGIN = 1e-12
"""How far apart, of the time that has passed, messages are that certainly do not meet: above all rounding."""


class SharedLinks:
    """The server's two links: messages share each at once, or it is ``serial``.

    ``capacities`` are that of either in bit/s, and those of the clients' own.
    """

    def __init__(self, server: Link, clients: Sequence[Link], serial: bool) -> None:
        up, down = ([_constant(getattr(link, way)) for link in clients] for way in ("up", "down"))
        self.capacities: dict[Direction, tuple[float, list[float]]] = {
            "up": (_constant(server.down), up),
            "down": (_constant(server.up), down),
        }
        self.serial = serial
        if not serial and len({*up, *down}) > MOST_CAPS:
            raise undecided(f"more than {MOST_CAPS} unlike links share one", 0, 0.0)

    def check(self, acts: Timed, pausing: bool) -> None:
        """Raise ``UndecidedError`` if several messages of a client may move at once in rounds of these acts.

        Also if clients pause or send each other messages.
        """
        if pausing or any(isinstance(act, TimedToPeers) for act in acts) or _overlap(acts):
            raise undecided("messages share links with others of the same client, or stand aside", 0, 0.0)

    def carrying(self, moves: Moves, way: Way, kinds: Ints, now: Now) -> Carry:
        """Return what carries messages of every client one way, whose times ``moves`` has, in rounds of ``kinds``."""
        if self.serial:
            return SerialWay(moves, way, now).carry
        return SharedWay(moves, way, *self.capacities[moves.direction], kinds).carry

    def shares(self, moves: Moves, way: Way, kinds: Ints) -> NDArray[np.object_] | None:
        """Return what of each client's messages has moved by a time (M,), None if their rates tell."""
        if self.serial:
            return None
        return shares_of(SharedWay(moves, way, *self.capacities[moves.direction], kinds).moved, moves.began.shape[1])


@final
class SerialWay:
    """Messages of every client through one link, one after the other, in the order in which they enter it."""

    def __init__(self, moves: Moves, way: Way, now: Now) -> None:
        self._began, self._ends, self._seconds = moves.began, moves.ends, way.seconds
        self._order = now.sending.of_server if moves.direction == "down" else now.sending.of_clients

    def carry(self, k: int, kind: int) -> Floats:
        """Return when each message of round k ends (M,), by when it enters the link; put in when it begins to move."""
        order = self._order(self._began[k])
        entered, lasting = self._began[k, order], self._seconds[kind, order]
        if (entered == entered[0]).all():
            through = np.add.accumulate(np.concatenate([entered[:1], lasting]))  # one by one from the left
            begins, ends = through[:-1], through[1:]
        else:
            begins, ends, free = entered.tolist(), lasting.tolist(), -math.inf
            for place, time in enumerate(begins):
                if time < free:
                    begins[place] = time = free
                ends[place] = free = time + ends[place]
        self._began[k, order], self._ends[k, order] = begins, ends
        over: Floats = self._ends[k]
        return over


@final
class SharedWay:
    """Messages of every client at once through one link, of ``capacity`` bit/s, and each through its client's."""

    def __init__(self, moves: Moves, way: Way, capacity: float, bandwidths: list[float], kinds: Ints) -> None:
        self._began, self._ends, self._kinds = moves.began, moves.ends, kinds
        self._sizes, self._capacity, self._bandwidths = way.sizes, capacity, bandwidths
        alone = np.minimum(bandwidths, capacity)
        self._alone = 8.0 * way.sizes / alone
        """How long each message moves that is alone (kinds, M)."""
        self._unlimited = bool((alone == math.inf).all())
        self._alike = (way.sizes == way.sizes[:, :1]).all(axis=1) & (len(set(bandwidths)) == 1)
        self._rates = [min(bandwidths[0], capacity / max(1, many)) for many in range(len(bandwidths) + 1)]
        """The rates of messages that are alike, by their number."""

    def carry(self, k: int, kind: int) -> Floats:
        """Return when each message of round k ends (M,), by when it enters the link."""
        entered, alone, alike = self._began[k], self._alone[kind], self._alike[kind]
        ends: Floats = self._ends[k]
        if alike and (self._unlimited or (entered == entered[0]).all()):
            ends[:] = entered + 8.0 * float(self._sizes[kind, 0]) / self._rates[-1]
            return ends
        order = np.argsort(entered, kind="stable")
        times, lasting = entered[order], alone[order]
        ends[order] = times + lasting
        for start, stop in _meeting(times, lasting):
            if alike:
                ends[order[start:stop]] = self._in_turn(times[start:stop].tolist(), 8.0 * float(self._sizes[kind, 0]))
            else:
                some = order[start:stop].tolist()
                ends[some] = played(self._capacity, self._messages(some, self._sizes[kind].tolist(), entered.tolist()))[
                    0
                ]
        return ends

    def _in_turn(self, entered: list[float], bits: float) -> list[float]:
        """Return when messages end that are alike, in the order in which they enter: each after those before it.

        These are the steps of ``Hub`` with one class, without a heap.
        """
        rates, trace, count = self._rates, TRACE * bits, len(entered)
        ends, until = entered.copy(), [0.0] * count  # under way: those from first up to last
        first = last = 0
        carried = rounded = rate = since = 0.0
        due, coming = math.inf, entered[0]
        entered.append(math.inf)
        while first < count:
            now = due if due < coming else coming
            if now > since and last > first:
                step = rate * (now - since) - rounded
                after = carried + step
                rounded = (after - carried) - step
                carried = after
            since = now
            if due <= now:
                little = max(rate * (TICKS * math.ulp(now)), trace)
                while first < last and until[first] - carried <= little:
                    ends[first] = now
                    first += 1
            while coming == now:
                if first == last:
                    carried = rounded = 0.0
                elif carried > REBASED * bits:
                    until[first:last] = [end - carried for end in until[first:last]]
                    carried = rounded = 0.0
                until[last] = carried + bits
                last += 1
                coming = entered[last]
            if first < last:
                rate = rates[last - first]
                rest = until[first] - carried
                due = now + rest / rate if rest > 0.0 else now
            else:
                due = math.inf
        return ends

    def moved(self, place: int, start: float, now: float) -> float:
        """Return the bits that have moved by ``now`` of a client's message that has entered at ``start``."""
        k = int(np.searchsorted(self._began[:, place], start, "right")) - 1
        order: list[int] = np.argsort(self._began[k], kind="stable").tolist()
        messages = self._messages(order, self._sizes[self._kinds[k]].tolist(), self._began[k].tolist())
        _, bits = played(self._capacity, messages, now)
        return bits[order.index(place)]

    def _messages(self, order: list[int], sizes: list[int], entered: list[float]) -> list[Entered]:
        return [(entered[place], place, self._bandwidths[place], sizes[place]) for place in order]


def played(capacity: float, messages: Sequence[Entered], until: float = math.inf) -> tuple[list[float], list[float]]:
    """Return when messages on a link end (inf: not by ``until``), and the bits of each that have moved until then."""
    hub, ends, transfers = Hub(capacity), [math.inf] * len(messages), [Transfer() for _ in messages]
    coming = 0
    while True:
        now = min(hub.due, messages[coming][0] if coming < len(messages) else math.inf)
        if now > until or now == math.inf:
            rests = [hub.left(transfer, until) or 0.0 for transfer in transfers]
            return ends, [8.0 * one[3] - bits for one, bits in zip(messages, rests, strict=True)]
        if hub.due <= now:
            for transfer in hub.through(now):
                ends[transfer.place] = now
        while coming < len(messages) and messages[coming][0] == now:
            (_, client, bandwidth, size), transfer = messages[coming], transfers[coming]
            transfer.place, transfer.size = coming, size
            if min(bandwidth, capacity) == math.inf:
                ends[coming] = now
            else:
                hub.enter(transfer, client, bandwidth, now)
            coming += 1
        if hub.changed:  # sharing it anew for nothing would round what has moved
            hub.share(now)


def shares_of(moved: Callable[[int, float, float], float], clients: int) -> NDArray[np.object_]:
    """Return what of each client's messages has moved by a time (M,).

    ``moved`` gives it for a place: the bits of the message that entered at one time, by another.
    """
    shares = np.empty(clients, object)
    shares[:] = [_Share(moved, place) for place in range(clients)]
    return shares


@final
class _Share:
    """What of a client's messages has moved by a time: the part of a ``Profile`` that bytes of cut messages ask for."""

    __slots__ = ("_moved", "_place")

    def __init__(self, moved: Callable[[int, float, float], float], place: int) -> None:
        self._moved, self._place = moved, place

    def amount(self, start: float, end: float) -> float:
        """Return the bits that have moved by ``end`` of the message that has entered at ``start``."""
        return self._moved(self._place, start, end) * (1 + TRACE)


def _meeting(times: Floats, lasting: Floats) -> list[tuple[int, int]]:
    """Return the first, and the one behind the last, of messages that may meet on a link: none of others alone on it.

    They enter at ascending ``times``, and each lasts so long by itself. However they share the link, they are through
    no later than one after the other.
    """
    work = lasting.cumsum()
    latest = np.maximum.accumulate(times - work + lasting) + work
    (apart,) = np.nonzero(times[1:] > latest[:-1] * (1 + _MARGIN))
    bounds = np.concatenate([[0], apart + 1, [len(times)]])
    (several,) = np.nonzero(bounds[1:] - bounds[:-1] > 1)
    return list(zip(bounds[several].tolist(), bounds[several + 1].tolist(), strict=True))


def _constant(capacity: object) -> float:
    if not isinstance(capacity, float | int):
        raise undecided("a link that messages share changes its rate", 0, 0.0)
    return float(capacity)


def _overlap(acts: Timed) -> bool:
    """Return whether a message may begin to move before the last of the same direction has arrived, in any two rounds.

    The last are there once the server has waited for what all clients send afterwards.
    """
    up = down = answered = False  # whether there may be one under way; whether clients answer what is going down
    for act in _flat((*acts, *acts)):
        if isinstance(act, TimedSending):
            if up:
                return True
            up, answered = True, True
        elif isinstance(act, TimedAnswers):
            if down:
                return True
            down, answered = True, False
        elif isinstance(act, ServerWaits):
            if act.count is not None:
                return True
            up, down = False, down and not answered
    return False


def _flat(acts: Timed) -> Iterator[object]:
    """Yield the acts, and for turns a wait: what comes before has arrived, or it is refused."""
    for act in acts:
        if isinstance(act, TimedTurns):
            yield from (each for each in act.acts if isinstance(each, TimedSending | TimedAnswers))
            yield ServerWaits()
        else:
            yield act
