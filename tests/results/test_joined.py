"""Several studies as the results of one: names, targets, pairs, tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tiny_worlds import BASE, raw

import vflsim
from vflsim.errors import ResultsError
from vflsim.plotting import PLOTS, Picture
from vflsim.results import Results
from vflsim.results.read import JoinedResults, NotRecordedError
from vflsim.results.statistics import outcomes
from vflsim.results.statistics.pairs import ratio
from vflsim.results.store.pages import read_scenario
from vflsim.results.tables import comparison_table
from vflsim.scenario import load
from vflsim.studies.study import run_study
from vflsim.vocabulary import plain_yaml

WAIT, ASYNC = {"wait": {"kind": "synchronous"}}, {"async": {"kind": "asynchronous"}}
FEDVS = {"fedvs": {"kind": "fedvs", "K": 1, "models": {"client": {"kind": "polynomial", "degree": 2, "embedding": 6}}}}
TARGET = {"test_accuracy": 0.12, "for": "1 evaluation"}
Study = Callable[..., Results]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Runs a tiny study once for each set of arguments."""
    made: dict[str, Results] = {}
    place = tmp_path_factory.mktemp("studies")

    def run(
        protocols: dict[str, Any],
        timing_only: bool = False,
        folder: str = "",
        **changes: Any,
    ) -> Results:
        key = repr((protocols, timing_only, folder, changes))
        if key not in made:
            said = raw(protocols, **{"stop": {"rounds": 8}, "seeds": [0, 1], "target": TARGET, **changes})
            run_study(load(said), place / (folder or str(len(made))), timing_only=timing_only)
            made[key] = Results.open(place / (folder or str(len(made))))
        return made[key]

    return run


def delayed(mean: str) -> dict[str, Any]:
    """Timing whose delays have another mean."""
    first, second = BASE["timing"]["clients"]
    slower = {**second, "upload_delay": {"kind": "exponential", "mean": mean}}
    return {**BASE["timing"], "clients": [first, slower]}


# --- as one study -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_halves_of_a_study_are_summarised_as_the_whole(study: Study) -> None:
    whole = study({**WAIT, **ASYNC})
    joined = JoinedResults.of([study(WAIT), study(ASYNC)])
    assert joined.protocols == whole.protocols
    pd.testing.assert_frame_equal(joined.metrics, whole.metrics)
    pd.testing.assert_frame_equal(joined.estimates().drop(columns="paired"), whole.estimates())
    one, other = joined.summary(), whole.summary()
    assert (one.header, one.rows) == (other.header, other.rows)
    assert set(other.notes) < set(one.notes)
    assert "Paired with wait over common seeds (equal timing, data and batches): async." in one.notes


def test_a_name_that_several_studies_have_is_followed_by_the_studys(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT, name="a"), study({**WAIT, **ASYNC}, name="b")])
    assert joined.protocols == ("wait (a)", "wait (b)", "async")
    assert joined.name == "a, b"
    assert joined.run("wait (b)", 1).info.protocol == "wait"
    assert set(joined.metrics["protocol"]) == set(joined.info["protocol"]) == set(joined.protocols)
    assert joined.scenario["protocols"]["wait (b)"] == {"kind": "synchronous"}
    assert joined.scenario["partition"] == BASE["partition"]


def test_studies_of_one_name_are_told_apart_by_their_folders(study: Study) -> None:
    timed = partial(study, WAIT, timing_only=True)
    joined = JoinedResults.of([timed(folder="first"), timed(folder="second")])
    assert joined.protocols == ("wait (first)", "wait (second)")
    deep = [timed(folder=f"{place}/same") for place in ("first_place", "second_place")]
    assert JoinedResults.of(deep).protocols == ("wait (first_place/same)", "wait (second_place/same)")
    with pytest.raises(ResultsError, match=r"first: is named twice"):
        JoinedResults.of([timed(folder="first"), Results.open(timed(folder="first").folder)])
    with pytest.raises(ResultsError, match="there is nothing to compare"):
        JoinedResults.of([])


def test_what_was_joined_is_joined_with_more(study: Study) -> None:
    timed = partial(study, WAIT, timing_only=True)
    first = JoinedResults.of([timed(name="a"), timed(name="b")])
    assert JoinedResults.of([first, timed(name="c")]).protocols == ("wait (a)", "wait (b)", "wait (c)")


