"""Small files of every format, written by the tests themselves."""

import gzip
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Write = Callable[..., Path]


@pytest.fixture
def write_csv(tmp_path: Path) -> Write:
    def write(name: str, header: str, rows: Sequence[Sequence[Any]]) -> Path:
        path = tmp_path / name
        path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
        return path

    return write


@pytest.fixture
def write_idx(tmp_path: Path) -> Write:
    def write(name: str, values: np.ndarray, cut: int = 0, magic: bytes | None = None) -> Path:
        header = (magic or bytes((0, 0, 8, values.ndim))) + struct.pack(f">{values.ndim}I", *values.shape)
        data = header + values.astype(np.uint8).tobytes()
        data = data[: len(data) - cut]
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
