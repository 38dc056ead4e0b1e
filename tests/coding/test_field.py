"""Arithmetic modulo a prime: against python-flint, at the edges of what the limbs hold, and by the laws of a field."""

from __future__ import annotations

import itertools
from itertools import product as pairs

import flint
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare
from thorough import examples, is_thorough
from torch import Tensor

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField, eliminated

# The largest prime below 2^16 is 65521, below 2^22 4194301 (the last with blocks of ≥ 256 whole), below 2^26 67108859.
PRIMES = [
    3,
    5,
    7,
    11,
    13,
    257,
    65521,
    65537,
    4194301,
    16777213,
    67108859,
    1073741827,
    2147483629,
    MERSENNE_31,
    MERSENNE_61,
]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CERTAIN = 1e-6
"""Level of the statistical tests: the chance that a right sampler fails one, were the seeds not fixed."""

fields = st.sampled_from(PRIMES).map(PrimeField)


def drawn(field: PrimeField, *shape: int, seed: int = 0) -> Tensor:
    return field.uniform(shape, np.random.Philox(seed))


def oracle(field: PrimeField, a: Tensor, b: Tensor) -> Tensor:
    left, right = (flint.nmod_mat(*x.shape, x.flatten().tolist(), field.p) for x in (a, b))
    return torch.tensor([int(x) for x in (left * right).entries()]).view(a.shape[0], b.shape[1])


def near(value: int, *shape: int) -> Tensor:
    """Values a little below ``value``, odd and even: no sum of their products is a round number that hides rounding."""
    return (value - torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(0))).clamp_(min=0)


@pytest.mark.sampled(30)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2000, 1), (7, 3, 1), (1, 5, 11), (33, 257, 20), (64, 300, 70)])
@pytest.mark.parametrize("p", PRIMES)
def test_matrix_products_equal_those_of_flint(p: int, shape: tuple[int, int, int], device: str) -> None:
    field, (n, k, m) = PrimeField(p), shape
    a, b = drawn(field, n, k), drawn(field, k, m, seed=1)
    result = field.matmul(a.to(device), b.to(device))
    assert result.dtype == torch.int64
    assert result.device.type == device
    assert torch.equal(result.cpu(), oracle(field, a, b))


