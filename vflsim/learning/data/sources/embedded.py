"""The data sets that come with scikit-learn: real, small, always there."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from vflsim.learning.data.sources.raw import RawData, View


def read_digits(_files: Sequence[Path]) -> RawData:
    """Read 1,797 handwritten digits of 8×8 pixels with values 0..16 (UCI, Alpaydin & Kaynak 1998)."""
    # As load_digits does, without importing scikit-learn, which takes longer than a short run.
    package = Path(getattr(find_spec("sklearn"), "origin", None) or "")
    table = np.loadtxt(package.with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    images = table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8)
    return RawData("digits", (View("images", images, pixels=True),), table[:, -1].astype(int))


def read_breast_cancer(_files: Sequence[Path]) -> RawData:
    """Read 569 rows of 30 cell-nucleus measurements; label 1 = benign (UCI, Wolberg et al. 1995)."""
    from sklearn.datasets import load_breast_cancer  # slow to import

    data = load_breast_cancer()
    names = tuple(str(name) for name in data.feature_names)
    return RawData("breast_cancer", (View("columns", data.data, names),), data.target)
