"""Lagrange coding gives back exactly what was shared, from whichever holders there are enough of."""

import itertools
import math

import flint
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from thorough import examples

from vflsim.coding import lagrange
from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.lagrange import LagrangeCode

PRIMES = [251, 65_537, MERSENNE_31, MERSENNE_61]


def interpolated(p: int, points: list[int], values: list[int]) -> flint.nmod_poly:
    """The polynomial through these points, from FLINT: its coefficients solve Vandermonde's system."""
    n = len(points)
    powers = flint.nmod_mat(n, n, [pow(x, k, p) for x in points for k in range(n)], p)
    coefficients = powers.solve(flint.nmod_mat(n, 1, values, p))
    return flint.nmod_poly([int(coefficients[k, 0]) for k in range(n)], p)


def elements(field: PrimeField, shape: tuple[int, ...], key: int) -> torch.Tensor:
    return field.uniform(shape, np.random.Philox(key=key))


@st.composite
def codes(draw: st.DrawFn) -> tuple[LagrangeCode, int]:
    """A code of some size over some field, and a key for the elements to share."""
    segments, masks, shares = draw(st.integers(1, 6)), draw(st.integers(0, 4)), draw(st.integers(1, 24))
    return LagrangeCode(PrimeField(draw(st.sampled_from(PRIMES))), segments, masks, shares), draw(st.integers(0, 2**32))


# --- points --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("segments", "masks", "shares"), [(1, 0, 1), (1, 1, 3), (4, 2, 16), (14, 1, 28)])
def test_no_two_points_are_equal(segments, masks, shares):
    code = LagrangeCode(PrimeField(), segments, masks, shares)
    assert code.betas.shape == (segments + masks,)
    assert code.alphas.shape == (shares,)
    points = {value % MERSENNE_31 for value in torch.cat((code.betas, code.alphas)).tolist()}
    assert len(points) == segments + masks + shares


def test_a_field_may_have_just_enough_points_but_not_fewer():
    field = PrimeField(11)
    assert LagrangeCode(field, 3, 2, 5).alphas.tolist() == [6, 7, 8, 9, 10]
    with pytest.raises(ValueError, match=r"3 segments, 2 masks and 6 shares need 11 .* p = 11 has 10; choose a larger"):
        LagrangeCode(field, 3, 2, 6)


@pytest.mark.parametrize(
    ("counts", "message"), [((0, 1, 3), "segments = 0"), ((1, -1, 3), "masks = -1"), ((1, 1, 0), "shares = 0")]
)
def test_counts_that_make_no_code_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        LagrangeCode(PrimeField(), *counts)


@pytest.mark.parametrize(
    ("segments", "masks", "factors", "expected"),
    [(5, 1, 2, 11), (1, 1, 2, 3), (1, 0, 2, 1), (5, 1, 1, 6), (3, 2, 3, 13)],
)
def test_the_threshold_is_one_more_than_the_degree_of_the_product(segments, masks, factors, expected):
    code = LagrangeCode(PrimeField(), segments, masks, 16)
    assert code.threshold(factors) == expected
    assert code.degree == segments + masks - 1


def test_a_threshold_of_no_factors_is_refused():
    with pytest.raises(ValueError, match="factors = 0"):
        LagrangeCode(PrimeField(), 2, 1, 5).threshold(0)


# --- against FLINT -------------------------------------------------------------------------------------------------


@given(codes())
@settings(max_examples=examples(60))
def test_shares_are_values_of_the_polynomial_through_segments_and_masks(drawn):
    code, key = drawn
    secrets = elements(code.field, (code.degree + 1,), key)
    polynomial = interpolated(code.field.p, code.betas.tolist(), secrets.tolist())
    assert code.encode(secrets).tolist() == [int(polynomial(x)) for x in code.alphas.tolist()]


