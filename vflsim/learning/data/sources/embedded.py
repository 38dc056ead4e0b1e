"""The data sets that come with scikit-learn: real, small, always there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflsim.learning.data.sources.raw import RawData, View


def read_digits(_files: Sequence[Path]) -> RawData:
    """Read 1,797 handwritten digits of 8×8 pixels with values 0..16 (UCI, Alpaydin & Kaynak 1998)."""
    table = _digits()
    images = table[:, :-1].reshape(-1, 1, 8, 8).copy()
    return RawData("digits", (View("images", images, pixels=True),), table[:, -1].astype(int))


@cache
def _digits() -> NDArray[np.uint8]:
    """Parse the table of pixels and labels once: that takes longer than a short run."""
    # As load_digits does, without importing scikit-learn, which takes longer still.
    package = Path(getattr(find_spec("sklearn"), "origin", None) or "")
    table = np.loadtxt(package.with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    return table.astype(np.uint8)


def read_breast_cancer(_files: Sequence[Path]) -> RawData:
    """Read 569 rows of 30 cell-nucleus measurements; label 1 = benign (UCI, Wolberg et al. 1995)."""
    from sklearn.datasets import load_breast_cancer  # slow to import

    data = load_breast_cancer()
    names = tuple(str(name) for name in data.feature_names)
    return RawData("breast_cancer", (View("columns", data.data, names),), data.target)
