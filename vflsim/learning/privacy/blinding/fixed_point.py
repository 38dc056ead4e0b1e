"""Fixed point modulo 2^bits: encode an embedding, add up those of all clients, decode the sum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflsim.errors import BlindingError, NonFiniteError
from vflsim.learning.privacy.blinding.blinding import Blinding
from vflsim.streams import few


@dataclass(frozen=True)
class BlindedSum:
    """The sum of the embeddings of ``clients``, of ``dtype``, in the fixed point of ``blinding``.

    ``context`` names what the masks are for, so that no other sum has the same.

    An element h becomes round(2^f h), halves to even. Invariant: the sum of the integers is the sum of the embeddings
    in fixed point, to the bit; nothing ever wraps around unnoticed.
    """

    blinding: Blinding
    clients: tuple[int, ...]
    dtype: torch.dtype
    context: str = ""

    @property
    def uploaded(self) -> torch.dtype:
        """The dtype of an upload: integers modulo 2^bits, as signed ones."""
        return torch.int32 if self.blinding.bits == 32 else torch.int64

    @property
    def largest(self) -> float:
        """The largest magnitude of an element of an embedding."""
        return self.blinding.largest(len(self.clients))

    def encoded(self, h: Tensor) -> NDArray[np.unsignedinteger]:
        """Return round(2^f h) modulo 2^bits, in the shape of ``h``.

        Raises ``NonFiniteError`` for an element that is not finite, and ``BlindingError`` for one above ``largest``.
        """
        values = h.detach().to("cpu", torch.float64)
        magnitude = float(values.abs().max())
        if not math.isfinite(magnitude):
            raise NonFiniteError("an embedding is not finite")
        if magnitude > self.largest:
            raise BlindingError(
                f"an embedding has an element of magnitude {magnitude:g}, and the sum over "
                f"{len(self.clients)} clients could wrap around",
                allowed=f"magnitudes up to {self.largest:g}, with {self.blinding.bits} bits and "
                f"{self.blinding.fraction} after the point",
                remedy="a smaller blinding.fraction, blinding.bits: 64, or a smaller learning rate",
            )
        return (values * 2.0**self.blinding.fraction).round().to(torch.int64).numpy().astype(self._unsigned)

    def masked(self, h: Tensor, mask: NDArray[np.unsignedinteger]) -> Tensor:
        """Return the upload for ``h``: encoded, plus ``mask`` (one element each), on the device of ``h``.

        Raises what ``encoded`` raises.
        """
        blinded = self.encoded(h) + mask.reshape(h.shape)
        return torch.from_numpy(blinded.view(f"i{blinded.itemsize}")).to(h.device)

    def total(self, uploads: Mapping[int, Tensor]) -> Tensor:
        """Return the sum of the embeddings from the ``uploads`` of all clients, by number.

        Raises ``BlindingError`` if a client's upload is missing, or if the sum is larger than embeddings can make it:
        then masks are left over in it.
        """
        missing = [client for client in self.clients if client not in uploads]
        if missing:
            raise BlindingError(
                f"masks are left over in a sum without client {few([str(client) for client in missing])}",
                allowed=f"the uploads of all {len(self.clients)} clients",
                remedy="blinding.missing says what happens in such a round",
            )
        parts = [uploads[client].cpu().numpy().view(self._unsigned) for client in self.clients]
        signed = np.add.reduce(parts, dtype=self._unsigned).view(f"i{self._unsigned.itemsize}")
        decoded = signed.astype(np.float64) * 2.0**-self.blinding.fraction
        if (np.abs(decoded) > self.largest * len(self.clients)).any():
            raise BlindingError(
                "the sum of blinded embeddings is out of range: masks are left over in it, or an upload was changed",
                allowed=f"magnitudes up to {self.largest * len(self.clients):g}",
            )
        return torch.from_numpy(decoded).to(uploads[self.clients[0]].device, self.dtype)

    @property
    def _unsigned(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(f"u{self.blinding.bits // 8}")
