"""The page's results of ``all_protocols.yaml``: its optimisers scored best, and its grids of evaluations are fine."""

import csv
import re

import pytest
from pages import ROOT

import vflsim

SCENARIO = vflsim.load(ROOT / "scenarios" / "all_protocols.yaml")
SECTION = (ROOT / "docs" / "all-protocols.md").read_text()


def table(first: str) -> dict[str, dict[str, str]]:
    """The page's table whose second column is ``first``: the cells of each protocol by the names of columns."""
    lines = SECTION.partition(f"\n| protocol | {first} |")[2].partition("\n\n")[0].splitlines()
    head = [first, *(cell.strip() for cell in lines[0].strip(" |").split("|"))]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0].strip("`"): dict(zip(head, row[1:], strict=True)) for row in rows}


def scores() -> dict[str, dict[str, str]]:
    """The scores of each protocol by optimisers, from the page's file."""
    file = ROOT / "scenarios" / "tables" / "all_protocols-scores.csv"
    return {row.pop("protocol"): row for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())}


RESULTS, SCORES = table("reached .93"), scores()


def test_the_tables_have_a_row_for_every_entry_in_order() -> None:
    assert [*RESULTS] == [*SCORES] == [*SCENARIO.protocols]


@pytest.mark.parametrize("name", SCENARIO.protocols)
def test_an_entry_has_the_optimiser_that_scored_best(name: str) -> None:
    scores = {rule: float(cell.strip("* ")) for rule, cell in SCORES[name].items() if cell != "—"}
    (marked,) = (rule for rule, cell in SCORES[name].items() if cell.startswith("*"))
    assert scores[marked] == max(scores.values())
    training = SCENARIO.training_of(name)
    rules = {*training.client_optimizers(SCENARIO.partition.clients), training.server_optimizer}
    assert {f"{rule.kind} {rule.lr:g}" for rule in rules} == {marked}
    assert f"adam {RESULTS[name]['Adam']}" == marked


@pytest.mark.parametrize("name", SCENARIO.protocols)
def test_a_row_says_how_many_seeds_reached_the_target(name: str) -> None:
    assert RESULTS[name]["reached .93"].endswith(f"/{len(SCENARIO.seeds)}")


def test_the_target_is_that_of_the_page() -> None:
    assert [str(target) for target in SCENARIO.targets] == ["test_accuracy ≥ 0.93 for 3 s"]


@pytest.mark.parametrize("name", SCENARIO.protocols)
def test_the_grid_of_evaluations_does_not_decide_a_time(name: str) -> None:
    number, unit = re.findall(r"([\d.]+)[^,]*? (m?s)\b", RESULTS[name]["time to .93"])[0]
    seconds = float(number) * {"s": 1, "ms": 0.001}[unit]
    every = SCENARIO.evaluate_of(name).every
    assert every.unit == "seconds"
    assert every.amount <= seconds / 10
