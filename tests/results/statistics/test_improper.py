"""Metrics that no model can have are told, and cost none of what was computed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command_line import Ended
from ruamel.yaml import YAML
from tampering import relist
from tiny_worlds import raw

import vflsim as package
from vflsim.results.read import Results
from vflsim.results.verify import verify_folder

Vflsim = Callable[..., Ended]
pytestmark = pytest.mark.usefixtures("unrendered")
ON_MANY_ROWS = {"name": "digits", "train_rows": 90, "test_fraction": 0.3}
LATE = {
    "LateNan": "metrics at 0.0 s (row 0, round 0): test_late is nan, and must be finite: the run finished",
    "LateInfinity": "metrics at 0.0 s (row 0, round 0): test_late is inf, and must be finite: the run finished",
    "LateExcess": "and must be from 0 to 1",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", LATE)
def test_a_metric_that_becomes_impossible_ends_with_an_error_and_all_results(
    name: str, tmp_path: Path, vflsim: Vflsim
) -> None:
    own: dict[str, Any] = {"late": {"kind": "module", "path": f"own_metrics:{name}"}}
    scenario = raw({"wait": {"kind": "synchronous"}}, metrics=own, data=ON_MANY_ROWS, stop={"rounds": 2}, seeds=[0])
    YAML(typ="safe").dump(scenario, tmp_path / "s.yaml")
    ended = vflsim("run", tmp_path / "s.yaml", "--out", tmp_path / "out")
    assert ended.status == 1
    said = " ".join(ended.err.split())
    assert LATE[name] in said
    assert said.startswith("error: wait, seed 0: metrics at 0.0 s")
    assert "mend the metric" in said
    results = Results.open(tmp_path / "out")
    assert not results.failed
    assert len(results.metrics) == 2
    assert results.estimates().query("measure == 'plateau_test_accuracy'")["mean"].notna().all()
    for command in ("compare", "report"):
        again = vflsim(command, tmp_path / "out")
        assert again.status == 0, again.err
    assert LATE[name] in " ".join((tmp_path / "out" / "summary.md").read_text().split())


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with a score that no metric declares, as runs of earlier versions left them."""
    out = tmp_path_factory.mktemp("undeclared") / "out"
    protocols = {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}
    package.run(package.load(raw(protocols, stop={"rounds": 4}, seeds=[0, 1])), out)
    for path in out.glob("*/seed-*/metrics.parquet"):
        table = pq.read_table(path, partitioning=None)
        at = table.column_names.index("test_accuracy")
        pq.write_table(table.add_column(at, table.field(at).with_name("test_macro_f1"), table.column(at)), path)
    relist(out)
    return out


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("compare",), ("compare", "--target", "test_accuracy=10 %"), ("report",), ("plot",), ("trace", "--protocol", "wait")
)  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_results_with_an_undeclared_score_are_read(
    command: tuple[str, ...], scored: Path, tmp_path: Path, vflsim: Vflsim
) -> None:
    out = Path(shutil.copytree(scored, tmp_path / "out"))
    ended = vflsim(command[0], out, *command[1:])
    assert ended.status == 0, ended.err
    if command == ("compare",):
        assert "test_macro_f1 is no metric of the task, nor one that the scenario declares" in " ".join(
            ended.out.split()
        )


def test_an_undeclared_score_stays_in_the_frames_and_is_no_column_to_compare(scored: Path) -> None:
    results = Results.open(scored)
    assert "test_macro_f1" in results.metrics
    assert results.evaluated == ("test_loss", "test_accuracy")


def test_verify_names_an_undeclared_score(scored: Path) -> None:
    problems = verify_folder(scored)
    assert problems
    assert all("test_macro_f1 is no metric of the task" in each for each in problems)
