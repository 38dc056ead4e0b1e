"""Frames between processes: a length and a type, then a message of the protocol or a control message.

A message of the protocol is an outer head and the bytes of ``codecs.frame``, which are those that the run records. The
outer head holds what the other parties of one process know by reference: it is overhead of the live run.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflsim.errors import DataError, ProtocolError
from vflsim.protocol import SERVER, SHARED, Batch, BatchSequence, Codec, Envelope, Handle, Message, Spec
from vflsim.worlds import ONLY, check_length, from_raw, raw_bytes, read_frame, write_frame

if TYPE_CHECKING:
    from vflsim.remote.message_checks import Expected
import os
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from typing_extensions import override

from vflsim.worlds import Executor, KeptValue, Plain, Wires, raw

AS_SENT, FORWARDED, UNCHANGED = 0, 1, 2
"""How a tensor is encoded: by the codec of its message, by that of a client's upload, by none (in an evaluation)."""


PLAIN = Plain()


_SECRET_BYTES, _KEY_BYTES = 32, 16
"""The secret of a party, and a Philox key."""


class LiveWires(Wires):
    """Codecs of one party's messages, with the bytes of every tensor that has passed one.

    Invariants: a tensor that has been sent, or has come, is sent on as the same bytes. The key of noise that hides
    values follows from a ``secret`` of the operating system and from the values: equal ones get equal noise, so that
    another process sends the same once more, and no others do.
    """

    def __init__(self, codec: Codec, executor: Executor, seed: int = 0) -> None:
        super().__init__(codec, executor, seed)
        self.secret = os.urandom(_SECRET_BYTES)
        self._payloads: WeakKeyDictionary[Handle[Any], bytes] = WeakKeyDictionary()

    @override
    def keyed(self, codec: Codec, party: int, place: str, x: Tensor, memory: Tensor | None) -> Codec:
        if not codec.hides:
            return super().keyed(codec, party, place, x, memory)
        digest = blake2b(key=self.secret, digest_size=_KEY_BYTES)
        for values in (x,) if memory is None else (x, memory):
            digest.update(raw(values))
        return codec.keyed(int.from_bytes(digest.digest(), "little"))

    @override
    def through(self, codec: Codec, x: Tensor, arrived: Handle[Any]) -> Tensor:
        payload = self._payloads[arrived] = codec.pack(x)
        return codec.unpack(payload, tuple(x.shape), x.dtype).to(x.device)

    @override
    def transmit(self, codec: Codec, x: Tensor, memory: Tensor | None, arrived: Handle[Any]) -> tuple[Tensor, Tensor]:
        owed = x if memory is None or memory.shape != x.shape else x + memory  # as ``Codec.transmit``
        came = self.through(codec, owed, arrived)
        return came, owed - came

    def came(self, handle: Handle[Any], codec: Codec, payload: bytes) -> None:
        """Note a tensor that has come, and its bytes."""
        if handle.dtype.is_floating_point:
            self.arrived[handle] = codec
            self._payloads[handle] = payload

    def way(self, handle: Handle[Any], towards: Codec) -> int:
        """Return how a tensor is encoded on its way through ``towards``."""
        if not handle.dtype.is_floating_point or towards.lossless:
            return AS_SENT
        codec = self.arrived.get(handle)
        return UNCHANGED if codec is None else AS_SENT if codec is towards else FORWARDED

    def payload(self, handle: Handle[Any]) -> bytes:
        """Return the bytes of a tensor on the wire."""
        if (known := self._payloads.get(handle)) is not None:
            return known
        value = self.executor.force(handle)
        return raw(value.on_wire() if isinstance(value, KeptValue) else value)


HEAD = struct.Struct("<IB")
"""Bytes that follow, and their type."""


TIMED, FREE, CONTROL = 1, 2, 3
"""A message that takes the protocol's time, one that takes none (of an evaluation), and a control message."""


