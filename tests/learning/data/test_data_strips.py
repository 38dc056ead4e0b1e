"""Columns of one table scaled together: the bits of parties that are scaled one by one."""

from itertools import pairwise

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data import preparation
from vflsim.learning.data.joint import RowSplit, Scaler
from vflsim.learning.data.preparation import joined_splits, strips, together
from vflsim.learning.data.raw import View

F32 = np.dtype("float32")


def table(values: np.ndarray, widths: list[int]) -> list[View]:
    whole = View("all", values, tuple(f"c{number}" for number in range(values.shape[1])))
    ends = np.cumsum([0, *widths]).tolist()
    return [whole.some(f"{a}..{b}", range(a, b)) for a, b in pairwise(ends)]


def cut(rows: int) -> RowSplit:
    return RowSplit(np.arange(0, rows, 2), np.arange(1, rows, 4), np.arange(3, rows, 4))


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "strips", lambda views, splits: (range(k, k + 1) for k in range(len(views))))


@pytest.mark.sampled(24)
@pytest.mark.parametrize("scale", ["standard", "minmax", "none", "pooled"])
@pytest.mark.parametrize("rows", [5, 129, 1_000, 20_001])
@pytest.mark.parametrize("widths", [[1] * 7, [3] * 5, [2, 2, 1, 1, 1, 4], [1, 2, 1, 2], [17, 17, 16]])
def test_parties_of_a_strip_have_the_bits_of_parties_alone(rng, scale, rows, widths, monkeypatch):
    values = rng.normal(3, 50, (rows, sum(widths))) * 10.0 ** rng.integers(-8, 8, sum(widths))
    values[:, 0] = 0.1
    views, split = table(values, widths), cut(rows)
    assert len(list(strips(views, [split] * len(views)))) < len(widths) or len(set(widths)) == 2
    names = [f"client-{number}" for number in range(len(views))]
    found = list(joined_splits(views, split, [split] * len(views), scale, F32, names))
    one_by_one(monkeypatch)
    alone = list(joined_splits(views, split, [split] * len(views), scale, F32, names))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in alone]


def test_a_strip_has_neighbours_of_one_table_and_width_alone(rng):
    values, split = rng.normal(size=(10, 12)), cut(10)
    views = [*table(values, [2, 2, 2, 1, 1]), *table(values.copy(), [1, 1]), *table(values, [1, 1, 1])[2:]]
    splits = [split] * 4 + [cut(10)] + [split] * (len(views) - 5)
    assert list(strips(views, splits)) == [range(3), range(3, 4), range(4, 5), range(5, 7), range(7, 8)]
    np.testing.assert_array_equal(together(views, range(3)).values, values[:, :6])
    assert np.shares_memory(together(views, range(3)).values, values)


@pytest.mark.parametrize(("value", "what"), [(1e200, "cannot be scaled"), (1e39, "overflow float32")])
def test_an_error_in_a_strip_names_the_party(rng, value, what):
    values, split = rng.normal(size=(8, 6)), cut(8)
    values[:, 3] = [value, 1, 1, 1, -value, 1, 1, 1] if value > 1e100 else [0, value, 1, value, 0.5, value, 0, value]
    names = [f"client-{number}" for number in range(1, 7)]
    with pytest.raises(DataError, match=f"client-4: 3..4: .*{what}"):
        list(joined_splits(table(values, [1] * 6), split, [split] * 6, "standard", F32, names))


@pytest.mark.parametrize("rows", [1, 2, 8, 127, 128, 8_191, 8_193, 30_000])
def test_single_columns_are_fitted_to_the_last_bit(rng, rows):
    values = rng.normal(3, 50, (rows, 9)) * 10.0 ** rng.integers(-8, 8, 9)
    together = Scaler.of_single_columns(values, "standard")
    for column in range(9):
        alone = Scaler.fit(values[:, column : column + 1], "standard")
        assert alone.centre.tobytes() == together.centre[column : column + 1].tobytes()
        assert alone.spread.tobytes() == together.spread[column : column + 1].tobytes()
