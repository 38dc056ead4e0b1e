"""The plain codec: what it weighs is what it writes, what it reads is what was written, damage is told."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.codecs import CODECS, Plain
from vflsim.codecs.frame import ONLY, Envelope, Spec
from vflsim.errors import DataError

CODEC = Plain()
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool]
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

kinds = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=16).filter(
    lambda k: len(k.encode()) <= 16
)
ids = st.none() | st.lists(int64, max_size=9).map(lambda rows: np.array(rows, np.int64))
envelopes = st.builds(Envelope, kinds, int32, int64, int32, ids)


@st.composite
def tensors(draw) -> torch.Tensor:
    """Any bits at all (NaN payloads too) of any dtype and up to four dimensions."""
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    dtype = draw(st.sampled_from(DTYPES))
    size = math.prod(shape) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    return (torch.frombuffer(raw, dtype=dtype) if raw else torch.empty(0, dtype=dtype)).reshape(shape)


def encode(envelope: Envelope, tensor: torch.Tensor | None) -> bytes:
    return CODEC.encode(envelope, {} if tensor is None else {ONLY: tensor})


def decode(data: bytes) -> tuple[Envelope, torch.Tensor | None]:
    envelope, found = CODEC.decode(data)
    assert set(found) <= {ONLY}
    return envelope, found.get(ONLY)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def same(one: Envelope, other: Envelope) -> bool:
    equal_ids = (one.ids is None) == (other.ids is None) and (one.ids is None or np.array_equal(one.ids, other.ids))
    return one._replace(ids=None) == other._replace(ids=None) and equal_ids


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(envelope=envelopes, tensor=st.none() | tensors())
def test_what_was_encoded_is_decoded_bit_for_bit_and_weighs_what_size_says(envelope, tensor) -> None:
    data = encode(envelope, tensor)
    rows = 0 if envelope.ids is None else len(envelope.ids)
    shape, dtype = (None, None) if tensor is None else (tuple(tensor.shape), tensor.dtype)
    assert len(data) == CODEC.size(shape, dtype, rows)

    read, back = decode(data)
    assert same(read, envelope)
    assert (back is None) == (tensor is None)
    if tensor is not None:
        assert (back.shape, back.dtype, bits(back)) == (tensor.shape, tensor.dtype, bits(tensor))


@settings(max_examples=examples(500), deadline=None, derandomize=True)
@given(data=st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"VFL1" + rest))
def test_arbitrary_bytes_are_a_data_error_and_nothing_else(data) -> None:
    try:
        envelope, tensors = CODEC.decode(data)
    except DataError:
        return
    assert CODEC.encode(envelope, tensors) == data


@settings(max_examples=examples(500), deadline=None, derandomize=True)
@given(envelope=envelopes, tensor=st.none() | tensors(), place=st.integers(0, 200), byte=st.integers(1, 255))
def test_a_damaged_byte_is_an_error_or_another_message_never_anything_else(envelope, tensor, place, byte) -> None:
    data = bytearray(encode(envelope, tensor))
    data[place % len(data)] ^= byte
    try:
        read, found = CODEC.decode(bytes(data))
    except DataError:
        return
    assert CODEC.encode(read, found) == bytes(data)  # what decodes is what somebody could have sent


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(
    envelope=envelopes, tensor=st.none() | tensors(), cut=st.integers(1, 300), more=st.binary(min_size=1, max_size=40)
)
def test_a_message_cut_short_or_with_more_behind_it_is_always_noticed(envelope, tensor, cut, more) -> None:
    data = encode(envelope, tensor)
    for damaged in (data[: max(0, len(data) - cut)], data + more):
        with pytest.raises(DataError):
            decode(damaged)


@pytest.mark.parametrize("shape", [(2**16,) * 4, (2**31 - 1,) * 4, (2**30, 4, 1, 1)])
def test_a_shape_beyond_all_memory_is_damage_not_an_overflow(shape) -> None:
    data = bytearray(encode(Envelope("embedding", 1), torch.zeros(1, 1, 1, 1)))
    data[44:60] = np.array(shape, "<i4").tobytes()
    with pytest.raises(DataError, match="does not fit its header"):
        decode(bytes(data))


def test_the_header_is_sixty_bytes_and_an_empty_message_is_nothing_else() -> None:
    assert 60 == len(encode(Envelope("gradient", 0), None)) == CODEC.size(None, None)


@pytest.mark.parametrize(
    ("shape", "dtype", "rows", "size"),
    [
        ((32, 64), torch.float32, 0, 60 + 32 * 64 * 4),
        ((32, 64), torch.float64, 32, 60 + 8 * 32 + 32 * 64 * 8),
        ((0, 64), torch.float32, 0, 60),
        ((), torch.float32, 0, 64),
        (None, None, 5, 100),
    ],
)
def test_sizes_by_hand(shape, dtype, rows, size) -> None:
    assert CODEC.size(shape, dtype, rows) == size


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(
    envelope=envelopes,
    tensors=st.dictionaries(
        st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=8).filter(
            lambda name: len(name.encode()) <= 16
        ),
        tensors(),
        min_size=1,
        max_size=4,
    ),
)
def test_named_tensors_are_decoded_bit_for_bit_in_one_message(envelope, tensors) -> None:
    data = CODEC.encode(envelope, tensors)
    rows = 0 if envelope.ids is None else len(envelope.ids)
    specs = {name: Spec(tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    assert len(data) == CODEC.size_of(specs, rows)

    read, back = CODEC.decode(data)
    assert same(read, envelope)
    assert list(back) == list(tensors)
    assert [bits(tensor) for tensor in back.values()] == [bits(tensor) for tensor in tensors.values()]


def test_a_tensor_with_a_name_adds_thirty_four_bytes() -> None:
    one = {"duals": Spec((2, 3), torch.float32)}
    assert CODEC.size_of(one) == 60 + 34 + 24
    assert CODEC.size_of({**one, "residuals": Spec((2,), torch.float64)}, ids=3) == 60 + 24 + 2 * 34 + 24 + 16


def test_a_tensor_is_written_as_it_reads_not_as_it_lies() -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    _, back = decode(encode(Envelope("embedding", 1), tensor))
    assert torch.equal(back, tensor.detach())
    assert not back.requires_grad


def test_what_was_decoded_can_be_written_to() -> None:
    _, back = decode(encode(Envelope("embedding", 1), torch.zeros(2)))
    back += 1
    assert back.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("envelope", "tensor", "words"),
    [
        (Envelope("a kind with a long name", 1), None, "at most 16 bytes"),
        (Envelope("ümläüts-ärë-lóng", 1), None, "at most 16 bytes"),
        (Envelope("nul\0", 1), None, "no NUL"),
        (Envelope("embedding", 1), torch.zeros(1, 1, 1, 1, 1), "5-dimensional(.|\n)*at most 4 dimensions"),
        (Envelope("embedding", 1), torch.zeros(1, dtype=torch.complex64), "complex64(.|\n)*torch.float32"),
        (Envelope("embedding", 2**40), None, "does not fit"),
        (Envelope("embedding", 1, batch=2**31), None, "does not fit"),
    ],
)
def test_what_the_header_cannot_say_is_refused(envelope, tensor, words) -> None:
    with pytest.raises(DataError, match=words):
        encode(envelope, tensor)


def test_every_codec_is_in_the_table() -> None:
    assert len(CODECS) == len({codec.model_fields["kind"].default for codec in CODECS}) == 11
    assert CODECS[0] is Plain
