"""Noise on the features of some clients: only theirs, in every split, of the right size, the same for all runs."""

import numpy as np
import pytest
from scipy.stats import kstest

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, load, spec

SPLITS = ("train", "validation", "test")
DIGITS = {"name": "digits", "validation_fraction": 0.1}
CUT = Partition(clients=4, by="image_rows")


@pytest.fixture(scope="module")
def clean():
    return load(Data(**DIGITS), CUT, "float64")


def noisy(dtype="float64", **said):
    return load(Data(**DIGITS, noise=said), CUT, dtype)


@pytest.mark.parametrize("split", SPLITS)
def test_noise_is_added_to_the_selected_clients_alone(clean, split):
    made = noisy(select="2, 4", sd=3)
    differences = [getattr(b, split) - getattr(a, split) for a, b in zip(clean.parties, made.parties, strict=True)]
    assert not differences[0].any()
    assert not differences[2].any()
    for added in (differences[1], differences[3]):
        assert kstest(added.ravel() / 3, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(differences[1].ravel(), differences[3].ravel())[0, 1]) < 4 / np.sqrt(added.size)
    np.testing.assert_array_equal(getattr(made.labels, split), getattr(clean.labels, split))


def test_noise_may_replace_the_features(clean):
    replaced, added = (noisy(select=2, sd=0.5, replace=replace).parties[1] for replace in (True, False))
    for split in SPLITS:
        own = getattr(clean.parties[1], split)
        np.testing.assert_allclose(getattr(added, split) - own, getattr(replaced, split), atol=1e-12)


def test_splits_have_noise_of_their_own():
    draws = [getattr(noisy(select=1, sd=1, replace=True).parties[0], split).ravel()[:50] for split in SPLITS]
    assert len({draw.tobytes() for draw in draws}) == 3


def test_both_dtypes_have_the_same_noise():
    double, single = (noisy(dtype, select=1, sd=1, replace=True).parties[0].train for dtype in ("float64", "float32"))
    np.testing.assert_array_equal(double.astype("float32"), single)


def test_no_deviation_is_no_noise(clean):
    assert noisy(select="all", sd=0).joint.train.tobytes() == clean.joint.train.tobytes()


def test_the_split_seed_seeds_the_noise():
    made = spec.FeatureNoise(select=1, sd=1)
    first, again, other = (np.zeros((20, 3)) for _ in range(3))
    for array, seed in ((first, 0), (again, 0), (other, 1)):
        made.put_on(array, {1: slice(0, 3)}, "train", seed)
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_blocks_leave_no_trace(monkeypatch):
    whole = noisy(select="1..2", sd=1).joint
    monkeypatch.setattr(spec, "_BLOCK", 7)
    assert noisy(select="1..2", sd=1).joint.train.tobytes() == whole.train.tobytes()


def test_an_active_server_shifts_no_client():
    cut = Partition(clients=3, by="columns", active=True)
    clean, made = (load(Data(**DIGITS, noise=said), cut, "float64") for said in (None, {"select": 3, "sd": 1}))
    changed = (clean.joint.train != made.joint.train).any(axis=0)
    assert np.flatnonzero(changed).tolist() == [*range(64)][made.parties[2].columns]


def test_a_selection_outside_the_clients_is_refused():
    with pytest.raises(DataError, match=r"data\.noise\.select: '5' is 5, outside the clients; allowed: 1\.\.4"):
        noisy(select=5, sd=1)
