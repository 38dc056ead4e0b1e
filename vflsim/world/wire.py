"""The wire, where a codec transforms tensors on their way, and views: what really arrives, for curious parties."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY, Spec
from vflsim.learning.batches import BatchSequence
from vflsim.learning.execution.operations import Executor, Handle, Operation
from vflsim.learning.learners.inputs import KeptValue
from vflsim.streams import SERVER, SHARED, generator, party_name, stream_key
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.messages import Message

_COUNTS = "saturation"
"""In a wire's state, the place of the counts; names of streams have slashes."""


def specs_of(message: Message) -> dict[str, Spec]:
    """Shape and dtype of every tensor of a message."""
    return {name: Spec(handle.shape, handle.dtype) for name, handle in message.carried.items()}


class Wires:
    """The codec of a run, and its kernels for tensors of several parties.

    Tensors that are alike pass an element-wise codec together, as one stack.
    """

    def __init__(self, codec: Codec, executor: Executor, seed: int = 0) -> None:
        self.codec, self.executor, self.seed = codec, executor, seed
        self.lossless = codec.lossless
        self._one = type(codec).towards is Codec.towards  # for all receivers
        self.arrived: WeakKeyDictionary[Handle[Any], Codec] = WeakKeyDictionary()
        """The tensors that have been sent, and by which codec. Passed on, they keep their bytes."""
        self.widest = 0
        """The most elements of a row in a message to the server, of the floating-point tensors of training."""
        self._stacked: dict[tuple[int, Spec], _Stacked] = {}
        self._sizes: dict[Any, int] = {}

    def keyed(self, codec: Codec, party: int, place: str, x: Tensor, memory: Tensor | None) -> Codec:
        """Return the codec with the key of a party's tensor, which follows from the seed and the tensor's place."""
        return codec.keyed(stream_key(self.seed, party, place) & 2**64 - 1)

    def size(self, message: Message) -> int:
        """Count the bytes of a message on the wire. Messages of one shape are counted once."""
        value, batch = message.value, message.batch
        ids = 0 if batch is None or batch.origin == SHARED else len(batch.ids)
        key: Any
        if self._one and not message.tensors:
            key = ids if value is None else (value.shape, value.dtype, ids)
            size = self._sizes.get(key)
            if size is None:
                size = self._sizes[key] = self.codec.size_of(specs_of(message), ids)
            return size
        codec = self.codec.towards(message.receiver)
        if message.tensors:
            passed_on = {name: self.arrived[each] for name, each in message.carried.items() if each in self.arrived}
            return codec.size_of(specs_of(message), ids, passed_on)
        if value is not None:
            codec = self.arrived.get(value, codec)
        key = ids if value is None else (id(codec), value.shape, value.dtype, ids)
        size = self._sizes.get(key)
        if size is None:
            size = self._sizes[key] = codec.size_of(specs_of(message), ids)
        return size

    def through(self, codec: Codec, x: Tensor, arrived: Handle[Any]) -> Tensor:
        """Return what the receiver gets of ``x``, which ``arrived`` promises."""
        return codec.through(x)

    def transmit(self, codec: Codec, x: Tensor, memory: Tensor | None, arrived: Handle[Any]) -> tuple[Tensor, Tensor]:
        """Return what the receiver gets of ``x``, and the memory for the stream's next tensor."""
        return codec.transmit(x, memory)

    def kernel(self, codec: Codec, spec: Spec) -> _Stacked | None:
        """Return the kernel that puts tensors of several parties through a codec in one call, None if none can."""
        if not codec.elementwise or codec.remembers:
            return None
        return self._stacked.setdefault((id(codec), spec), _Stacked(codec))


class Saturation:
    """How many elements a party has sent through codecs with a range, and how many of them saturated."""

    def __init__(self) -> None:
        self.saturated: int | Tensor = 0
        self.of = 0

    def count(self, beyond: Tensor | None) -> None:
        """Count the elements of one tensor, True where saturated. The sum stays on its device, so nothing waits."""
        if beyond is not None:
            self.saturated, self.of = beyond.sum() + self.saturated, self.of + beyond.numel()

    @property
    def counts(self) -> Tensor:
        """Both, (2,)."""
        return torch.tensor([int(self.saturated), self.of])


