"""Trial of a codec from outside: whether its bytes, its tensors and its promises agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from vflsim.codecs.base import Codec
from vflsim.codecs.frame import ONLY, Envelope, Shape, Spec
from vflsim.errors import NonFiniteError

SHAPES: tuple[Shape, ...] = ((5,), (1, 3), (6, 4), (2, 3, 4))
DTYPES = (torch.float32, torch.float64)
_KEY = 0x5EED


def try_out(codec: Codec, shapes: Iterable[Shape] = SHAPES, dtypes: Iterable[torch.dtype] = DTYPES) -> None:
    """Send tensors of these shapes and dtypes through ``codec``: zeros, ordinary ones, large ones, and nan.

    Raises ValueError for the first thing that goes wrong. For nan a codec may raise ``NonFiniteError``.
    """
    _rules(codec)
    dtypes = tuple(dtypes)
    for shape in shapes:
        for dtype in dtypes:
            for what, x in _tensors(shape, dtype):
                try:
                    _one(codec, x, f"{what} of shape {shape}, {dtype}")
                except NonFiniteError:
                    if what != "nan":
                        raise


def _rules(codec: Codec) -> None:
    """Refuse methods that nobody would call."""
    own, name = type(codec), type(codec).__name__
    if own.backward is not Codec.backward and codec.straight_through:
        raise ValueError(
            f"{name} defines 'backward', which is never called while straight_through is true; allowed: "
            "straight_through false with a rule of its own; set `straight_through = False`, or leave backward out"
        )
    if own.transmit is not Codec.transmit and not codec.remembers:
        raise ValueError(
            f"{name} defines 'transmit', which is never called while remembers is false; allowed: remembers true "
            "with a memory of its own; set `remembers = True`, or leave transmit out"
        )


def _tensors(shape: Shape, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)
    damaged = ordinary.clone()
    damaged.view(-1)[:1] = torch.nan
    yield from (("zeros", torch.zeros(shape, dtype=dtype)), ("ordinary numbers", ordinary))
    yield from (("small numbers", ordinary * 1e-6), ("large numbers", ordinary * 1e6), ("nan", damaged))


def _one(codec: Codec, x: Tensor, what: str) -> None:
    name, shape, keyed = type(codec).__name__, tuple(x.shape), codec.keyed(_KEY)
    sent = x.clone()
    drawn = torch.get_rng_state()
    packed = keyed.pack(x)
    _must(isinstance(packed, bytes), f"{name}.pack returns {type(packed).__name__} for {what}", "bytes", "pack")
    counted = codec.payload_bytes(shape, x.dtype)
    _must(
        counted == len(packed),
        f"{name}.payload_bytes says {counted!r} bytes where pack writes {len(packed)}, for {what}",
        "the number of bytes that pack writes, whatever the tensor holds",
        "payload_bytes",
    )
    arrived, decoded = keyed.through(x), codec.unpack(packed, shape, x.dtype)
    for method, tensor in (("through", arrived), ("unpack", decoded)):
        _must(
            isinstance(tensor, Tensor) and (tuple(tensor.shape), tensor.dtype) == (shape, x.dtype),
            f"{name}.{method} returns {_described(tensor)} for {what}",
            "the shape and dtype that were sent",
            method,
        )
    _must(_same(arrived, decoded), f"{name}.through differs from unpack(pack) for {what}", "equal tensors", "through")
    _must(
        _same(keyed.through(x), arrived) and keyed.pack(x) == packed,
        f"{name} encodes one tensor with one key differently when asked again, {what}",
        "random numbers that follow from the key of 'keyed'",
        "pack",
    )
    _must(
        torch.equal(torch.get_rng_state(), drawn),
        f"{name} draws from PyTorch's global generator for {what}",
        "random numbers that follow from the key of 'keyed'",
        "pack",
    )
    _must(_same(x, sent), f"{name} changes the tensor that is sent, {what}", "a new tensor", "through")
    if codec.lossless:
        _must(_same(decoded, x), f"{name} is lossless, but changes {what}", "unchanged tensors", "lossless")
    if codec.elementwise:
        two = keyed.through(torch.stack([x, x / 3]))
        _must(
            _same(two[0], arrived) and _same(two[1], keyed.through(x / 3)),
            f"{name} treats an element of {what} differently in a stack of two tensors",
            "elementwise false where elements depend on each other",
            "elementwise",
        )
    _messages(codec, keyed, x, decoded, what)
    _gradient_and_memory(codec, keyed, x, what)


def _messages(codec: Codec, keyed: Codec, x: Tensor, decoded: Tensor, what: str) -> None:
    """Check whole messages: a codec may write a frame of its own."""
    name, ids = type(codec).__name__, torch.arange(3)
    for tensors in ({ONLY: x}, {"a": x, "ids": ids}):
        specs = {key: Spec(tuple(each.shape), each.dtype) for key, each in tensors.items()}
        data = keyed.encode(Envelope("embedding", 1), tensors)
        counted = codec.size_of(specs)
        _must(
            len(data) == counted,
            f"{name}.size_of says {counted} bytes where encode writes {len(data)}, for {what}",
            "the number of bytes that encode writes",
            "size_of",
        )
        received = codec.decode(data)[1]
        for key, each in tensors.items():
            expected = decoded if each is x else each
            _must(
                key in received and _same(received[key], expected),
                f"{name}.decode does not return what encode wrote for {what}",
                "integers unchanged",
                "decode",
            )


def _gradient_and_memory(codec: Codec, keyed: Codec, x: Tensor, what: str) -> None:
    name = type(codec).__name__
    if not codec.straight_through:
        gradient = torch.ones_like(x)
        back = keyed.backward(gradient, x)
        _must(
            isinstance(back, Tensor) and (back.shape, back.dtype) == (x.shape, x.dtype),
            f"{name}.backward returns {_described(back)} for {what}",
            "the sent tensor's shape and dtype",
            "backward",
        )
        _must(
            _same(keyed.backward(gradient, x), back) and _same(gradient, torch.ones_like(x)),
            f"{name}.backward changes its argument, or differs when asked again, for {what}",
            "a function of gradient and tensor",
            "backward",
        )
    if codec.remembers:
        arrived, memory = keyed.transmit(x, None)
        kept = memory.clone()
        again = [keyed.transmit(x, memory) for _ in range(2)]
        _must(
            (arrived.shape, arrived.dtype) == (x.shape, x.dtype),
            f"{name}.transmit returns {_described(arrived)} for {what}",
            "the sent tensor's shape and dtype",
            "transmit",
        )
        _must(
            _same(memory, kept) and all(map(_same, *again)),
            f"{name}.transmit changes its memory in place, or differs when asked again, for {what}",
            "a new memory from the tensor and the old one",
            "transmit",
        )


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(torch.isclose(one, other, rtol=0, atol=0, equal_nan=True).all())


def _described(value: Any) -> str:
    is_tensor = isinstance(value, Tensor)
    return f"{value.dtype} of shape {tuple(value.shape)}" if is_tensor else f"a value of type {type(value).__name__}"


def _must(holds: bool, what: str, allowed: str, method: str) -> None:
    if not holds:
        raise ValueError(f"{what}; allowed: {allowed}; mend '{method}' of the class")
