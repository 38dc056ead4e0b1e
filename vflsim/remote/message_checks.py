"""What a party may get in a run, by its own scenario: messages, their tensors, rounds and bytes, word of releases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from vflsim.errors import DataError, ProtocolError
from vflsim.protocol import (
    SERVER,
    Batch,
    BatchSequence,
    Envelope,
    EvaluationAnswer,
    Message,
    Protocol,
    Setting,
    Spec,
    party_name,
)
from vflsim.remote.control import Control, ControlError, NoiseAdded, Passing
from vflsim.worlds import (
    BatchKey,
    Content,
    Mailbox,
    Recorder,
    Releases,
    Rows,
    exchanges_of,
    from_outside,
    interruptible_of,
    untraced,
)

_MOST_UNKNOWN = 256 * 2**20
"""The bytes of a party that may wait where nothing says how many of its messages are under way."""


_EACH = 1024
"""About the bytes of a message in memory besides its tensors."""


_OVERTAKEN = 64
"""Rounds by which a message may come late that others have overtaken."""


_SMALL = 64
"""Messages without tensors of a party that may wait."""


class Expected:
    """Refuses messages that no party of this run sends to ``receiver``, by what the protocol says of them.

    Kinds, shapes and dtypes are those of a trace, a batch is one of the run's. Of a kind that is ``ordered`` a party
    sends one a round, and clients send the server theirs in order; a client sends none of a round that neither the run
    nor its own count has come to. What is ``awaited`` is of a round that the server waits for, if it waits for one. A
    server steps at most ``most_rounds`` times. The order is not looked at where a crash can lose messages, which are
    then sent again. A client gets messages as they arrive on their emulated way, where they overtake each other; each
    still comes once. Protocols from outside vflsim may number their rounds otherwise: their rounds are not looked at,
    and without a trace batches alone are.
    """

    def __init__(
        self, protocol: Protocol, setting: Setting, seed: int, receiver: int, mailbox: Mailbox, recorder: Recorder,
        most_rounds: int | None,
    ) -> None:  # fmt: skip
        self._protocol, self._setting, self._receiver = protocol, setting, receiver
        self._mailbox, self._recorder = mailbox, recorder
        self._numbered = not from_outside(protocol)
        self._most_rounds = math.inf if most_rounds is None else most_rounds
        self._sequence = protocol.batch_plan().batches(setting.data.rows, setting.training, seed)
        self._own = partial(BatchSequence, setting.data.rows, setting.training, seed)
        self._sequences = dict[int, BatchSequence]()
        away = interruptible_of(setting)
        self._losing = {client for client, each in away.items() if each.interrupted == "lost"}
        self._resuming = away.keys() - self._losing
        self._came: dict[tuple[int, str], set[int]] = {}  # of what may be overtaken: the latest rounds
        self._exchanges = exchanges_of(protocol, setting)
        self._known = self._numbered or not untraced(protocol, setting)
        self._contents: dict[tuple[int, ...], Mapping[str, Sequence[Content]]] = {}
        self._latest: dict[tuple[int, str], int] = {}
        self._count = Counter[tuple[int, str]]()
        self._empty = 0  # rounds that were given up, or went on without this client

    def batch(self, envelope: Envelope, origin: int) -> Batch:
        """Return the batch of a message that comes with its rows. Raises ``DataError`` for rows of no batch."""
        if origin not in self._sequences:
            drawn_alone = self._setting.training.batches == "own" and origin in self._setting.clients
            self._sequences[origin] = self._own(origin) if drawn_alone else self._sequence
        sequence = self._sequences[origin]
        assert envelope.ids is not None, "asked for"
        if sequence.origin == origin and envelope.batch < 2**31:
            batch = sequence.batch(envelope.batch)
            if np.array_equal(batch.ids, envelope.ids):
                return batch
        what = f"{_named(envelope)}: {len(envelope.ids)} rows that are no batch {envelope.batch} of party {origin}"
        raise DataError(what, allowed="batches that the scenario and the seed give")

    def check(self, made_of: type[Message], envelope: Envelope, batch: Batch | None, specs: Mapping[str, Spec]) -> None:
        """Note a message. Raises ``DataError`` for one that no party of this run sends."""
        if not self._known:
            return
        known = self._check_contents(envelope, specs, batch)
        if not self._numbered:
            return
        if batch is not None and envelope.round >= 0 and made_of.embedding and batch.index != envelope.round:
            raise DataError(f"{_named(envelope)}: of batch {batch.index}", allowed=f"batch {envelope.round}")
        if self._receiver == SERVER:
            self._check_round(made_of, envelope)
        if made_of.ordered and self._in_order(envelope.sender):
            self._check_order(envelope, stepping=any(content.tensors for content in known), empty=not specs)
        key = envelope.sender, envelope.kind
        if self._may_be_overtaken(envelope.sender):
            oldest = max(self._latest.get(key, -1), envelope.round) - _OVERTAKEN
            self._came[key] = {each for each in (*self._came.get(key, ()), envelope.round) if each > oldest}
        self._latest[key] = max(self._latest.get(key, -1), envelope.round)
        self._count[envelope.sender, envelope.kind] += 1

    def _check_round(self, made_of: type[Message], envelope: Envelope) -> None:
        """Refuse a client's message of a round for which nobody waits, and nobody will when the client thinks so."""
        key, over = (envelope.sender, envelope.kind), self._mailbox.world.over
        if made_of.awaited:
            wanted = self._mailbox.awaited(envelope.kind, envelope.sender)
            if made_of is EvaluationAnswer:  # of one split after the other; late ones follow what the end has cut off
                wanted = wanted or [self._latest.get(key, -1) + 1]
                wrong = envelope.round not in wanted and not (over and envelope.round < wanted[0])
            else:
                wrong = bool(wanted) and envelope.round not in wanted and not over
            if wrong and self._in_order(envelope.sender):
                raise DataError(_named(envelope), allowed=f"round {wanted[0]}, for which the server waits")
            return
        reached = max(self._count[key] if made_of.ordered else 0, self._recorder.current_round)
        if envelope.round > reached:
            raise DataError(_named(envelope), allowed=f"at most round {reached}, to which the run has come")
        latest = self._latest.get(key, -1) - (_OVERTAKEN if self._may_be_overtaken(envelope.sender) else 0)
        if self._in_order(envelope.sender) and envelope.round < latest:
            raise DataError(_named(envelope), allowed=f"none of a round before {latest}, of which one has come")

    def _check_order(self, envelope: Envelope, stepping: bool, empty: bool) -> None:
        key = envelope.sender, envelope.kind
        latest = self._latest.get(key, -1)
        late = self._may_be_overtaken(envelope.sender) and envelope.round > max(-1, latest - _OVERTAKEN)
        if envelope.round in self._came.get(key, ()) if late else envelope.round <= latest:
            raise DataError(_named(envelope), allowed=f"one a round, after round {latest}, of which one has come")
        if envelope.sender == SERVER and stepping:
            self._empty += empty
            oldest = max(0, max(latest + 1, envelope.round) - _OVERTAKEN)
            missing = set(range(oldest, envelope.round)) - self._came.get(key, set())
            if envelope.round - self._empty - len(missing) > self._most_rounds:  # empty ones may be yet to come
                raise DataError(_named(envelope), allowed=f"{self._most_rounds:.0f} rounds, by stop.rounds")

    def _check_contents(self, envelope: Envelope, specs: Mapping[str, Spec], batch: Batch | None) -> Sequence[Content]:
        pair = envelope.sender, self._receiver
        rows = () if batch is None else (self._sequence.length(batch.index),)
        known = self._contents_of(*pair, *rows).get(envelope.kind)
        if known is None:
            raise DataError(_named(envelope), allowed=f"{', '.join(sorted(self._contents_of(*pair)))} messages")
        if not any(content.tensors == specs for content in known):
            what = f"{_named(envelope)}: {_described(specs)}"
            raise DataError(what, allowed=" or ".join(dict.fromkeys(_described(each.tensors) for each in known[:4])))
        return known

    def check_passing(self, sender: int, passing: Passing) -> None:
        """Raise ``DataError`` for a message to another client whose kind or bytes are none of the protocol's."""
        known = self.contents(sender, passing.to).get(passing.message, []) if self._known else []
        sizes = {content.nbytes(self._setting.codec, passing.to) for content in known}
        if self._known and passing.size not in sizes:
            what = f"{party_name(sender)} sent a {passing.message!r} message of round {passing.round} to "
            what += f"{party_name(passing.to)}, of {passing.size} bytes"
            raise DataError(what, allowed=f"{', '.join(map(str, sorted(sizes))) or 'no such message'}")

    def contents(self, sender: int, receiver: int | None = None) -> Mapping[str, Sequence[Content]]:
        """Return, by kind, what messages of a party may contain: to this one, or to another ``receiver``."""
        return self._contents_of(sender, self._receiver if receiver is None else receiver)

    def _contents_of(self, sender: int, receiver: int, *rows: int) -> Mapping[str, Sequence[Content]]:
        """Return them for batches of so many ``rows``; of none and of any size, by default."""
        key = sender, receiver, *rows
        if key not in self._contents:
            contents_by_kind: dict[str, list[Content]] = {}
            for each in rows or {self._sequence.length(0), self._sequence.length(-1)}:
                for kind, contents in self._exchanges.contents(sender, receiver, each).items():
                    contents_by_kind.setdefault(kind, []).extend(contents)
            self._contents[key] = contents_by_kind
        return self._contents[key]

    def most_held(self, sender: int) -> int:
        """Return how many bytes of a party's messages may wait to be read: those of its rounds under way, twice."""
        if not self._numbered:
            return _MOST_UNKNOWN
        several = 1 + self._protocol.in_flight
        return sum(
            several * max(map(_bytes, some)) if kind != EvaluationAnswer.kind else 2 * sum(map(_bytes, some))
            for kind, some in self.contents(sender).items()
        ) + _SMALL * _EACH  # fmt: skip

    def _in_order(self, sender: int) -> bool:
        """Whether nothing that this party gets from ``sender`` can be lost, and sent again."""
        return not self._losing if sender == SERVER or self._receiver != SERVER else sender not in self._losing

    def _may_be_overtaken(self, sender: int) -> bool:
        """Whether a message from ``sender`` may come after later ones: on its way, or aside while a client is away."""
        return self._receiver != SERVER or sender in self._resuming


