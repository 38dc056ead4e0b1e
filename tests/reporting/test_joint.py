"""Several studies in one report: the answer and the comparison of all of them come first."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from browser import Browser

from vflsim.errors import ResultsError
from vflsim.reporting import charts, write_report
from vflsim.reporting.figures import Ink
from vflsim.reporting.joint import Together, joint
from vflsim.results import Results
from vflsim.results.joined import JoinedResults


def together(*folders: Path, baseline: str | None = None) -> Together:
    return joint(JoinedResults.of([Results.open(each) for each in folders]).against(baseline), Ink(), 0.2)


@pytest.fixture(scope="module")
def whole(studies: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(studies, tmp_path_factory.mktemp("whole") / "all.html", baseline="async", brief=True)


@pytest.mark.slow
def test_the_answer_and_the_table_of_all_come_before_the_studies(whole: Path) -> None:
    text = html.unescape(whole.read_text().partition("<main>")[2])
    first = text.index('class="study"')
    assert text.index("Comparison of all studies") < first
    assert text.index('id="together-data"') < first
    assert text.count('class="study"') == 3
    assert "speed-up vs async (toy)" not in text[:first]  # the third study has no target
    assert "vs async (toy)" in text[:first]
    assert whole.stat().st_size < 2_000_000


@pytest.mark.slow
def test_it_names_the_fastest_to_the_common_target_and_which_runs_are_paired(studies: list[Path]) -> None:
    found = together(*studies[:2])
    assert re.match(r"\S+ \((toy|later)\).* test accuracy ≥ 0.9 ", found.answer.headline)
    said = " ".join(found.answer.sentences)
    assert "Paired with wait (toy) over common seeds" in said
    assert not any(note.startswith("Paired with") for note in found.comparison.notes)
    assert {row[0] for row in found.comparison.rows} >= {"wait (toy)", "wait (later)"}
    assert [each.name for each in found.figures] == ["time", "target", "speedup"]
    assert len(found.data["curves"]["axes"]["time"]["series"]) == 8


@pytest.mark.slow
def test_studies_without_a_common_target_or_metric_say_so(studies: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    said = " ".join(together(*studies).answer.sentences)
    assert "No target is common to all studies" in said
    assert "Targets that only some studies have are left out: test_accuracy ≥ 0.9 for 1 evaluation" in said
    monkeypatch.setattr(JoinedResults, "evaluated", ())
    found = together(*studies[:2])
    assert "No metric was evaluated in all studies (toy: test_loss, test_accuracy" in " ".join(found.answer.sentences)
    assert found.data["curves"] is None


def test_a_study_named_twice_and_an_unknown_baseline_are_refused(studies: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is named twice"):
        write_report([studies[0], studies[0]], tmp_path / "x.html")
    with pytest.raises(ResultsError, match="there is no protocol 'nobody'"):
        write_report(studies[:2], tmp_path / "x.html", baseline="nobody")


def test_the_second_entry_of_a_kind_has_a_hollow_marker(studies: list[Path]) -> None:
    looks = charts.looks(JoinedResults.of([Results.open(each) for each in studies[:2]]))
    assert (looks["wait (toy)"]["hollow"], looks["wait (later)"]["hollow"]) == (False, True)


@pytest.mark.slow
def test_all_charts_are_drawn_without_a_complaint(tab: Browser, whole: Path) -> None:
    tab.open(whole.as_uri())
    assert tab.value("document.querySelectorAll('.curves canvas').length") == 4
    hollow = "[...document.querySelectorAll('#together .keys svg path[fill=\"#fff\"]')].length"
    assert tab.value(hollow) == 4
    assert tab.complaints == []
    assert tab.requests == [whole.as_uri()]
