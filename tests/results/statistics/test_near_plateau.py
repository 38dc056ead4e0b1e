"""A target within the noise around a plateau is named below the table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from vflsim.results import Results
from vflsim.results.statistics import near_plateau
from vflsim.results.statistics.near_plateau import level, near_plateau_note
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
    monkeypatch.setattr(near_plateau, "distinct", lambda _: noisy(end))
    notes = [*near_plateau_note(Results.open(toy_folder), TARGET)]
    assert bool(notes) == near
    assert all(
        str(TARGET).split(" for")[0] + " lies within the noise" in note and "standard deviation 0.0" in note
        for note in notes
    )


def test_runs_that_the_target_ended_have_no_plateau(toy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results.open(toy_folder)
    monkeypatch.setattr(near_plateau, "distinct", lambda _: noisy(0.9))
    for run in results.runs:
        object.__setattr__(run, "info", run.info.model_copy(update={"stop_reason": "target"}))
    assert not [*near_plateau_note(results, TARGET)]
