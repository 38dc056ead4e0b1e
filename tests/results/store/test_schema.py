import math

import numpy as np
import pyarrow as pa
import pytest
from protocols_by_kind import KINDS, SOME
from pydantic import ValidationError
from tiny_worlds import data_of, raw, tiny

from vflsim.errors import ResultsError
from vflsim.results.store.pages import RunInfo, cautions
from vflsim.results.store.schema import EVENTS, RunTables, metrics_schema, split_of
from vflsim.scenario.load import as_scenario
from vflsim.simulation.run import run_protocol

METRICS = {
    "time_s": [0.0, 1.0],
    "round": [0, 1],
    "updates": [0, 2],
    "bytes_up": [0, 8],
    "bytes_down": [0, 8],
    "bytes_peer": [0, 0],
    "train_loss": [math.nan, 2.0],
    "test_loss": [2.3, 2.0],
    "test_accuracy": [0.1, 0.2],
    "row_age_mean": [math.nan, 1.0],
    "row_age_max": [math.nan, 1.0],
    "client_age_mean": [math.nan, 0.0],
    "client_age_max": [math.nan, 0.0],
}
EVENT = {
    "start_s": [0.0],
    "end_s": [1.0],
    "party": ["client-1"],
    "kind": ["upload"],
    "round": [1],
    "peer": [None],
    "bytes": [0],
    "index": [0],
    "drawn_s": [1.0],
    "sent_s": [math.nan],
    "outcome": ["done"],
}


def test_evaluated_columns_stand_between_the_fixed_ones_in_their_own_order():
    names = metrics_schema(reversed(METRICS)).names
    assert names[6:9] == ["train_loss", "test_accuracy", "test_loss"]
    assert names[:2] == ["time_s", "round"]
    assert names[-1] == "client_age_max"


def test_numpy_lists_and_arrow_give_equal_tables():
    as_numpy = {name: np.array(values) for name, values in METRICS.items()}
    tables = RunTables(METRICS, None, EVENT)
    assert tables == RunTables(as_numpy, None, EVENT)
    assert tables == RunTables(tables.metrics, tables.rounds, tables.events)
    assert tables != RunTables(METRICS)


def test_names_are_encoded_by_first_appearance_whatever_dictionary_they_came_with():
    two = {name: values * 2 for name, values in EVENT.items()} | {"party": ["server", "client-1"]}
    foreign = pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array(["client-1", "server", "unused"]))
    assert RunTables(METRICS, None, two | {"party": foreign}) == RunTables(METRICS, None, two)


def test_empty_tables_are_tables():
    tables = RunTables({name: [] for name in METRICS}, None, {name: [] for name in EVENTS.names})
    assert (tables.metrics.num_rows, tables.events.num_rows) == (0, 0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bytes_up": [0, 1.5]}, "metrics.bytes_up"),
        ({"round": ["a", "b"]}, "metrics.round"),
        ({"round": [0, None]}, "1 values are missing"),
        ({"round": [0]}, "different lengths"),
        ({"speed": [0, 1]}, "unknown: speed"),
    ],
)
def test_an_ill_formed_column_is_refused_by_name(change: dict, problem: str):
    with pytest.raises(ResultsError, match=problem):
        RunTables(METRICS | change)


def test_a_missing_column_is_refused_by_name():
    with pytest.raises(ResultsError, match="missing: updates"):
        RunTables({name: values for name, values in METRICS.items() if name != "updates"})


@pytest.mark.parametrize(
    ("record", "kept"), [("events", {"metrics", "events"}), ("rounds", {"metrics"}), ("summary", {"metrics"})]
)
def test_record_says_which_tables_are_kept(record: str, kept: set[str]):
    assert set(RunTables(METRICS, None, EVENT).kept(record).named()) == kept


def test_splits_are_told_from_other_columns():
    assert [split_of(name) for name in ("test_accuracy", "bytes_up", "validation_auc", "test")] == [
        "test",
        None,
        "validation",
        None,
    ]


@pytest.mark.parametrize(
    "change",
    [{"status": "failed"}, {"error": "boom"}, {"max_staleness": 3}, {"wall_clock_s": math.inf}, {"colour": "red"}],
)
def test_a_run_page_that_contradicts_itself_is_refused(change: dict):
    page = {"scenario": "s", "protocol": "p", "seed": 0, "status": "finished", "wall_clock_s": 1, "participants": [1]}
    RunInfo(**page)
    with pytest.raises(ValidationError):
        RunInfo(**page | change)


UP_FOR_A_MOMENT = {"kind": "intervals", "down": [["1 ms", "1 s"]], "period": "1 s", "interrupted": "lost"}


def test_a_run_without_a_round_has_scores_of_untrained_models() -> None:
    clients = [{"select": "all", "compute": "2 ms", "availability": UP_FOR_A_MOMENT}]
    scenario = tiny(timing={"server": {"compute": "1 ms"}, "clients": clients}, stop={"time": "3 s"})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario))
    assert outcome.info.counts["rounds"] == 0
    assert outcome.note.startswith(
        "no round has ended and no client has done a step, so the scores are those of untrained models: see who waits"
    )


@pytest.mark.parametrize(
    ("counts", "start"),
    [
        ({"rounds": 7, "updates": 0}, "no client has done a step in 7 rounds, so only the server has learnt"),
        ({"rounds": 0, "updates": 0}, "no round has ended and no client has done a step, so the scores"),
        ({"rounds": 0, "updates": 3}, ""),
        ({"rounds": 3, "updates": 1}, ""),
    ],
)
def test_what_nobody_has_done_is_said(counts: dict[str, int], start: str) -> None:
    scenario = tiny(stop={"rounds": 1})
    info = run_protocol(scenario, "synchronous", 0, data_of(scenario)).info
    found = [*cautions(info.model_copy(update={"counts": counts}))]
    assert [each[: len(start)] for each in found] == ([start] if start else [])


def test_initial_models_that_meet_the_target_are_said() -> None:
    scenario = tiny(stop={"target": {"test_accuracy": 0.0, "for": "1 evaluations"}, "rounds": 3})
    outcome = run_protocol(scenario, "synchronous", 0, data_of(scenario))
    assert outcome.note == "the initial models meet the target, so nothing was trained: choose a harder one"


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", SOME)
def test_an_ordinary_run_needs_no_caution(name: str) -> None:
    scenario = as_scenario(raw({"it": KINDS[name]}, stop={"rounds": 6}))
    outcome = run_protocol(scenario, "it", 0, data_of(scenario), timing_only=True)
    assert [*cautions(outcome.info)] == []
