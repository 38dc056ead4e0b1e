"""The plain codec: a fixed header, sample ids where the receiver cannot derive them, and the raw tensor."""

from __future__ import annotations

import math
import struct
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
import torch

from vflsim.errors import DataError
from vflsim.vocabulary.base import Part

# magic, version, dtype, number of dimensions, has ids | sender, batch index, round | kind | shape
_HEADER = struct.Struct("<4sBBBB i q q 16s 4i")
_MAGIC = b"VFL1"
_DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.int8, torch.int32, torch.int64)


class Envelope(NamedTuple):
    """What a message says besides its tensor: kind, sender, round and batch (``-1`` for none), and sample ids."""

    kind: str
    sender: int
    round: int = -1
    batch: int = -1
    ids: np.ndarray | None = None


@final
class Plain(Part):
    """Header of 60 bytes, 8 bytes a sample id (only with ``batches: own``), then the tensor as it lies in memory.

    Little-endian, no compression; ``size`` is what ``encode`` writes, byte for byte.
    """

    kind: Literal["plain"] = "plain"
    HEADER_BYTES: ClassVar[int] = _HEADER.size

    def size(self, shape: tuple[int, ...] | None, dtype: torch.dtype | None, ids: int = 0) -> int:
        """Bytes on the wire of a message with a tensor of ``shape`` (``None``: no tensor) and ``ids`` sample ids."""
        tensor = 0 if shape is None or dtype is None else math.prod(shape) * dtype.itemsize
        return _HEADER.size + 8 * ids + tensor

    def encode(self, envelope: Envelope, tensor: torch.Tensor | None) -> bytes:
        """The message as bytes. Raises ``DataError`` for a tensor of a type or rank that the header cannot name."""
        kind = envelope.kind.encode()
        if len(kind) > 16 or (tensor is not None and (tensor.dim() > 4 or tensor.dtype not in _DTYPES)):
            raise DataError(f"message {envelope.kind!r} cannot be encoded", allowed="≤ 4 dimensions, float or integer")
        shape = (0, 0, 0, 0) if tensor is None else (*tensor.shape, 0, 0, 0, 0)[:4]
        ids = b"" if envelope.ids is None else envelope.ids.astype("<i8").tobytes()
        rank, code = (255, 0) if tensor is None else (tensor.dim(), _DTYPES.index(tensor.dtype))
        header = _HEADER.pack(
            _MAGIC,
            1,
            code,
            rank,
            envelope.ids is not None,
            envelope.sender,
            envelope.batch,
            envelope.round,
            kind,
            *shape,
        )
        return header + ids + (b"" if tensor is None else tensor.detach().contiguous().cpu().numpy().tobytes())

    def decode(self, data: bytes) -> tuple[Envelope, torch.Tensor | None]:
        """The inverse of ``encode``. Raises ``DataError`` for bytes that ``encode`` did not write."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise DataError(
                f"{len(data)} bytes that are no vflsim message", allowed=f"a message starting with {_MAGIC!r}"
            )
        _, version, code, rank, has_ids, sender, batch, round_, kind, *dims = _HEADER.unpack_from(data)
        if version != 1 or code >= len(_DTYPES) or not (rank <= 4 or rank == 255) or min(dims) < 0:
            raise DataError("a damaged message header", allowed="version 1, a known dtype, at most 4 dimensions")
        shape = None if rank == 255 else tuple(dims[:rank])
        tensor_bytes = 0 if shape is None else int(np.prod(shape, dtype=np.int64)) * _DTYPES[code].itemsize
        rest = len(data) - _HEADER.size - tensor_bytes
        if rest < 0 or rest % 8 or (rest and not has_ids):
            raise DataError(f"a message of {len(data)} bytes does not fit its header", allowed="an unshortened message")
        split = _HEADER.size + rest
        ids = np.frombuffer(data[_HEADER.size : split], "<i8").astype(np.int64) if has_ids else None
        tensor = None
        if shape is not None:
            body = bytearray(data[split:])
            tensor = (
                torch.frombuffer(body, dtype=_DTYPES[code]) if body else torch.empty(0, dtype=_DTYPES[code])
            ).reshape(shape)
        return Envelope(kind.rstrip(b"\0").decode(errors="replace"), sender, round_, batch, ids), tensor


AnyCodec = Plain
CODECS: tuple[type[Part], ...] = (Plain,)