@given(codes())
@settings(max_examples=examples(60))
def test_a_repeated_secret_is_the_secret_at_every_segments_point(drawn):
    code, key = drawn
    secret, masks = elements(code.field, (2, 3), key), elements(code.field, (code.masks, 2, 3), key + 1)
    shares = code.encode_repeated(secret, masks)
    assert torch.equal(shares, code.encode(torch.cat((secret.expand(code.segments, 2, 3), masks))))
    through = [int(secret[1, 2])] * code.segments + masks[:, 1, 2].tolist()
    polynomial = interpolated(code.field.p, code.betas.tolist(), through)
    assert shares[:, 1, 2].tolist() == [int(polynomial(x)) for x in code.alphas.tolist()]


@given(codes(), st.integers(1, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_decoding_evaluates_the_polynomial_through_the_results(drawn, factors, random):
    code, key = drawn
    needed = code.threshold(factors)
    if needed > code.shares:
        code = LagrangeCode(code.field, code.segments, code.masks, needed + 2)
    holders = random.sample(range(code.shares), needed)
    values = elements(code.field, (needed,), key)
    polynomial = interpolated(code.field.p, code.alphas[holders].tolist(), values.tolist())
    expected = [int(polynomial(x)) for x in range(1, code.segments + 1)]
    assert code.decode(values, holders, factors).tolist() == expected


# --- sums of products, from any holders ----------------------------------------------------------------------------


def coded_sum(
    code: LagrangeCode, data: list[torch.Tensor], weights: list[torch.Tensor], bits: np.random.BitGenerator
) -> torch.Tensor:
    """Every holder's Σ_n X̃_n W̃_n (FedVS Eq. 5), of signed data (rows, d_n) and weights (d_n, h)."""
    field = code.field
    total = torch.zeros((), dtype=torch.int64)
    for x, w in zip(data, weights, strict=True):
        segments = field.embed(x).reshape(code.segments, -1, x.shape[1])
        shares = code.encode(torch.cat((segments, field.uniform((code.masks, *segments.shape[1:]), bits))))
        models = code.encode_repeated(field.embed(w), field.uniform((code.masks, *w.shape), bits))
        total = field.add(total, field.matmul(shares, models))
    return total


def clients(largest: int, rows: int, key: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Two clients' data and weights at random, so large that no sum of products exceeds ``largest``."""
    generator = np.random.Generator(np.random.Philox(key=key))
    weight = max(1, math.isqrt(largest) // 8)
    value = largest // (weight * 5)  # five columns together
    data = [torch.from_numpy(generator.integers(-value, value, (rows, d), endpoint=True)) for d in (3, 2)]
    weights = [torch.from_numpy(generator.integers(-weight, weight, (d, 2), endpoint=True)) for d in (3, 2)]
    data[0][0], weights[0][:, 0] = value, weight  # and the extremes, of both signs
    data[1][0], weights[1][:, 0] = -value, -weight
    data[0][-1], data[1][-1] = -value, value
    return data, weights


@pytest.mark.sampled(10)
@pytest.mark.parametrize("p", [101, *PRIMES])
@pytest.mark.parametrize(("segments", "masks", "shares"), [(1, 1, 5), (2, 0, 5), (2, 1, 8), (1, 2, 7), (3, 1, 9)])
def test_every_set_of_enough_responders_gives_the_integers_sum_of_products(p, segments, masks, shares):
    field = PrimeField(p)
    code = LagrangeCode(field, segments, masks, shares)
    data, weights = clients(field.largest, 2 * segments, key=p)
    expected = sum(x @ w for x, w in zip(data, weights, strict=True))
    assert int(expected.abs().max()) > field.largest // 2  # the field is made use of
    values = coded_sum(code, data, weights, np.random.Philox(key=p + 1))
    needed = code.threshold()
    sets = [holders for n in range(needed, shares + 1) for holders in itertools.combinations(range(shares), n)]
    assert len(sets) > 1
    for holders in sets:
        decoded = code.decode(values[list(holders)], holders)
        assert torch.equal(field.signed(decoded).reshape(2 * segments, 2), expected)
    with pytest.raises(ValueError, match=f"{needed - 1} results cannot be decoded.* {needed} are needed"):
        code.decode(values[: needed - 1], range(needed - 1))


@given(codes(), st.data())
@settings(max_examples=examples(50))
def test_any_responders_of_any_code_give_the_integers_sum_of_products(drawn, data):
    code, key = drawn
    code = LagrangeCode(code.field, code.segments, code.masks, code.threshold() + 5)
    chosen = data.draw(st.permutations(range(code.shares)))[: data.draw(st.integers(code.threshold(), code.shares))]
    x, w = clients(code.field.largest, 2 * code.segments, key)
    values = coded_sum(code, x, w, np.random.Philox(key=key))
    decoded = code.field.signed(code.decode(values[chosen], chosen))
    assert torch.equal(decoded.reshape(-1, 2), sum(a @ b for a, b in zip(x, w, strict=True)))


def test_a_sum_beyond_the_fields_largest_comes_back_wrong():
    field = PrimeField(101)
    code = LagrangeCode(field, 2, 1, 5)
    for value, comes_back in ((field.largest, field.largest), (field.largest + 1, field.largest + 1 - field.p)):
        data, weights = [torch.full((2, 1), value)], [torch.ones(1, 1, dtype=torch.int64)]
        values = coded_sum(code, data, weights, np.random.Philox(key=3))
        assert set(field.signed(code.decode(values, range(5))).flatten().tolist()) == {comes_back}


def test_shares_alone_give_the_segments_and_products_of_three_their_products():
    field = PrimeField()
    code = LagrangeCode(field, 3, 1, 12)
    secrets = elements(field, (4, 2), key=1)
    shares = code.encode(secrets)
    for holders in itertools.combinations(range(12), 4):
        assert torch.equal(code.decode(shares[list(holders)], holders, factors=1), secrets[:3])
    cubes = field.power(shares, 3)
    assert torch.equal(code.decode(cubes[2:], range(2, 12), factors=3), field.power(secrets, 3)[:3])


# --- who is used ---------------------------------------------------------------------------------------------------


def test_the_order_of_arrival_changes_nothing():
    code = LagrangeCode(PrimeField(), 2, 1, 7)
    values = elements(code.field, (7, 4), key=5)  # no polynomial of low degree: every set of holders decodes otherwise
    for holders in [(0, 2, 3, 5, 6), (0, 1, 2, 3, 4, 5, 6)]:
        expected = code.decode(values[list(holders)], holders)
        for order in itertools.islice(itertools.permutations(holders), 0, None, 97):
            assert torch.equal(code.decode(values[list(order)], order), expected)


def test_the_lowest_numbered_holders_are_used_and_no_more_than_needed():
    code = LagrangeCode(PrimeField(), 2, 1, 9)
    values = elements(code.field, (9,), key=6)
    holders = [8, 1, 6, 0, 7, 4, 3]
    assert torch.equal(code.decode(values[holders], holders), code.decode(values[[0, 1, 3, 4, 6]], [0, 1, 3, 4, 6]))


@pytest.mark.parametrize(
    ("holders", "rows", "message"),
    [
        ([0, 1, 2, 3, 7], 5, r"unknown holders \[7\]; allowed: 0 to 6"),
        ([-1, 1, 2, 3, 4], 5, r"unknown holders \[-1\]"),
        ([0, 1, 2, 2, 4], 5, r"holders \[2\] are given more than once"),
        ([0, 1, 2, 3, 4], 4, r"values of shape \(4,\); allowed: \(5, \.\.\.\)"),
    ],
)
def test_holders_that_cannot_be_are_refused(holders, rows, message):
    code = LagrangeCode(PrimeField(), 2, 1, 7)
    with pytest.raises(ValueError, match=message):
        code.decode(torch.ones(rows, dtype=torch.int64), holders)


def test_secrets_and_masks_of_other_numbers_shapes_or_types_are_refused():
    code = LagrangeCode(PrimeField(), 2, 1, 7)
    one = torch.ones((), dtype=torch.int64)
    with pytest.raises(ValueError, match=r"secrets of shape \(2,\); allowed: \(3, ...\), for 2 segments and 1 masks"):
        code.encode(one.expand(2))
    with pytest.raises(ValueError, match=r"secrets of shape \(\)"):
        code.encode(one)
    with pytest.raises(ValueError, match=r"masks of shape \(2, 4\)"):
        code.encode_repeated(one.expand(4), one.expand(2, 4))
    with pytest.raises(ValueError, match=r"masks of shape \(1,\) for a secret of shape \(4,\)"):
        code.encode_repeated(one.expand(4), one.expand(1, 1))
    for call in (code.encode, lambda x: code.encode_repeated(x[0], x[:1]), lambda x: code.decode(x, [0, 1, 2], 1)):
        with pytest.raises(ValueError, match="int64"):
            call(torch.ones(3))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (5,), (2, 3, 4)])
def test_elements_may_have_any_shape(shape):
    field = PrimeField(MERSENNE_61)
    code = LagrangeCode(field, 2, 1, 5)
    secrets = elements(field, (3, *shape), key=7)
    shares = code.encode(secrets)
    assert shares.shape == (5, *shape)
    assert torch.equal(code.decode(shares, range(5)), secrets[:2])
    repeated = code.encode_repeated(secrets[0], secrets[2:])
    assert torch.equal(code.decode(repeated, range(5), 1), secrets[0].expand(2, *shape))


def test_strided_elements_are_shared_like_any_others():
    code = LagrangeCode(PrimeField(), 2, 1, 5)
    secrets = elements(code.field, (4, 6, 3), key=8).permute(2, 1, 0)[:, ::2]
    shares = code.encode(secrets)
    assert torch.equal(shares, code.encode(secrets.contiguous()))
    apart = shares.repeat_interleave(2, dim=1)[:, ::2]
    assert torch.equal(code.decode(apart, range(5), 1), secrets[:2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_results_are_on_the_device_of_what_is_given():
    code = LagrangeCode(PrimeField(), 2, 1, 5)
    secrets = elements(code.field, (3, 4), key=9)
    shares = code.encode(secrets.cuda())
    assert shares.is_cuda
    assert torch.equal(shares.cpu(), code.encode(secrets))
    assert torch.equal(code.decode(shares, range(5)).cpu(), secrets[:2])


# --- decoding matrices ---------------------------------------------------------------------------------------------


def test_decoding_matrices_of_the_holders_used_last_are_kept(monkeypatch):
    code = LagrangeCode(PrimeField(), 2, 1, 9)
    found = []
    original = code._interpolation
    monkeypatch.setattr(code, "_interpolation", lambda *args: found.append(args) or original(*args))
    values = elements(code.field, (9,), key=10)
    often = [4, 3, 2, 1, 0]
    for holders in itertools.combinations(range(9), 5):  # 126 sets, of which these are the first
        code.decode(values[list(holders)], holders)
        code.decode(values[often], often)
        code.decode(values[:6], range(6))  # uses the same five
    assert len(found) == 126
    assert len(code._decoding) == lagrange._REMEMBERED
    code.decode(values[[0, 1, 2, 3, 5]], [0, 1, 2, 3, 5])  # the second set, long forgotten
    assert len(found) == 127


@example(segments=100, masks=10)
@given(st.integers(1, 30), st.integers(0, 10))
@settings(max_examples=examples(20))
def test_large_codes_are_exact_too(segments, masks):
    field = PrimeField(MERSENNE_61)
    code = LagrangeCode(field, segments, masks, 2 * (segments + masks))
    secrets = elements(field, (segments + masks,), key=11)
    squares = field.multiply(code.encode(secrets), code.encode(secrets))
    expected = [x * x % field.p for x in secrets[:segments].tolist()]
    assert code.decode(squares[1:], range(1, code.shares)).tolist() == expected