# 179, 64 and 682 are where blocks end for p = 2^31 − 1, 2^24 − 3 and 2^61 − 1.
@pytest.mark.sampled(30)
@pytest.mark.parametrize(
    ("p", "k"),
    [
        (p, k)
        for p in PRIMES
        for k in (63, 65, 178, 179, 180, 359, 681, 682, 683, 717, 2050, 5000)
        if is_thorough() or k < 2000 or p in (PRIMES[0], MERSENNE_31, MERSENNE_61)
    ],
)
def test_no_inner_dimension_is_too_long_for_the_largest_magnitudes(p: int, k: int) -> None:
    field = PrimeField(p)
    root = int(p**0.5) + 1
    # The largest element, the largest centred one, and the largest that has a large low digit as well.
    extremes = [p - 1, (p - 1) // 2, (p - 1) // 2 - (p - 1) // 2 % root + root // 2, 2**21 - 1, 2**42 - 1]
    every = list(pairs([x % p for x in extremes], repeat=2))
    for high, other in every if is_thorough() else [pair for pair in every if len({*pair, p - 1}) < 3]:
        for a, b in [(near(high, 2, k), near(other, k, 3)), (torch.full((2, k), high), torch.full((k, 3), other))]:
            assert torch.equal(field.matmul(a, b), oracle(field, a, b))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("p", [5, MERSENNE_31, MERSENNE_61])
@pytest.mark.parametrize("shape", [(3, 2, 100_000), (100_000, 2, 3), (600, 2, 500)])
def test_large_results_are_put_together_from_chunks(p: int, shape: tuple[int, int, int]) -> None:
    field, (n, k, m) = PrimeField(p), shape
    a, b = drawn(field, n, k), drawn(field, k, m, seed=1)
    assert torch.equal(field.matmul(a, b), oracle(field, a, b))


@pytest.mark.parametrize("p", [3, 67108859, MERSENNE_31, MERSENNE_61])
@pytest.mark.parametrize(
    ("left", "right"), [((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((2, 1, 4), (3, 1)), ((0, 2), (1,))]
)
def test_batches_broadcast(p: int, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    field = PrimeField(p)
    a, b = drawn(field, *left, 4, 9), drawn(field, *right, 9, 5, seed=1)
    result = field.matmul(a, b)
    batch = torch.broadcast_shapes(left, right)
    assert result.shape == (*batch, 4, 5)
    every = zip(
        result.reshape(-1, 4, 5),
        a.expand(*batch, 4, 9).reshape(-1, 4, 9),
        b.expand(*batch, 9, 5).reshape(-1, 9, 5),
        strict=True,
    )
    for one, x, y in every:
        assert torch.equal(one, oracle(field, x, y))


@pytest.mark.parametrize("p", [13, MERSENNE_31, MERSENNE_61])
def test_factors_may_lie_anyhow_in_memory_and_are_left_alone(p: int) -> None:
    field = PrimeField(p)
    a, b = drawn(field, 40, 12).mT[:, ::2], drawn(field, 9, 1, seed=1).expand(9, 20).mT
    copies = a.clone(), b.clone()
    assert torch.equal(field.matmul(a, b), oracle(field, *copies))
    assert torch.equal(field.multiply(a[:, :9], b[:12]), field.multiply(copies[0][:, :9], copies[1][:12]))
    assert torch.equal(a, copies[0])
    assert torch.equal(b, copies[1])


@pytest.mark.parametrize("p", [3, MERSENNE_31, MERSENNE_61])
@pytest.mark.parametrize(("n", "k", "m"), [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty_products_are_zero(p: int, n: int, k: int, m: int) -> None:
    result = PrimeField(p).matmul(torch.ones(n, k).long(), torch.ones(k, m).long())
    assert torch.equal(result, torch.zeros(n, m).long())


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 720), (719, 2)), ((2, 1), (3, 2))]
)
def test_shapes_that_do_not_match_are_refused(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not make a matrix product"):
        PrimeField().matmul(torch.zeros(a).long(), torch.zeros(b).long())


def test_a_device_without_exact_products_is_refused() -> None:
    with pytest.raises(ValueError, match="meta are not known; allowed: cpu, cuda"):
        PrimeField().matmul(torch.zeros(2, 2, device="meta").long(), torch.zeros(2, 2, device="meta").long())


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool])
def test_only_int64_is_taken(dtype: torch.dtype) -> None:
    field, right, wrong = PrimeField(), torch.ones(2, 2).long(), torch.ones(2, 2, dtype=dtype)
    for of_two in (field.add, field.subtract, field.multiply, field.matmul):
        for a, b in ((right, wrong), (wrong, right)):
            with pytest.raises(ValueError, match=r"allowed: torch\.int64"):
                of_two(a, b)
    for of_one in (field.embed, field.signed, field.negate, field.inverse, lambda x: field.power(x, 2)):
        with pytest.raises(ValueError, match=r"allowed: torch\.int64"):
            of_one(wrong)


@pytest.mark.parametrize("p", PRIMES)
def test_elementwise_results_equal_those_of_flint(p: int) -> None:
    field = PrimeField(p)
    edges = torch.tensor([0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1, 2**30, 2**31 - 1, 2**31, 2**60 + 1]) % p
    a = torch.cat((edges, drawn(field, 60)))
    left, right = ([flint.nmod(x, p) for x in a.tolist()] for _ in range(2))
    rows, columns = a.unsqueeze(1), a.unsqueeze(0)
    for ours, theirs in (
        (field.add(rows, columns), [[int(x + y) for y in right] for x in left]),
        (field.subtract(rows, columns), [[int(x - y) for y in right] for x in left]),
        (field.multiply(rows, columns), [[int(x * y) for y in right] for x in left]),
        (field.negate(a), [int(-x) for x in left]),
        (field.power(a, 12345), [int(x**12345) for x in left]),
        (field.inverse(a[a != 0]), [int(1 / x) for x in left if x != 0]),
    ):
        assert ours.tolist() == theirs


@given(fields, st.data())
def test_the_laws_of_a_field_hold(field: PrimeField, data: st.DataObject) -> None:
    element = st.integers(0, field.p - 1)
    a, b, c = (torch.tensor(x) for x in data.draw(st.tuples(element, element, element)))
    add, times = field.add, field.multiply
    for law in (add, times):
        assert law(a, b) == law(b, a)
        assert law(law(a, b), c) == law(a, law(b, c))
    assert times(a, add(b, c)) == add(times(a, b), times(a, c))
    assert add(a, field.negate(a)) == 0
    assert field.subtract(add(a, b), b) == a
    if a != 0:
        assert times(a, field.inverse(a)) == 1
        assert field.power(a, field.p - 1) == 1
    m, n = data.draw(st.tuples(*[st.integers(0, 2**64)] * 2))
    assert times(field.power(a, m), field.power(a, n)) == field.power(a, m + n) == pow(int(a), m + n, field.p)


@settings(max_examples=examples(30))
@given(fields, st.tuples(*[st.integers(1, 40)] * 3), st.integers(0, 2**32))
def test_matrix_products_distribute_and_transpose(field: PrimeField, shape: tuple[int, int, int], seed: int) -> None:
    n, k, m = shape
    a, b, c = drawn(field, n, k, seed=seed), drawn(field, k, m, seed=seed + 1), drawn(field, k, m, seed=seed + 2)
    assert torch.equal(field.matmul(a, field.add(b, c)), field.add(field.matmul(a, b), field.matmul(a, c)))
    assert torch.equal(field.matmul(a, b).mT, field.matmul(b.mT, a.mT))


def test_zero_has_no_inverse_and_powers_no_negative_exponents() -> None:
    field = PrimeField(7)
    with pytest.raises(ValueError, match="0 has no inverse"):
        field.inverse(torch.tensor([1, 0, 3]))
    with pytest.raises(ValueError, match="exponent = -1 is negative"):
        field.power(torch.tensor([3]), -1)
    assert field.power(torch.tensor([0, 3]), 0).tolist() == [1, 1]


@pytest.mark.parametrize("p", PRIMES)
def test_signed_values_come_back_up_to_the_largest(p: int) -> None:
    field = PrimeField(p)
    assert field.largest == (p - 3) // 2
    values = torch.tensor([0, 1, -1, field.largest, -field.largest]).clamp(-field.largest, field.largest)
    elements = field.embed(values)
    assert elements.tolist() == [int(v) % p for v in values]
    assert field.signed(elements).tolist() == values.tolist()
    # The first value beyond is read as negative (FedVS Eq. 7).
    assert field.signed(field.embed(torch.tensor([field.largest + 1]))).tolist() == [field.largest + 1 - p]
    assert field.embed(torch.tensor([-(2**63), 2**63 - 1])).tolist() == [-(2**63) % p, (2**63 - 1) % p]


@pytest.mark.parametrize("p", [-7, 0, 1, 2, 4, 9, 561, 2**16, 2**31 - 3, 2147483659, 2**61 - 31, 2**61 - 3, 2**89 - 1])
def test_orders_of_no_field_that_can_be_had_are_refused(p: int) -> None:
    with pytest.raises(ValueError, match=rf"p = {p} is no order .* allowed: a prime from 3 to 2\^31 - 1, or 2\^61 - 1"):
        PrimeField(p)


def test_fields_are_equal_if_their_order_is() -> None:
    assert PrimeField() == PrimeField(MERSENNE_31) != PrimeField(MERSENNE_61)
    assert len({PrimeField(5), PrimeField(5), PrimeField(7)}) == 2
    assert PrimeField(5) != 5


def test_elements_take_32_bits_on_the_wire_where_they_fit() -> None:
    assert PrimeField(3).wire_dtype == PrimeField(MERSENNE_31).wire_dtype == torch.int32
    assert PrimeField(MERSENNE_61).wire_dtype == torch.int64


@pytest.mark.parametrize("p", PRIMES)
def test_uniform_elements_are_the_low_bits_of_the_words_that_are_not_rejected(p: int) -> None:
    field, bits = PrimeField(p), np.random.Philox(7)
    elements = field.uniform((50, 20), bits)
    words, expected = np.random.Philox(7), []
    while len(expected) < 1000:
        if (low := int(words.random_raw()) % 2 ** p.bit_length()) < p:
            expected.append(low)
    assert elements.flatten().tolist() == expected
    assert bits.random_raw() == words.random_raw(), "no more words are drawn than it takes"
    assert field.uniform((), bits).shape == ()
    assert field.uniform((0, 3), bits).shape == (0, 3)


@pytest.mark.parametrize("p", [3, 5, 11, 13, 257])
def test_uniform_elements_are_equally_likely(p: int) -> None:
    counts = np.bincount(drawn(PrimeField(p), 200_000).numpy(), minlength=p)
    assert len(counts) == p
    assert chisquare(counts).pvalue > CERTAIN
    biased = np.random.Philox(0).random_raw(200_000) % 2 ** p.bit_length() % p
    assert chisquare(np.bincount(biased.astype(np.int64))).pvalue < CERTAIN, "without rejection this would be seen"


@pytest.mark.parametrize("p", [1073741827, 2147483629, MERSENNE_31, MERSENNE_61])
def test_uniform_elements_of_large_fields_are_uniform_in_their_high_and_low_bits(p: int) -> None:
    elements = drawn(PrimeField(p), 200_000)
    assert 0 <= int(elements.min()) <= int(elements.max()) < p
    for bins in ((elements.double() * (128 / p)).long(), elements % 128):
        assert chisquare(np.bincount(bins.numpy(), minlength=128)).pvalue > CERTAIN


def test_words_of_32_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="MT19937 gives raw words of 32 bits"):
        PrimeField(MERSENNE_61).uniform((2,), np.random.MT19937(0))


