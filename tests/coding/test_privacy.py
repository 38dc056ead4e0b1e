"""What T colluding holders see does not depend on the secrets: exactly in small fields, by statistics in the usual."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_breast_cancer

from vflsim.coding.field import MERSENNE_31, PrimeField
from vflsim.coding.lagrange import LagrangeCode
from vflsim.coding.quantise import Quantiser

LEVEL = 1e-4  # of every statistical test here, all its comparisons together; the seeds are fixed

SMALL = [  # p, K, T, N: mostly as many holders as the field has room for
    (7, 1, 1, 4),
    (7, 2, 1, 3),
    (11, 2, 1, 7),
    (11, 3, 1, 6),
    (13, 3, 1, 8),
    (7, 1, 2, 3),
    (7, 2, 2, 2),
    (11, 2, 2, 6),
    (11, 1, 3, 6),
]
COLLUDING = [case for case in SMALL if case[3] > case[2]]  # where there are T + 1 holders


def all_vectors(p: int, length: int) -> torch.Tensor:
    """(length, p^length): every vector over F_p, one a column."""
    return torch.arange(p**length) // p ** torch.arange(length)[:, None] % p


def data_shares(code: LagrangeCode) -> torch.Tensor:
    """(N, p^K, p^T): every holder's share, for all segments of one element and all masks."""
    segments, masks = all_vectors(code.field.p, code.segments), all_vectors(code.field.p, code.masks)
    shape = (-1, segments.shape[1], masks.shape[1])
    return code.encode(torch.cat((segments[:, :, None].expand(shape), masks[:, None, :].expand(shape))))


def model_shares(code: LagrangeCode) -> torch.Tensor:
    """(N, p, p^T): every holder's share, for all weights and all masks."""
    masks = all_vectors(code.field.p, code.masks)
    shape = (code.field.p, masks.shape[1])
    weights = torch.arange(code.field.p)[:, None].expand(shape)
    return code.encode_repeated(weights, masks[:, None, :].expand(-1, *shape))


def seen(shares: torch.Tensor, holders: tuple[int, ...], p: int) -> torch.Tensor:
    """(secrets, masks): what these holders see together, as a number; each row sorted, so equal rows are equal laws."""
    together = torch.zeros_like(shares[0])
    for holder in holders:
        together = together * p + shares[holder]
    return together.sort(dim=1).values


def tells_nothing(shares: torch.Tensor, holders: tuple[int, ...], p: int) -> bool:
    """Whether all secrets give these holders the same law."""
    law = seen(shares, holders, p)
    return torch.equal(law, law[:1].expand_as(law))


# --- exactly: all masks, all secrets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shares_of", [data_shares, model_shares])
@pytest.mark.parametrize(("p", "segments", "masks", "shares"), SMALL)
def test_any_t_shares_are_uniform_whatever_the_secrets_are(p, segments, masks, shares, shares_of):
    shared = shares_of(LagrangeCode(PrimeField(p), segments, masks, shares))
    uniform = torch.arange(p**masks).expand(shared.shape[1:])  # each possible view comes from exactly one set of masks
    for holders in itertools.combinations(range(shares), masks):
        assert torch.equal(seen(shared, holders, p), uniform)


@pytest.mark.parametrize(("p", "segments", "masks", "shares"), COLLUDING)
def test_any_t_plus_1_shares_of_data_depend_on_every_segment(p, segments, masks, shares):
    code = LagrangeCode(PrimeField(p), segments, masks, shares)
    shared = data_shares(code)
    for holders in itertools.combinations(range(shares), masks + 1):
        for segment in range(segments):
            others_are_0 = torch.arange(p) * p**segment
            assert not tells_nothing(shared[:, others_are_0], holders, p)


def divided_difference_of_1_over_v(code: LagrangeCode, holders: tuple[int, ...]) -> int:
    """Of 1 / v at the holders' points, v(z) = Π_{k<=K} (z − β_k)."""
    p, points = code.field.p, code.alphas[list(holders)].tolist()
    total = 0
    for a in points:
        v = math.prod(a - beta for beta in range(1, code.segments + 1))
        total += pow(v * math.prod(a - other for other in points if other != a), -1, p)
    return total % p


@pytest.mark.parametrize(("p", "segments", "masks", "shares"), COLLUDING)
def test_t_plus_1_shares_of_a_model_tell_of_it_but_at_special_points(p, segments, masks, shares):
    # G − W vanishes at β_1..β_K, so G = W + v q, where q is a uniform polynomial of degree T − 1. All that T + 1 values
    # of q have in common is that their divided difference is 0; so that of G/v is W times that of 1/v. This is all that
    # can be learnt, and nothing where that of 1/v is 0.
    code = LagrangeCode(PrimeField(p), segments, masks, shares)
    shared = model_shares(code)
    for holders in itertools.combinations(range(shares), masks + 1):
        assert tells_nothing(shared, holders, p) == (divided_difference_of_1_over_v(code, holders) == 0)


