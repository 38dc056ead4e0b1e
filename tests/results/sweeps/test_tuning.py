"""Tuning: scores of curves with a known plateau, the choices, and what a reader is warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vflsim.errors import ResultsError
from vflsim.results import RunInfo, RunTables, run_folder, write_file, write_run
from vflsim.results.sweeps import Sweep, SweepPage, SweepPoint
from vflsim.results.sweeps.table import sweep_tables
from vflsim.results.sweeps.tuning import Tuning, score_of, tuning_markdown

METRIC = "validation_accuracy"
RATES = [0.001, 0.01, 0.1]
FAILED = float("nan")


def frame(values: list[float], times: list[float] | None = None) -> pd.DataFrame:
    count = range(len(values))
    return pd.DataFrame(
        {"time_s": times or [float(k) for k in count], "round": count, "updates": count, METRIC: values}
    )


def tuning(
    folder: Path, scores: dict[str, list[float]], values: list[Any] = RATES, metric: str = METRIC, seeds: int = 1
) -> Tuning:
    """A finished sweep whose runs are constant at the given scores, one for each value; NaN stands for a failed run."""
    protocols = ", ".join(f"{name}: {{kind: synchronous}}" for name in scores)
    for position in range(len(values)):
        place = folder / f"v-{position}"
        write_file(place / "scenario.yaml", f"name: toy\nprotocols: {{{protocols}}}\n")
        for name, of in scores.items():
            for seed in range(seeds):
                _write(place, name, seed, of[position], metric)
    entries = tuple(SweepPoint(values=(each,), folder=f"v-{k}", finished=True) for k, each in enumerate(values))
    page = SweepPage(scenario="toy", keys=("training.a.lr,training.b.lr",), timing_only=False, points=entries)
    write_file(folder / "sweep.json", page.text())
    return Tuning(Sweep.open(folder), metric)


def _write(place: Path, name: str, seed: int, score: float, metric: str) -> None:
    rows = 6
    zeros, nothing = [0] * rows, [np.nan] * rows
    metrics: dict[str, Any] = {"time_s": np.arange(float(rows)), "round": range(rows), "updates": zeros}
    metrics |= {f"bytes_{way}": zeros for way in ("up", "down", "peer")} | {"train_loss": nothing}
    metrics |= {metric: [0.1, *[score] * (rows - 1)]}
    metrics |= {f"{age}_{what}": nothing for age in ("row_age", "client_age") for what in ("mean", "max")}
    info = RunInfo(
        scenario="toy",
        protocol=name,
        seed=seed,
        status="failed" if np.isnan(score) else "finished",
        stop_reason=None if np.isnan(score) else "time",
        error="server, round 2 at 1 s: the training loss became nan" if np.isnan(score) else None,
        wall_clock_s=0.5,
        participants=(1,),
        max_staleness=10,
        staleness_bounds="client_age",
        counts={"rounds": rows - 1},
    )
    write_run(run_folder(place, name, seed), RunTables(metrics, None, None), {"w": torch.ones(1)}, info, "summary")


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "times", "plateau", "area"),
    [
        ([0.1, 0.5, 0.7, 0.8, 0.9, 1.0], None, 1.0, (0.1 + 0.5 + 0.7 + 0.8 + 0.9) / 5),
        ([0.0, *[0.2] * 17, 0.8, 1.0], None, 0.9, (17 * 0.2 + 0.8) / 19),  # of twenty the last two
        ([0.0, 0.6, 0.8], [0.0, 1.0, 10.0], 0.8, (0 * 1 + 0.6 * 9) / 10),
        ([0.4], [0.0], 0.4, 0.4),
        ([0.2, 0.4, 0.6], [0.0, 0.0, 0.0], 0.6, 0.4),  # no time passes
    ],
)
def test_scores_of_hand_made_curves(
    values: list[float], times: list[float] | None, plateau: float, area: float
) -> None:
    assert score_of(frame(values, times), METRIC, "plateau") == pytest.approx(plateau)
    assert score_of(frame(values, times), METRIC, "area") == pytest.approx(area)


def test_a_lucky_evaluation_counts_little_in_the_plateau() -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 100)
    steady, lucky = 0.8 + noise, 0.75 + noise
    lucky[95] = 0.95
    better, worse = (score_of(frame([0.1, *curve]), METRIC, "plateau") for curve in (steady, lucky))
    assert better > worse
    assert better == pytest.approx(0.8, abs=0.03)  # 4.7 standard errors of a mean of 10
    assert lucky.max() > steady.max()


def test_an_undefined_metric_gives_no_score() -> None:
    assert np.isnan(score_of(frame([float("nan")] * 3), METRIC, "plateau"))


def test_a_last_row_without_a_step_since_the_one_before_is_no_evaluation() -> None:
    table = frame([0.1, *[0.5] * 9, 0.9, 0.9])
    assert score_of(table, METRIC, "plateau") == 0.9
    table.loc[11, ["round", "updates"]] = table.loc[10, ["round", "updates"]]
    assert score_of(table, METRIC, "plateau") == pytest.approx((0.9 + 0.5) / 2)  # of eleven the last two


# --- the choice -------------------------------------------------------------------------------------------------------


def test_each_protocol_has_its_best_value_and_all_have_the_best_on_average(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.65, 0.9], "vafl": [0.9, 0.8, 0.1]})
    assert found.chosen == {"wait": 2, "vafl": 0}
    assert found.common == 1  # means 0.7, 0.725 and 0.5


def test_of_equal_scores_the_first_is_chosen_and_that_is_said(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.8, 0.8]})
    assert (found.chosen, found.common) == ({"wait": 1}, 1)
    assert "wait: lr = 0.01, 0.1 score the same; the first was chosen" in found.warnings()


def test_a_loss_is_minimised(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.2, 0.8], "vafl": [0.3, 0.4, 0.9]}, metric="validation_loss")
    assert (found.chosen, found.common) == ({"wait": 1, "vafl": 0}, 1)


def test_a_value_at_which_a_run_failed_is_ruled_out_for_that_protocol(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9], "vafl": [0.4, 0.5, FAILED]})
    assert (found.chosen, found.common) == ({"wait": 2, "vafl": 1}, 1)
    (said,) = [each for each in found.warnings() if "failed" in each]
    assert said.startswith("vafl, seed 0, lr = 0.1: failed, which rules the value out there: server, round 2")
    assert np.isnan(found.scores.loc[2, "vafl"])


def test_one_failed_seed_of_several_rules_a_value_out(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9]}, seeds=2)
    _write(tmp_path / "v-2", "wait", 1, FAILED, METRIC)
    assert Tuning(Sweep.open(tmp_path), METRIC).chosen == {"wait": 1}
    assert found.sweep.results[2].seeds == (0, 1)


def test_a_protocol_that_fails_at_every_value_has_no_choice_and_there_is_no_common_one(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.5], "vafl": [FAILED] * 3})
    assert (found.chosen, found.common) == ({"wait": 1, "vafl": None}, None)
    said = [*found.warnings()]
    assert "vafl failed at every value: it keeps the scenario's own training" in said
    assert "no value works for every protocol: there is no common value" in said


@pytest.mark.parametrize(
    ("values", "best", "warned"),
    [
        (RATES, 0, "smallest"),
        (RATES, 1, ""),
        (RATES, 2, "largest"),
        ([0.1, 0.001, 0.01], 0, "largest"),
        ([{"kind": "adam", "lr": 0.1}, {"kind": "sgd", "lr": 1}, {"kind": "sgd", "lr": 2}], 0, ""),  # the only one
        ([{"kind": "adam", "lr": 0.1}, {"kind": "sgd", "lr": 1}, {"kind": "sgd", "lr": 2}], 2, "largest"),
        (["shared", "own", "other"], 0, ""),
    ],
)
def test_a_best_value_at_the_edge_of_the_grid_is_warned_of(
    values: list[Any], best: int, warned: str, tmp_path: Path
) -> None:
    found = tuning(tmp_path, {"wait": [0.9 if k == best else 0.5 for k in range(3)]}, values)
    said = " ".join(found.warnings())
    assert ("of the grid" in said) == bool(warned)
    assert warned in said


# --- what is written and read -----------------------------------------------------------------------------------------


def test_the_table_has_every_run_and_marks_the_choices(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9], "vafl": [0.9, 0.85, FAILED]}, seeds=2)
    write_file(tmp_path / "tuning.parquet", found.table())
    rows = pq.read_table(tmp_path / "tuning.parquet").to_pandas()
    assert len(rows) == 3 * 2 * 2
    chosen = rows[rows["chosen"]][["protocol", "value"]].drop_duplicates()
    assert chosen.to_numpy().tolist() == [["vafl", "0.001"], ["wait", "0.1"]]
    assert set(rows[rows["common"]]["value"]) == {"0.01"}
    assert rows[rows["error"].notna()]["score"].isna().all()
    assert found.table().schema.field("score").type == pa.float64()


def test_scores_are_shown_with_the_choices_marked(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9], "vafl": [0.9, 0.85, FAILED]})
    page = tuning_markdown(found)
    assert "| 0.001 | 0.5 | * 0.9 | 0.7 |" in page
    assert "| 0.01 (common) | 0.6 | 0.85 | * 0.725 |" in page
    assert "| 0.1 | * 0.9 | — | — |" in page
    assert "3 runs a protocol (seed 0)" in page
    assert "- The best of several scores is best partly by chance" in page
    assert "the mean over the last tenth of a run's evaluations of validation_accuracy" in page


def test_a_finished_tuning_is_opened_and_compared_again(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9]})
    with pytest.raises(ResultsError, match=r"no tuning\.json in it"):
        Tuning.open(tmp_path)
    write_file(tmp_path / "tuning.json", found.page())
    again = Tuning.open(tmp_path)
    assert (again.metric, again.score, again.chosen) == (METRIC, "plateau", {"wait": 2})
    (table,) = sweep_tables(Sweep.open(tmp_path))
    assert table.rows[2] == ("0.1 (common)", "* 0.9", "* 0.9")
    write_file(tmp_path / "tuning.json", "{}")
    with pytest.raises(ResultsError, match=r"tuning\.json: damaged"):
        Tuning.open(tmp_path)


def test_what_was_not_evaluated_or_not_finished_cannot_be_chosen_by(tmp_path: Path) -> None:
    found = tuning(tmp_path, {"wait": [0.5, 0.6, 0.9]})
    with pytest.raises(ResultsError, match="'validation_auc' was not evaluated"):
        Tuning(found.sweep, "validation_auc")
    page = SweepPage.read(tmp_path)
    last = page.points[2].model_copy(update={"finished": False})
    write_file(tmp_path / "sweep.json", page.model_copy(update={"points": (*page.points[:2], last)}).text())
    with pytest.raises(ResultsError, match=r"= 0\.1 has not finished"):
        Tuning(Sweep.open(tmp_path), METRIC)