@pytest.mark.parametrize("seed", range(6))
def test_rows_span_what_counting_finds(seed: int) -> None:
    rng, field = np.random.default_rng(seed), PrimeField(3)
    matrix = torch.from_numpy(rng.integers(3, size=(3, 4)))
    combinations = torch.tensor([*itertools.product(range(3), repeat=3)]) @ matrix % 3
    spanned = {tuple(row) for row in combinations.tolist()}
    echelon = eliminated(field, matrix, 4)
    assert 3 ** len(echelon.pivots) == len(spanned)
    every = torch.tensor([*itertools.product(range(3), repeat=4)])
    _, exact = echelon.explained(every)
    assert {tuple(row) for row in every[exact].tolist()} == spanned
    assert not echelon.rest[:, :4].any()


@pytest.mark.parametrize("p", [MERSENNE_31, MERSENNE_61])
def test_a_linear_function_of_known_rows_is_found_for_the_rows_that_they_span(p: int) -> None:
    field, bits = PrimeField(p), np.random.Philox(key=5)
    basis, weights = field.uniform((4, 6), bits), field.uniform((6, 2), bits)
    known = field.matmul(field.uniform((9, 4), bits), basis)
    echelon = eliminated(field, torch.cat([known, field.matmul(known, weights)], 1), 6)
    assert len(echelon.pivots) == 4
    assert not echelon.rest.any()  # the function fits all nine
    inside = field.matmul(field.uniform((5, 4), bits), basis)
    found, exact = echelon.explained(inside)
    assert exact.all()
    assert torch.equal(found, field.matmul(inside, weights))
    _, exact = echelon.explained(field.uniform((5, 6), bits))
    assert not exact.any()


def test_a_function_that_is_not_linear_fits_no_equations() -> None:
    field, bits = PrimeField(), np.random.Philox(key=6)
    known = field.uniform((9, 4), bits)
    echelon = eliminated(field, torch.cat([known, field.uniform((9, 1), bits)], 1), 4)
    assert echelon.rest[:, 4].any()
