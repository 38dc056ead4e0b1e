import math

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from vflsim.errors import ResultsError
from vflsim.results.store.schema import EVENTS, RunInfo, RunTables, metrics_schema, split_of

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