# --- pairs --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_synchronous_mlps_are_paired_with_polynomial_fedvs(study: Study) -> None:
    mlp = {"client": {"kind": "mlp", "hidden": [5], "embedding": 6}, "server": {"kind": "mlp", "hidden": [8]}}
    one, other = study(WAIT, models={**mlp, "aggregate": "mean"}), study(FEDVS)
    joined = JoinedResults.of([one, other])
    assert joined.unpaired("fedvs", "wait") == ""
    rows = joined.estimates().query("measure == 'end' and protocol == 'fedvs' and baseline == 'wait'")
    ends = [each.groupby("seed")["time_s"].max() for each in (other.metrics, one.metrics)]
    assert rows["mean"].item() == pytest.approx((ends[0] - ends[1]).mean())
    interval = stats.ttest_rel(*ends).confidence_interval(0.95)
    assert (rows["low"].item(), rows["high"].item()) == pytest.approx((interval.low, interval.high))
    assert rows["paired"].item()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"timing": delayed("(6*i) ms")}, "timing.clients.1.upload_delay.mean: (5*i) ms → (6*i) ms"),
        ({"timing__network": "fifo"}, "timing.network: absent → fifo"),
        ({"partition__clients": 5}, "partition.clients: 4 → 5"),
        ({"training__batch": 30}, "training.batch: 20 → 30"),
        ({"data__split_seed": 1}, "data.split_seed: absent → 1"),
        ({"seeds": [3, 4]}, "no common seed: 0, 1 against 3, 4"),
    ],
)
def test_what_does_not_share_its_draws_is_not_paired_and_the_table_names_the_difference(
    changes: dict[str, Any], words: str, study: Study
) -> None:
    joined = JoinedResults.of([study(WAIT, timing_only=True), study(ASYNC, timing_only=True, **changes)])
    assert joined.unpaired("async", "wait") == words
    notes = comparison_table(joined).notes
    assert f"Compared with wait as independent runs, not in pairs: async; {words}." in notes
    assert not any(note.startswith("Paired with") for note in notes)
    found = joined.estimates()
    assert not found["paired"].dropna().any()
    assert len(joined.round_pairs()) == 0


def test_what_means_the_same_is_paired_however_it_is_written(study: Study) -> None:
    first, second = BASE["timing"]["clients"]
    other = {**first, "compute": {"kind": "constant", "value": 0.002}, "link": {**first["link"], "up": 50e6}}
    timing = {**BASE["timing"], "network": "fair", "clients": [{**other, "select": "1..N"}, second]}
    changed = study(ASYNC, timing_only=True, timing=timing, constants={"unused": 3})
    assert JoinedResults.of([study(WAIT, timing_only=True), changed]).unpaired("async", "wait") == ""


def test_names_of_parties_decide_no_draws_unless_a_selection_uses_them(study: Study) -> None:
    def named(protocols: dict[str, Any], names: list[str], slow: str | int) -> Results:
        first, second = BASE["timing"]["clients"]
        timing = {**BASE["timing"], "clients": [first, second, {"select": slow, "compute": "9 ms"}]}
        return study(protocols, timing_only=True, timing=timing, partition__names=names)

    one, renamed = named(WAIT, ["a", "b", "c", "d"], "b"), named(ASYNC, ["e", "f", "g", "h"], 2)
    assert JoinedResults.of([one, renamed]).unpaired("async", "wait") == ""
    swapped = named(ASYNC, ["b", "a", "c", "d"], "b")
    assert "partition.names" in JoinedResults.of([one, swapped]).unpaired("async", "wait")


def test_a_constant_that_timing_needs_is_a_difference(study: Study) -> None:
    def slow(seconds: float) -> dict[str, Any]:
        return {"timing": delayed("slow"), "constants": {"slow": seconds}}

    joined = JoinedResults.of([study(WAIT, timing_only=True, **slow(0.1)), study(ASYNC, timing_only=True, **slow(0.2))])
    assert joined.unpaired("async", "wait") == "constants.slow: 0.1 → 0.2"


def test_without_its_modules_a_scenario_is_compared_by_its_text(study: Study, tmp_path: Path) -> None:
    import shutil

    for name in "ab":
        shutil.copytree(study(WAIT, timing_only=True).folder, tmp_path / name)
        page = tmp_path / name / "scenario.yaml"
        scenario = dict(read_scenario(page)) | {"modules": str(tmp_path / "gone" / name)}
        scenario["timing"] = {"server": {"compute": {"kind": "module", "path": "gone:Delay"}}}
        page.write_text(plain_yaml.dump(scenario))
    joined = JoinedResults.of([Results.open(tmp_path / name) for name in "ab"])
    assert joined.unpaired("wait (b)", "wait (a)").startswith("modules: ")


def test_a_folder_of_modules_that_decide_no_draws_is_no_difference(study: Study, tmp_path: Path) -> None:
    import shutil

    for name in "ab":
        shutil.copytree(study(WAIT, timing_only=True).folder, tmp_path / name)
        page = tmp_path / name / "scenario.yaml"
        page.write_text(page.read_text() + f'modules: "{tmp_path / "gone" / name}"\n')
    joined = JoinedResults.of([Results.open(tmp_path / name) for name in "ab"])
    assert joined.unpaired("wait (b)", "wait (a)") == ""