def test_which_pairs_learn_nothing_of_a_model_hidden_by_one_mask():
    def pairs(p: int, segments: int) -> list[tuple[int, ...]]:
        code = LagrangeCode(PrimeField(p), segments, 1, p - segments - 2)
        shared = model_shares(code)
        both = itertools.combinations(range(code.shares), 2)
        return [tuple(code.alphas[list(pair)].tolist()) for pair in both if tells_nothing(shared, pair, p)]

    # With one mask the pairs are those with v(a) = v(b). v of degree 1 takes no value twice; v = (z − 1)(z − 2) is
    # symmetric about 3/2: a + b = 3 + p. A cube is symmetric about no point: c³ − c, c = z − 2.
    assert pairs(11, 1) == []
    assert pairs(11, 2) == [(4, 10), (5, 9), (6, 8)]
    assert pairs(13, 2) == [(4, 12), (5, 11), (6, 10), (7, 9)]
    assert pairs(13, 3) == [(5, 9), (8, 12)]


@pytest.mark.parametrize("shares_of", [data_shares, model_shares])
def test_without_masks_every_share_tells_of_the_secrets(shares_of):
    shared = shares_of(LagrangeCode(PrimeField(7), 2, 0, 4))
    assert not any(tells_nothing(shared, (holder,), 7) for holder in range(4))


def test_a_point_of_both_kinds_would_give_a_segment_in_the_clear():
    code = LagrangeCode(PrimeField(7), 2, 1, 3)
    right = data_shares(code)
    assert not set(code.alphas.tolist()) & set(code.betas.tolist())
    # The same polynomials at 1..3, as if holders were numbered from 1 without regard to the β; K + T shares give them.
    wrong = code.field.matmul(_values_at(code, [1, 2, 3]), right.flatten(1)).reshape(right.shape)
    segments = all_vectors(7, 2)[:, :, None].expand(2, 49, 7)
    assert torch.equal(wrong[:2], segments)
    assert not tells_nothing(wrong, (0,), 7)
    assert all(tells_nothing(right, (holder,), 7) for holder in range(3))


def _values_at(code: LagrangeCode, points: list[int]) -> torch.Tensor:
    """From K + T shares to the polynomial's values at these points, by Lagrange's formula."""
    p, nodes = code.field.p, code.alphas.tolist()
    rows = [[math.prod((x - b) * pow(a - b, -1, p) for b in nodes if b != a) % p for a in nodes] for x in points]
    return torch.tensor(rows)


@pytest.mark.parametrize(("p", "segments", "shares"), [(7, 1, 4), (7, 2, 3), (11, 2, 4)])
def test_one_result_tells_the_server_nothing_and_two_do(p, segments, shares):
    # FedVS Thm. 5.3, of a client with one feature and one weight, and T = 1: results are products of two shares.
    code = LagrangeCode(PrimeField(p), segments, 1, shares)
    products = one_answers(code)
    assert all(tells_nothing(products, (holder,), p) for holder in range(shares))
    assert not any(tells_nothing(products, pair, p) for pair in itertools.combinations(range(shares), 2))


@pytest.mark.parametrize(("p", "segments", "masks", "shares"), [(7, 1, 1, 3), (7, 1, 2, 3), (11, 1, 1, 4)])
def test_answers_of_t_holders_tell_the_server_nothing(p, segments, masks, shares):
    code = LagrangeCode(PrimeField(p), segments, masks, shares)
    answers = one_answers(code)
    assert all(tells_nothing(answers, holders, p) for holders in itertools.combinations(range(shares), masks))


@pytest.mark.parametrize(("p", "shares"), [(7, 3), (11, 4), (13, 3)])
def test_enough_answers_to_decode_may_tell_inputs_with_the_same_sum_apart(p, shares):
    """Data 0 and weight 1 give the sum 0, and so do data 0 and weight 0; all answers together have another law."""
    code = LagrangeCode(PrimeField(p), 1, 1, shares)
    answers = one_answers(code)
    zero_times_zero, zero_times_one = 0 * p + 0, 0 * p + 1
    enough = tuple(range(code.threshold()))
    for place in (zero_times_zero, zero_times_one):
        assert not code.decode(answers[: len(enough), place], enough).any()
    law = seen(answers, enough, p)
    assert not torch.equal(law[zero_times_zero], law[zero_times_one])


def test_answers_beside_the_sum_are_uniform_while_masks_outnumber_them():
    """K = T = 1, two features, one output: while W and V are independent, the two other coefficients are uniform.

    They are X V + Z W and Z V. With 2h numbers about d features, [V W] of rank 2h ≤ d sends uniform masks Z to uniform
    numbers, whatever X is: each pair of numbers comes from exactly one Z here.
    """
    p = 5
    pairs = all_vectors(p, 2).T
    for x, w, v in itertools.product(pairs, repeat=3):
        independent = bool((v[0] * w[1] - v[1] * w[0]) % p)
        both = (x @ v + pairs @ w) % p * p + (pairs @ v) % p
        assert (len(both.unique()) == p * p) == independent


