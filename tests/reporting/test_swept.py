"""The report of a sweep: which protocol is first where, its tables and figures, and what each point holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import Browser
from toy_runs import toy_results

from vflsim.errors import ResultsError
from vflsim.reporting import write_report
from vflsim.reporting.figures import Ink
from vflsim.reporting.page import SweepSection, sweep_section
from vflsim.results.sweeps import Sweep


def swept(folder: Path, keys: dict[str, list], unfinished: int = 0) -> Path:
    """Write a sweep of toy results over a grid of one or two keys, the last points unfinished."""
    first, *rest = keys.values()
    points = [[one, *more] for one in first for more in ([[other] for other in rest[0]] if rest else [[]])]
    for place in range(len(points) - unfinished):
        toy_results(folder / f"p{place}", seeds=2, record="rounds", horizon=10 + 25 * place)
    entries = [
        {"values": values, "folder": f"p{place}", "finished": place < len(points) - unfinished}
        for place, values in enumerate(points)
    ]
    page = {"scenario": "toy", "keys": [*keys], "timing_only": False, "points": entries}
    (folder / "sweep.json").write_text(json.dumps(page))
    return folder


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(tmp_path_factory.mktemp("line"), {"protocols.t-sync.t": [2, 4, 8]}, unfinished=1)


@pytest.fixture(scope="module")
def section(line: Path) -> SweepSection:
    return sweep_section(Sweep.open(line), Ink(), "x")


@pytest.mark.slow
def test_the_answer_says_who_is_first_where_and_how_far_each_protocol_ranges(section: SweepSection) -> None:
    said = [section.answer.headline, *section.answer.sentences]
    assert any("reaches test accuracy ≥ 0.9 first at t = 4" in text for text in said)
    assert any(text.startswith("ignore: no time to test accuracy ≥ 0.9 at any point") for text in said)
    assert section.lead.startswith("2 of 3 points have finished; wait, ignore, t-sync, async; 16 runs")


@pytest.mark.slow
def test_every_point_is_listed_with_what_it_holds(section: SweepSection) -> None:
    assert section.points.header[:3] == ("folder", "t", "protocols")
    assert [row[:6] for row in section.points.rows] == [
        ("p0", "2", "wait, ignore, t-sync, async", "2", "8", "0"),
        ("p1", "4", "wait, ignore, t-sync, async", "2", "8", "0"),
        ("p2", "8", "not finished", "—", "0", "—"),
    ]


PAIRED = "paired over 2 points and their seeds"


def test_it_has_the_tables_and_figures_of_the_sweep(section: SweepSection) -> None:
    assert [table.title for table in section.tables] == [
        "toy: mean round",
        "toy: time to test_accuracy ≥ 0.9 for 1 evaluation",
        "toy: final accuracy",
        *(f"toy: {cost} to test_accuracy ≥ 0.9 for 1 evaluation, {PAIRED}" for cost in ("time", "bytes")),
        *(f"toy: best by {cost} to test_accuracy ≥ 0.9 for 1 evaluation" for cost in ("time", "bytes")),
        *(f"toy: best by test_accuracy after {amount}" for amount in ("10 s", "172 kB")),
    ]
    assert any("with t = 4 reaches the target soonest" in text for text in section.answer.sentences)
    assert [figure.name for figure in section.figures] == ["sweep", "sweep-target"]
    assert not any(figure.problem for figure in section.figures)


@pytest.mark.slow
def test_the_page_of_a_sweep_and_a_study_opens_without_a_complaint(tab: Browser, line: Path, toy_folder: Path) -> None:
    for folders, drawn in (([line], 2), ([toy_folder, line], 2)):
        place = write_report(folders, line / "report.html", brief=True)
        tab.open(place.as_uri())
        assert tab.complaints == []
        assert tab.value("document.querySelectorAll('[id^=sweep] figure svg').length") == drawn
        ids = tab.value("[...document.querySelectorAll('[id]')].map((element) => element.id)")
        assert len(ids) == len({*ids})


@pytest.mark.slow
def test_numbers_in_a_heat_map_keep_their_ink_on_a_dark_page(tmp_path: Path) -> None:
    folder = swept(tmp_path, {"protocols.t-sync.t": [2, 4], "timing.clients.link.up": ["5 Mbps", "50 Mbps"]})
    svg = str(sweep_section(Sweep.open(folder), Ink(), "x").figures[0].svg)
    assert "#000001" in svg
    assert "#fffffe" in svg


def test_a_sweep_alone_has_no_baseline(line: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="have no baseline"):
        write_report([line], tmp_path / "x.html", baseline="wait")