class Unread:
    """Counts the bytes of what has come from each party and has not been read.

    ``unread`` gives all such messages, ``most`` how many bytes those of a party may have.
    """

    def __init__(self, unread: Callable[[], Iterable[Message]], most: Callable[[int], int]) -> None:
        self._unread, self._most = unread, most
        self._bytes = Counter[int]()

    def add(self, message: Message) -> None:
        """Count a message that has come. Raises ``DataError`` if more wait of its sender than may."""
        sender, more, most = message.sender, bytes_of(message), self._most(message.sender)
        self._bytes[sender] += more
        if self._bytes[sender] > most:  # at most: some have been read since they came
            waiting = [each for each in self._unread() if each.sender == sender]
            self._bytes[sender] = more + sum(map(bytes_of, waiting))
            if self._bytes[sender] > most:
                name = f"{party_name(sender)} sent a {message.kind!r} message of round {message.round}"
                what = f"{name}, and {len(waiting)} of its messages wait to be read: {self._bytes[sender]} bytes in all"
                raise DataError(what, allowed=f"at most {most} bytes that nobody has read")


def bytes_of(message: Message) -> int:
    """Return about how many bytes of memory a message takes."""
    return _EACH + sum(handle.nbytes for handle in message.carried.values())


def _bytes(content: Content) -> int:
    return _EACH + sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in content.tensors.values())


