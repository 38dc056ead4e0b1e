"""Intervals over seeds that cover too seldom: the notes' figures, the page's and the benchmark's are one table."""

import json
import re
import sys
from pathlib import Path

import pytest
from pages import ROOT
from timed_runs import write_timed

from vflsim.results import Results
from vflsim.results.facts import WORRYING, HeavyTail
from vflsim.results.statistics import summarise
from vflsim.results.statistics.doubts import ENOUGH, MEASURED, Coverage, heavy_tail_notes, measured
from vflsim.results.tables import comparison_table
from vflsim.timing.laws.order import tail_share

sys.path.append(str(ROOT / "benchmarks"))
PAGE = (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8")
FIGURES = ("mean", "difference", "cost")


def tail(share: float, draws: float, infinite: bool = False, kind: str = "pareto") -> HeavyTail:
    return HeavyTail(activity="upload delay", kind=kind, draws=draws, clients=(1, 2), share=share, infinite=infinite)


def study(folder: Path, known: HeavyTail, rounds: int) -> Results:
    write_timed(folder, {name: {seed: [1.0 + 0.1 * seed] * rounds for seed in (0, 1)} for name in ("wait", "other")})
    for seed in (0, 1):
        page = folder / "wait" / f"seed-{seed}" / "run.json"
        facts = {"heavy_tail": known.model_dump(), "counts": {"rounds": rounds}}
        page.write_text(json.dumps(json.loads(page.read_text()) | facts))
    return Results.open(folder)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("known", "rounds", "said"), [
    (tail(1.0, 50, infinite=True), 50, "cover about 77 % of mean times and bytes and 79 % of paired differences "
     "(measured: 5 seeds, Pareto 1.5, 30 rounds a run): the upload delay of clients 1–2 (pareto) has no finite "),
    (tail(0.93, 30), 30, "cover about 90 % of mean times and bytes and 92 % of paired differences (measured: 5 seeds, "
     "Pareto 2.2, 30 rounds a run): of the upload delay of clients 1–2 (pareto), the slowest of 30 draws has 93 % of "),
    (tail(0.9, 0.2, kind="bursts"), 50, "cover about 76 % of mean times and bytes and 74 % of paired differences "
     "(measured: 5 seeds, bursts, 30 rounds a run): "),
    (tail(0.85, 20, kind="bursts"), 5000, None),  # bursts of many cycles
    (tail(0.6, 400), 400, None),  # covers as often as 93 %
    (tail(0.4, 50), 50, None),
])  # fmt: skip
def test_tables_of_means_say_how_often_their_intervals_cover(
    tmp_path: Path, known: HeavyTail, rounds: int, said: str | None
) -> None:
    notes = [note for note in comparison_table(study(tmp_path, known, rounds)).notes if "cover about" in note]
    assert len(notes) == (said is not None)
    assert said is None or notes[0].startswith(f"wait: intervals of 95 % {said}")


@pytest.mark.parametrize(("known", "rounds", "passed", "said"), [
    (tail(0.9, 0.2, kind="bursts"), 50, 50, "82 % of costs"),
    (tail(0.9, 2.0, kind="bursts"), 500, 50, "82 % of costs"),  # the target was reached within the first cycle
    (tail(1.0, 900, infinite=True), 900, 5, "88 % of costs"),
    (tail(0.82, 400), 400, 400, None),
])  # fmt: skip
def test_costs_to_a_target_are_warned_of_with_their_own_figure(
    tmp_path: Path, known: HeavyTail, rounds: int, passed: int, said: str | None
) -> None:
    results = study(tmp_path, known, rounds)
    summary = summarise(results)
    own = summary[(summary["protocol"] == "wait") & summary["baseline"].isna()].iloc[:1]
    own = own.assign(measure="rounds_to_target", target="test_accuracy ≥ 0.9", mean=float(passed), low=1.0)
    notes = [*heavy_tail_notes([(results, own)])]
    assert len(notes) == (said is not None)
    assert said is None or f"intervals of 95 % cover about {said} to the target" in notes[0]


def shown_on_the_page() -> dict[tuple[str, int], tuple[str, ...]]:
    rows = re.findall(r"^\| (\w[\w. -]*) \| ([\d,]+) \| ([*.\d]+) \| ([*.\d]+) \| ([*.\d]+) \|$", PAGE, re.MULTILINE)
    return {(law, int(rounds.replace(",", ""))): tuple(figures) for law, rounds, *figures in rows}


def test_the_page_shows_the_measured_table_with_what_is_warned_of_in_bold() -> None:
    assert shown_on_the_page() == {
        (row.law, row.rounds): tuple(on_page(getattr(row, name), row) for name in FIGURES) for row in MEASURED
    }


def on_page(figure: float, row: Coverage) -> str:
    text = f"{figure:.2f}".removeprefix("0")
    return f"**{text}**" if figure < ENOUGH and row.share > WORRYING else text


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row.law}-{row.rounds}")
def test_a_measured_row_has_the_share_of_variance_that_runs_would_report(row: Coverage) -> None:
    from coverage_worlds import WORLDS

    world = WORLDS[row.law]
    assert row.draws == row.rounds / world.cycle
    assert tail_share(world.law, row.draws) == pytest.approx(row.share, abs=5e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "row", [row for row in MEASURED if row.rounds < 300], ids=lambda row: f"{row.law}-{row.rounds}"
)
def test_the_benchmark_measures_what_the_table_says(row: Coverage) -> None:
    """300 studies have a standard error of at most .029; an error level of 0.1 % for each figure."""
    from coverage import covered

    found = covered(row.law, 5, row.rounds, 300)
    for figure, name in zip(found, FIGURES, strict=True):
        known = getattr(row, name)
        assert abs(figure - known) < 3.3 * (known * (1 - known) / 300) ** 0.5 + 0.01


@pytest.mark.parametrize("row", [row for row in MEASURED if row.cause != "dependence"], ids=str)
def test_a_run_like_a_measured_one_gets_its_figures(row: Coverage) -> None:
    found = measured(tail(row.share, row.draws, row.cause == "infinite"), row.rounds, row.rounds, "mean")
    assert found == row