class Wire:
    """One party's end of the wire.

    Invariants: values are decoded only when they are read; a codec without memory transforms a tensor once, even if
    several parties get it; a tensor that has arrived is passed on as it came; the memory moves on with every tensor
    sent, whether or not it arrives. The n-th tensor of a message kind and name to a client, or to the server, gets the
    n-th key, for each party, with a sequence of its own for evaluation; the order of the receivers plays no part.
    """

    def __init__(self, party: int, wires: Wires) -> None:
        self._party, self._wires = party, wires
        self._sent: WeakKeyDictionary[Handle[Any], Handle[Any]] = WeakKeyDictionary()
        self._memory: dict[str, Tensor] = {}
        self.saturation = Saturation()
        self.encoded: Counter[str] = Counter()
        """How many tensors of each purpose have been encoded."""

    def carry(self, message: Message, remember: bool = True) -> None:
        """Replace the floating-point tensors of ``message`` by the tensors that arrive.

        ``remember=False`` leaves the codec's memory alone, as evaluation must, and counts no saturated elements.
        """
        codec = self._wires.codec.towards(message.receiver)
        if codec.lossless:
            for handle in message.carried.values():
                self._wires.arrived.setdefault(handle, codec)
            return
        purpose = f"codec.{message.kind}" if remember else f"codec.evaluation.{message.kind}"
        if message.receiver != SERVER:  # the server answers in the order of arrivals, which is not to be a key's
            purpose += f".{message.receiver}"
        stream = f"{message.receiver}/{message.kind}/"

        def passed(handle: Handle[Any], name: str) -> Handle[Any]:
            memory = stream + name if remember and codec.remembers else None
            return self._passed(codec, handle, f"{purpose}/{name}", memory, self.saturation if remember else None)

        if remember and message.receiver == SERVER:
            tensors = [tensor for tensor in message.carried.values() if tensor.dtype.is_floating_point]
            wide = sum(math.prod(tensor.shape[1:]) for tensor in tensors)
            self._wires.widest = max(self._wires.widest, wide)
        if message.value is not None:
            message.value = passed(message.value, ONLY)
        if message.tensors:
            message.tensors = {name: passed(handle, name) for name, handle in message.tensors.items()}

    def as_received(self, sent: Handle[Any]) -> Handle[Any]:
        """Return what the receivers get of a tensor that this party has sent, by a codec without memory."""
        return self._sent.get(sent, sent)

    def state(self) -> dict[str, Tensor]:
        """The codec's memory by stream, the tensors themselves; and the counts of saturated elements, if any passed."""
        counted = {_COUNTS: self.saturation.counts} if self.saturation.of else {}
        return self._memory | counted

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load the memory and the counts of an earlier wire."""
        self._memory = {stream: memory.clone() for stream, memory in state.items() if stream != _COUNTS}
        if _COUNTS in state:
            self.saturation.saturated, self.saturation.of = map(int, state[_COUNTS])

    def _passed(
        self, codec: Codec, sent: Handle[Any], purpose: str, stream: str | None, saturation: Saturation | None
    ) -> Handle[Any]:
        if not sent.dtype.is_floating_point or sent in self._wires.arrived:
            return sent
        if stream is None and (known := self._sent.get(sent)) is not None:
            return known
        arrived: Handle[Any] = Handle(sent.shape, sent.dtype)
        self._wires.arrived[arrived] = codec
        place = f"{purpose}/{self.encoded[purpose]}"
        self.encoded[purpose] += 1
        operation: Operation[None] = Operation(
            "codec", self._party, partial(self._transmit, codec, sent, arrived, place, stream, saturation), None,
            nbytes=arrived.nbytes, inputs=(sent,), promises=(arrived,),
        )  # fmt: skip
        if stream is None:
            operation.kernel = self._wires.kernel(codec, Spec(sent.shape, sent.dtype))
            operation.work = _Passing(sent, arrived, saturation)
            self._sent[sent] = arrived
        self._wires.executor.submit(operation)
        return arrived

    def _transmit(
        self, codec: Codec, sent: Handle[Any], arrived: Handle[Any], place: str, stream: str | None,
        saturation: Saturation | None,
    ) -> None:  # fmt: skip
        memory = None if stream is None else self._memory.get(stream)
        codec = self._wires.keyed(codec, self._party, place, sent.value, memory)
        with torch.no_grad():
            if stream is None:
                arrived.set(self._wires.through(codec, sent.value, arrived))
                if saturation is not None:
                    saturation.count(codec.saturated(sent.value))
                return
            value, self._memory[stream] = self._wires.transmit(codec, sent.value, memory, arrived)
            arrived.set(value)


@dataclass(slots=True)
class _Passing:
    """One tensor on its way: as sent, and as it arrives; and where its saturated elements count, if they do."""

    sent: Handle[Any]
    arrived: Handle[Any]
    saturation: Saturation | None


class _Stacked:
    """The kernel of an element-wise codec: tensors of one shape and dtype go through it as one."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def run(self, operations: Sequence[Operation[Any]]) -> None:
        """Put the tensors of all operations through the codec."""
        works: list[_Passing] = [operation.work for operation in operations]
        with torch.no_grad():
            together = torch.stack([work.sent.value for work in works])
            beyond = self._codec.saturated(together)
            for place, (work, value) in enumerate(zip(works, self._codec.through(together).unbind(), strict=True)):
                work.arrived.set(value)
                if work.saturation is not None:
                    work.saturation.count(None if beyond is None else beyond[place])


# --- views ------------------------------------------------------------------------------------------------------------


ROWS = "rows"
"""The name of the tensor with the recorded rows."""
DERIVED = "derived"
"""In place of a sender: the receiver has computed it from messages."""


