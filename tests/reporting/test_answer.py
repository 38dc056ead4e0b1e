"""The answer in words: who is first, who is not clearly behind, who is unknown, and why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toy_runs import toy_results

from vflsim.reporting.answer import ONE_SEED, answer, joined, percent, time_spent, waited_for
from vflsim.results import Results
from vflsim.results.statistics.estimates import Estimate, SeedSample, estimate, paired
from vflsim.results.tables.ranking import ranking

NO_REFERENCE: Any = SimpleNamespace(runs=())


def summary(times: dict[str, list[float]], censored: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows of a summary for the time to one target, from every seed's time."""
    values = {
        name: SeedSample((*range(len(own)),), np.array(own), np.full(len(own), name in censored))
        for name, own in times.items()
    }
    rows = [(name, None, estimate(own)) for name, own in values.items()]
    names = list(values)
    rows += [
        (one, other, paired(values[one], values[other]))
        for place, other in enumerate(names)
        for one in names[place + 1 :]
    ]
    key = {"measure": "time_to_target", "target": "test_accuracy ≥ 0.9", "unit": "s"}
    fields = Estimate.__dataclass_fields__
    return pd.DataFrame([
        {**key, "protocol": one, "baseline": other, **{name: getattr(found, name) for name in fields}}
        for one, other, found in rows
    ])  # fmt: skip


def rank(frame: pd.DataFrame) -> Any:
    return ranking(NO_REFERENCE, frame, "time_to_target", "test_accuracy ≥ 0.9")


def test_protocols_are_told_apart_by_their_paired_differences() -> None:
    found = rank(summary({"slow": [9.0, 19.0, 29.0], "fast": [1.0, 11.0, 21.0], "near": [1.5, 10.9, 21.2]}))
    assert found.order == ("fast", "near", "slow")
    assert found.close == ("near",)  # slow's own interval overlaps, but every seed is 8 s behind


def test_a_single_seed_tells_nobody_apart_and_claims_no_tie() -> None:
    found = rank(summary({"a": [3.0], "b": [2.0]}))
    assert (found.order, found.close, found.text("b")) == (("b", "a"), (), "2 s")


@pytest.mark.parametrize(("seeds", "warned"), [(1, True), (2, False)])
def test_the_answer_of_one_seed_says_that_another_may_differ(seeds: int, warned: bool, tmp_path: Path) -> None:
    results = Results.open(toy_results(tmp_path / "toy", seeds=seeds, record="summary", horizon=40))
    assert (ONE_SEED in answer(results, results.estimates(), {}).sentences) is warned


def test_protocols_that_miss_the_target_are_not_ranked() -> None:
    frame = summary({"never": [1.0, 1.0], "late": [5.0, 6.0]}, censored=("never",))
    assert rank(frame).order == ("late",)
    assert rank(summary({"never": [1.0, 1.0]}, censored=("never",))) is None


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("answer") / "toy"
    return Results.open(toy_results(folder, seeds=2, record="summary", horizon=40))


def test_the_first_sentence_names_the_fastest_and_others_those_that_never_arrive(results: Results) -> None:
    found = answer(results, results.estimates(), {})
    told = results.estimates()
    own = told[(told["measure"] == "time_to_target") & told["baseline"].isna() & (told["reached"] == told["n"])]
    best = own.loc[own["mean"].idxmin(), "protocol"]
    assert found.headline.startswith(best)
    assert "test accuracy ≥ 0.9" in found.headline
    assert any(text.startswith("ignore did not reach it in any of 2 runs") for text in found.sentences)
    assert any(text.startswith("Fewest rounds: ") for text in found.sentences)


def test_a_protocol_that_stopped_before_the_first_arrived_may_still_be_faster(results: Results) -> None:
    told = results.estimates()
    late = (told["protocol"] == "ignore") & (told["measure"] == "time_to_target") & told["baseline"].isna()
    told.loc[late, "horizon"] = 0.5
    texts = answer(results, told, {}).sentences
    assert any("ignore did not" in text and "longer runs could change the order" in text for text in texts)


def test_budgets_are_answered_behind_the_target_or_first_without_one(tmp_path: Path) -> None:
    folder = toy_results(tmp_path / "toy", seeds=3, record="summary", horizon=40)
    scenario = folder / "scenario.yaml"
    scenario.write_text(scenario.read_text() + "budget: {time: 20 s, bytes: 1 kB}\n")
    results = Results.open(folder)
    table = results.within(time=20)
    (best, value), close = table.rows[0][:2], [f"{row[0]} ({row[1]})" for row in table.rows if row[3] == "no"]
    said = [
        f"Within 20 s, {best} has the highest test accuracy {value}; not clearly behind: {joined(close)}.",
        "Runs of async and t-sync had ended before 20 s; their last values count.",
        "Within 1 kB, no protocol has an evaluation in all its runs.",
    ]
    found = answer(results, results.estimates(), {})
    place = found.sentences.index(said[0])
    assert [*found.sentences[place : place + 3]] == said
    scenario.write_text(scenario.read_text().replace(", target: {test_accuracy: 0.9, for: 1 evaluation}", ""))
    results = Results.open(folder)
    found = answer(results, results.estimates(), {})
    assert [found.headline, *found.sentences[:2]] == said


def test_waits_and_times_are_named_from_the_figures_numbers() -> None:
    shares = [("p", "last", client, share) for client, share in enumerate((0.0, 0.01, 0.02, 0.57, 0.4))]
    parts = [("p", "upload delay", 2.97, 0.99), ("p", "out", 0.0, 0.0), ("p", "transfer", 0.03, 0.01)]
    figures = {
        "waited": {"shares": pd.DataFrame(shares, columns=["protocol", "stage", "client", "share"])},
        "breakdown": {"rounds": pd.DataFrame(parts, columns=["protocol", "part", "seconds", "share"])},
    }
    assert waited_for("p", figures) == "clients 3–4 in 97 % of cases, most often client 3 (57 %)"
    assert time_spent("p", figures) == "99 % on “upload delay”, 1.0 % on “transfer”"
    assert (waited_for("q", figures), waited_for("p", {})) == ("", "")


def test_numbers_and_lists_read_well() -> None:
    assert [percent(share) for share in (1.0, 0.999, 0.985, 0.031, 0.0004, 0.0)] == [
        "100 %", "over 99 %", "98 %", "3.1 %", "under 0.1 %", "0 %",
    ]  # fmt: skip
    assert [joined(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
