"""The file of a report: what it holds, how large it is, and what it leaves to others."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from toy_runs import toy_results

from vflsim.reporting import write_report
from vflsim.reporting.tables import amount, from_markdown
from vflsim.results import write_file
from vflsim.text_table import TextTable, markdown_page


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
    page = markdown_page("attacks", [TextTable(("protocol", "R²"), [("wait", "0.5")], title="Reconstruction")], {})
    for folder in folders:
        write_file(folder.with_name("toy-evaluated") / "evaluate.md", page)
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


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("191 ± 43 s", 191.0),
        ("30 ± 0 ms", 0.03),
        ("> 132.9 MB", 132.9e6),
        ("16.3 (12.3 … 21.6) ×", 16.3),
        ("5 (2 … 11) ms", 0.005),
        ("1,078", 1078.0),
        ("−0.4 s", -0.4),
        ("99 % on “upload delay”", 0.99),
        ("5 of 5", 5.0),
        ("—", None),
        ("reference", None),
    ],
)
def test_cells_are_sorted_by_their_amount_in_si_units(cell: str, number: float | None) -> None:
    assert amount(cell) == (number if number is None else pytest.approx(number))


def test_pages_of_tables_beside_the_results_are_read_back() -> None:
    table = TextTable(("protocol", "a|b"), [("wait", "1 ± 2"), ("x", "a | b")], title="Attack", notes=["a note"])
    (sheet,) = from_markdown(markdown_page("page", [table], {"other": "not asked for"}))
    assert (sheet.title, sheet.header, sheet.notes) == ("Attack", ("protocol", "a|b"), ("a note",))
    assert sheet.rows == (("wait", "1 ± 2"), ("x", "a | b"))
