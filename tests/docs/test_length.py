"""Pages are short enough to be read: no page exceeds a limit, nor do all pages together."""

import re
from pathlib import Path

import pytest
from pages import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
A_PAGE = 2_500
ALL_PAGES = 45_000
"""Without the study of orderings, which is a paper of its own."""
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2[ \t]*$", re.MULTILINE | re.DOTALL)
TABLE_ROW = re.compile(r"^ *\|.*$", re.MULTILINE)
TARGET = re.compile(r"(!?\[[^\]]*\])\([^)]*\)")
INLINE_CODE = re.compile(r"`[^`]*`")
WORD = re.compile(r"[^\W\d_][\w'’-]+")
"""Two characters or more, of which the first is a letter: symbols, numbers and one-letter names are no words."""


def words_of_prose(text: str) -> int:
    """Count the words outside code, tables and the targets of links."""
    for left_out, by in ((FENCED, ""), (TABLE_ROW, ""), (TARGET, r"\1"), (INLINE_CODE, " ")):
        text = left_out.sub(by, text)
    return len(WORD.findall(text))


def test_words_outside_code_tables_and_targets_of_links_count() -> None:
    page = (
        "# Two words\n\n```sh\nnot these\n```\n\n| nor | these |\n\nA [link](to/page.md), `code` and x = 5: counted\n"
    )
    assert words_of_prose(page) == len(["Two", "words", "link", "and", "counted"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    assert words_of_prose(page.read_text(encoding="utf-8")) <= A_PAGE, f"split {page.name}, or say less"


def test_all_pages_together_are_short() -> None:
    pages = [page for page in PAGES if not page.name.startswith("orderings")]
    assert sum(words_of_prose(page.read_text(encoding="utf-8")) for page in pages) <= ALL_PAGES
