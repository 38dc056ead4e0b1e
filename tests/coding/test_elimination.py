"""Elimination over small prime fields, against all vectors counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from vflsim.coding.field import MERSENNE_31, MERSENNE_61, PrimeField, eliminated


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
