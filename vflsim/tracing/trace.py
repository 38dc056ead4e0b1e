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
from vflsim.tracing.interleaving import interleaved
from vflsim.tracing.notes import Row, Sending, Work, flat, signature
from vflsim.tracing.recording import RunNotes, Traceable, record
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
    """Trace a round on batches like ``batch``. Raises ``Untraceable`` with the reason.

    ``by_hand``: a recurrence by hand knows what depends on times.

    Example::

        found = trace(Synchronous(), setting, 0, Batch(0, np.arange(4)))
        len(found.round[1]), [*found.round]  # (7, [1])
    """
    notes, sorts = notes_of_all(protocol, setting, seed, batch)
    found = statement(notes, by_hand)
    if sorts is None:

        def key(client: int) -> object:
            return setting.alike(client), *(signature(part.clients[client]) for part in (found.before, found.round))

        sorts = _firsts(_sorts(setting.clients, key))
    return _of(found, sorts)


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


def _of(found: Statement, sorts: Mapping[int, int]) -> RoundTrace:
    firsts = dict.fromkeys(sorts.values())

    def chosen(part: TracePart) -> dict[int, Acts]:
        acts = interleaved(part)
        return {client: acts[client] for client in firsts or (SERVER,)}

    return RoundTrace(chosen(found.before), chosen(found.round), sorts, found.rows)


def _costs(found: RunNotes, clients: Sequence[int]) -> object:
    """Return all that times depend on: what ``clients`` do and get, and the operations of them and of the server."""
    served = [*flat(found.server)]
    done = [[*flat(found.clients[client])] for client in clients]
    operations = [
        {_cost(note.operation): None for note in notes if isinstance(note, Work)} for notes in (served, *done)
    ]
    sent = [[note for note in served if isinstance(note, Sending) and note.message.receiver == client]
            for client in clients]  # fmt: skip
    return operations, [*map(signature, done)], [*map(signature, sent)]


def _cost(operation: Operation[Any]) -> tuple[str, int, float, float]:
    return operation.kind, operation.rows, operation.units, operation.flops()
