"""In which order the server sends its messages: events have it, and times do not."""

from __future__ import annotations

from collections.abc import Iterable

from vflsim.learning.batches import Batch
from vflsim.setting import Setting
from vflsim.tracing.interleaving import Broadcast, grouped
from vflsim.tracing.node import Untraceable, shuffled
from vflsim.tracing.notes import Fork, Reception, Work, flat
from vflsim.tracing.recording import Traceable
from vflsim.tracing.rounds import TracePart, statement
from vflsim.tracing.trace import notes_of_all

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
    if any(isinstance(note, Fork) for own in notes.clients.values() for note in own):
        raise Untraceable("a client does several things beside each other, and arrays have no order of their events")
    parties = (notes.server, *notes.clients.values())
    if any(isinstance(note, Work) and note.operation.round >= 0 for own in parties for note in flat(own)):
        raise Untraceable("an operation names its round, and a trace does not show that of later rounds")
    waits = [note for note in flat(notes.server) if isinstance(note, Reception) and len(note.senders) > 1]

    def sent(shuffles: str = "") -> tuple[list[list[int]], list[list[int]]]:
        found, _ = notes_of_all(protocol, setting, seed, batch, shuffles=shuffles)
        parts = statement(found)
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
