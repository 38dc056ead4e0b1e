"""The file of a report: what it holds, how large it is, and what it leaves to others."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
from pathlib import Path

import pytest
from browser import Browser
from toy_runs import toy_results

from vflsim.errors import ResultsError
from vflsim.reporting import figures, write_report
from vflsim.reporting.figures import Ink
from vflsim.reporting.page import Together, joint
from vflsim.results import Results, write_file
from vflsim.results.read import JoinedResults
from vflsim.tables import DataTable
from vflsim.tables.formats import TABLES_FILE, packed
from vflsim.vocabulary.amounts import Amount


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
    looks = figures.looks(JoinedResults.of([Results.open(each) for each in studies[:2]]))
    assert (looks["wait (toy)"]["hollow"], looks["wait (later)"]["hollow"]) == (False, True)


@pytest.mark.slow
def test_all_charts_are_drawn_without_a_complaint(tab: Browser, whole: Path) -> None:
    tab.open(whole.as_uri())
    assert tab.value("document.querySelectorAll('.curves canvas').length") == 4
    hollow = "[...document.querySelectorAll('#together .keys svg path[fill=\"#fff\"]')].length"
    assert tab.value(hollow) == 4
    assert tab.complaints == []
    assert tab.requests == [whole.as_uri()]


@pytest.mark.slow
def test_it_is_one_small_file_that_names_no_other(toy_page: Path) -> None:
    html = toy_page.read_text()
    assert toy_page.stat().st_size < 2_000_000
    assert not re.search(r"<(link|iframe|img|object|embed)\b|\bsrc=|@import|url\((?!#)", html)
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    assert policy is not None
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts}
    assert hashes == {*re.findall(r"'sha256-[^']+'", policy[1])}
    assert policy[1].startswith("default-src 'none';")
    assert not any("eval(" in each or "new Function" in each for each in scripts)


def test_the_answer_comes_first_and_says_why(toy_page: Path) -> None:
    body = re.sub(r"\s+", " ", toy_page.read_text().partition("<main>")[2])
    headline = re.search(r'<p class="headline">([^<]+)</p>', body)
    assert headline is not None
    assert "test accuracy ≥ 0.9" in headline[1]
    assert body.index("headline") < body.index("<table")
    assert "A round of wait spends" in body
    assert "waits for" in body


def test_it_has_the_scenario_the_digests_and_the_command_that_repeats_it(toy_page: Path, toy_folder: Path) -> None:
    html = toy_page.read_text()
    assert "t-sync: {kind: t_synchronous, t: 4}" in html
    assert "vflsim run scenario.yaml" in html
    digest = hashlib.sha256((toy_folder / "wait" / "seed-0" / "run.json").read_bytes()).hexdigest()
    assert digest in html


def test_answers_under_deadlines_have_a_figure_and_a_table(toy_page: Path) -> None:
    html = toy_page.read_text()
    assert "What the servers answer by a deadline" in html
    table = html.partition("<summary>Answers under deadlines</summary>")[2].partition("</table>")[0]
    assert "900\u00a0ms" in table


@pytest.mark.slow
def test_several_folders_make_one_report(tmp_path: Path) -> None:
    folders = [toy_results(tmp_path / name / "toy", seeds=1, record="summary", horizon=6) for name in ("one", "two")]
    page = packed([DataTable(("protocol", "R²"), [("wait", Amount(0.5))], title="Reconstruction")])
    for folder in folders:
        write_file(folder.with_name("toy-evaluated") / TABLES_FILE, page)
    place = write_report(folders, tmp_path / "both.html", brief=True)
    html = place.read_text()
    assert html.count('class="study"') == html.count("<summary>Reconstruction</summary>") == 2
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len({*ids})


@pytest.mark.slow
def test_figures_that_do_not_fit_are_left_out_and_named(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.reporting.section.BRIEF", ("time", "durations"))
    whole = write_report([toy_folder], tmp_path / "whole.html", brief=True).stat().st_size
    monkeypatch.setattr("vflsim.reporting.page.SIZE", whole - 1000)
    html = write_report([toy_folder], tmp_path / "less.html", brief=True).read_text()
    assert len(html.encode()) < whole - 1000
    assert html.count("<figure ") == 1
    assert "vflsim plot RESULTS --kind durations" in html


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
def test_a_folder_of_tables_that_are_none_is_named(toy_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(toy_folder, tmp_path / "toy"))
    write_file(folder.with_name("toy-explained") / TABLES_FILE, '[{"header": 3}]')
    with pytest.raises(ResultsError, match="holds no tables"):
        write_report([folder], tmp_path / "page.html", brief=True)
