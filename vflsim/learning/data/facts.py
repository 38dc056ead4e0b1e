"""Facts about the preparation of data from files, which ``run.json`` keeps and ``vflsim check`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vflsim.streams import few

Align = Literal["inner", "outer", "exact"]
Encoding = Literal["codes", "one_hot"]
Missing = Literal["mean", "zero", "indicator"]

_LISTED = 1000
"""Categories of a column that are kept by name."""


@dataclass(frozen=True)
class FileRows:
    """One of several files: its ``rows``, and how many of them are ``used``."""

    file: str
    rows: int
    used: int


@dataclass(frozen=True)
class Alignment:
    """The alignment of files that do not hold the same ids, by ``rule``: ``rows`` are left of all splits together."""

    rule: Align
    rows: int
    files: tuple[FileRows, ...]

    def sentence(self) -> str:
        """Count the rows that are used and left out."""
        unused = [
            f"{each.rows - each.used:,} of {each.rows:,} in {each.file}" for each in self.files if each.used < each.rows
        ]
        out = f"; left out: {few(unused)}" if unused else ""
        if self.rule == "outer":
            absent = [f"{self.rows - each.used:,} in {each.file}" for each in self.files if each.used < self.rows]
            ids = f"{self.rows:,} ids have a label, and features at some party (align: outer)"
            return f"rows: {ids}" + (f"; absent: {few(absent)}" if absent else "") + out
        files = "both" if len(self.files) == 2 else f"all {len(self.files)}"
        return f"rows: {self.rows:,} ids stand in {files} files (align: inner){out}"


@dataclass(frozen=True)
class FilledColumn:
    """A column of ``party`` with missing values, filled by ``rule`` with ``value`` (in the file's unit).

    ``train``, ``validation`` and ``test`` count them.
    """

    party: str
    column: str
    rule: Missing
    value: float
    train: int
    validation: int
    test: int

    def phrase(self) -> str:
        """Name the column, its gaps and what fills them."""
        counts = {"training": self.train, "validation": self.validation, "test": self.test}
        gaps = ", ".join(f"{count:,} {split}" for split, count in counts.items() if count)
        value = f"{self.value:.6g}" if self.rule == "zero" else f"the training mean {self.value:.6g}"
        return f"{self.column!r} of {self.party} ({gaps or 'unused'} rows) with {value}"


@dataclass(frozen=True)
class Vocabulary:
    """The ``size`` categories that a column of ``party`` has in the training rows, and the names of the first 1,000.

    An empty cell is the category "". ``validation`` and ``test`` count the rows with none of these categories.
    """

    party: str
    column: str
    size: int
    categories: tuple[str, ...]
    validation: int
    test: int

    @classmethod
    def of(cls, party: str, column: str, names: Sequence[str], validation: int, test: int) -> Vocabulary:
        """Cut the list of names."""
        return cls(party, column, len(names), tuple(names[:_LISTED]), validation, test)

    def phrase(self) -> str:
        """Name the column, its first categories, and the rows with others."""
        names = few([name or "(empty)" for name in self.categories])
        others = {"validation": self.validation, "test": self.test}
        rows = ", ".join(f"{count:,} {split}" for split, count in others.items() if count)
        return f"{self.column!r} of {self.party}: {names}" + (f" (others in {rows} rows)" if rows else "")


@dataclass(frozen=True)
class DataFacts:
    """What was done to the rows and columns of files, as far as there was anything to do."""

    alignment: Alignment | None = None
    missing: tuple[FilledColumn, ...] = ()
    categories: tuple[Vocabulary, ...] = ()

    def stated(self) -> dict[str, Any]:
        """Return the steps that were taken, as ``run.json`` has them."""
        return {name: value for name, value in asdict(self).items() if value}

    def sentences(self) -> Iterator[str]:
        """Yield a line for each step of the preparation."""
        if self.alignment is not None:
            yield self.alignment.sentence()
        if self.missing:
            yield f"missing values ({self.missing[0].rule}): fills {few([each.phrase() for each in self.missing])}"
        if self.categories:
            yield f"categories of training rows: {few([each.phrase() for each in self.categories], '; ')}"
