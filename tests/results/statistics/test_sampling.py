"""The note on the sampling error that intervals over seeds leave out."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from toy_runs import toy_results

from vflsim import open_results
from vflsim.results.statistics.sampling import binomial_error, sampling_note
from vflsim.results.tables.comparison import comparison_table, write_summary


@pytest.mark.parametrize(("accuracy", "rows", "error"), [(0.5, 100, 0.05), (0.9, 359, 0.01583), (1.0, 10, 0.0)])
def test_the_binomial_error_is_that_of_a_share(accuracy: float, rows: int, error: float) -> None:
    assert binomial_error(accuracy, rows) == pytest.approx(error, rel=1e-3)


def with_rows(folder: Path, rows: int) -> Path:
    """Toy results whose runs say how many rows they were scored on."""
    for page in toy_results(folder).rglob("run.json"):
        said = json.loads(page.read_text())
        page.write_text(json.dumps(said | {"rows": {"train": 4 * rows, "test": rows}}))
    return folder


def test_the_table_says_that_the_interval_leaves_out_the_test_rows(tmp_path: Path) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = [note for note in comparison_table(results).notes if "sampling error" in note]
    assert note.startswith(
        "± leaves out the sampling error of the 400 test rows: all seeds share one split (of the acc"
    )
    write_summary(results)
    assert f"- {note}\n" in (tmp_path / "toy" / "summary.md").read_text()


def test_the_errors_are_those_of_the_means_shown(tmp_path: Path) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = sampling_note(results, "test_accuracy", [0.9, 0.5, math.nan])
    assert note.endswith("(of the accuracies shown, a binomial standard error of 0.015 to 0.025).")
    (note,) = sampling_note(results, "test_accuracy", [0.9, 0.1])
    assert note.endswith("a binomial standard error of 0.015).")


@pytest.mark.parametrize("metric", ["test_rmse", "test_loss"])
def test_of_other_metrics_only_the_fact_is_said(tmp_path: Path, metric: str) -> None:
    results = open_results(with_rows(tmp_path / "toy", 400))
    (note,) = sampling_note(results, metric, [0.5])
    assert note == "± leaves out the sampling error of the 400 test rows: all seeds share one split."


@pytest.mark.slow
def test_without_the_number_of_rows_there_is_no_size(tmp_path: Path) -> None:
    results = open_results(toy_results(tmp_path / "toy"))
    (note,) = sampling_note(results, "test_accuracy", [0.5])
    assert note == "± leaves out the sampling error of the test rows: all seeds share one split."
    assert list(sampling_note(results, "train_loss", [0.5])) == []
