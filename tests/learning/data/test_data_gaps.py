"""Missing values of features: an error, or filled from the training rows of the party alone."""

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load
from vflsim.learning.data.joint import Scaler

ROWS = 40
AGES = [None if row % 8 == 3 else row + 0.5 for row in range(ROWS)]


@pytest.fixture
def table(write_csv):
    cells = [("" if age is None else age, row, row // 2 % 2) for row, age in enumerate(AGES)]
    return {"file": str(write_csv("t.csv", "age,row,y", cells)), "label": "y", "scale": "none"}


def rows_of(loaded, split):
    """The features of a split, and the numbers of its rows."""
    joint = getattr(loaded.joint, split)
    return joint, joint[:, loaded.parties[0].feature_names.index("row")].astype(int)


def observed(rows):
    return [AGES[row] for row in rows if AGES[row] is not None]


def test_a_gap_is_an_error_that_names_file_row_and_column_and_the_ways_out(table):
    with pytest.raises(DataError, match=r"t\.csv: line 5, column 'age' is nan \(5 such values in all\)") as caught:
        load(Data(**table), Partition(clients=1))
    assert "`missing: mean`, `zero` or `indicator`" in caught.value.remedy


@pytest.mark.parametrize("rule", ["mean", "zero", "indicator"])
def test_the_training_rows_alone_fill_gaps(table, rule):
    loaded = load(Data(**table, missing=rule, validation_fraction=0.2), Partition(clients=1), "float64")
    value = 0.0 if rule == "zero" else np.mean(observed(rows_of(loaded, "train")[1]))
    for split in ("train", "validation", "test"):
        joint, rows = rows_of(loaded, split)
        wanted = [value if AGES[row] is None else AGES[row] for row in rows]
        np.testing.assert_allclose(joint[:, 0], wanted, rtol=1e-14)
        if rule == "indicator":
            assert joint[:, 2].tolist() == [AGES[row] is None for row in rows]
    names = loaded.parties[0].feature_names
    assert names == ("age", "row", "age is missing")[: 3 if rule == "indicator" else 2]
    counts = [sum(AGES[row] is None for row in rows_of(loaded, split)[1]) for split in ("train", "validation", "test")]
    (fact,) = loaded.facts.stated()["missing"]
    assert [fact["party"], fact["column"], fact["rule"]] == ["client-1", "age", rule]
    assert [fact["train"], fact["validation"], fact["test"]] == counts
    assert fact["value"] == pytest.approx(value)


def test_a_line_says_which_columns_were_filled_with_what(table):
    (line,) = load(Data(**table, missing="zero"), Partition(clients=2)).facts.sentences()
    assert line == "missing values (zero): fills 'age' of client-1 (4 training, 1 test rows) with 0"


def test_no_indicator_is_constant_in_training(write_csv):
    """A column with gaps in the test rows alone is filled, and gets no indicator."""
    cells = [(row, row, row // 2 % 2) for row in range(ROWS)]
    loaded = load(Data(file=str(write_csv("t.csv", "age,row,y", cells)), label="y", scale="none"), Partition(clients=1))
    first = rows_of(loaded, "test")[1][0]
    cells[first] = ("", *cells[first][1:])
    path = str(write_csv("t.csv", "age,row,y", cells))
    loaded = load(Data(file=path, label="y", scale="none", missing="indicator"), Partition(clients=1))
    assert loaded.parties[0].feature_names == ("age", "row")
    assert loaded.joint.test[0, 0] == pytest.approx(rows_of(loaded, "train")[1].mean())


def test_gaps_are_filled_before_scaling_and_beside_categories(write_csv):
    cells = [("" if age is None else age, "ab"[row % 2], row // 2 % 2) for row, age in enumerate(AGES)]
    data = Data(
        file=str(write_csv("t.csv", "age,kind,y", cells)), label="y", categorical=("kind",), missing="indicator"
    )
    loaded = load(data, Partition(clients=1), "float64")
    assert loaded.parties[0].feature_shape.cardinalities == (0, 3, 0)
    train = loaded.joint.train
    np.testing.assert_allclose([train[:, 0].mean(), train[:, 0].std()], [0, 1], atol=1e-12)
    assert (set(train[:, 1]), set(train[:, 2])) == ({1, 2}, {0, 1})  # codes and indicators are not scaled


def test_arrays_may_have_gaps_and_each_party_fills_its_own(tmp_path):
    x = np.arange(2.0 * ROWS).reshape(ROWS, 2)
    x[::5, 1] = np.nan
    np.savez(tmp_path / "a.npz", x=x, id=np.arange(ROWS), y=np.arange(ROWS) // 2 % 2)
    np.savez(tmp_path / "b.npz", z=np.where(np.arange(ROWS) % 7, 1.0, np.nan), id=np.arange(ROWS)[::-1])
    loaded = load(
        Data(parties=("a.npz", "b.npz"), label="y", id="id", missing="mean"), Partition(), "float64", tmp_path
    )
    assert [(each["party"], each["column"]) for each in loaded.facts.stated()["missing"]] == [
        ("client-1", "x1"),
        ("client-2", "z"),
    ]
    assert np.isfinite(loaded.joint.train).all()


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([("inf", row % 2) for row in range(ROWS)], "column 'age' is inf"),
        ([("" if row != 7 else "three", row % 2) for row in range(ROWS)], "'three', which is not a number"),
        ([("", row % 2) for row in range(ROWS)], "column 'age' is empty"),
    ],
)
def test_what_is_no_gap_stays_an_error(write_csv, cells, message):
    path = str(write_csv("t.csv", "age,y", cells))
    with pytest.raises(DataError, match=message):
        load(Data(file=path, label="y", missing="mean"), Partition(clients=1))


def test_no_mean_without_values(write_csv):
    known = rows_of(
        load(Data(file=str(write_csv("t.csv", "row,y", [(k, k % 2) for k in range(ROWS)])), label="y", scale="none"),
             Partition(clients=1)), "test"
    )[1]  # fmt: skip
    path = str(write_csv("t.csv", "age,y", [(1 if row in known else "", row % 2) for row in range(ROWS)]))
    with pytest.raises(DataError, match=r"client-1: .* column 'age' has no value in the training rows") as caught:
        load(Data(file=path, label="y", missing="mean"), Partition(clients=1))
    assert "`missing: zero`" in caught.value.remedy
    assert not load(Data(file=path, label="y", missing="zero"), Partition(clients=1)).joint.train.any()


def test_data_sets_by_name_have_no_gaps():
    with pytest.raises(ValueError, match="missing belongs to data from files"):
        Data(name="digits", missing="mean")


F64 = np.dtype("float64")


@pytest.mark.parametrize(("scale", "reference"), [("standard", StandardScaler()), ("minmax", MinMaxScaler())])
def test_tables_agree_with_scikit_learn(rng, scale, reference):
    train, test = rng.normal(3, 50, (20_000, 4)), rng.normal(3, 50, (50, 4))
    scaler = Scaler.fit(train, scale)
    reference.fit(train)
    np.testing.assert_allclose(scaler.apply(test, F64), reference.transform(test), rtol=1e-11)


@pytest.mark.parametrize("scale", ["standard", "minmax"])
@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-300])
def test_a_constant_column_becomes_zero(scale, value):
    train = np.full((1000, 2), value)
    assert np.all(Scaler.fit(train, scale).apply(train, F64) == 0)


def test_what_was_constant_in_training_is_only_shifted_elsewhere():
    scaler = Scaler.fit(np.full((10, 1), 5.0), "standard")
    assert scaler.apply(np.array([[7.0]]), F64).item() == 2.0


@pytest.mark.parametrize("shape", [(300, 1, 3, 4), (300, 12)])
def test_pixels_share_one_centre_and_spread_in_every_shape(rng, shape):
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    scaler = Scaler.fit(pixels, "standard", pixels=True)
    assert scaler.centre.shape == scaler.spread.shape == ()
    np.testing.assert_allclose(scaler.centre, pixels.astype(float).mean(), rtol=1e-13)
    np.testing.assert_allclose(scaler.spread, pixels.astype(float).std(), rtol=1e-13)
    unit = Scaler.fit(pixels, "minmax", pixels=True).apply(pixels, np.dtype("float32"))
    assert (unit.min(), unit.max(), unit.dtype) == (0, 1, np.float32)


@pytest.mark.parametrize("pixels", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_bytes_are_fitted_to_the_bit_like_wider_integers(rng, pixels, order):
    """They are packed first, which may not change the order in which squares are summed."""
    window = np.asarray(rng.integers(0, 256, (20_000, 12), dtype=np.uint8), order=order)[:, 3:9]
    wide = np.asarray(window, dtype=np.int16, order="K")
    packed, plain = Scaler.fit(window, "standard", pixels), Scaler.fit(wide, "standard", pixels)
    assert packed.centre.tobytes() == plain.centre.tobytes()
    assert packed.spread.tobytes() == plain.spread.tobytes()


def test_nothing_is_fitted_for_none():
    assert Scaler.fit(np.ones((3, 1)), "none") is None


def test_the_input_is_left_as_it_was(rng):
    train = rng.normal(size=(10, 2))
    before = train.copy()
    Scaler.fit(train, "standard").apply(train, F64)
    np.testing.assert_array_equal(train, before)


def test_large_amounts_are_computed_in_float64_before_they_are_rounded():
    train = np.array([[2.0**30], [2.0**30 + 1], [2.0**30 + 2]])
    scaled = Scaler.fit(train, "minmax").apply(train, np.dtype("float32"))
    assert scaled.ravel().tolist() == [0.0, 0.5, 1.0]
