"""Facts about the preparation of data from files, which ``run.json`` keeps and ``vflsim check`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vflsim.streams import few

Align = Literal["inner", "exact"]


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
        left = [f"{each.rows - each.used:,} of {each.rows:,} in {each.file}" for each in self.files]
        cut = [text for text, each in zip(left, self.files, strict=True) if each.used < each.rows]
        return f"rows: {self.rows:,} ids stand in all {len(self.files)} files (align: inner); left out: {few(cut)}"


@dataclass(frozen=True)
class DataFacts:
    """What was done to the rows and columns of files, as far as there was anything to do."""

    alignment: Alignment | None = None

    def stated(self) -> dict[str, Any]:
        """Return the steps that were taken, as ``run.json`` has them."""
        return {name: value for name, value in asdict(self).items() if value}

    def sentences(self) -> Iterator[str]:
        """Yield a line for each step of the preparation."""
        if self.alignment is not None:
            yield self.alignment.sentence()