def _named(envelope: Envelope) -> str:
    return f"{party_name(envelope.sender)} sent a {envelope.kind!r} message of round {envelope.round}"


def _described(specs: Mapping[str, Spec]) -> str:
    each = [f"{name} {list(spec.shape)} of {spec.dtype}".strip() for name, spec in specs.items()]
    return ", ".join(each) or "no tensor"


MOST_AHEAD = 1_000
"""By how many a client's releases may exceed its uploads and the rounds."""


class ReleaseCounts:
    """The releases of all clients of a run, as they tell them: so the server accounts for them as a simulation does."""

    def __init__(self, setting: Setting, seed: int, sequence: BatchSequence) -> None:
        mechanism, rows = setting.mechanism, setting.data.rows
        self._clients = (
            {} if mechanism is None else {each: Releases(mechanism, seed, each, rows) for each in setting.clients}
        )
        self._sequence, self._own = sequence, partial(BatchSequence, rows, setting.training, seed)

    @property
    def of_all(self) -> tuple[Releases, ...]:
        """The releases in client order; none without a mechanism."""
        return tuple(self._clients.values())

    def take(self, client: int, message: NoiseAdded, due: int) -> None:
        """Count a release: before an upload, or in a round that has gone on without one; so many are ``due`` by now.

        Raises ``ControlError`` for one that this run does not have.
        """
        if client not in self._clients:
            raise ControlError(f"{party_name(client)} has released under noise", allowed="a run with a mechanism")
        if self._clients[client].times >= (most := due + MOST_AHEAD):
            raise ControlError(f"{party_name(client)} has released more than {most} times", allowed="once an upload")
        if message.batch is None:
            self._clients[client].count(slice(None), None)
            return
        origin, index = message.batch
        sequences = {each.origin: each for each in (self._sequence, self._own(client))}
        if origin not in sequences:
            what = f"{party_name(client)} has released a batch of sequence {origin}"
            raise ControlError(what, allowed=f"sequence {' or '.join(map(str, sequences))}")
        self._clients[client].count(sequences[origin].batch(index).ids, message.batch)


def telling(send: Callable[[Control], None]) -> Callable[[Rows, BatchKey | None], None]:
    """Return what tells the server of a release.

    It raises ``ProtocolError`` for rows that are neither a batch nor all rows.
    """

    def tell(rows: Rows, batch: BatchKey | None) -> None:
        if batch is None and not (isinstance(rows, slice) and rows == slice(None)):
            what, allowed = "a release of some rows that are no mini-batch", "a mini-batch of the run, or all rows"
            raise ProtocolError(what, allowed=f"{allowed}, in a live run")
        send(NoiseAdded(batch=batch))

    return tell
