"""What parties send each other, by kind; and what a client exchanges with the server in a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY, Shape, Spec
from vflsim.learning.batches import Batch, Split
from vflsim.learning.execution.operations import Operation
from vflsim.setting import Setting
from vflsim.streams import SERVER, SHARED
from vflsim.tracing.node import Untraceable
from vflsim.tracing.notes import Note, Notes, Reception, Sending, Work, flat
from vflsim.tracing.recording import RunNotes, Traceable, record
from vflsim.tracing.trace import notes_of_all
from vflsim.vocabulary.on_demand import torch
from vflsim.world.wire import specs_of


@dataclass(frozen=True, slots=True)
class Content:
    """The tensors of a message by name, and its number of sample ``ids``.

    ``passed_on`` names the tensors that the server forwards without re-encoding.
    """

    tensors: Mapping[str, Spec] = field(default_factory=dict)
    ids: int = 0
    passed_on: tuple[str, ...] = ()

    def nbytes(self, codec: Codec, receiver: int) -> int:
        """Count the bytes of the message on its way to ``receiver``."""
        passed_on = dict.fromkeys(self.passed_on, codec.towards(SERVER))
        return codec.towards(receiver).size_of(self.tensors, self.ids, passed_on)


Contents: TypeAlias = Mapping[str, Sequence[Content]]
"""By message kind, the alternative contents of such a message."""
EMPTY = Content()


def single(shape: Shape, dtype: torch.dtype, ids: int = 0) -> Content:
    """Return the content of a message with one tensor."""
    return Content({ONLY: Spec(shape, dtype)}, ids)


def named(shapes: Mapping[str, Shape], dtype: torch.dtype, ids: int = 0, passed_on: tuple[str, ...] = ()) -> Content:
    """Return the content of a message with tensors of one dtype."""
    return Content({name: Spec(shape, dtype) for name, shape in shapes.items()}, ids, passed_on)


def ids_of(setting: Setting, rows: int) -> int:
    """Return the number of sample ids in a message about a batch of this many rows: 0 for a shared batch."""
    return rows if setting.training.batches == "own" else 0


# --- exchanges of a client --------------------------------------------------------------------------------------------


class Evaluating(Protocol):
    """How a protocol's parties evaluate."""

    async def evaluate(self, node: Any, splits: Sequence[Split], number: int) -> Any:
        """Server: return the loss and metrics of each split."""

    async def answer_evaluation(self, node: Any, splits: Sequence[Split], number: int) -> None:
        """Client: answer the server's request."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a client sends first in a round and what it then steps on, as shapes of tensors like ``Message.carried``.

    ``steps`` are the client's operations on what it receives. ``passed_on`` names the tensors in ``down`` that the
    server forwards without re-encoding.
    """

    up: Mapping[str, Shape] = field(default_factory=dict)
    down: Mapping[str, Shape] = field(default_factory=dict)
    steps: Sequence[Operation[Any]] = ()
    passed_on: tuple[str, ...] = ()


