"""Quantised data and weights are near what they stand for, and sums of their products never wrap."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from scipy import stats
from sklearn.datasets import load_breast_cancer
from thorough import examples

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField
from vflsim.coding.quantise import Quantiser, choose_bits, worst_sum

LEVEL = 1e-4  # of every statistical test here; the seeds are fixed
LARGE = PrimeField(MERSENNE_61)
USUAL = Quantiser(PrimeField(), data_bits=4, weight_bits=9)

reals = st.floats(-1e6, 1e6)
bits = st.integers(0, 40)


def float64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def uniforms(count: int, key: int) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=key)).random(count))


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 0),
        (0.49, 0),
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (-0.5, 0),
        (-1.5, -1),
        (-2.5, -2),
        (-0.51, -1),
        (math.nextafter(0.5, 0), 0),  # and adding a half first would make it 1
        (math.nextafter(-0.5, -1), -1),
        (-5e-324, 0),
        (2.0**52 + 1, 2**52 + 1),
    ],
)
def test_data_go_to_the_nearest_integer_and_halves_up(x, expected):
    for bits in (0, 1, 6):
        quantised = Quantiser(LARGE, bits, 0).data(float64(x * 2.0**-bits))
        assert quantised.tolist() == [expected]
        assert quantised.dtype == torch.int64


@given(reals, bits)
def test_data_are_rounded_exactly(x, bits):
    expected = math.floor(Fraction(x) * 2**bits + Fraction(1, 2))
    quantiser = Quantiser(LARGE, bits, 0)
    if abs(expected) < 2**59:
        assert quantiser.data(float64(x)).item() == expected
        assert Fraction(quantiser.data_values(torch.tensor(expected)).item()) == Fraction(expected, 2**bits)


@given(st.lists(reals, min_size=2), st.integers(0, 20))
def test_larger_data_never_become_smaller_integers(values, bits):
    values = torch.tensor(sorted(values), dtype=torch.float64)
    quantised = Quantiser(LARGE, bits, 0).data(values)
    assert bool((quantised.diff() >= 0).all())
    back = Quantiser(LARGE, bits, 0).data_values(quantised)
    assert float((back - values).abs().max()) <= 2.0 ** -(bits + 1)


def test_single_precision_is_read_for_what_it_is():
    x = torch.tensor([[0.1, -0.7], [1 / 3, 5.0]])
    assert torch.equal(USUAL.data(x), USUAL.data(x.double()))
    assert Quantiser(LARGE, 40, 40).data(x)[0, 0].item() == math.floor(
        Fraction(x[0, 0].item()) * 2**40 + Fraction(1, 2)
    )


# --- weights ---------------------------------------------------------------------------------------------------------


@given(st.floats(-100, 100), bits, st.floats(0, 1, exclude_max=True))
@example(w=0.1, bits=0, u=0.9)  # 0.1 + 0.9 is a little more than 1, and adds to just 1
@example(w=-1e-20, bits=0, u=0.0)
@example(w=-3.0, bits=2, u=0.999)
def test_a_weight_goes_to_one_of_its_two_neighbours_as_the_uniform_says(w, bits, u):
    scaled = Fraction(w) * 2**bits
    quantised = Quantiser(LARGE, 0, bits).weights(float64(w), float64(u)).item()
    assert quantised in (math.floor(scaled), math.ceil(scaled))
    # The fraction is rounded to 53 bits: only a uniform that near to where the integer changes may go either way.
    assert abs(scaled - quantised + Fraction(u) - Fraction(1, 2)) <= Fraction(1, 2) + Fraction(1, 2**53)


def test_weights_that_are_multiples_of_the_step_stay_what_they_are():
    w = torch.arange(-2048, 2048, dtype=torch.float64) / 2**9
    for u in (0.0, 0.5, 1 - 2.0**-53):
        assert torch.equal(USUAL.weights(w, torch.full_like(w, u)), torch.arange(-2048, 2048))


def test_over_an_even_grid_of_uniforms_the_average_is_the_weight_exactly():
    sixteenths = torch.arange(-32, 32)
    w = (sixteenths / 16)[:, None].expand(-1, 16)
    u = (torch.arange(16, dtype=torch.float64) / 16).expand(64, -1)
    assert torch.equal(Quantiser(LARGE, 0, 0).weights(w, u).sum(1), sixteenths)


@pytest.mark.parametrize(
    "w", [0.3 / 2**9, -0.3 / 2**9, 0.001, -0.2503, 1.0 + 2.0**-16, -(2.0**-20)], ids=lambda w: f"{w:g}"
)
def test_weights_are_right_on_average(w):
    count = 200_000
    quantised = USUAL.weights(torch.full((count,), w, dtype=torch.float64), uniforms(count, key=7))
    scaled = Fraction(w) * 2**9
    ups = int((quantised - math.floor(scaled)).sum())
    assert stats.binomtest(ups, count, float(scaled - math.floor(scaled))).pvalue > LEVEL / 6


def test_the_mean_of_stochastic_roundings_is_the_weight_over_all_fractions():
    w = torch.linspace(-1, 1, 1001, dtype=torch.float64)[:-1].repeat(400)
    error = USUAL.weights(w, uniforms(len(w), key=8)).double() / 2**9 - w
    assert stats.ttest_1samp(error.numpy(), 0.0).pvalue > LEVEL
    assert float(error.abs().max()) < 2.0**-9


def test_uniforms_come_one_for_each_weight():
    with pytest.raises(ValueError, match=r"uniforms of shape \(3,\) for weights of shape \(2, 3\)"):
        USUAL.weights(torch.zeros(2, 3), torch.zeros(3, dtype=torch.float64))


def test_trained_weights_need_not_be_detached():
    parameter = torch.nn.Parameter(torch.tensor([0.5, -0.25]))
    assert USUAL.weights(parameter, torch.zeros(2, dtype=torch.float64)).tolist() == [256, -128]


# --- what cannot be quantised ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 2.0**26, -(2.0**26)])
def test_numbers_that_the_field_cannot_hold_are_refused(bad):
    assert USUAL.data(float64(2.0**26 - 1, 1 - 2.0**26)).tolist() == [2**30 - 16, 16 - 2**30]
    with pytest.raises(ValueError, match=r"data with magnitudes .* 4 bits .* p = 2147483647: .* below 1073741822; use"):
        USUAL.data(float64(1.0, bad))
    with pytest.raises(ValueError, match=r"weights with magnitudes .* 9 bits"):
        USUAL.weights(float64(1.0, bad), float64(0, 0))


def test_the_largest_magnitude_is_reached_by_rounding_only():
    quantiser = Quantiser(PrimeField(101), 0, 0)
    assert quantiser.data(float64(48.9, -48.9)).tolist() == [49, -49]  # PrimeField(101).largest
    for x in (49.0, -49.0, 49.4, 50.0):
        with pytest.raises(ValueError, match="below 49"):
            quantiser.data(float64(x))


@pytest.mark.parametrize("p", [7, 101, MERSENNE_31, MERSENNE_61])
def test_what_is_quantised_comes_back_from_the_field(p):
    field = PrimeField(p)
    quantiser = Quantiser(field, 0, 0)
    limit = math.nextafter(float(field.largest), 0)
    x = float64(limit, -limit, limit - 0.5, 0.5 - limit, 0.0)
    for quantised in (quantiser.data(x), quantiser.weights(x, torch.full_like(x, 0.999))):
        assert int(quantised.abs().max()) <= field.largest
        assert torch.equal(field.signed(field.embed(quantised)), quantised)


@pytest.mark.parametrize(("data_bits", "weight_bits"), [(-1, 4), (4, -1), (53, 4), (4, 53)])
def test_numbers_of_bits_that_make_no_sense_are_refused(data_bits, weight_bits):
    with pytest.raises(ValueError, match=r"(data|weight)_bits = (-1|53); allowed: 0 to 52"):
        Quantiser(LARGE, data_bits, weight_bits)


def test_a_quantiser_is_a_value():
    assert Quantiser(PrimeField(), 4, 9) == USUAL
    with pytest.raises(dataclasses.FrozenInstanceError):
        USUAL.data_bits = 5


# --- back to reals ---------------------------------------------------------------------------------------------------


@given(st.integers(-(2**60), 2**60), st.integers(0, 30), st.integers(0, 30), st.integers(1, 1000))
def test_the_mean_is_the_sum_without_its_bits_over_the_clients(total, data_bits, weight_bits, clients):
    mean = Quantiser(LARGE, data_bits, weight_bits).mean(torch.tensor([total]), clients)
    assert mean.dtype == torch.float64
    exact = Fraction(total, 2 ** (data_bits + weight_bits) * clients)
    assert abs(Fraction(mean.item()) - exact) <= abs(exact) * Fraction(2**53 + 1, 2**105)  # (1 + 2^-53)^2 - 1
    if clients == 1 and abs(total) <= 2**53:
        assert Fraction(mean.item()) == exact


def test_a_mean_over_nobody_is_refused():
    with pytest.raises(ValueError, match="clients = 0"):
        USUAL.mean(torch.tensor([1]), 0)


@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(2, 12))
@settings(max_examples=examples(30))
def test_the_mean_of_the_quantised_is_near_the_mean_of_the_real(key, data_bits, weight_bits):
    generator = np.random.Generator(np.random.Philox(key=key))
    quantiser = Quantiser(LARGE, data_bits, weight_bits)
    real, total, error = np.zeros((7, 2)), torch.zeros(7, 2, dtype=torch.int64), np.zeros((7, 2))
    for columns in (5, 3):
        x, w = generator.normal(size=(7, columns)), generator.normal(size=(columns, 2))
        quantised = quantiser.weights(torch.from_numpy(w), torch.from_numpy(generator.random(w.shape)))
        total += quantiser.data(torch.from_numpy(x)) @ quantised
        real += x @ w
        dx, dw = 2.0 ** -(data_bits + 1), 2.0**-weight_bits
        error += abs(x).sum(1, keepdims=True) * dw + dx * abs(w).sum(0) + columns * dx * dw
    assert bool((abs(quantiser.mean(total, 2).numpy() - real / 2) <= error / 2 + 1e-12).all())


# --- bounds ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 4), st.floats(0.01, 8), st.integers(0, 12))
@settings(max_examples=examples(50))
def test_no_sum_exceeds_the_worst_and_some_sum_attains_it(key, clients, weight_bound, weight_bits):
    generator = np.random.Generator(np.random.Philox(key=key))
    limit = Quantiser(LARGE, 0, weight_bits).weight_limit(weight_bound)
    total = attained = torch.zeros(5, 3, dtype=torch.int64)
    bounds = []
    for columns in generator.integers(1, 6, clients).tolist():
        x = torch.from_numpy(generator.integers(-(2**20), 2**20, (5, columns)))
        w = torch.from_numpy(generator.uniform(-weight_bound, weight_bound, (columns, 3)))
        w[0, 0], w[-1, -1] = weight_bound, -weight_bound
        quantised = Quantiser(LARGE, 0, weight_bits).weights(w, torch.from_numpy(generator.random(w.shape)))
        assert int(quantised.abs().max()) <= limit
        bounds.append(int(x.abs().sum(1).max()))
        total = total + x @ quantised
        greatest = x[x.abs().sum(1).argmax()]
        # Nothing forbids that every client's largest row is the same sample's, its weights of the largest magnitude.
        attained = attained + greatest.expand(5, -1) @ (greatest.sign() * limit)[:, None].expand(-1, 3)
    worst = worst_sum(bounds, limit)
    assert int(total.abs().max()) <= worst
    assert attained.unique().tolist() == [worst]


@pytest.mark.parametrize(
    ("bits", "bound", "expected"), [(0, 4.0, 4), (9, 4.0, 2048), (3, 0.1, 1), (3, 0.126, 2), (0, 1e-9, 1), (4, 1, 16)]
)
def test_the_weight_limit_is_rounded_up(bits, bound, expected):
    assert Quantiser(LARGE, 0, bits).weight_limit(bound) == expected


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_bounds_that_bound_nothing_are_refused(bound):
    with pytest.raises(ValueError, match="weight_bound = "):
        USUAL.weight_limit(bound)
    with pytest.raises(ValueError, match="weight_bound = "):
        choose_bits(LARGE, 1.0, 1, bound)


# --- how many bits ---------------------------------------------------------------------------------------------------


def worst(data_bits: int, weight_bits: int, magnitude: float, columns: int, weight_bound: float) -> Fraction:
    """The documented bound on what sums of products can reach."""
    rows = math.floor(2**data_bits * Fraction(magnitude) + Fraction(columns, 2))
    return rows * math.ceil(2**weight_bits * Fraction(weight_bound))


@given(
    st.sampled_from([1_000_003, MERSENNE_31, MERSENNE_61]),
    st.floats(0, 1e9),
    st.integers(1, 10_000),
    st.floats(1e-3, 1e3),
)
@settings(max_examples=examples(300))
def test_as_many_bits_are_chosen_as_cannot_wrap(p, magnitude, columns, weight_bound):
    field, arguments = PrimeField(p), (magnitude, columns, weight_bound)

    def fitting(total: int) -> list[tuple[int, int]]:
        pairs = [(total - w, w) for w in range(53) if 3 <= w - (total - w) <= 5 and total >= w]
        return [pair for pair in pairs if worst(*pair, *arguments) <= field.largest]

    if not fitting(8):
        with pytest.raises(ValueError, match=f"p = {p} is too small"):
            choose_bits(field, *arguments)
        return
    chosen = choose_bits(field, *arguments)
    assert chosen in fitting(sum(chosen))
    assert not fitting(sum(chosen) + 1)


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0.1, 8), st.sampled_from([1e-3, 1.0, 30.0]))
@settings(max_examples=examples(50))
def test_data_quantised_with_the_chosen_bits_cannot_wrap(key, clients, weight_bound, scale):
    generator = np.random.Generator(np.random.Philox(key=key))
    data = [torch.from_numpy(generator.normal(0, scale, (20, d))) for d in generator.integers(1, 40, clients).tolist()]
    magnitude = sum(float(x.abs().sum(1).max()) for x in data)
    columns = sum(x.shape[1] for x in data)
    field = PrimeField()
    quantiser = Quantiser(field, *choose_bits(field, magnitude, columns, weight_bound))
    bounds = [int(quantiser.data(x).abs().sum(1).max()) for x in data]
    assert worst_sum(bounds, quantiser.weight_limit(weight_bound)) <= field.largest


@pytest.mark.parametrize(("p", "expected"), [(MERSENNE_31, (4, 9)), (MERSENNE_61, (19, 24))])
def test_weights_get_four_bits_more_or_five(p, expected):
    # As the Parkinson data have it, standardised and squared: 10 clients, 1506 columns.
    assert choose_bits(PrimeField(p), 26_453.1, 1506, 4.0) == expected
    assert choose_bits(PrimeField(p), 26_453.1 / 2, 1506, 4.0) == (expected[0] + 1, expected[1])


def test_the_split_moves_embeddings_as_little_as_any_within_a_factor_of_two():
    # Two clients, standardised features and their squares, fresh weights as PyTorch draws them: uniform within 1/√d.
    x = load_breast_cancer().data
    x = torch.from_numpy((x - x.mean(0)) / x.std(0))
    data = [torch.cat((part, part**2), dim=1) for part in (x[:, :15], x[:, 15:])]
    weights = [(2 * uniforms(30 * 64, key=k).reshape(30, 64) - 1) / math.sqrt(15) for k in (1, 2)]
    real = sum(a @ w for a, w in zip(data, weights, strict=True)) / 2
    magnitude = sum(float(a.abs().sum(1).max()) for a in data)
    chosen = choose_bits(PrimeField(), magnitude, 60, 4.0)
    errors = {}
    for data_bits in range(1, sum(chosen)):
        quantiser = Quantiser(PrimeField(), data_bits, sum(chosen) - data_bits)
        rounded = [quantiser.weights(w, uniforms(30 * 64, key=9).reshape(30, 64)) for w in weights]
        total = sum(quantiser.data(a) @ w for a, w in zip(data, rounded, strict=True))
        errors[data_bits] = float((quantiser.mean(total, 2) - real).square().mean().sqrt())
    assert errors[chosen[0]] < 2 * min(errors.values())


def test_data_that_are_all_zero_get_as_many_bits_as_there_are():
    assert choose_bits(LARGE, 0.0, 1, 1.0) == (49, 52)


@pytest.mark.parametrize(
    ("magnitude", "columns", "name"), [(-1.0, 3, "magnitude"), (math.nan, 3, "magnitude"), (1, 0, "columns")]
)
def test_magnitudes_that_are_none_are_refused(magnitude, columns, name):
    with pytest.raises(ValueError, match=f"{name} = "):
        choose_bits(LARGE, magnitude, columns, 1.0)


def test_too_few_bits_are_refused_with_what_to_change():
    assert choose_bits(PrimeField(), 2.0**20 - 1, 1, 4.0) == (2, 6)
    with pytest.raises(ValueError, match="at 8 bits"):
        choose_bits(PrimeField(), 2.0**20, 1, 4.0)
    with pytest.raises(ValueError, match=r"p = 2147483647 .* 1e\+08 in 40 .* up to 4 .* 2\^37 at 8 bits") as caught:
        choose_bits(PrimeField(), 1e8, 40, 4.0)
    assert "choose prime: 2^61-1, a smaller weight bound, or features scaled" in str(caught.value)
    with pytest.raises(ValueError, match="choose a smaller weight bound, or features scaled"):
        choose_bits(LARGE, 1e300, 40, 1e300)
