"""Compressors: their errors, their bytes, and that they are unbiased where they claim it."""

from __future__ import annotations

import math
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from int8_codec import Int8, Int8Feedback
from own_codecs import Honest
from pydantic import TypeAdapter, ValidationError
from thorough import examples, in_turn
from tiny_worlds import raw
from torch import Tensor

from vflsim.codecs import CODECS, AnyCodec, Codec
from vflsim.codecs.base import Compressor
from vflsim.codecs.compressors import LatticeQuantiser, ScalarQuantiser, TopK, VectorQuantiser, largest_block
from vflsim.codecs.frame import ONLY, Envelope, Spec, pack_bits, unpack_bits
from vflsim.errors import DataError, ScenarioError
from vflsim.scenario import load
from vflsim.vocabulary.base import examples_of
from vflsim.vocabulary.trial import Trial

DITHERS = ["subtractive", "non_subtractive", "none"]
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "scalar_quantiser": [{"bits": bits, "dither": dither} for bits in (1, 3, 8, 16) for dither in DITHERS],
    "vector_quantiser": [{"bits": bits, "dither": dither} for bits in (2, 3, 8) for dither in DITHERS],
    "by_direction": [{"up": {"kind": "scalar_quantiser", "bits": 3}, "down": {"kind": "top_k", "count": 1}}],
    "round": [{}, {"bits": 16}, {"noise": {"epsilon": 0.7}}, {"bits": 16, "noise": {"epsilon": 0.001}}],
    "binarise": [{}, {"gradients": True}],
    "paillier": [{}, {"key": 3072, "packed": 48}, {"gradients": True}],
    "ckks": [{}, {"degree": 16384}],
    "float16": [{}],
    "bfloat16": [{}],
    "top_k": [{"fraction": 0.3}, {"count": 2}, {"count": 3, "per": "tensor"}, {"fraction": 1, "per": "tensor"}],
}
MADE = [(kind, said) for codec in CODECS for kind in [codec.model_fields["kind"].default] for said in EXAMPLES[kind]]
KINDS = {codec.model_fields["kind"].default: codec for codec in CODECS}
every = pytest.mark.parametrize(("kind", "said"), MADE)
lattices = pytest.mark.parametrize(
    ("kind", "said"), [(kind, said) for kind, said in MADE if kind.endswith("quantiser")]
)
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def made(kind: str, said: dict[str, Any]) -> Codec:
    return KINDS[kind](**said)


