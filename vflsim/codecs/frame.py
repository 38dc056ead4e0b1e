"""The frame round the encoded tensors of a message, and the detection of damage."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vflsim.errors import DataError
from vflsim.vocabulary.on_demand import dtype as dtype_named, torch


def packed_bytes(count: int, bits: int) -> int:
    """Count the bytes of ``count`` numbers of ``bits`` bits."""
    return (count * bits + 7) // 8


def pack_bits(numbers: torch.Tensor, bits: int) -> bytes:
    """Pack the numbers 0 ≤ n < 2^bits one after another, lowest bit first; zeros fill the last byte."""
    whole = numbers.reshape(-1, 1).cpu().numpy()
    return np.packbits((whole >> np.arange(bits) & 1).astype(np.uint8), bitorder="little").tobytes()


def unpack_bits(payload: bytes, count: int, bits: int) -> torch.Tensor:
    """Invert ``pack_bits``: int64 numbers. Raises ``DataError`` for bytes of another length, or with stray bits."""
    if len(payload) != packed_bytes(count, bits):
        raise DataError(f"{len(payload)} bytes of packed numbers", allowed=f"{packed_bytes(count, bits)}")
    digits = np.unpackbits(np.frombuffer(payload, np.uint8), bitorder="little").astype(np.int64)
    if digits[count * bits :].any():
        raise DataError("bits after the last packed number", allowed="zeros")
    numbers: NDArray[np.int64] = (digits[: count * bits].reshape(count, bits) << np.arange(bits)).sum(1)
    return torch.from_numpy(numbers)


Shape = tuple[int, ...]
ONLY = ""
"""The name of a message's only tensor if it has no name of its own."""

# magic, version, dtype, rank (or number of named tensors), flags | sender, batch index, ids, round | kind | shape
_HEADER = struct.Struct("<4sBBBB iiIq 16s 4i")
_SECTION = struct.Struct("<16s BB 4i")  # of a named tensor: name | dtype, rank | shape
_NO_TENSOR = 255  # in place of the rank
_IDS, _NAMED = 1, 2  # flags
_MAGIC = b"VFL1"
_DTYPES = "float32", "float64", "int8", "int32", "int64", "bool", "uint8", "int16", "float16", "bfloat16"
_MOST_NAMED = 254


class Envelope(NamedTuple):
    """The content of a message besides its tensors: kind, sender, round and batch (``-1`` for none), sample ids.

    Example::

        Envelope("embedding", sender=3, round=7).batch  # -1
    """

    kind: str
    sender: int
    round: int = -1
    batch: int = -1
    ids: np.ndarray | None = None


class Spec(NamedTuple):
    """Shape and dtype of a tensor before it is encoded.

    Example::

        Spec((32, 16), torch.float32).shape  # (32, 16)
    """

    shape: Shape
    dtype: torch.dtype


def frame_bytes(names: tuple[str, ...], ids: int = 0) -> int:
    """Count the bytes of a frame round the tensors of these names; ``ids``: the number of sample ids."""
    sections = 0 if names in ((), (ONLY,)) else len(names)
    return _HEADER.size + 8 * ids + sections * _SECTION.size


def write_frame(envelope: Envelope, specs: Mapping[str, Spec]) -> bytes:
    """Write the frame, which precedes the payloads. Raises ``DataError`` for content that does not fit."""
    kind, ids = _text(envelope.kind, "message kind"), envelope.ids
    for spec in specs.values():
        if len(spec.shape) > 4 or _name(spec.dtype) not in _DTYPES:
            raise DataError(
                f"a {len(spec.shape)}-dimensional tensor of {spec.dtype}",
                allowed=f"at most 4 dimensions of {', '.join(f'torch.{name}' for name in _DTYPES)}",
            )
    if len(specs) > _MOST_NAMED:
        raise DataError(f"a message with {len(specs)} tensors", allowed=f"at most {_MOST_NAMED}")
    names = tuple(specs)
    named = names not in ((), (ONLY,))
    rank, code = _NO_TENSOR, 0
    dims: Shape = (0, 0, 0, 0)
    if named:
        rank = len(names)
    elif names:
        code, rank, dims = _described(specs[ONLY])
    flags = _IDS * (ids is not None) + _NAMED * named
    count = 0 if ids is None else len(ids)
    places = envelope.sender, envelope.batch, count, envelope.round
    try:
        header = _HEADER.pack(_MAGIC, 1, code, rank, flags, *places, kind, *dims)
        sections = [
            _SECTION.pack(_text(name, "tensor name"), *(described := _described(spec))[:2], *described[2])
            for name, spec in (specs.items() if named else ())
        ]
    except struct.error as error:
        shapes = [spec.shape for spec in specs.values()]
        raise DataError(
            f"a number in {envelope._replace(ids=None)} or in shape {shapes} does not fit: {error}"
        ) from error
    listed = b"" if ids is None else ids.astype("<i8").tobytes()
    return b"".join([header, listed, *sections])


