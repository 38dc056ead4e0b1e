"""Claims of pages stand on what their section shows: a table, code, a command, or a link to one."""

import runpy

import pytest
from pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "_site" / "claims.py"))
MOST = 0
"""The claims that stand on nothing."""


@pytest.mark.parametrize(
    ("section", "stand_on_nothing"),
    [
        ("It takes 3 s.", 1),
        ("It is faster. It is `never` late.", 1),
        ("A row has 3 numbers, and an interval of 95 % intervals.", 0),
        ("It takes 3 s.\n\n| time |\n|---|\n| 3 s |", 0),
        ("It takes 3 s:\n\n```sh\nvflsim run\n```", 0),
        ("It takes 3 s (`vflsim run quickstart`).", 0),
        ("It takes [3 s](timing.md).", 0),
        ("As in [the table](timing.md):\n\n- 3 s\n- never 4 s", 0),
        ("- [the table](timing.md)\n- 3 s", 1),
        ("Smith (2020) has 3 s. We have 4 s.", 1),
        ("| 3 s |\n\n### Below\n\nIt takes 3 s.", 0),
        ("| 3 s |\n\n## Beside\n\nIt takes 3 s.", 1),
    ],
)
def test_a_claim_stands_on_what_its_section_shows(section: str, stand_on_nothing: int) -> None:
    assert len(list(SCRIPT["claims_of"]("page.md", f"# Page\n\n## Section\n\n{section}\n"))) == stand_on_nothing


def test_a_claim_is_named_by_its_line() -> None:
    (claim,) = SCRIPT["claims_of"]("page.md", "# Page\n\nNothing here.\nIt takes\n3 s.\n")
    assert str(claim) == "page.md:4: It takes 3 s."


def test_no_more_claims_stand_on_nothing() -> None:
    found = SCRIPT["claims"]()
    assert len(found) <= MOST, "\n".join(map(str, found))
