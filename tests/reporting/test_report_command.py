"""``vflsim report``, and the report that ``vflsim run`` leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    protocols = {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}
    Path("s.yaml").write_text(json.dumps(raw(protocols, stop={"rounds": 6}, seeds=[0])))
    return "s.yaml"


@pytest.mark.slow
def test_a_run_ends_with_its_report_and_repeats_over_it(vflsim: Callable[..., Ended], scenario: str) -> None:
    ended = vflsim("run", scenario, "--timing-only", "--report")
    assert ended.out.endswith("report: results/tiny-timing/report.html\n")
    html = Path("results/tiny-timing/report.html").read_text()
    assert "has the shortest rounds:" in html
    assert "timing only" in html
    assert vflsim("verify", "results/tiny-timing").status == 0
    assert vflsim("run", scenario, "--timing-only", "--report").status == 0
    changed = vflsim("run", scenario, "--timing-only", "--no-report", "--seeds", "1:2")
    assert "results/tiny-timing/earlier/" in changed.out  # the report is no foreign file
    assert not Path("results/tiny-timing/report.html").exists()


def test_no_report_costs_a_run_its_results(
    vflsim: Callable[..., Ended], scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Path:
        raise RuntimeError("no ink left\nand more")

    monkeypatch.setattr("vflsim.reporting.write_report", broken)
    ended = vflsim("run", scenario, "--timing-only", "--report")
    assert ended.status == 0
    assert ended.err == "warning: no report: no ink left\n"
    assert Path("results/tiny-timing/summary.md").is_file()


def test_the_command_writes_where_it_is_asked_to(
    vflsim: Callable[..., Ended], toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vflsim.reporting.page.page", lambda results, brief, baseline: f"{len(results)} studies, {baseline}"
    )
    monkeypatch.chdir(tmp_path)
    assert vflsim("report", toy_folder, "--out", "one.html").out == "one.html\n"
    assert vflsim("report", toy_folder, toy_folder, "--baseline", "async").out == "report.html\n"
    assert Path("report.html").read_text() == "2 studies, async"
    nowhere = vflsim("report", toy_folder, "nowhere")
    assert (nowhere.status, "nowhere" in nowhere.err) == (2, True)
