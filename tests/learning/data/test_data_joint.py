import tracemalloc

import numpy as np
import pytest

from vflsim.errors import DataError
from vflsim.learning.data import Data, Partition, joint, load
from vflsim.learning.data.joint import Scaler, edges, joined, window
from vflsim.learning.data.raw import View

F32 = np.dtype("float32")
NAMES = ("client-1", "client-2", "client-3")


@pytest.fixture
def views(rng):
    """Two images of one row each, and a table, of 50 rows."""
    images = rng.integers(0, 256, (50, 1, 2, 3), dtype=np.uint8)
    strips = [View("top", images[:, :, :1], pixels=True), View("bottom", images[:, :, 1:], pixels=True)]
    return [*strips, View("table", rng.normal(size=(50, 2)), ("a", "b"))]


def test_every_view_keeps_its_columns_and_its_shape(views):
    rows = np.array([3, 4, 5, 20, 49])
    array = joined(views, [None] * 3, rows, F32, "training", NAMES)
    assert edges(views) == [slice(0, 3), slice(3, 6), slice(6, 8)]
    for view, columns in zip(views, edges(views), strict=True):
        part = window(array, view, columns)
        assert np.shares_memory(part, array)
        np.testing.assert_array_equal(part, view.values[rows].astype(F32))


@pytest.mark.parametrize("rows", [np.arange(10, 50), np.arange(0, 50, 3)], ids=["consecutive", "scattered"])
def test_the_size_of_the_blocks_leaves_no_trace(views, rows, monkeypatch):
    scalers = [Scaler.fit(view.values[rows], "standard", view.pixels) for view in views]
    whole = joined(views, scalers, rows, F32, "training", NAMES)
    monkeypatch.setattr(joint, "_BLOCK", 7)
    assert joined(views, scalers, rows, F32, "training", NAMES).tobytes() == whole.tobytes()


@pytest.mark.parametrize("row", [6, 7, 49])
def test_an_overflow_is_found_in_whatever_block_it_stands(views, row, monkeypatch):
    monkeypatch.setattr(joint, "_BLOCK", 7)
    views[2].values[row, 1] = 1e39
    with pytest.raises(DataError, match="client-3: table: features of the test rows overflow float32"):
        joined(views, [None] * 3, np.arange(50), F32, "test", NAMES)


def test_loading_holds_the_features_once(tmp_path, rng):
    """At any time: the file's bytes, the joint arrays, and little else."""
    np.savez(tmp_path / "d.npz", x=rng.integers(0, 256, (20_000, 12, 12), dtype=np.uint8), y=np.arange(20_000) % 3)
    data, partition = Data(file="d.npz", label="y", test_fraction=0.3), Partition(clients=12, by="image_rows")
    load(data, partition, folder=tmp_path)  # what is imported on the way does not count
    tracemalloc.start()
    try:
        loaded = load(data, partition, folder=tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    held = sum(array.nbytes for array in (loaded.joint.train, loaded.joint.test))
    assert held == 20_000 * 144 * 4
    assert peak < 1.5 * held
