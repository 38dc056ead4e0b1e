"""What a round is: traced from a protocol's coroutines, once for each size of batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vflsim.learning.batches import Batch
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.tracing.acts import Acts
from vflsim.tracing.interleaving import interleaved
from vflsim.tracing.notes import Note, Row, Sending, Work, signature
from vflsim.tracing.recording import Traceable, record
from vflsim.tracing.rounds import Statement, TracePart, statement

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
    """RoundTrace a round on batches like ``batch``. Raises ``Untraceable`` with the reason.

    A few clients of each sort stand for many, if one more changes nothing. ``by_hand``: a recurrence by hand knows what
    depends on times.

    Example::

        found = trace(Synchronous(), setting, 0, Batch(0, np.arange(4)))
        len(found.round[1]), [*found.round]  # (6, [1])
    """
    clients = [*protocol.learners(setting, seed).clients]
    sorts = _sorts(clients, setting.alike)
    if len(clients) > FEW:
        two, three = ([client for sort in sorts.values() for client in sort[:count]] for count in (2, 3))
        recording = record(protocol, setting, seed, batch, two)
        if not recording.by_number:
            few, more = (
                statement(each, by_hand) for each in (recording, record(protocol, setting, seed, batch, three))
            )
            firsts = [sort[0] for sort in sorts.values()]
            if _costs(few, firsts) == _costs(more, firsts):
                return _of(few, {client: sort[0] for sort in sorts.values() for client in sort})
    whole = statement(record(protocol, setting, seed, batch), by_hand)

    def key(client: int) -> object:
        return setting.alike(client), _done(whole.before, client), _done(whole.round, client)

    return _of(whole, {client: sort[0] for sort in _sorts(clients, key).values() for client in sort})


def _sorts(clients: Sequence[int], key: Callable[[int], object]) -> dict[object, list[int]]:
    sorts: dict[object, list[int]] = {}
    for client in clients:
        sorts.setdefault(key(client), []).append(client)
    return sorts


def _of(found: Statement, sorts: Mapping[int, int]) -> RoundTrace:
    firsts = dict.fromkeys(sorts.values())

    def chosen(part: TracePart) -> dict[int, Acts]:
        acts = interleaved(part)
        return {client: acts[client] for client in firsts or (SERVER,)}

    return RoundTrace(chosen(found.before), chosen(found.round), sorts, found.rows)


def _done(part: TracePart, client: int) -> object:
    return signature(part.clients[client])


def _costs(found: Statement, clients: Sequence[int]) -> object:
    """Return all that times depend on: what clients do and send, and the operations of all."""
    parts = found.before, found.round
    served = [{type(note): None for note in part.server} for part in parts]
    notes = [note for part in parts for each in (part.server, *(part.clients[client] for client in clients))
             for note in each if isinstance(note, Work)]  # fmt: skip
    sent = [_sent_to(part.server, client) for part in parts for client in clients]
    done = [_done(part, client) for part in parts for client in clients]
    return served, [(note.operation.kind, note.operation.flops()) for note in notes], sent, done


def _sent_to(notes: Sequence[Note], client: int) -> object:
    return signature([note for note in notes if isinstance(note, Sending) and note.message.receiver == client])
