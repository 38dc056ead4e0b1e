"""The longest sentences of the project's pages, those of list items and cells of tables included.

Run: python docs/_site/sentences.py [N]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST = 35
"""Words of the longest sentence that a page may have."""
_FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_BEGINS = re.compile(r"^\s*(?:[-*+]|\d+\.|#+|>)\s+")
_CODE = re.compile(r"`([^`]*)`")
_ENDS = re.compile(r"(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*_\[]*[A-Z0-9⟨])")
_NAMED = re.compile(r"⟨[^⟩]*⟩")
"""A piece of code, which counts as one word."""
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


class Sentence(NamedTuple):
    """A sentence without its markup, where it stands, and how many words it has."""

    words: int
    page: str
    text: str


def pages() -> list[Path]:
    """Return every page that is written by hand."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page: of paragraphs, items of lists, and cells of tables."""
    for block in _blocks(_FENCED.sub("", text)):
        plain = _CODE.sub(r"⟨\1⟩", _LINK.sub(r"\1", block).replace("**", ""))
        yield from (part.strip() for part in _ENDS.split(plain) if part.strip())


def _blocks(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("|"):
            yield from (cell for cell in line.split("|") if cell.strip())
            continue
        if lines and (not line.strip() or _BEGINS.match(line)):
            yield " ".join(lines)
            lines = []
        if line.strip():
            lines.append(_BEGINS.sub("", line).strip())


def longest() -> list[Sentence]:
    """Return all sentences of all pages, the longest first."""
    every = (
        Sentence(len(_WORD.findall(_NAMED.sub("code", sentence))), str(page.relative_to(ROOT)), sentence)
        for page in pages()
        for sentence in sentences(page.read_text(encoding="utf-8"))
    )
    return sorted(every, reverse=True)


if __name__ == "__main__":
    for each in longest()[: int(sys.argv[1]) if len(sys.argv) > 1 else 20]:
        print(f"{each.words:>3}  {each.page}: {each.text}")