def test_independent_runs_have_welchs_interval(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT, timing_only=True), study(ASYNC, timing_only=True, seeds=[3, 4, 5, 6])])
    measured = outcomes(joined).query("measure == 'round_duration'")
    own, other = (measured.loc[measured["protocol"] == name, "value"].to_numpy() for name in ("async", "wait"))
    row = joined.estimates().query("measure == 'round_duration' and baseline == 'wait'")
    expected = stats.ttest_ind(own, other, equal_var=False)
    assert (row["mean"].item(), row["n"].item()) == (pytest.approx(own.mean() - other.mean()), 6)
    interval = expected.confidence_interval(0.95)
    assert (row["low"].item(), row["high"].item()) == pytest.approx((interval.low, interval.high))
    found = ratio(measured, "async", "wait", paired=False)
    logs = stats.ttest_ind(np.log(other), np.log(own), equal_var=False).confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((np.exp(logs.low), np.exp(logs.high)))


@pytest.mark.slow
def test_independent_runs_that_miss_the_target_bound_the_difference(study: Study) -> None:
    short, long = (
        study(protocols, stop={"rounds": rounds}, seeds=seeds, evaluate={"every": "1 rounds"})  # so costs are exact
        for protocols, rounds, seeds in ((WAIT, 4, [0, 1, 2]), (ASYNC, 200, [3, 4, 5, 6]))
    )
    joined, asked = JoinedResults.of([short, long]), {"test_loss": 2.27, "for": "2 evaluations"}
    row = joined.estimates(asked).query("measure == 'time_to_target' and baseline == 'wait'")
    alone = joined.estimates(asked).query("measure == 'time_to_target' and baseline.isna()").set_index("protocol")
    assert alone["reached"].to_dict() == {"wait": 0, "async": 4}
    assert (row["n"].item(), row["reached"].item()) == (7, 4)
    measured = outcomes(joined, asked).query("measure == 'time_to_target'")
    times, bounds = (measured.loc[measured["protocol"] == name, "value"] for name in ("async", "wait"))
    found = stats.ttest_ind(times, bounds, equal_var=False).confidence_interval(0.9)  # 5 % beyond its end
    assert row["at_most"].item() == pytest.approx(found.high)
    assert np.isnan([row[name].item() for name in ("mean", "low", "at_least")]).all()
    assert "> " in joined.summary(asked).frame.loc["async", "speed-up vs wait"]


def test_seeds_that_only_one_study_has_are_left_out_of_pairs(study: Study) -> None:
    joined = JoinedResults.of(
        [study(WAIT, timing_only=True, seeds=[0, 1, 2]), study(ASYNC, timing_only=True, seeds=[1, 2, 3])]
    )
    assert joined.seeds == (0, 1, 2, 3)
    assert set(joined.estimates().query("baseline == 'wait'")["n"]) == {2}


# --- baselines and targets ----------------------------------------------------------------------------------------


def test_the_baseline_is_chosen_by_name(study: Study) -> None:
    joined = JoinedResults.of([study(ASYNC, name="a"), study({**WAIT, **ASYNC}, name="b")])
    assert joined.baseline == "wait"
    assert "speed-up vs wait" in joined.summary().header
    chosen = joined.against("async")  # in both studies: the first's
    assert chosen.baseline == "async (a)"
    assert "speed-up vs async (a)" in chosen.summary().header
    assert joined.against("async (b)").baseline == "async (b)"
    with pytest.raises(ResultsError, match=r"no protocol 'asink'\n  allowed: async \(a\), wait, async \(b\)"):
        joined.against("asink")


def test_any_protocol_of_one_study_may_be_the_baseline(study: Study) -> None:
    results = study({**WAIT, **ASYNC}, target=None)
    chosen = results.against("async").summary(pairing=True)
    column = chosen.frame["final accuracy vs async"]
    assert column["async"] == "—"
    assert "±" in column["wait"]
    assert results.baseline is None


def test_a_baseline_that_is_not_the_first_protocol_has_differences_too(study: Study) -> None:
    table = study({**ASYNC, **WAIT}, target=None).summary()
    assert "±" in table.frame.loc["async", "final accuracy vs wait"]


def test_common_targets_count_and_others_are_named(study: Study) -> None:
    other = study(ASYNC, target={"test_loss": 5.0}, name="other")
    joined = JoinedResults.of([study(WAIT), other])
    assert joined.targets == ()
    table = joined.summary()
    assert not any(head.startswith("time to") for head in table.header)
    (note,) = (note for note in table.notes if note.startswith("Targets that only some studies have"))
    assert "test_accuracy ≥ 0.12 for 1 evaluation (tiny), test_loss ≤ 5 for 5 evaluations (other)" in note
    asked = joined.summary({"test_loss": 5.0})
    assert "time to 5" in asked.header
    assert JoinedResults.of([study(WAIT), study(ASYNC)]).targets == study(WAIT).targets


