"""The plain codec: a fixed header, sample ids where the receiver cannot derive them, and the raw tensor."""

from __future__ import annotations

import math
import struct
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
import torch

from vflsim.errors import DataError
from vflsim.vocabulary.base import Part

# magic, version, dtype, number of dimensions, has ids | sender, batch index, number of ids, round | kind | shape
_HEADER = struct.Struct("<4sBBBB iiIq 16s 4i")
_NO_TENSOR = 255  # in place of the number of dimensions
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
        """The message as bytes. Raises ``DataError`` for what the header cannot say."""
        kind, ids = envelope.kind.encode(), envelope.ids
        if len(kind) > 16 or b"\0" in kind:
            raise DataError(f"message kind {envelope.kind!r}", allowed="at most 16 bytes of UTF-8, no NUL")
        if tensor is not None and (tensor.dim() > 4 or tensor.dtype not in _DTYPES):
            raise DataError(
                f"a {tensor.dim()}-dimensional tensor of {tensor.dtype}",
                allowed=f"at most 4 dimensions of {', '.join(map(str, _DTYPES))}",
            )
        rank, code, shape = _NO_TENSOR, 0, (0, 0, 0, 0)
        if tensor is not None:
            rank, code = tensor.dim(), _DTYPES.index(tensor.dtype)
            shape = (*tensor.shape, 0, 0, 0, 0)[:4]
        count = 0 if ids is None else len(ids)
        places = envelope.sender, envelope.batch, count, envelope.round
        try:
            header = _HEADER.pack(_MAGIC, 1, code, rank, ids is not None, *places, kind, *shape)
        except struct.error as error:
            raise DataError(
                f"a number in {envelope._replace(ids=None)} or in shape {shape} does not fit: {error}"
            ) from error
        listed = b"" if ids is None else ids.astype("<i8").tobytes()
        return header + listed + (b"" if tensor is None else tensor.detach().contiguous().cpu().numpy().tobytes())

    def decode(self, data: bytes) -> tuple[Envelope, torch.Tensor | None]:
        """The inverse of ``encode``. Raises ``DataError`` for bytes that ``encode`` did not write."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise DataError(
                f"{len(data)} bytes that are no vflsim message", allowed=f"a message starting with {_MAGIC!r}"
            )
        _, version, code, rank, has_ids, sender, batch, count, round_, name, *dims = _HEADER.unpack_from(data)
        try:
            kind = name.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            kind = "\0"
        dimensions = 0 if rank == _NO_TENSOR else rank
        sound = (
            version == 1
            and code < len(_DTYPES)
            and dimensions <= 4
            and min(dims) >= 0
            and not any(dims[dimensions:])
            and has_ids <= 1
            and (has_ids or count == 0)
            and "\0" not in kind
        )
        if not sound:
            raise DataError("a damaged message header", allowed="version 1, a known dtype, at most 4 dimensions")
        shape, dtype = (None if rank == _NO_TENSOR else tuple(dims[:rank])), _DTYPES[code]
        if len(data) != self.size(shape, dtype, count):
            raise DataError(
                f"a message of {len(data)} bytes does not fit its header",
                allowed=f"{self.size(shape, dtype, count)} bytes for {count} ids and a tensor of shape {shape}",
            )
        split = _HEADER.size + 8 * count
        ids = np.frombuffer(data[_HEADER.size : split], "<i8").astype(np.int64) if has_ids else None
        tensor = None
        if shape is not None:
            body = bytearray(data[split:])
            tensor = (torch.frombuffer(body, dtype=dtype) if body else torch.empty(0, dtype=dtype)).reshape(shape)
        return Envelope(kind, sender, round_, batch, ids), tensor


AnyCodec = Plain
CODECS: tuple[type[Part], ...] = (Plain,)
