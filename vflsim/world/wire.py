"""The wire: a codec transforms the tensors of a message on their way to the receiver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from vflsim.codecs import Codec
from vflsim.codecs.frame import ONLY, Spec
from vflsim.learning.execution.operations import Executor, Handle, Operation
from vflsim.streams import SERVER, SHARED, stream_key
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
