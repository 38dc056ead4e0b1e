"""Tables on the pages of findings and the CSV files with all rows have the same numbers."""

import csv
import re

import pytest
from pages import ROOT, pages_of

TABLES = [
    (
        "all-protocols.md",
        "protocol | time to .94 | bytes to .94 | joules",
        1,
        tuple(f"scenarios/tables/new_protocols-{found}.csv" for found in ("costs", "features", "labels")),
        12,
    ),
    (
        "leakage.md",
        "protocol (lower bounds) | server: linear",
        1,
        tuple(
            f"scenarios/tables/leakage_{models}-{found}.csv"
            for models in ("protocols", "perceptrons")
            for found in ("features", "labels")
        ),
        23,
    ),
    ("leakage.md", "defence", 1, ("scenarios/tables/leakage-defences.csv",), 17),
    ("networks.md", "scenario | protocols | mean round", 1, ("scenarios/tables/network_kinds-rounds.csv",), 12),
    ("papers/easter.md", "| MNIST: quarters", 1, ("scenarios/easter/tables/table2.csv",), 6),
    ("papers/fedvs.md", "data | wait", 1, ("scenarios/fedvs/tables/fig2-ends.csv",), 4),
    (
        "papers/rounding.md",
        "protocol (leakage: lower bounds) | time to 78 %",
        1,
        ("scenarios/rounding/tables/leakage.csv",),
        15,
    ),
    ("papers/vim.md", "to 95 %", 1, ("scenarios/vim/tables/stragglers.csv",), 8),
    ("live-network.md", "flows", 3, ("benchmarks/tables/kernel_network-slow_start.csv",), 18),
]
"""Page, the beginning of a table's head, how many cells name a row, the files with all rows, and its rows at least."""
COMMAND = re.compile(r"^(?:vflsim \w+|python [\w/]+\.py)|`python [\w/]+\.py", re.MULTILINE)
COMMIT = re.compile(r"\b[0-9a-f]{8}\b")
DURATION = re.compile(r"(?:\btakes?\b|\btook\b|  # )(?:[^.|#]|\.\d)*?\b(?:minutes?|hours?)\b")
"""How long a command takes, in a sentence or behind the command: what takes seconds alone says no more than a table."""
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def rows(page: str, head: str) -> list[list[str]]:
    """The rows of the first table of a page whose head begins so, without marks."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").replace("`", "").replace("**", "")
    lines = text.partition(f"\n| {head}")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def key(cell: str) -> str:
    """A row's name without what stands in brackets or behind a comma, in one case: Fashion-MNIST is fashion_mnist."""
    return cell.partition(" (")[0].partition(", ")[0].lower().replace("-mnist", "_mnist").strip()


@pytest.mark.parametrize(
    ("page", "head", "names", "files", "count"), TABLES, ids=[f"{page}-{head}" for page, head, *_ in TABLES]
)
def test_numbers_on_the_page_stand_in_its_files(
    page: str, head: str, names: int, files: tuple[str, ...], count: int
) -> None:
    shown = rows(page, head)
    assert len(shown) >= count
    kept = [row for file in files for row in csv.reader((ROOT / file).read_text(encoding="utf-8").splitlines())]
    for row in shown:
        named = [key(cell) for cell in row[:names]]
        own = [each for each in kept if set(named) <= {key(cell) for cell in each}]
        numbers = {number for each in own for cell in each for number in NUMBER.findall(cell)}
        assert own, f"{page}: no row of {named}"
        missing = [number for cell in row[names:] for number in NUMBER.findall(cell) if number not in numbers]
        assert not missing, f"{page}, {named}"


@pytest.mark.parametrize("page", pages_of("Findings"))
def test_pages_of_tables_name_commands_commits_and_how_long_the_commands_take(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert COMMAND.search(text)
    if "\n|" in text:  # others have pictures alone
        assert COMMIT.search(text)
        assert DURATION.search(text)
