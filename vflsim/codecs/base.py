"""The base classes of codecs, which turn tensors into bytes and back, and the plain codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Literal, final

from vflsim.codecs.frame import (
    ONLY,
    Envelope,
    Shape,
    Spec,
    check_length,
    frame_bytes,
    from_raw,
    raw,
    raw_bytes,
    read_frame,
    write_frame,
)
from vflsim.errors import NonFiniteError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.vocabulary.trial import Trial, alike


class Codec(Part, ABC):
    """A codec is one final class: its fields are its settings, its methods encode and decode floating-point tensors.

    The receiver of a tensor x gets ``through(x)``, in both directions. Invariants: ``unpack(pack(x))`` equals
    ``through(x)`` bit for bit, and ``pack`` writes ``payload_bytes``; every codec leaves integers (elements of a field,
    ids) unchanged.

    Example, which a scenario names by ``codec: {kind: module, path: "mine:Half"}``::

        class Half(Codec):
            kind: Literal["half"] = "half"

            def payload_bytes(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
                return 2 * math.prod(shape)

            def pack(self, x: Tensor) -> bytes:
                return x.to(torch.float16).cpu().numpy().tobytes()

            def unpack(self, payload: bytes, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
                return torch.from_numpy(np.frombuffer(payload, np.float16).copy()).reshape(shape).to(dtype)


        len(Half().pack(torch.ones(3, 4)))  # 24
    """

    kind: str
    lossless: ClassVar[bool] = False
    """Whether all tensors arrive unchanged, so that ``through`` is skipped."""
    straight_through: ClassVar[bool] = True
    """Whether the gradient of the received tensor serves as that of the sent one; else ``backward`` converts it."""

    @property
    def elementwise(self) -> bool:
        """Whether ``through`` acts on each element alone, so that tensors of several clients may be stacked."""
        return True

    @property
    def remembers(self) -> bool:
        """Whether ``transmit`` keeps a memory from one tensor to the next (error feedback)."""
        return False

    def towards(self, receiver: int) -> Codec:
        """Return the codec of messages to ``receiver``: the server (0) or a client."""
        return self

    @property
    def hides(self) -> bool:
        """Whether its random numbers are noise that hides values: in a live run nobody else may know their key."""
        return False

    def keyed(self, key: int) -> Codec:
        """Return the codec for one tensor, whose random numbers follow from a ``key`` of 64 bits (128 if it hides)."""
        return self

    def promise(self, elements: int) -> str:
        """Describe the guarantees of an upload with this many elements a row; return an empty text for none."""
        return ""

    # --- one tensor --------------------------------------------------------------------------------------------------

    @abstractmethod
    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes that ``pack`` writes for a floating-point tensor of ``shape``."""

    @abstractmethod
    def pack(self, x: torch.Tensor) -> bytes:
        """Encode a floating-point tensor."""

    @abstractmethod
    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Decode bytes from ``pack``. Raises ``DataError`` for other bytes."""

    def through(self, x: torch.Tensor) -> torch.Tensor:
        """Return the received tensor for ``x``: same shape, dtype and device. Override it to avoid making bytes."""
        return self.unpack(self.pack(x), tuple(x.shape), x.dtype).to(x.device)

    def saturated(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return which elements of ``x`` are beyond the codec's range, as booleans; None for a codec without one.

        Runs count them, of codecs without memory.
        """
        return None

    def transmit(self, x: torch.Tensor, memory: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the received tensor, and the memory for the next tensor of the stream, of a codec that ``remembers``.

        A stream has one sender, receiver, message kind and tensor name; its memory begins as None. The default is error
        feedback: the memory is the lost part of x + memory.
        """
        owed = x if memory is None or memory.shape != x.shape else x + memory
        arrived = self.through(owed)
        return arrived, owed - arrived

    def backward(self, gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return ∂ℓ/∂x from ``gradient``, ∂ℓ/∂ ``through(x)``; the same tensor if ``straight_through``."""
        return gradient

    # --- whole messages ----------------------------------------------------------------------------------------------

    def size(self, shape: Shape | None, dtype: torch.dtype | None, ids: int = 0) -> int:
        """Count the bytes of a message with one tensor of ``shape`` (None: no tensor) and ``ids`` sample ids."""
        return self.size_of({} if shape is None or dtype is None else {ONLY: Spec(shape, dtype)}, ids)

    def size_of(self, specs: Mapping[str, Spec], ids: int = 0, passed_on: Mapping[str, Codec] | None = None) -> int:
        """Count the bytes of a message with these tensors and ``ids`` sample ids.

        ``passed_on``: the codecs of tensors that are sent as they came.
        """
        codecs = passed_on or {}
        sizes = (codecs.get(name, self)._bytes_of(spec) for name, spec in specs.items())
        return frame_bytes(tuple(specs), ids) + sum(sizes)

    def encode(self, envelope: Envelope, tensors: Mapping[str, torch.Tensor]) -> bytes:
        """Encode a message. Raises ``DataError`` for content that does not fit into the frame."""
        frame = write_frame(envelope, {name: Spec(tuple(x.shape), x.dtype) for name, x in tensors.items()})
        return b"".join([frame, *(self.pack(x) if x.is_floating_point() else raw(x) for x in tensors.values())])

    def decode(self, data: bytes) -> tuple[Envelope, dict[str, torch.Tensor]]:
        """Decode bytes from ``encode``. Raises ``DataError`` for other bytes."""
        envelope, specs, place = read_frame(data)
        check_length(data, place + sum(map(self._bytes_of, specs.values())), specs)
        tensors: dict[str, torch.Tensor] = {}
        for name, spec in specs.items():
            end = place + self._bytes_of(spec)
            decode = self.unpack if spec.dtype.is_floating_point else from_raw
            tensors[name] = decode(data[place:end], spec.shape, spec.dtype)
            place = end
        return envelope, tensors

    def _contract(self, trial: Trial) -> None:
        self._contract_at(trial, ((5,), (1, 3), (6, 4), (2, 3, 4)), (torch.float32, torch.float64))

    def _contract_at(self, trial: Trial, shapes: Iterable[Shape], dtypes: Iterable[torch.dtype]) -> None:
        """Send zeros, ordinary, small and large numbers, and nan, which may end in ``NonFiniteError``."""
        for method, flag, called in (("backward", "straight_through", False), ("transmit", "remembers", True)):
            idle = getattr(type(self), method) is not getattr(Codec, method) and getattr(self, flag) is not called
            now, then = str(not called).lower(), str(called).lower()
            what = f"{trial.name} defines '{method}', which is never called while {flag} is {now}"
            remedy = f"set `{flag} = {called}`, or leave {method} out"
            trial.must(not idle, what, f"{flag} {then} with a rule of its own", method, remedy)
        for shape, dtype in [(shape, dtype) for shape in shapes for dtype in dtypes]:
            for what, x in _tensors(shape, dtype):
                try:
                    self._contract_of(Trial(self), x, f"for {what} of shape {shape}, {dtype}")
                except NonFiniteError:
                    if what != "nan":
                        raise

    def _contract_of(self, trial: Trial, x: Tensor, where: str) -> None:
        name, shape, keyed = trial.name, tuple(x.shape), self.keyed(_KEY)
        by_key = "the same for one tensor and one key: random numbers follow from the key of 'keyed'"

        def asked(method: str, *arguments: object) -> Tensor:
            answer = trial.ask(method, *arguments, where=where, call=getattr(keyed, method), repeats=by_key)
            trial.must_be_tensor(method, answer, shape, x.dtype, where)
            arrived: Tensor = answer
            return arrived

        packed = trial.ask("pack", x, where=where, call=keyed.pack, repeats=by_key)
        trial.must(
            isinstance(packed, bytes), f"{name}.pack returned a {type(packed).__name__} {where}", "bytes", "pack"
        )
        counted = self.payload_bytes(shape, x.dtype)
        what = f"{name}.payload_bytes says {counted!r} bytes where pack writes {len(packed)}, {where}"
        allowed = "the number of bytes that pack writes, whatever the tensor holds"
        trial.must(counted == len(packed), what, allowed, "payload_bytes")
        arrived, decoded = asked("through", x), asked("unpack", packed, shape, x.dtype)
        what = f"{name}.through differs from unpack(pack) {where}"
        trial.must(alike(arrived, decoded), what, "equal tensors", "through")
        unchanged = not self.lossless or alike(decoded, x)
        trial.must(unchanged, f"{name} is lossless, but changes a tensor, {where}", "unchanged tensors", "lossless")
        if self.elementwise:
            two = keyed.through(torch.stack([x, x / 3]))
            what = f"{name} treats an element differently in a stack of two tensors, {where}"
            same = alike(two, torch.stack([arrived, keyed.through(x / 3)]))
            trial.must(same, what, "elementwise false where elements depend on each other", "elementwise")
        for tensors in ({ONLY: x}, {"a": x, "ids": torch.arange(3)}):  # a codec may write a frame of its own
            data = keyed.encode(Envelope("embedding", 1), tensors)
            counted = self.size_of({key: Spec(tuple(each.shape), each.dtype) for key, each in tensors.items()})
            what = f"{name}.size_of says {counted} bytes where encode writes {len(data)}, {where}"
            trial.must(len(data) == counted, what, "the number of bytes that encode writes", "size_of")
            received, expected = self.decode(data)[1], {**tensors, next(iter(tensors)): decoded}
            same = all(key in received and alike(received[key], each) for key, each in expected.items())
            what = f"{name}.decode does not return what encode wrote, {where}"
            trial.must(same, what, "integers unchanged", "decode")
        if not self.straight_through:
            asked("backward", torch.ones_like(x), x)
        if self.remembers:
            _, memory = keyed.transmit(x, None)
            allowed = "a new memory from the tensor and the old one"
            again, _ = trial.ask("transmit", x, memory, where=where, call=keyed.transmit, repeats=allowed)
            trial.must_be_tensor("transmit", again, shape, x.dtype, where)
        trial.end()

    def _bytes_of(self, spec: Spec) -> int:
        return (self.payload_bytes if spec.dtype.is_floating_point else raw_bytes)(spec.shape, spec.dtype)


_KEY = 0x5EED


def _tensors(shape: Shape, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    draw = torch.Generator().manual_seed(1)
    ordinary = torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype)
    damaged = ordinary.clone()
    damaged.view(-1)[:1] = torch.nan
    yield from (("zeros", torch.zeros(shape, dtype=dtype)), ("ordinary numbers", ordinary))
    yield from (("small numbers", ordinary * 1e-6), ("large numbers", ordinary * 1e6), ("nan", damaged))


class Compressor(Codec):
    """A lossy codec. Its payload holds all that its decoder needs, the key of its random numbers included."""

    error_feedback: bool = False
    """Whether what one tensor loses is added to the next one of the same sender, receiver, message kind and name."""

    @property
    def remembers(self) -> bool:
        """Whether there is error feedback."""
        return self.error_feedback


@final
class Plain(Codec):
    """Header of 60 bytes, 8 bytes per sample id (only with ``batches: own``), then the tensors as in memory.

    Several tensors, or one with a name, add 34 bytes each. Little-endian, no compression.

    Example: ``{kind: plain}``
    """

    kind: Literal["plain"] = "plain"
    lossless: ClassVar[bool] = True

    def payload_bytes(self, shape: Shape, dtype: torch.dtype) -> int:
        """Count the bytes of all elements at full width."""
        return raw_bytes(shape, dtype)

    def pack(self, x: torch.Tensor) -> bytes:
        """Return the tensor's memory."""
        return raw(x)

    def unpack(self, payload: bytes, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
        """Restore the tensor bit for bit."""
        return from_raw(payload, shape, dtype)


_DOWN = Plain()


class Upward(Codec):
    """A codec of messages to the server; messages to clients stay plain, unless ``gradients`` asks for both.

    Its levels are those of a model's outputs. Gradients are smaller by orders of magnitude: they would all become 0, or
    all ±1. In ``by_direction`` a scenario names the codec of each direction separately.
    """

    gradients: bool = False
    """Whether messages to clients (gradients, the server's weights) pass this codec, too."""

    def towards(self, receiver: int) -> Codec:
        """Return this codec for the server; for a client, too, if ``gradients``; else the plain one."""
        return _DOWN if receiver and not self.gradients else self
