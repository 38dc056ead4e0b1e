"""Latencies between parties from a file: one number for each ordered pair."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal, Self, final

import numpy as np
from pydantic import Field, model_validator

from vflsim.files import array_of
from vflsim.timing.floats import Floats
from vflsim.timing.readers import Stamp, stamp_of, text_of
from vflsim.vocabulary import Index, Part
from vflsim.vocabulary.quantities import TIME

_SEPARATORS = re.compile(r"[,;\s]+")


@final
class LatencyMatrix(Part):
    """A latency for every ordered pair of parties, added to that of their links: row = from, column = to.

    Party p is node p of the matrix (0 is the server), unless ``nodes`` says which one. The diagonal is ignored.

    Example: ``{file: latencies.csv, unit: ms, round_trip: true, nodes: [2, 0, 1]}``
    """

    file: Annotated[str, Field(min_length=1)]
    """A square matrix: text with commas, tabs or blanks between the numbers, or ``.npy``. Relative to the scenario."""
    unit: Literal["s", "ms", "us"] = "s"
    """Unit of the numbers in the file."""
    round_trip: bool = False
    """The numbers are round-trip times: a message takes half of one."""
    nodes: Annotated[tuple[Index, ...], Field(min_length=2)] | None = None
    """The node (from 0) of the server, of client 1, and so on."""

    @model_validator(mode="after")
    def _must_be_possible(self) -> Self:
        size = len(self._matrix())
        strange = [node for node in self.nodes or () if node >= size]
        if strange:
            raise ValueError(f"node {strange[0]} is not in {self.file}; allowed: nodes 0 to {size - 1}")
        return self

    def check(self, parties: int) -> None:
        """Raise ValueError unless there is a node for each of so many parties, the server included."""
        there = len(self._matrix()) if self.nodes is None else len(self.nodes)
        if there < parties:
            source = self.file if self.nodes is None else "nodes"
            raise ValueError(f"{source} has {there} nodes for {parties} parties; allowed: at least one for each")

    def seconds(self, sender: int, receiver: int) -> float:
        """Give the latency of a message from party ``sender`` to party ``receiver``, in seconds."""
        if self.nodes is not None:
            sender, receiver = self.nodes[sender], self.nodes[receiver]
        factor = TIME.units[self.unit]
        seconds = float(self._matrix()[sender, receiver]) * factor.numerator / factor.denominator
        return seconds / 2 if self.round_trip else seconds

    def _matrix(self) -> Floats:
        return _matrix(self.file, stamp_of(self.file))


@lru_cache(16)
def _matrix(file: str, _: Stamp) -> Floats:
    """The square matrix in ``file``, each number finite and at least 0."""
    matrix = _npy(file) if file.endswith(".npy") else _text(file)
    rows, columns = matrix.shape
    if rows != columns or not rows:
        raise ValueError(f"{file} has {rows} rows and {columns} columns; allowed: a square matrix")
    wrong = ~(np.isfinite(matrix) & (matrix >= 0))
    np.fill_diagonal(wrong, False)
    if wrong.any():
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        value = f"{matrix[row, column]:g} in row {row + 1}, column {column + 1}"
        raise ValueError(f"{file}: {value}; allowed: finite latencies of at least 0")
    return matrix


def _npy(file: str) -> Floats:
    try:
        matrix = array_of(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{file!r} cannot be used: {error}; allowed: a square matrix") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "iuf":
        raise ValueError(f"{file!r} is not a matrix of numbers; allowed: a square matrix")
    return np.asarray(matrix, dtype=np.float64)


def _text(file: str) -> Floats:
    rows: list[list[float]] = []
    lines = text_of(file, "utf-8-sig", "a square matrix of numbers").splitlines()
    for number, line in enumerate(lines, start=1):
        words = _SEPARATORS.split(line.strip())
        if words == [""] or words[0].startswith("#"):
            continue
        try:
            rows.append([float(word) for word in words])
        except ValueError:
            raise ValueError(
                f"{file}:{number}: not all of it is numbers; allowed: a square matrix of numbers"
            ) from None
        if len(rows[-1]) != len(rows[0]):
            what = f"{len(rows[-1])} numbers after rows of {len(rows[0])}"
            raise ValueError(f"{file}:{number}: {what}; allowed: a square matrix")
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows[0]) if rows else 0)
