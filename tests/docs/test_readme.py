"""README's table is what its command prints, and the tables of pages have the digits that vflsim prints."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from pages import ROOT, nearly

from vflsim.vocabulary.amounts import spanned

README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLE = re.search(r"ends with\n\n```text\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
NUMBER = r"[\d,]+(?:\.\d+)?"
TWO_SIDES = re.compile(rf"({NUMBER}) \(({NUMBER}) … ({NUMBER})\)(?= (?:s|ms|kB|MB)\b|\s\s)")
PRINTED = ("README.md", "docs/answers.md", "docs/all-protocols.md")


@pytest.mark.slow
def test_the_quickstart_prints_the_table_of_the_readme(
    tmp_path: Path, vflsim: Callable[..., Ended], unrendered: None
) -> None:
    """To bring the table up to date, copy what this prints where it fails."""
    printed = vflsim("run", str(ROOT / "scenarios" / "quickstart.yaml"), "--out", str(tmp_path / "quickstart")).out
    assert TABLE is not None
    lines = [line.rstrip() for line in printed[printed.index("quickstart (") :].splitlines()]
    for shown, line in zip(TABLE[1].splitlines(), lines, strict=False):
        assert nearly(shown, line), printed
        assert len(shown) == len(line), f"another width: {line}"


def test_two_lines_with_pip_install_everything_and_run_something() -> None:
    """Scripts that try vflsim out take these two lines from the page."""
    lines = [line for line in README.splitlines() if line.lstrip().startswith("pip install -c constraints.txt")]
    assert lines == [
        "pip install -c constraints.txt -e . && vflsim run scenarios/quickstart.yaml",
        "pip install -c constraints.txt -e '.[test]' && pytest",
    ]


@pytest.mark.parametrize("page", PRINTED)
def test_intervals_on_pages_have_the_digits_that_tables_print(page: str) -> None:
    found = TWO_SIDES.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for value, low, high in found:
        numbers = (float(each.replace(",", "")) for each in (value, low, high))
        assert f"{value} ({low} … {high})".replace(",", "") == str(spanned(*numbers, "rounds"))
