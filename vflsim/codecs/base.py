"""The base classes of codecs, which turn tensors into bytes and back, and the plain codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, final

import torch

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
from vflsim.vocabulary.base import Part


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

    def _bytes_of(self, spec: Spec) -> int:
        return (self.payload_bytes if spec.dtype.is_floating_point else raw_bytes)(spec.shape, spec.dtype)


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
