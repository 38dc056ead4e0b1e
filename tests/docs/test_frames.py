"""The lines of ``docs/results.md`` that take frames to polars and DuckDB."""

import re
from pathlib import Path

import pytest
from pages import ROOT
from toy_runs import toy_results

from vflsim.results import Results


def test_frames_go_to_polars_and_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    section = (ROOT / "docs" / "results.md").read_text().partition("### polars and DuckDB")[2]
    lines = re.findall(r"```py\n(.*?)```", section, re.DOTALL)[0].splitlines()
    results = Results.open(toy_results(tmp_path / "results" / "grows", seeds=1, record="summary", horizon=8))
    monkeypatch.chdir(tmp_path)
    known = {"results": results, "frame": results.metrics, "duckdb": duckdb, "polars": polars}
    made = [eval(line, known) for line in lines if line.startswith(("polars", "duckdb"))]
    best = results.metrics.groupby("protocol", observed=True)["test_accuracy"].max().to_dict()
    assert made[0].shape == results.metrics.shape
    assert dict(made[1].fetchall()) == best
    assert made[2].collect().height == len(made[3].fetchall()) == len(results.metrics)