@st.composite
def values(draw: Any, dtypes: Any = FLOATS) -> Tensor:
    """Tensors of up to three dimensions: of one scale, constant, or of any finite numbers."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    kind = draw(st.sampled_from(["normal", "constant", "any", "tiny"]))
    count = math.prod(shape)
    if kind == "constant":
        return torch.full(shape, draw(st.floats(-1e4, 1e4, width=16)), dtype=dtype)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    if kind == "any":
        limit = float(torch.finfo(dtype).max) / 4
        each = st.floats(-limit, limit, allow_subnormal=True)
        x = torch.tensor(draw(st.lists(each, min_size=count, max_size=count)), dtype=torch.float64).reshape(shape)
    return (x * float(torch.finfo(dtype).tiny) * 0.1 if kind == "tiny" else x).to(dtype)


def bits_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.sampled(10)
@every
@settings(max_examples=examples(15), deadline=None, derandomize=True)
@given(x=values(), key=st.integers(0, 2**64 - 1))
def test_bytes_are_as_counted_and_decode_to_what_goes_through(
    kind: str, said: dict[str, Any], x: Tensor, key: int
) -> None:
    codec = made(kind, said).keyed(key)
    payload, shape = codec.pack(x), tuple(x.shape)
    assert len(payload) == codec.payload_bytes(shape, x.dtype)
    through = codec.through(x)
    assert (tuple(through.shape), through.dtype) == (shape, x.dtype)
    assert bits_of(made(kind, said).unpack(payload, shape, x.dtype)) == bits_of(through)
    data = codec.encode(Envelope("embedding", 1), {ONLY: x})
    assert len(data) == codec.size_of({ONLY: Spec(shape, x.dtype)})
    assert bits_of(made(kind, said).decode(data)[1][ONLY]) == bits_of(through)


@pytest.mark.sampled(8)
@lattices
@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(x=values(), key=st.integers(0, 2**64 - 1))
def test_quantisers_stay_within_their_stated_error(kind: str, said: dict[str, Any], x: Tensor, key: int) -> None:
    """Beside the rounding of the dtype: of the step, of at most ``span`` of them, and of the result."""
    codec = made(kind, said).keyed(key)
    assert isinstance(codec, LatticeQuantiser)
    if not x.numel():
        return
    arrived = codec.through(x).double()
    x, dtype = x.double(), x.dtype
    least, most = float(x.min()), float(x.max())
    step = (most - least) / codec.span
    slack = 8 * torch.finfo(dtype).eps * max(abs(least), abs(most), most - least)
    slack += 2 * (codec.span + 2) * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    if kind == "scalar_quantiser":
        bound = step if codec.dither == "non_subtractive" else step / 2
        assert float((arrived - x).abs().max()) <= bound + slack
        return
    spare = x.numel() % 2
    moved = torch.hypot(*torch.cat([(arrived - x).flatten(), torch.zeros(spare)]).reshape(-1, 2).unbind(1))
    bound = 2 * step / sqrt(3) if codec.dither == "non_subtractive" else step / sqrt(3)
    assert float(moved.max()) <= bound + 2 * slack


def errors_of(codec: Compressor, x: Tensor, draws: int) -> Tensor:
    """Errors (draws, …) at each element of ``x``: of messages with fifteen copies of it, each with a key of its own."""
    copies = x.expand(15, *x.shape).contiguous()
    return torch.cat([codec.keyed(key).through(copies) - x for key in range(draws // 15)])


@in_turn(
    quantiser={
        "scalar, 1": ("scalar_quantiser", 1),
        "scalar, 3": ("scalar_quantiser", 3),
        "vector, 3": ("vector_quantiser", 3),
    },
    dither=["subtractive", "non_subtractive"],
)
def test_dithered_quantisers_are_unbiased(quantiser: tuple[str, int], dither: str) -> None:
    """The mean of 1,500 errors at each of 24 elements, within 4.5 of its standard errors: wrong in 2 of 10,000."""
    kind, bits = quantiser
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    codec = made(kind, {"bits": bits, "dither": dither})
    errors = errors_of(codec, x, 1500)
    scores = errors.mean(0) / (errors.std(0) / sqrt(1500) + 1e-12)
    assert float(scores.abs().max()) < 4.5
    still = made(kind, {"bits": bits, "dither": "none"}).through(x) - x
    assert float(still.abs().max()) > 4.5 * float(errors.std(0).max()) / sqrt(1500)  # so it would fail without dither


def test_subtractive_dither_makes_the_error_independent_of_the_value() -> None:
    """Uniform over a step (variance 1/12), wherever the value lies between two levels: ±10 % of 3,000 draws."""
    x = torch.tensor([0.0, 0.21, 0.5, 0.93, 7.0], dtype=torch.float64)
    for dither, spread in (("subtractive", [1 / 12] * 5), ("non_subtractive", [0, 0.21 * 0.79, 0.25, 0.93 * 0.07, 0])):
        codec = ScalarQuantiser(bits=3, dither=dither)  # type: ignore[arg-type]
        found = errors_of(codec, x, 3000).var(0)
        assert found.tolist() == pytest.approx(spread, rel=0.1, abs=1e-12)


def test_the_dither_of_a_pair_is_uniform_in_its_cell() -> None:
    """The second moment of the hexagonal lattice, 5 / (36 √3) an element for cells of area 1 (Conway and Sloane)."""
    codec, x = VectorQuantiser(bits=6), torch.rand(20_000, 2, dtype=torch.float64)
    moved = codec.keyed(3).through(x) - x
    step = float(x.max() - x.min()) / codec.span
    assert float(moved.square().mean()) == pytest.approx(5 / (36 * sqrt(3)) * step**2 * sqrt(3) / 2, rel=0.03)


def test_pairs_go_to_the_nearest_of_all_points() -> None:
    codec = VectorQuantiser(bits=3, dither="none")
    block = largest_block(64, dithered=False)
    assert block.rows * block.columns <= 64
    x = torch.rand(300, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x[0], x[1] = 0.0, 1.0
    points = (
        torch.tensor(
            [[i + 0.5 * (j % 2), j * sqrt(3) / 2] for j in range(block.rows) for i in range(block.columns)],
            dtype=torch.float64,
        )
        / block.span
    )
    nearest = torch.cdist(x, points).min(1)
    assert (codec.through(x) - x).norm(dim=1).tolist() == pytest.approx(nearest.values.tolist(), abs=1e-12)
    assert len(set(nearest.indices.tolist())) > 50


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(x=values([torch.float32, torch.float64]), count=st.integers(1, 6), per=st.sampled_from(["row", "tensor"]))
def test_top_k_keeps_the_first_of_a_sort(x: Tensor, count: int, per: Any) -> None:
    rows = x.reshape(-1, x.shape[-1]) if per == "row" and x.numel() and x.dim() else x.reshape(1, -1)
    expected = np.zeros(tuple(rows.shape))
    for row, kept in zip(rows.double().numpy(), expected, strict=True):
        for place in sorted(range(len(row)), key=lambda place: (-abs(row[place]), place))[:count]:
            kept[place] = row[place]
    arrived = TopK(count=count, per=per).through(x)
    assert np.array_equal(arrived.double().numpy(), expected.reshape(tuple(x.shape)))


def test_top_k_counts_a_fraction_of_a_row_or_of_the_tensor() -> None:
    x = torch.arange(20, dtype=torch.float32).reshape(2, 10) + 1
    assert TopK(fraction=0.29).through(x).count_nonzero(dim=1).tolist() == [3, 3]
    assert TopK(fraction=0.29, per="tensor").through(x).count_nonzero(dim=1).tolist() == [0, 6]
    assert TopK(fraction=0.001).through(x).count_nonzero() == 2
    assert TopK(fraction=0.3).payload_bytes((2, 10), torch.float32) == 6 * 4 + 3  # 6 places of 4 bits
    assert TopK(count=50).payload_bytes((2, 10), torch.float32) == 20 * 4 + 10


@pytest.mark.parametrize("said", [{}, {"fraction": 0.1, "count": 2}, {"fraction": 0}, {"fraction": 1.5}, {"count": 0}])
def test_top_k_needs_one_sound_k(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TopK(**said)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes_pass(kind: str, said: dict[str, Any], dtype: torch.dtype) -> None:
    codec, info = made(kind, said).keyed(5), torch.finfo(dtype)
    for x in (torch.zeros(3, 4), torch.full((3, 4), -2.75), torch.tensor([[1.5]]), torch.tensor(3.0)):
        if kind not in ("top_k", "round", "binarise"):
            assert torch.equal(codec.through(x.to(dtype)), x.to(dtype))  # a constant arrives as it is
    for x in ([info.tiny * info.eps, 0.0], [info.max / 4, -info.max / 4], [0.0, 0.0, info.smallest_normal]):
        assert bool(torch.isfinite(codec.through(torch.tensor(x, dtype=dtype))).all())
    assert codec.pack(torch.empty(0, 4, dtype=dtype)) == b""


@lattices
@pytest.mark.parametrize("number", [math.nan, math.inf, 3e38])
def test_a_tensor_without_a_finite_range_arrives_as_nan(kind: str, said: dict[str, Any], number: float) -> None:
    """So that training ends with the error of a loss that is no number."""
    x = torch.tensor([1.0, -number, number, 2.0])
    codec = made(kind, said).keyed(9)
    assert bool(codec.through(x).isnan().all())
    assert bits_of(codec.unpack(codec.pack(x), (4,), x.dtype)) == bits_of(codec.through(x))


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_top_k_sends_what_is_no_number(number: float) -> None:
    arrived = TopK(count=1).through(torch.tensor([5.0, number]))
    assert arrived.tolist() == pytest.approx([0.0, number], nan_ok=True)


@every
def test_bytes_of_another_length_are_refused(kind: str, said: dict[str, Any]) -> None:
    codec, x = made(kind, said), torch.randn(3, 4)
    data = codec.encode(Envelope("embedding", 1), {ONLY: x})
    for damaged in (data[:-1], data + b"\0"):
        with pytest.raises(DataError):
            codec.decode(damaged)


def test_damaged_places_and_stray_bits_are_refused() -> None:
    codec, x = TopK(count=2), torch.tensor([[3.0, 2.0, 1.0]])
    payload = codec.pack(x)
    assert payload[-1] == 0b0100  # places 0 and 1
    for last in (0b0000, 0b0001, 0b1100, 0b10100):
        with pytest.raises(DataError):
            codec.unpack(payload[:-1] + bytes([last]), (1, 3), x.dtype)
    with pytest.raises(DataError):
        unpack_bits(b"\x01\x02", 1, 3)


@settings(max_examples=examples(50), deadline=None, derandomize=True)
@given(bits=st.integers(0, 16), data=st.data())
def test_packed_numbers_come_back(bits: int, data: Any) -> None:
    numbers = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=20))
    packed = pack_bits(torch.tensor(numbers, dtype=torch.int64), bits)
    assert len(packed) == math.ceil(len(numbers) * bits / 8)
    assert unpack_bits(packed, len(numbers), bits).tolist() == numbers


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("kind", "said"), [(kind, said) for kind, said in MADE if issubclass(KINDS[kind], Compressor)])
def test_error_feedback_delivers_on_average_what_was_sent(kind: str, said: dict[str, Any]) -> None:
    """The sum of all that arrives misses the sum of all that was sent by one tensor's loss, the memory."""
    codec = made(kind, {**said, "error_feedback": True})
    assert isinstance(codec, Compressor)
    assert codec.remembers
    assert not made(kind, said).remembers
    x, memory, total = torch.tensor([[0.9, -0.3, 0.05, 0.6]], dtype=torch.float64), None, torch.zeros(1, 4)
    for number in range(60):
        arrived, memory = codec.keyed(number).transmit(x, memory)
        total = total + arrived
    assert memory is not None
    assert torch.allclose(total + memory, 60 * x, atol=1e-9)
    assert float((total / 60 - x).abs().max()) < 0.12


