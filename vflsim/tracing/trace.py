"""What a round is: traced from a protocol's coroutines, once for each size of batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Operation
from vflsim.learning.learners.watch import from_outside
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.tracing.acts import Acts
from vflsim.tracing.interleaving import Broadcast, grouped, interleaved
from vflsim.tracing.node import Untraceable, shuffled
from vflsim.tracing.notes import Fork, Reception, Row, Sending, Work, flat, signature
from vflsim.tracing.recording import RunNotes, Statement, Traceable, TracePart, record, statement

FEW = 64
"""Clients up to which every one is traced."""


@dataclass(frozen=True, slots=True)
class RoundTrace:
    """The acts ``before`` the first round, and of each ``round``, by the first client of each sort.

    ``sorts`` has the first client of every client's sort: clients of a sort do the same, at the same costs. Without
    clients, the server stands for one. ``rows``: what the server records as the run begins.
    """

    before: Mapping[int, Acts]
    round: Mapping[int, Acts]
    sorts: Mapping[int, int]
    rows: Sequence[Row]


def trace(protocol: Traceable, setting: Setting, seed: int, batch: Batch, by_hand: bool = False) -> RoundTrace:
    """Trace a round on batches like ``batch``. Raises ``Untraceable`` with the reason.

    ``by_hand``: a recurrence by hand knows what depends on times.

    Example::

        traced = trace(Synchronous(), setting, 0, Batch(0, np.arange(4)))
        len(traced.round[1]), [*traced.round]  # (7, [1])
    """
    notes, sorts = notes_of_all(protocol, setting, seed, batch)
    parts = statement(notes, by_hand)
    if sorts is None:

        def key(client: int) -> object:
            return setting.alike(client), *(signature(part.clients[client]) for part in (parts.before, parts.round))

        sorts = _firsts(_sorts(setting.clients, key))
    return _of(parts, sorts)


def notes_of_all(
    protocol: Traceable,
    setting: Setting,
    seed: int,
    batch: Batch,
    late: int | None = None,
    placed: bool = True,
    shuffles: str = "",
) -> tuple[RunNotes, dict[int, int] | None]:
    """Return what parties note in a few rounds, and whose notes stand for every client's: None if all are there.

    Two clients of each sort stand for many, if a third changes nothing. Of a protocol from outside all are traced: a
    client may know its number in ways that no trace sees, such as its learner's. Raises ``Untraceable``.
    """
    if len(setting.clients) > FEW and not from_outside(protocol):
        sorts = _sorts(setting.clients, setting.alike)
        two, three = ([client for sort in sorts.values() for client in sort[:count]] for count in (2, 3))
        few = record(protocol, setting, seed, batch, two, late, placed=placed, shuffles=shuffles)
        if not few.by_number:
            firsts = [sort[0] for sort in sorts.values()]
            if _costs(few, firsts) == _costs(
                record(protocol, setting, seed, batch, three, late, placed=placed, shuffles=shuffles), firsts
            ):
                return few, _firsts(sorts)
    return record(protocol, setting, seed, batch, late=late, placed=placed, shuffles=shuffles), None


def _sorts(clients: Iterable[int], key: Callable[[int], object]) -> dict[object, list[int]]:
    sorts: dict[object, list[int]] = {}
    for client in clients:
        sorts.setdefault(key(client), []).append(client)
    return sorts


def _firsts(sorts: Mapping[object, list[int]]) -> dict[int, int]:
    first = {client: sort[0] for sort in sorts.values() for client in sort}
    return dict(sorted(first.items()))


def _of(parts: Statement, sorts: Mapping[int, int]) -> RoundTrace:
    firsts = dict.fromkeys(sorts.values())

    def chosen(part: TracePart) -> dict[int, Acts]:
        acts = interleaved(part)
        return {client: acts[client] for client in firsts or (SERVER,)}

    return RoundTrace(chosen(parts.before), chosen(parts.round), sorts, parts.rows)


def _costs(run: RunNotes, clients: Sequence[int]) -> object:
    """Return all that times depend on: what ``clients`` do and get, and the operations of them and of the server."""
    served = [*flat(run.server)]
    done = [[*flat(run.clients[client])] for client in clients]
    operations = [
        {_cost(note.operation): None for note in notes if isinstance(note, Work)} for notes in (served, *done)
    ]
    sent = [[note for note in served if isinstance(note, Sending) and note.message.receiver == client]
            for client in clients]  # fmt: skip
    return operations, [*map(signature, done)], [*map(signature, sent)]


def _cost(operation: Operation[Any]) -> tuple[object, ...]:
    return operation.kind, operation.rows, operation.units, operation.seconds, operation.flops()


# --- sending order ----------------------------------------------------------------------------------------------------


Orders = tuple[list[str], list[str]]
"""Of each message to all clients before the first round, and in a round: empty for client order, or the kind of those
messages in whose order of arrival the server sends it."""


def sending_orders(protocol: Traceable, setting: Setting, seed: int, batch: Batch) -> Orders:
    """Return the orders: traces show what becomes of them where a wait gives its messages in another order.

    Raises ``Untraceable`` with the reason if they show no order, or what else an event names.

    Example::

        sending_orders(Synchronous(), setting, 0, Batch(0, np.arange(4)))  # ([], ['embedding'])
    """
    notes, _ = notes_of_all(protocol, setting, seed, batch)
    if any(isinstance(note, Fork) for line in notes.clients.values() for note in line):
        raise Untraceable("a client does several things beside each other, and arrays have no order of their events")
    parties = (notes.server, *notes.clients.values())
    if any(isinstance(note, Work) and note.operation.round >= 0 for line in parties for note in flat(line)):
        raise Untraceable("an operation names its round, and a trace does not show that of later rounds")
    waits = [note for note in flat(notes.server) if isinstance(note, Reception) and len(note.senders) > 1]

    def sent(shuffles: str = "") -> tuple[list[list[int]], list[list[int]]]:
        run, _ = notes_of_all(protocol, setting, seed, batch, shuffles=shuffles)
        parts = statement(run)
        return _sent(parts.before), _sent(parts.round)

    usual = sent()
    orders: Orders = ["" for _ in usual[0]], ["" for _ in usual[1]]
    if any(each != sorted(each) for part in usual for each in part):
        raise Untraceable("the server sends its messages in an order of its own")
    for kind in dict.fromkeys(note.kind for note in waits):
        for part, now, order in zip(usual, sent(kind), orders, strict=True):
            for place, (one, other) in enumerate(zip(part, now, strict=True)):
                if one != other:
                    if other != shuffled(one) or order[place]:
                        raise Untraceable("the order in which the server sends its messages depends on several things")
                    order[place] = kind
    return orders


def _sent(part: TracePart) -> list[list[int]]:
    """Return the receivers of each message to all clients, in the order sent."""
    groups: Iterable[object] = grouped(part.server, [*part.clients]) if part.clients else ()
    return [[*group.each] for group in groups if isinstance(group, Broadcast)]
