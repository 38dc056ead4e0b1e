"""Energy in summaries, tables, figures and the report: beside time, rounds and bytes, where it was counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_worlds import raw

import vflsim
from vflsim.reporting.answer import answer
from vflsim.reporting.figures import curves
from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.costs import passage
from vflsim.results.tables import comparison_table, markdown
from vflsim.results.tables.sections import energy_table
from vflsim.scenario import load
from vflsim.studies.study import run_study

POWERS = {"idle": "2 W", "compute": "6 W", "radio": "1 W"}


def study(folder: Path, power: dict[str, Any]) -> Results:
    """Two protocols with two seeds, of which one reaches a low accuracy soon."""
    delay = {"kind": "exponential", "mean": "5 ms"}
    clients = {"select": "all", "compute": "2 ms", "upload_delay": delay, **power}
    timing = {"server": {"compute": "1 ms"}, "clients": clients}
    protocols = {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}
    said = raw(protocols, timing=timing, seeds=[0, 1], record="rounds", evaluate={"every": "2 rounds"})
    for party in ("client", "server"):
        said["training"][f"{party}_optimizer"] = {"kind": "sgd", "lr": 1}
    said |= {"target": {"test_accuracy": 0.3, "for": "1 evaluation"}, "stop": {"rounds": 40}}
    assert run_study(load(said), folder).failures == {}
    return Results.open(folder)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return study(tmp_path_factory.mktemp("energy") / "counted", {"power": POWERS})


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return study(tmp_path_factory.mktemp("energy") / "silent", {})


def test_the_energy_to_a_target_is_that_of_its_row(counted: Results) -> None:
    found = outcomes(counted)
    found = found[found["measure"] == "energy_to_target"].set_index(["protocol", "seed"])
    assert len(found) == 4
    for run in counted.runs:
        reached = passage(run.frame("metrics"), counted.targets[0])
        assert found.loc[(run.protocol, run.seed), "value"] == reached.row["energy_j"]
        assert found.loc[(run.protocol, run.seed), "unit"] == "J"


@pytest.mark.slow
def test_tables_figures_and_report_have_energy_where_it_was_counted(counted: Results, silent: Results) -> None:
    assert "energy to 0.3" in comparison_table(counted).header
    assert "energy to 0.3" not in comparison_table(silent).header
    assert "## Energy by party" in markdown(counted, counted.estimates())
    assert "nergy" not in markdown(silent, silent.estimates())
    assert vflsim.plot(counted, "energy").numbers["means"]["energy_j"].max() > 0
    with pytest.raises(NotRecordedError, match="says what it draws"):
        vflsim.plot(silent, "energy")
    panels = [vflsim.plot(each, "target").numbers["costs"]["measure"].nunique() for each in (counted, silent)]
    assert panels == [4, 3]
    axes = [(curves(each, {}) or {})["axes"].keys() for each in (counted, silent)]
    assert [*axes[0]] == ["time", "rounds", "bytes", "energy"]
    assert [*axes[1]] == ["time", "rounds", "bytes"]
    assert any("Least energy" in text for text in answer(counted, counted.estimates(), {}).sentences)


def test_energy_by_party_is_averaged_over_runs(counted: Results, silent: Results) -> None:
    table = energy_table(counted, each=True)
    assert table is not None
    assert [row[:2] for row in table.rows][:4] == [("wait", f"client-{m}") for m in (1, 2, 3, 4)]
    frame = counted.energy
    assert len(frame) == 4 * 4 * 3
    last = counted.metrics.groupby(["protocol", "seed"], observed=True)["energy_j"].last()
    sums = frame.groupby(["protocol", "seed"])["joules"].sum()
    for run in counted.runs:
        assert sums[run.protocol, run.seed] == pytest.approx(last[run.protocol, run.seed], rel=1e-12)
    assert energy_table(silent) is None
    assert silent.energy.empty