def read_frame(data: bytes) -> tuple[Envelope, dict[str, Spec], int]:
    """Read a frame: envelope, specs of the tensors, and where their payloads begin.

    Raises ``DataError`` for bytes that ``write_frame`` did not write.
    """
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        raise DataError(f"{len(data)} bytes that are no vflsim message", allowed=f"a message starting with {_MAGIC!r}")
    _, version, code, rank, flags, sender, batch, count, round_, name, *dims = _HEADER.unpack_from(data)
    kind = _read_text(name)
    named, has_ids = bool(flags & _NAMED), bool(flags & _IDS)
    sound = version == 1 and flags <= _IDS | _NAMED and kind is not None and (has_ids or count == 0)
    if named:
        sound = sound and 1 <= rank <= _MOST_NAMED and code == 0 and not any(dims)
    else:
        sound = sound and _sound(code, 0 if rank == _NO_TENSOR else rank, dims)
    if not sound or kind is None:
        raise _damaged()
    start = _HEADER.size + 8 * count
    specs: dict[str, Spec] = {}
    if not named and rank != _NO_TENSOR:
        specs[ONLY] = Spec(tuple(dims[:rank]), dtype_named(_DTYPES[code]))
    end = start + (rank * _SECTION.size if named else 0)
    if len(data) < end:
        raise _does_not_fit(data, end, specs)
    for place in range(rank if named else 0):
        text, code, depth, *dims = _SECTION.unpack_from(data, start + place * _SECTION.size)
        key = _read_text(text)
        if key is None or key in specs or not _sound(code, depth, dims):
            raise _damaged()
        specs[key] = Spec(tuple(dims[:depth]), dtype_named(_DTYPES[code]))
    if tuple(specs) == (ONLY,) and named:
        raise _damaged()
    ids = np.frombuffer(data[_HEADER.size : start], "<i8").astype(np.int64) if has_ids else None
    return Envelope(kind, sender, round_, batch, ids), specs, end


def raw(tensor: torch.Tensor) -> bytes:
    """Return a tensor's memory, row after row, little-endian."""
    return tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def from_raw(data: bytes, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Invert ``raw``: make a tensor with its own memory."""
    body = bytearray(data)
    return (torch.frombuffer(body, dtype=dtype) if body else torch.empty(0, dtype=dtype)).reshape(shape)


def raw_bytes(shape: Shape, dtype: torch.dtype) -> int:
    """Count the bytes of ``raw``."""
    return math.prod(shape) * dtype.itemsize


def check_length(data: bytes, expected: int, specs: Mapping[str, Spec]) -> None:
    """Raise ``DataError`` unless a message has the ``expected`` number of bytes."""
    if len(data) != expected:
        raise _does_not_fit(data, expected, specs)


def _does_not_fit(data: bytes, expected: int, specs: Mapping[str, Spec]) -> DataError:
    return DataError(
        f"a message of {len(data)} bytes does not fit its header",
        allowed=f"{expected} bytes for tensors of shapes {[spec.shape for spec in specs.values()]}",
    )


def _damaged() -> DataError:
    return DataError("a damaged message header", allowed="version 1, a known dtype, at most 4 dimensions")


def _described(spec: Spec) -> tuple[int, int, tuple[int, ...]]:
    return _DTYPES.index(_name(spec.dtype)), len(spec.shape), (*spec.shape, 0, 0, 0, 0)[:4]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _sound(code: int, rank: int, dims: list[int]) -> bool:
    return code < len(_DTYPES) and rank <= 4 and min(dims) >= 0 and not any(dims[rank:])


def _text(text: str, what: str) -> bytes:
    data = text.encode()
    if len(data) > 16 or b"\0" in data:
        raise DataError(f"{what} {text!r}", allowed="at most 16 bytes of UTF-8, no NUL")
    return data


def _read_text(data: bytes) -> str | None:
    try:
        text = data.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