def test_timing_alone_is_compared_with_trained_runs_by_its_times(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT), study(ASYNC, timing_only=True)])
    assert joined.evaluated == ()
    table = joined.summary()
    assert "mean round" in table.header
    assert "accuracy" not in " ".join(table.header)
    with pytest.raises(NotRecordedError, match="nothing was evaluated"):
        vflsim.plot(joined, "time")


# --- figures and models -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def joined(study: Study) -> JoinedResults:
    return JoinedResults.of([study({**WAIT, **ASYNC}, name="a"), study({**WAIT, **FEDVS}, name="b")])


LACKING = {
    "epsilon": "no finished run of a protocol with a mechanism",
    "energy": "no finished run in which a party says what it draws",
    "answers": "the answers of this run were not kept",
}
"""What these runs have not, and what is said then."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLOTS)
def test_every_figure_is_drawn_of_joined_results_or_refused_in_words(kind: str, joined: JoinedResults) -> None:
    if kind in LACKING:
        with pytest.raises(NotRecordedError, match=LACKING[kind]):
            vflsim.plot(joined, kind)
        return
    drawn = vflsim.plot(joined, kind)
    assert isinstance(drawn, Picture)
    named = {name for each in drawn.numbers.values() for name in each.get("protocol", ())}
    assert named <= set(joined.protocols)
    assert {"wait (b)", "fedvs"} & named


def test_the_speed_up_is_drawn_against_the_chosen_baseline(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT), study(ASYNC)]).against("async")
    assert set(vflsim.plot(joined, "speedup").numbers["ratios"]["protocol"]) == {"wait"}


def test_a_figure_names_the_runs_that_are_not_paired(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT), study(ASYNC, seeds=[3, 4])])
    drawn = vflsim.plot(joined, "speedup")
    assert "paired over seeds, but independent runs of async" in " ".join(drawn.get_suptitle().split())
    (note,) = (each for each in joined.summary().notes if each.startswith("Speed-up"))
    assert "paired over seeds (exceptions below)" in note


def test_some_protocols_alone_keep_what_was_joined(study: Study) -> None:
    joined = JoinedResults.of([study({**WAIT, **ASYNC}, name="b"), study(WAIT, name="c", seeds=[1, 5])])
    some = joined.only(["wait (b)", "wait (c)"])
    assert (some.protocols, some.seeds, some.baseline) == (("wait (b)", "wait (c)"), (0, 1, 5), "wait (b)")
    assert set(some.metrics["protocol"]) == {"wait (b)", "wait (c)"}
    assert joined.only(["async"]).baseline is None
    assert joined.only(["wait (c)", "async"]).against("wait").baseline == "wait (c)"
    assert len(joined.protocols) == 3


def test_figures_are_drawn_for_the_target_that_was_asked_for(study: Study) -> None:
    joined = JoinedResults.of([study(WAIT), study(ASYNC, target={"test_loss": 2.2})])
    with pytest.raises(NotRecordedError, match="no target"):
        vflsim.plot(joined, "target")
    asked = joined.with_targets({"test_loss": 2.2, "for": "1 evaluation"})
    assert "test loss ≤ 2.2 for 1 evaluation" in vflsim.plot(asked, "target").get_suptitle()
    assert asked.main_metric == joined.main_metric == "test_accuracy"
    assert not any(note.startswith("Targets that only") for note in asked.summary().notes)
    with pytest.raises(ResultsError, match="'test_auc' was not evaluated"):
        joined.with_targets({"test_auc": 0.9})


def test_closed_forms_keep_their_protocols(study: Study) -> None:
    one, other = (study(protocols, name=name) for protocols, name in ((WAIT, "a"), ({**WAIT, **ASYNC}, "b")))
    joined = JoinedResults.of([one, other])
    assert joined.closed_forms is not None
    assert {"wait (a)", "wait (b)"} <= set(joined.closed_forms["protocol"])
    assert set(joined.closed_forms_left_out["protocol"]) <= set(joined.protocols)


def test_compare_in_python_takes_folders_and_results_and_rebuilds_models(study: Study) -> None:
    joined = vflsim.compare([study(WAIT, name="a").folder, study({**WAIT, **ASYNC}, name="b")], baseline="wait (b)")
    assert joined.summary().title.startswith("a, b (")
    assert "speed-up vs wait (b)" in joined.summary().header
    assert vflsim.compare(study(WAIT, name="a").folder).protocols == ("wait",)
    model = joined.model("wait (b)", seed=1)
    assert (model.run.info.protocol, model.run.seed) == ("wait", 1)
    assert model.run.folder.parents[1] == study({**WAIT, **ASYNC}, name="b").folder