def chosen_rows(rows: int, count: int, seed: int) -> NDArray[np.int64]:
    """Choose ``count`` of ``rows`` training rows (all, if there are fewer), ascending: equal for all protocols."""
    chosen = generator(seed, SHARED, "views").choice(rows, min(count, rows), replace=False)
    return np.sort(chosen).astype(np.int64)


@dataclass(slots=True)
class Views:
    """The tensor rows that each party has received about the training rows ``rows``: the latest, or all of them.

    There is a view for every (receiver, sender, message kind, tensor name). ``values`` are (recorded rows, …) as they
    arrived: after codec, noise and blinding. ``time_s`` is when they arrived (s); NaN marks a row that never did, whose
    values are NaN, or 0 for integers. Where a tensor row mixes several training rows, ``mixed`` lists them (−1: none).
    With ``everything``, the fields have an entry for each arrival of a row instead, in the order of arrival, and
    ``row`` (arrivals,) is its place among the recorded rows.

    Invariants: rows are copied by operations of the executor that nothing waits for and that count for no memory, so
    that recording changes no other result; a view is independent of when they run. ``batches`` has the mini-batches of
    every client: a message without a batch is about the batch of its round.
    """

    rows: NDArray[np.int64]
    executor: Executor
    now: Callable[[], float]
    batches: Mapping[int, BatchSequence]
    everything: bool = False
    _place: NDArray[np.int64] = field(init=False)
    _latest: dict[str, Tensor] = field(default_factory=dict, init=False)
    _arrived: dict[str, list[Tensor]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._place = np.full(int(self.rows.max()) + 2, -1)
        self._place[self.rows] = np.arange(len(self.rows))

    def received(self, message: Message) -> None:
        """Keep what a message that has just arrived holds about the recorded rows."""
        batches = self.batches[message.sender or message.receiver]
        for name, handle in message.carried.items():
            rows = message.rows_of(name, batches)
            if rows is not None:
                view = f"{party_name(message.receiver)}/{party_name(message.sender)}/{message.kind}"
                self._keep(view, name, rows, (handle,))

    def derive(
        self,
        party: int,
        kind: str,
        rows: NDArray[np.int64],
        inputs: Sequence[Handle[Any]],
        compute: Callable[[], Tensor] | None = None,
        name: str = ONLY,
    ) -> None:
        """Keep what ``party`` can compute from the ``inputs``, a row for each of ``rows``; by default the first."""
        self._keep(f"{party_name(party)}/{DERIVED}/{kind}", name, rows, inputs, compute)

    def state(self) -> dict[str, Tensor]:
        """Return all views as tensors by name: ``receiver/sender/kind[/name]:field``, and the recorded rows."""
        self._arrived = {name: [torch.cat(parts)] for name, parts in self._arrived.items()}
        arrived = {name: whole for name, (whole,) in self._arrived.items()}
        return {ROWS: torch.from_numpy(self.rows), **self._latest, **arrived}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state`` returned."""
        tensors = {name: tensor.clone() for name, tensor in state.items() if name != ROWS}
        self._latest = {} if self.everything else tensors
        self._arrived = {name: [tensor] for name, tensor in tensors.items()} if self.everything else {}

    def _keep(
        self,
        view: str,
        name: str,
        rows: NDArray[np.int64],
        inputs: Sequence[Handle[Any]],
        compute: Callable[[], Tensor] | None = None,
    ) -> None:
        view = f"{view}/{name}" if name != ONLY else view
        places = self._place[np.minimum(rows, len(self._place) - 1)]  # −1 and rows beyond the last recorded: none
        at, *column = np.nonzero(places >= 0)
        if not len(at):
            return
        into, now = torch.from_numpy(places[(at, *column)]), self.now()
        mixed = torch.from_numpy(rows[at]) if rows.ndim > 1 else None

        def run() -> None:
            value = inputs[0].value if compute is None else compute()
            values = value.rows_at(at) if isinstance(value, KeptValue) else value[torch.from_numpy(at)]
            if values is None:
                return
            fields = {"values": values.detach().cpu(), "time_s": torch.full((len(into),), now, dtype=torch.float64)}
            fields |= {} if mixed is None else {"mixed": mixed}
            if self.everything:
                for name, each in {**fields, "row": into}.items():
                    self._arrived.setdefault(f"{view}:{name}", []).append(each)
            else:
                for name, each in fields.items():
                    self._field(view, name, each)[into] = each

        self.executor.submit(Operation("view", SHARED, run, None, inputs=inputs, looks_on=True))

    def _field(self, view: str, name: str, like: Tensor) -> Tensor:
        """Return the tensor of all recorded rows for rows ``like`` these."""
        key = f"{view}:{name}"
        if key not in self._latest:
            missing = float("nan") if like.dtype.is_floating_point else -1 if name == "mixed" else 0
            self._latest[key] = torch.full((len(self.rows), *like.shape[1:]), missing, dtype=like.dtype)
        return self._latest[key]
