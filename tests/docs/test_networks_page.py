"""The page of networks and its file of times to a target: ``benchmarks/network_kinds.py`` makes one from the other."""

import runpy
import shutil
from pathlib import Path

import pytest
from pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "network_kinds.py"), run_name="network_kinds")
TABLE = ROOT / "scenarios" / "tables" / "network_kinds-target.csv"


def test_the_page_has_the_summary_of_the_file() -> None:
    page = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    assert "\n".join(SCRIPT["summary"](TABLE)) in page


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A copy of the file."""
    return Path(shutil.copy(TABLE, tmp_path))


def row(scenario: str, protocol: str, times: tuple[str, str, str], ratio: str, seeds: str = "3") -> list[str]:
    return [scenario, "test_accuracy ≥ 0.5", seeds, protocol, "9, 9, 9", "0.6, 0.6, 0.6", *times, ratio, "—"]


def test_rows_take_the_place_of_those_of_their_scenario_in_order(table: Path) -> None:
    before = table.read_text(encoding="utf-8").splitlines()
    SCRIPT["merge"](table, [row("quickstart", "wait", ("3", "4", "5"), "1.33 (1.30 to 1.40)")])
    after = table.read_text(encoding="utf-8").splitlines()
    assert [line for line in after if not line.startswith("quickstart,")] == [
        line for line in before if not line.startswith("quickstart,")
    ]
    assert [line.split(",")[0] for line in after[1:]] == sorted(line.split(",")[0] for line in after[1:])
    assert sum(line.startswith("quickstart,") for line in after) == 1


def test_a_summary_counts_ratios_that_leave_1_out_and_skips_missed_targets(table: Path) -> None:
    rows = [
        row("new", "clear", ("3", "4", "3"), "1.33 (1.30 to 1.40)"),
        row("new", "unclear", ("3", "3", "3"), "0.90 (0.70 to 1.20)"),
        row("new", "missed", ("2 of 3", "2 of 3", "2 of 3"), "0.10 (0.10 to 0.10)"),
    ]
    for each in rows[:2]:
        each[-1] = "1.00 (1.00 to 1.00)"
    SCRIPT["merge"](table, rows)
    (line,) = (line for line in SCRIPT["summary"](table) if line.startswith("| `new`"))
    assert line == "| `new` | 2 of 3 | 0.90 to 1.33 (1) | 1.00 (0) |"


def test_a_summary_says_where_fewer_seeds_have_no_intervals(table: Path) -> None:
    SCRIPT["merge"](table, [[*row("new", "one", ("3", "4", "3"), "1.33", "1")[:-1], "1.00"]])
    (line,) = (line for line in SCRIPT["summary"](table) if line.startswith("| `new`"))
    assert line == "| `new`, seeds: 1 | 1 of 1 | 1.33 | 1.00 |"


def test_a_summary_has_no_ratio_of_what_the_first_evaluation_meets(table: Path) -> None:
    met = [*row("new", "at once", ("≤ 3", "≤ 3", "≤ 3"), "—")[:-1], "—"]
    SCRIPT["merge"](table, [met])
    (line,) = (line for line in SCRIPT["summary"](table) if line.startswith("| `new`"))
    assert line == "| `new` | 1 of 1 | — | — |"
    SCRIPT["merge"](
        table, [met, [*row("new", "later", ("8", "4", "8"), "0.50 (0.40 to 0.60)")[:-1], "1.00 (0.90 to 1.10)"]]
    )
    (line,) = (line for line in SCRIPT["summary"](table) if line.startswith("| `new`"))
    assert line == "| `new` | 2 of 2 | 0.50 (1) | 1.00 (0) |"
