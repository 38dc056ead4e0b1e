"""Answers under deadlines in results: frames, the table of the summary, and the note that points to it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from toy_runs import toy_answers, toy_results

from vflsim.errors import ResultsError
from vflsim.results import NotRecordedError, Results
from vflsim.results.statistics import summarise
from vflsim.results.tables import markdown
from vflsim.results.tables.sections import answer_metric, answers_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_results(tmp_path_factory.mktemp("answers") / "toy", horizon=10, record="summary", answers=True)


def test_the_table_has_means_over_seeds_with_intervals(folder: Path) -> None:
    results = Results.open(folder)
    table = answers_table(results)
    assert table is not None
    assert [row[:2] for row in table.rows[:5]] == [
        ("wait", "100 ms"), ("wait", "500 ms"), ("wait", "1 s"), ("wait", "none"), ("ignore", "100 ms")
    ]  # fmt: skip
    at_a_second = [toy_answers("wait", seed)["test_accuracy"][2].as_py() for seed in range(3)]
    half = stats.t.ppf(0.975, 2) * np.std(at_a_second, ddof=1) / np.sqrt(3)
    value = f"{np.mean(at_a_second):.3f} ± {math.ceil(1000 * half) / 1000:.3f}"
    assert table.rows[2] == ("wait", "1 s", "900 ms", "25 %", value)
    assert table.header[-1] == "test accuracy"


def test_summary_and_notes_tell_of_answers_where_there_are_any(folder: Path, tmp_path: Path) -> None:
    results = Results.open(folder)
    page = markdown(results, summarise(results))
    assert "## Answers under deadlines" in page
    assert "- Trained servers answered queries under deadlines" in page
    without = Results.open(toy_results(tmp_path / "toy", horizon=10, seeds=1))
    assert answers_table(without) is None
    assert "deadlines" not in markdown(without, summarise(without))
    with pytest.raises(NotRecordedError, match="answers of this run were not kept") as caught:
        _ = without.answers
    assert caught.value.remedy == "train with evaluate: {deadline: [10 ms, 50 ms]}, say"


def test_frames_have_protocol_and_seed_and_a_metric_must_be_there(folder: Path) -> None:
    results = Results.open(folder)
    assert list(results.answers.columns[:3]) == ["protocol", "seed", "deadline_s"]
    assert len(results.answers) == 4 * 3 * 4
    assert (answer_metric(results), answer_metric(results, "test_loss")) == ("test_accuracy", "test_loss")
    with pytest.raises(ResultsError, match="have no 'test_auc'") as caught:
        answer_metric(results, "test_auc")
    assert caught.value.allowed == "test_loss, test_accuracy"
