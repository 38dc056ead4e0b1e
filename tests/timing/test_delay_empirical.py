"""Observed delays: every file format, what is refused, and the two ways of drawing them."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from vflsim.timing.delays import Empirical
from vflsim.timing.readers import read_observed

VALUES = [30.0, 5.0, 12.5]


@pytest.fixture
def table():
    return pd.DataFrame({"rtt": VALUES, "other": [1.0, 2.0, 3.0]})


def test_every_format_gives_the_same_values(tmp_path, table):
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet")
    table[["rtt"]].to_csv(tmp_path / "one.csv", index=False)
    table[["rtt"]].to_csv(tmp_path / "bare.csv", index=False, header=False)
    np.save(tmp_path / "a.npy", VALUES)
    (tmp_path / "a.txt").write_text("# ms\n30\n5\n12.5\n")
    for name, column in (
        ("a.csv", "rtt"),
        ("a.parquet", "rtt"),
        ("one.csv", None),
        ("bare.csv", None),
        ("a.npy", None),
        ("a.txt", None),
    ):
        assert read_observed(tmp_path / name, column, "ms").tolist() == [0.005, 0.0125, 0.03]


@pytest.mark.parametrize(("delimiter", "point"), [(";", "."), (";", ","), ("\t", "."), ("|", ",")])
@pytest.mark.parametrize("header", [True, False])
def test_csv_files_are_separated_as_those_of_own_data(tmp_path, table, delimiter, point, header):
    written = table.to_csv(index=False, header=header, sep=delimiter, decimal=point)
    (tmp_path / "a.csv").write_text("# measured at night; in ms\n" + written)
    assert read_observed(tmp_path / "a.csv", "rtt" if header else "0", "ms").tolist() == [0.005, 0.0125, 0.03]


def test_a_decimal_comma_in_a_file_of_one_column_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("rtt\n30,5\n5,25\n")
    with pytest.raises(ValueError, match="the first line has one field, and the next one has 2"):
        read_observed(tmp_path / "a.csv")


@pytest.mark.parametrize("values", [[True, False], np.array([1, 2], "timedelta64[s]"), [1 + 2j, 3]])
def test_values_that_only_look_like_numbers_are_refused(tmp_path, values):
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(ValueError, match=r"holds .* values; allowed: numbers"):
        read_observed(tmp_path / "a.npy")


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n")
    assert read_observed(path).tolist() == [1, 2]
    path.write_text("1\n2\n3\n")
    assert read_observed(path).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("none.csv", None, "No such file.*a file"),
        ("a.csv", "", "empty"),
        ("a.csv", "rtt\n", "0 values"),
        ("a.csv", "rtt\n1\n-2\n", "-2 at value 2 is not a delay"),
        ("a.csv", "rtt\n1\nfast\n", "'fast' at value 2"),
        ("a.csv", "rtt,x\n1,2\n,3\n", "2 columns.*rtt, x"),
        ("a.csv", "rtt\nnan\n1\n", "nothing at value 1"),
        ("a.csv", "rtt\n1\ninf\n", "inf at value 2"),
        ("a.npy", "not an array", "not readable as .npy"),
        ("a.parquet", "not a table", "not readable as .parquet"),
        ("a.xls", "1", "files called .xls cannot be read"),
    ],
)
def test_what_is_no_file_of_delays_is_refused(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValidationError, match=says):
        Empirical(file=str(tmp_path / name))


def test_a_wrong_column_is_refused_with_those_there_are(tmp_path, table):
    table.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValidationError, match="no column 'rt'; allowed: rtt, other"):
        Empirical(file=str(tmp_path / "a.csv"), column="rt")


def test_pickled_arrays_are_not_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValidationError, match="not readable"):
        Empirical(file=str(tmp_path / "a.npy"))


def test_observed_values_are_equally_likely(tmp_path):
    (tmp_path / "a.txt").write_text("3\n1\n3\n2\n")
    delay = Empirical(file=str(tmp_path / "a.txt"))
    assert delay.cdf([0.9, 1, 2.5, 3]).tolist() == [0, 0.25, 0.5, 1]
    assert delay.quantile([0, 0.25, 0.26, 0.5, 0.51, 1]).tolist() == [1, 1, 2, 2, 3, 3]
    assert [each.tolist() for each in delay.atoms()] == [[1, 2, 3], [0.25, 0.25, 0.5]]
    assert (delay.expectation(), delay.variance()) == (2.25, 0.6875)


@pytest.mark.parametrize("count", [3, 7, 10, 49, 1000])
def test_quantiles_hit_every_step_in_spite_of_rounding(tmp_path, count):
    np.save(tmp_path / "a.npy", np.arange(count) + 1.0)
    delay = Empirical(file=str(tmp_path / "a.npy"))
    levels = np.arange(1, count + 1) / count
    np.testing.assert_array_equal(delay.quantile(levels), np.arange(count) + 1.0)
    np.testing.assert_array_equal(delay.quantile(np.nextafter(levels[:-1], 2)), np.arange(count)[1:] + 1.0)


def test_linear_interpolation_goes_through_the_values_and_keeps_ties(tmp_path):
    (tmp_path / "a.txt").write_text("1\n2\n2\n4\n")
    delay = Empirical(file=str(tmp_path / "a.txt"), interpolation="linear")
    np.testing.assert_allclose(delay.cdf([0.5, 1, 1.5, 2, 3, 4]), [0, 0, 1 / 6, 2 / 3, 5 / 6, 1])
    np.testing.assert_allclose(delay.quantile([0, 1 / 6, 0.5, 5 / 6, 1]), [1, 1.5, 2, 3, 4])
    assert delay.expectation() == pytest.approx((1.5 + 2 + 3) / 3)
    x = delay.quantile((np.arange(300_000) + 0.5) / 300_000)
    assert delay.variance() == pytest.approx(x.var(), rel=1e-6)
