"""Curves of closed forms as a file: written, read, refused when damaged."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vflsim.analysis.findings import ClosedForm, Range
from vflsim.analysis.rounds import Geometric
from vflsim.errors import ResultsError
from vflsim.results.store.closed_forms import (
    FILE,
    curves_of,
    read_closed_forms,
    table_of,
    write_closed_forms,
)
from vflsim.results.store.schema import CURVES
from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.laws.law import Point
from vflsim.timing.laws.order import mixture


def form(law: object, **more: object) -> ClosedForm:
    return ClosedForm(more.pop("name", "round duration"), "s", (), tuple, law, **more)  # type: ignore[arg-type]


def test_a_curve_reaches_far_into_both_tails() -> None:
    law = OfDelay(Exponential(mean=2.0), 1.0)
    ((protocol, quantity, client, x, lower, upper),) = curves_of("sync", [form(law)])
    assert (protocol, quantity, client) == ("sync", "round_duration", -1)
    assert np.array_equal(lower, upper)
    assert lower == pytest.approx(law.cdf(x))
    assert x[0] <= 1.0
    assert 1 - 1.01e-5 <= lower[-1] < 1.0
    assert 300 < len(x) < 600
    assert np.diff(lower).max() < 0.05


def test_atoms_are_steps() -> None:
    ((*_, x, lower, _),) = curves_of("sync", [form(mixture([(0.5, Point(1.0)), (0.5, Point(3.0))]))])
    assert lower[np.searchsorted(x, 3.0)] == 1.0
    assert lower[np.searchsorted(x, 3.0) - 1] == 0.5
    assert x[np.searchsorted(x, 3.0) - 1] == pytest.approx(3.0, abs=1e-12)


def test_bounds_are_two_curves() -> None:
    law, slower = OfDelay(Exponential(mean=2.0)), OfDelay(Exponential(mean=3.0))
    ((*_, x, lower, upper),) = curves_of("sync", [form(law, slower=slower)])
    assert lower == pytest.approx(slower.cdf(x))
    assert upper == pytest.approx(law.cdf(x))


def test_ages_are_curves_client_by_client_or_of_one_picked_at_random() -> None:
    few = [
        form(Geometric(0.5), name="client age", clients=(1, 3)),
        form(Geometric(0.2), name="client age", clients=(2,)),
    ]
    found = curves_of("async", few)
    assert [(quantity, client) for _, quantity, client, *_ in found] == [("client_age", m) for m in (1, 2, 3)]
    *_, x, cdf, _ = found[1]
    assert np.array_equal(x, np.arange(len(x)))
    assert cdf == pytest.approx(1 - 0.8 ** (x + 1))
    many = [form(Geometric(0.5), name="client age", clients=tuple(range(1, 100)))]
    ((_, _, client, x, cdf, _),) = curves_of("async", many)
    assert client == -1
    assert cdf == pytest.approx(1 - 0.5 ** (x + 1))


def test_very_old_clients_are_drawn_at_some_of_their_ages() -> None:
    ((*_, x, cdf, _),) = curves_of("async", [form(Geometric(1e-5), name="client age", clients=(1,))])
    assert len(x) < 1000
    assert cdf[-1] >= 1 - 1.1e-5


def test_what_only_has_a_mean_is_no_curve() -> None:
    assert curves_of("async", [ClosedForm("round duration", "s", (), tuple, given=Range.of(1.0))]) == []
    assert table_of([]) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table = table_of(curves_of("sync", [form(OfDelay(Exponential(mean=2.0)))]))
    assert table is not None
    assert table.schema == CURVES
    write_closed_forms(tmp_path, table)
    frame = read_closed_forms(tmp_path)
    assert frame is not None
    assert frame.columns.tolist() == ["protocol", "quantity", "client", "x", "cdf", "cdf_upper"]
    assert len(frame) == table.num_rows
    before = (tmp_path / FILE).read_bytes()
    write_closed_forms(tmp_path, table)
    assert (tmp_path / FILE).read_bytes() == before
    write_closed_forms(tmp_path, None)
    assert read_closed_forms(tmp_path) is None


def test_damage_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"nothing")
    with pytest.raises(ResultsError, match="damaged"):
        read_closed_forms(tmp_path)
    pq.write_table(pa.table({"protocol": ["a"]}), tmp_path / FILE)
    with pytest.raises(ResultsError, match="no column quantity"):
        read_closed_forms(tmp_path)