SHAPES = ((5,), (1, 3), (6, 4), (2, 3, 4))
WRONG = {
    "Cheap": r"Cheap.payload_bytes says 1 bytes where pack writes 20",
    "Zipped": "Zipped.payload_bytes says 20 bytes where pack writes",
    "Other": "Other.through differs from unpack",
    "NanLost": "NanLost.through differs from unpack.* nan",
    "Narrow": r"Narrow.through returned a Tensor of shape \(5,\), torch.float16",
    "Flat": "Flat treats an element",
    "Noisy": "Noisy.through draws from PyTorch's global generator",
    "Random": "Random",
    "InPlace": "InPlace",
    "Stacked": "Stacked treats an element differently in a stack",
    "Lossless": "Lossless is lossless, but changes",
    "IdleRule": "IdleRule defines 'backward', which is never called",
    "WrongRule": r"WrongRule.backward returned a Tensor of shape \(\), torch.float32",
    "IdleMemory": "IdleMemory defines 'transmit', which is never called",
    "Hoarder": "Hoarder.transmit changes what it is given",
    "Framed": "Framed.size_of says 80 bytes where encode writes 81",
    "Broken": "Broken fails: RuntimeError: no cable; remedy: mend it; raised in .*own_codecs.py",
}


@pytest.mark.parametrize(("name", "says"), WRONG.items(), ids=WRONG)
def test_a_codec_that_breaks_its_contract_is_refused(name, says):
    with pytest.raises(ValueError, match=says):
        TypeAdapter(AnyCodec).validate_python({"kind": "module", "path": f"own_codecs:{name}"})


