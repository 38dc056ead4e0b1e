"""The wire of a party in a process of its own: what it sends are the codec's bytes, which it keeps for forwarding."""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor
from typing_extensions import override

from vflsim.protocol import Codec, Handle
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
