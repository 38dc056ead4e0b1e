import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from vflsim.learning.data.joint import Scaler

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
