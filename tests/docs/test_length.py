"""Pages are short enough to be read: no page exceeds a limit, nor do all pages together."""

import re
from pathlib import Path

import pytest
from pages import ROOT, pages_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
A_PAGE = 2_500
TABS = {"Start": 8_000, "Guide": 25_000, "Reference": 8_000, "Findings": 20_000}
"""The most words of each tab's pages, tables and code included, but for pages that are generated."""
ALL_PAGES = 60_000
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


def words_of(tab: str) -> int:
    """Count everything between blanks on a tab's pages, as they stand."""
    return sum(len((ROOT / "docs" / page).read_text(encoding="utf-8").split()) for page in pages_of(tab))


@pytest.mark.parametrize("tab", TABS)
def test_the_pages_of_a_tab_are_short_together(tab: str) -> None:
    assert 0 < words_of(tab) <= TABS[tab]


def test_all_pages_together_are_short() -> None:
    assert sum(map(words_of, TABS)) <= ALL_PAGES