_OUTER = struct.Struct("<d ii H BB")  # when | receiver, batch origin | clients | tensors, fields of its own class


_COMMON = {field.name for field in dataclasses.fields(Message)}


def frame(kind: int, body: bytes) -> bytes:
    """Return a whole frame."""
    return HEAD.pack(len(body), kind) + body


def kinds_of(modules: Iterable[str]) -> dict[str, type[Message]]:
    """Return the message classes by kind that these modules define, and vflsim's own.

    Raises ``ProtocolError`` for two classes of one kind, and for a class with fields that are no whole numbers.
    """
    kinds: dict[str, type[Message]] = {}
    wanted = set(modules)
    waiting: list[type[Message]] = [Message]
    while waiting:
        each = waiting.pop()
        waiting.extend(each.__subclasses__())
        if not (each.__module__ in wanted or each.__module__.startswith("vflsim.")) or each.kind == Message.kind:
            continue
        if getattr(sys.modules[each.__module__], each.__qualname__, each) is not each:
            continue  # the class without slots that a dataclass with slots has taken the place of
        if kinds.setdefault(each.kind, each) is not each:
            raise ProtocolError(f"two messages of kind {each.kind!r}", allowed="a kind for each class")
        for field in dataclasses.fields(each):
            if field.name not in _COMMON and field.type not in ("int", int):
                what = f"{each.__qualname__}.{field.name} of type {field.type}"
                raise ProtocolError(what, allowed="int, for fields of messages in live runs")
    return kinds


