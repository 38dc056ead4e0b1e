"""A target within the noise around a plateau is named below the table."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_runs import toy_run

from vflsim.reporting.answer import answer
from vflsim.results import Results, RunTables, comparison_table, run_folder, summarise, write_run
from vflsim.results.statistics import doubts
from vflsim.results.statistics.doubts import best_of, level, near_plateau_note, past_best, past_best_note
from vflsim.results.tables import markdown
from vflsim.vocabulary.targets import Target

TARGET = Target("test_accuracy", 0.9)


def metrics(values: np.ndarray) -> pd.DataFrame:
    count = range(len(values))
    return pd.DataFrame({"round": count, "updates": count, "test_accuracy": values})


def noisy(end: float, sd: float = 0.01, slope: float = 0.0, count: int = 200) -> pd.DataFrame:
    noise = np.random.default_rng(1).normal(scale=sd, size=count)
    return metrics(end + slope * (np.arange(count) - count + 1) + noise)


@pytest.mark.parametrize("slope", [0.0, 0.002])
def test_noise_is_the_scatter_about_what_is_still_learned(slope: float) -> None:
    found = level(noisy(0.85, slope=slope), "test_accuracy")
    assert found is not None
    assert found[0] == pytest.approx(0.85, abs=0.006)  # 2.5 standard errors of the line's end
    assert found[1] == pytest.approx(0.01, rel=0.25)


@pytest.mark.parametrize("count", [0, 1, 28])
def test_few_evaluations_tell_no_noise(count: int) -> None:
    assert level(noisy(0.85, count=count), "test_accuracy") is None


def test_metrics_that_a_protocol_lacks_are_near_nothing() -> None:
    assert level(noisy(0.85), "test_accuracy.client-2") is None


@pytest.mark.parametrize(("end", "near"), [(0.885, True), (0.9, True), (0.915, True), (0.86, False), (0.94, False)])
def test_targets_within_two_deviations_of_the_end_are_near(
    toy_folder: Path, monkeypatch: pytest.MonkeyPatch, end: float, near: bool
) -> None:
    monkeypatch.setattr(doubts, "distinct", lambda _: noisy(end))
    notes = [*near_plateau_note(Results.open(toy_folder), TARGET)]
    assert bool(notes) == near
    assert all(
        str(TARGET).split(" for")[0] + " lies within the noise" in note and "standard deviation 0.0" in note
        for note in notes
    )


def test_runs_that_the_target_ended_have_no_plateau(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results.open(toy_folder)
    monkeypatch.setattr(doubts, "distinct", lambda _: noisy(0.9))
    for run in results.runs:
        object.__setattr__(run, "info", run.info.model_copy(update={"stop_reason": "target"}))
    assert not [*near_plateau_note(results, TARGET)]


Curve = Callable[[np.ndarray], np.ndarray]


def overfitted(time: np.ndarray) -> np.ndarray:
    """Highest, 0.83, at 20 s, and 0.67 at 60 s."""
    return 0.83 - (time - 20) ** 2 / 10_000


def rising(time: np.ndarray) -> np.ndarray:
    return 0.8 - 0.3 * np.exp(-time / 10)


def results(
    folder: Path, curves: dict[str, Curve], seeds: int = 3, noise: float = 0.0, reason: str = "time", every: float = 1.0
) -> Results:
    """Runs of 60 s with an evaluation a second; each seed's AUC lies a little higher."""
    (folder / "scenario.yaml").write_text(
        f"name: past\nprotocols: {{{', '.join(f'{name}: {{}}' for name in curves)}}}\n"
    )
    time = np.arange(0.0, 60.5, every)
    for name, curve in curves.items():
        for seed in range(seeds):
            scatter = np.random.default_rng([seed, len(name)]).normal(0, noise, len(time))
            zeros = np.zeros(len(time), dtype=int)
            metrics = {"time_s": time, "round": time.astype(int)}
            metrics |= dict.fromkeys(("updates", "bytes_up", "bytes_down", "bytes_peer"), zeros)
            metrics |= {"train_loss": 1 / (1 + time), "test_auc": curve(time) + 0.004 * seed + scatter}
            metrics |= {
                f"{age}_{what}": zeros * np.nan for age in ("row_age", "client_age") for what in ("mean", "max")
            }
            page = toy_run("wait", 0, horizon=2)[1].model_copy(
                update={"protocol": name, "seed": seed, "stop_reason": reason}
            )
            write_run(run_folder(folder, name, seed), RunTables(metrics), {}, page)
    return Results.open(folder)


def test_the_summary_has_the_best_value_and_its_time_beside_the_final_one(tmp_path: Path) -> None:
    summary = summarise(results(tmp_path, {"slow": overfitted}))
    known = summary[summary["baseline"].isna()].set_index("measure")["mean"]
    assert known["best_test_auc"] == pytest.approx(0.834)
    assert known["time_of_best_test_auc"] == 20
    assert known["plateau_test_auc"] < 0.7


def test_runs_past_their_best_have_a_column_and_a_note_on_what_the_final_level_ranks(tmp_path: Path) -> None:
    found = results(tmp_path, {"slow": overfitted, "fast": rising}, noise=0.003)
    table = comparison_table(found)
    assert table.header[table.header.index("final auc") + 1] == "best auc"
    cells = dict(zip(table.header, table.rows[0], strict=True))
    assert cells["best auc"].startswith("0.84")
    assert " at 2" in cells["best auc"]
    (note,) = (note for note in table.notes if note.startswith("Past their best in test auc: slow (0.8"))
    assert "fast" not in note
    assert "ranks when runs were stopped" in note
    assert "optimistic" in note
    summary = summarise(found)
    assert "## Best and final" in markdown(found, summary)
    assert note in answer(found, summary, {}).sentences


@pytest.mark.sampled(2)
@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("seeds", [1, 5])
def test_noise_around_a_plateau_is_no_loss(tmp_path: Path, noise: float, seeds: int) -> None:
    found = results(tmp_path, {"slow": rising, "fast": lambda time: 0.8 + 0 * time}, seeds, noise)
    assert past_best(found) == {}
    assert not [*past_best_note(found)]
    assert "best auc" not in comparison_table(found).header


@pytest.mark.parametrize("every", [10.0, 25.0])
def test_few_evaluations_are_not_taken_for_a_loss_by_their_noise(tmp_path: Path, every: float) -> None:
    flat = results(tmp_path, {"slow": lambda time: 0.8 + 0 * time}, 3, 0.01, every=every)
    assert past_best(flat) == {}


def test_a_clear_loss_shows_in_few_evaluations(tmp_path: Path) -> None:
    assert past_best(results(tmp_path, {"slow": overfitted}, 3, 0.002, every=10.0)).keys() == {"slow"}


def test_what_a_target_ended_is_not_past_its_best(tmp_path: Path) -> None:
    assert past_best(results(tmp_path, {"slow": overfitted}, reason="target")) == {}


def test_the_best_of_a_loss_is_the_lowest_and_nan_is_none(tmp_path: Path) -> None:
    metrics = results(tmp_path, {"slow": overfitted}, seeds=1).metrics
    assert best_of(metrics, "train_loss", higher=False) == (pytest.approx(1 / 61), 60)
    metrics.loc[20, "test_auc"] = math.nan
    assert best_of(metrics, "test_auc", higher=True) == (pytest.approx(0.8299), 19)