def one_answers(code: LagrangeCode) -> torch.Tensor:
    """(N, p^K · p, masks): every holder's answer if one client has one feature and one weight, for all of both."""
    data, models = data_shares(code), model_shares(code)
    products = data[:, :, None, :, None] * models[:, None, :, None, :] % code.field.p
    return products.flatten(3).flatten(1, 2)


# --- statistically: the field that is used ---------------------------------------------------------------------------

CODE = LagrangeCode(PrimeField(MERSENNE_31), segments=3, masks=2, shares=9)
QUANTISER = Quantiser(CODE.field, data_bits=8, weight_bits=12)
ELEMENTS = 60_000
BINS = 64  # by the six highest bits, or the six lowest


def standardised() -> torch.Tensor:
    """Data that are anything but uniform, 30 columns, as many rows as make up the three segments' elements."""
    x = load_breast_cancer().data
    x = (x - x.mean(0)) / x.std(0)
    return torch.from_numpy(np.resize(x, (CODE.segments * ELEMENTS // 30, 30)))


def secrets(kind: str) -> torch.Tensor:
    """(K, elements): segments of data, or nothing but zeros."""
    if kind == "zeros":
        return torch.zeros(CODE.segments, ELEMENTS, dtype=torch.int64)
    return CODE.field.embed(QUANTISER.data(standardised())).reshape(CODE.segments, ELEMENTS)


def masks(key: int) -> torch.Tensor:
    return CODE.field.uniform((CODE.masks, ELEMENTS), np.random.Philox(key=key))


def shared_data(kind: str, key: int) -> torch.Tensor:
    return CODE.encode(torch.cat((secrets(kind), masks(key))))


def shared_model(kind: str, key: int) -> torch.Tensor:
    weights = torch.zeros(ELEMENTS, dtype=torch.float64)
    if kind != "zeros":
        generator = np.random.Generator(np.random.Philox(key=key + 1))
        weights = torch.from_numpy(generator.normal(0, 0.1, ELEMENTS))
    quantised = QUANTISER.weights(weights, torch.full_like(weights, 0.5))
    return CODE.encode_repeated(CODE.field.embed(quantised), masks(key))


def bins(shares: torch.Tensor) -> dict[str, torch.Tensor]:
    """By the highest and by the lowest bits; p is so near a power of 2 that uniform elements fill all bins alike."""
    return {"high": shares >> 25, "low": shares & (BINS - 1)}


def views(shares: torch.Tensor) -> dict[str, torch.Tensor]:
    """Counts in bins: of each single share, and of each pair's (T = 2) three highest, or lowest, bits jointly."""
    counts = {}
    for name, of in bins(shares).items():
        half = of >> 3 if name == "high" else of & 7
        for holder in range(CODE.shares):
            counts[f"{name} bits of {holder}"] = torch.bincount(of[holder], minlength=BINS)
        for a, b in itertools.combinations(range(CODE.shares), 2):
            counts[f"{name} bits of {a} and {b}"] = torch.bincount(half[a] * 8 + half[b], minlength=BINS)
    return counts


@pytest.mark.parametrize("shared", [shared_data, shared_model])
@pytest.mark.parametrize(("kind", "key"), [("zeros", 101), ("real", 202)])
def test_shares_and_pairs_of_shares_are_uniform(shared, kind, key):
    counts = views(shared(kind, key))
    for view, count in counts.items():
        assert stats.chisquare(count).pvalue > LEVEL / len(counts), view


@pytest.mark.parametrize("shared", [shared_data, shared_model])
def test_shares_of_data_and_of_zeros_have_the_same_law(shared):
    zeros, real = views(shared("zeros", 303)), views(shared("real", 404))
    for view, count in zeros.items():
        both = np.stack([count.numpy(), real[view].numpy()])
        assert stats.chi2_contingency(both).pvalue > LEVEL / len(zeros), view


def test_the_same_tests_find_what_too_few_masks_do_not_hide():
    bare = LagrangeCode(CODE.field, CODE.segments, 0, CODE.shares)
    for name, of in bins(bare.encode(secrets("real"))).items():
        for holder in range(CODE.shares):
            assert stats.chisquare(torch.bincount(of[holder], minlength=BINS)).pvalue < LEVEL, (name, holder)


def test_three_shares_are_linked_where_two_masks_hide_two():
    # With the segments all zeros, the third share is a multiple of the first two; with data it is not that multiple.
    for kind, expected in (("zeros", True), ("real", False)):
        shares = shared_data(kind, 505)
        points = CODE.alphas[:3].tolist()
        # v q, with q of degree 1: Σ_i v_i^-1 c_i share_i = 0, c_i as in divided differences.
        linked = torch.zeros(ELEMENTS, dtype=torch.int64)
        for i, a in enumerate(points):
            v = math.prod(a - beta for beta in range(1, CODE.segments + 1))
            c = v * math.prod(a - other for other in points if other != a)
            factor = torch.tensor(pow(c, -1, CODE.field.p))
            linked = CODE.field.add(linked, CODE.field.multiply(factor, shares[i]))
        assert bool((linked == 0).all()) == expected