class Exchanges:
    """What the messages of one protocol in one setting carry: from a trace, of batches of each size asked for.

    A kind that neither a few rounds show, nor an evaluation, is one of ``others``: by sender, receiver and rows. Where
    ``rounds`` is False, none are traced. Everything is traced when it is asked for.

    Example::

        Exchanges(Synchronous(), setting).of(1, rows=4).up  # {'': (4, 6)}
    """

    def __init__(
        self,
        protocol: Traceable,
        setting: Setting,
        evaluating: Evaluating | None = None,
        splits: Sequence[Split] = (),
        others: Callable[[int, int, int], Contents] | None = None,
        rounds: bool = True,
    ) -> None:
        self._protocol, self._setting = protocol, setting
        self._evaluating, self._splits, self._others, self._traced = evaluating, splits, others, rounds
        self._rounds: dict[tuple[int, int | None], _Noted | None] = {}
        self._evaluation: _Noted | None = None
        self._contents: dict[tuple[int, int, int], Contents] = {}
        self._exchanges: dict[tuple[int, int], Exchange] = {}
        first: dict[object, int] = {}
        self._alike = {client: first.setdefault(setting.alike(client), client) for client in setting.clients}

    def of(self, client: int, rows: int) -> Exchange:
        """Return what ``client`` exchanges with the server in a round on a batch of so many rows."""
        noted = self._noted(rows)
        if noted is None:
            return Exchange()
        first = _first(client, noted)
        if (first, rows) not in self._exchanges:
            self._exchanges[first, rows] = _exchange(noted.notes, first)
        return self._exchanges[first, rows]

    def contents(self, sender: int, receiver: int, rows: int) -> Contents:
        """Return, by message kind, all tensors and ids that messages about a batch of ``rows`` rows may carry."""
        key = sender, receiver, rows
        if key not in self._contents:
            contents: dict[str, list[Content]] = {}
            for noted in (self._noted(rows), self._evaluated()):
                if noted is not None:
                    _add(contents, noted.notes, _first(sender, noted), _first(receiver, noted))
            late = self._alike[sender or receiver]
            if SERVER in (sender, receiver) and (noted := self._noted(rows, late)) is not None:
                _add(contents, noted.notes, *(late if party else SERVER for party in (sender, receiver)))
            for kind, some in ({} if self._others is None else self._others(*key)).items():
                for content in some:
                    _note(contents, kind, content)
            self._contents[key] = contents
        return self._contents[key]

    def _noted(self, rows: int, late: int | None = None) -> _Noted | None:
        """Return what parties note in rounds on batches of so many rows; None if they cannot be traced."""
        if not self._traced:
            return None
        if (rows, late) not in self._rounds:
            batch = Batch(0, np.arange(rows) % self._setting.data.rows, SHARED)
            try:
                noted = _Noted(*notes_of_all(self._protocol, self._setting, 0, batch, late, placed=False))
            except Untraceable:
                noted = None
            self._rounds[rows, late] = noted
        return self._rounds[rows, late]

    def _evaluated(self) -> _Noted | None:
        evaluating, splits = self._evaluating, self._splits
        if self._evaluation is None and evaluating is not None and splits:
            self._evaluating = None  # not again
            firsts = [*dict.fromkeys(self._alike.values())]
            coroutines = (
                lambda node: evaluating.evaluate(node, splits, 0),
                lambda node: evaluating.answer_evaluation(node, splits, 0),
            )
            batch = Batch(0, np.arange(1), SHARED)
            with suppress(Untraceable):
                notes = record(self._protocol, self._setting, 0, batch, firsts, coroutines=coroutines, placed=False)
                self._evaluation = _Noted(notes, self._alike)
        return self._evaluation


class _Noted(NamedTuple):
    notes: RunNotes
    firsts: Mapping[int, int] | None
    """Whose notes stand for every client's; None if all are there."""


def _first(party: int, noted: _Noted) -> int:
    return party if noted.firsts is None or party == SERVER else noted.firsts[party]


def _add(contents: dict[str, list[Content]], notes: RunNotes, sender: int, receiver: int) -> None:
    for note in _of_party(notes, sender):
        if isinstance(note, Sending) and note.message.receiver == receiver:
            _note(contents, note.message.kind, _content(note))


def _note(contents: dict[str, list[Content]], kind: str, content: Content) -> None:
    known = contents.setdefault(kind, [])
    if content not in known:
        known.append(content)


def _of_party(notes: RunNotes, party: int) -> Iterable[Note]:
    line = notes.server if party == SERVER else notes.clients.get(party, ())
    beside = (each for whose, each in notes.beside if whose == party)
    return (note for each in (line, *beside) for note in flat(each))


def _content(note: Sending) -> Content:
    batch = note.message.batch
    ids = 0 if batch is None or batch.origin == SHARED else len(batch.ids)
    return Content(specs_of(note.message), ids, note.passed_on)


def _exchange(notes: RunNotes, client: int) -> Exchange:
    line: Notes = [*flat(notes.clients[client])]
    place = next((place for place, note in enumerate(line) if _steps(note)), len(line))
    steps = []
    for note in line[place:]:
        if not isinstance(note, Work) or not _steps(note):
            break
        steps.append(note.operation)
    asked = [note for note in line[:place] if isinstance(note, Reception)]
    kind = asked[-1].kind if asked else ""
    served = [note for note in flat(notes.server) if isinstance(note, Sending)]
    got = [note for note in served if note.message.receiver == client and note.message.kind == kind]
    sent = [note for note in _of_party(notes, client) if isinstance(note, Sending)]
    embeddings = [note for note in sent if note.message.round >= 0]
    up = embeddings[0].message if embeddings else None
    down = got[0] if got else None
    return Exchange(
        {} if up is None else {name: each.shape for name, each in up.carried.items()},
        {} if down is None else {name: each.shape for name, each in down.message.carried.items()},
        tuple(steps),
        () if down is None else down.passed_on,
    )


def _steps(note: Note) -> bool:
    return isinstance(note, Work) and note.operation.counts == "update"