def pack_message(message: Message, wires: LiveWires, at: float) -> bytes:
    """Return the body of a frame with this message, whose tensors must be there; ``at``: its sender's instant (s).

    Its last ``wires.size(message)`` bytes are those that the run records.
    """
    batch, carried = message.batch, message.carried
    specs = {name: Spec(tuple(handle.shape), handle.dtype) for name, handle in carried.items()}
    ids = None if batch is None or batch.origin == SHARED else batch.ids
    index = -1 if batch is None else batch.index
    inner = write_frame(Envelope(message.kind, message.sender, message.round, index, ids), specs)
    towards = wires.codec.towards(message.receiver)
    ways = bytes(wires.way(handle, towards) for handle in carried.values())
    extra = [getattr(message, field.name) for field in extra_fields(type(message))]
    origin = SHARED if batch is None else batch.origin
    outer = _OUTER.pack(at, message.receiver, origin, len(message.clients), len(ways), len(extra))
    clients = np.asarray(message.clients, "<i4").tobytes()
    payloads = (wires.payload(handle) for handle in carried.values())
    return b"".join([outer, clients, ways, np.asarray(extra, "<i8").tobytes(), inner, *payloads])


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the messages that one party receives.

    ``kinds`` are the classes of messages by kind, ``sequences`` the batches by origin; batches of a sequence that is
    not among them come with their ids. ``rows``: the number of training rows. ``places``: all parties of the run.
    ``expected`` refuses what no party of the run sends; without it, all that can be read is taken.
    """

    kinds: Mapping[str, type[Message]]
    sequences: Mapping[int, BatchSequence]
    rows: int
    places: frozenset[int]
    wires: LiveWires
    expected: Expected | None = None

    def message(self, body: bytes, sender: int, receiver: int) -> tuple[Message, float]:
        """Return the message from ``sender`` to ``receiver`` in a frame's body, and its sender's instant (s).

        Raises ``DataError`` for bytes that ``pack_message`` did not write, and for a message of other parties.
        """
        if len(body) < _OUTER.size:
            raise DataError(f"a frame of {len(body)} bytes", allowed=f"at least {_OUTER.size}")
        at, to, origin, count, tensors, fields = _OUTER.unpack_from(body)
        if not 0 <= at < math.inf:
            raise DataError(f"a message sent at {at} s", allowed="a finite time of at least 0 s")
        place = _OUTER.size
        begin = place + 4 * count + tensors + 8 * fields
        if len(body) < begin:
            raise DataError(f"a frame of {len(body)} bytes", allowed=f"at least {begin} by its head")
        clients = tuple(np.frombuffer(body, "<i4", count, place).tolist())
        ways = body[place + 4 * count : place + 4 * count + tensors]
        extra = np.frombuffer(body, "<i8", fields, begin - 8 * fields).tolist()
        inner = body[begin:]
        envelope, specs, start = read_frame(inner)
        made_of = self.kinds.get(envelope.kind)
        named = self.places >= set(clients) and len(set(clients)) == len(clients)
        if made_of is None or to != receiver or envelope.sender != sender or not named:
            what = f"a {envelope.kind!r} message from party {envelope.sender} to party {to} about {clients[:3]}"
            allowed = f"one from party {sender} to party {receiver}, of a kind and about clients of this run, each once"
            raise DataError(what, allowed=allowed)
        own_fields = extra_fields(made_of)
        if len(own_fields) != len(extra) or len(ways) != len(specs) or max(ways, default=0) > UNCHANGED:
            what = f"a {envelope.kind!r} message with {len(extra)} fields and {len(ways)} tensors"
            raise DataError(what, allowed=f"{len(own_fields)} fields and {len(specs)} tensors by its frame")
        batch = self._batch(envelope, origin)
        if self.expected is not None:
            self.expected.check(made_of, envelope, batch, specs)
        message = made_of(batch=batch, round=envelope.round, clients=clients, **{
            field.name: value for field, value in zip(own_fields, extra, strict=True)
        })  # fmt: skip
        message.sender, message.receiver = sender, receiver
        carried = self._tensors(inner, start, specs, ways, receiver)
        message.value = carried.pop(ONLY, None)
        message.tensors = carried
        return message, at

    def _batch(self, envelope: Envelope, origin: int) -> Batch | None:
        if envelope.batch < 0:
            return None
        if envelope.ids is None:
            sequence = self.sequences.get(origin)
            if sequence is None or envelope.batch >= 2**31:
                raise DataError(f"batch {envelope.batch} of sequence {origin}, without its rows")
            return sequence.batch(envelope.batch)
        ids = envelope.ids
        if self.expected is not None:
            return self.expected.batch(envelope, origin)
        if origin not in self.places or (len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.rows):
            raise DataError(f"rows of batch {envelope.batch}", allowed=f"numbers from 0 to {self.rows - 1}")
        ids.setflags(write=False)
        return Batch(envelope.batch, ids, origin)

    def _tensors(
        self, inner: bytes, start: int, specs: Mapping[str, Spec], ways: bytes, receiver: int
    ) -> dict[str, Handle[object]]:
        codec = self.wires.codec
        choice = codec.towards(receiver), codec.towards(SERVER), PLAIN
        codecs = [choice[way] for way in ways]
        sizes = [_bytes(codec, spec) for codec, spec in zip(codecs, specs.values(), strict=True)]
        check_length(inner, start + sum(sizes), specs)
        tensors: dict[str, Handle[object]] = {}
        for (name, spec), codec, size in zip(specs.items(), codecs, sizes, strict=True):
            payload = inner[start : start + size]
            start += size
            decode = codec.unpack if spec.dtype.is_floating_point else from_raw
            handle: Handle[object] = Handle(spec.shape, spec.dtype)
            handle.set(decode(payload, spec.shape, spec.dtype).clone())  # aligned as PyTorch's own memory is
            if codec is not PLAIN:
                self.wires.came(handle, codec, payload)
            tensors[name] = handle
        return tensors


def extra_fields(made_of: type[Message]) -> list[dataclasses.Field[object]]:
    """Return the fields of a message class that not all messages have."""
    return [field for field in dataclasses.fields(made_of) if field.name not in _COMMON]


def _bytes(codec: Codec, spec: Spec) -> int:
    return (codec.payload_bytes if spec.dtype.is_floating_point else raw_bytes)(spec.shape, spec.dtype)