@pytest.mark.parametrize("codec", [Honest(), Int8(), Int8Feedback()])
def test_a_codec_that_keeps_its_contract_is_taken(codec):
    assert TypeAdapter(AnyCodec).validate_python(codec) is codec


@pytest.mark.sampled(1)
@pytest.mark.parametrize("codec", CODECS)
def test_codecs_of_the_package_pass_the_trial(codec):
    for said in examples_of(codec):
        made = TypeAdapter(AnyCodec).validate_python(said)
        made._contract_at(Trial(made), SHAPES, (torch.float32, torch.float64, torch.float16))


CHEAP = {"kind": "module", "path": "own_codecs:Cheap"}


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("codec", {"codec": CHEAP}),
        ("codec.up", {"codec": {"kind": "by_direction", "up": CHEAP}}),
        ("codec.down", {"codec": {"kind": "by_direction", "down": CHEAP}}),
        ("protocols.wait.codec", {"protocols": {"wait": {"kind": "synchronous", "codec": CHEAP}}}),
    ],
)
def test_the_error_names_key_class_value_and_remedy(key, changes):
    changes = dict(changes)
    protocols = changes.pop("protocols", {"wait": {"kind": "synchronous"}})
    with pytest.raises(ScenarioError) as refused:
        load(raw(protocols, **changes))
    for part in (f"{key}:", "Cheap.payload_bytes says 1", "allowed", "mend 'payload_bytes'", "own_codecs.py"):
        assert part in str(refused.value)
