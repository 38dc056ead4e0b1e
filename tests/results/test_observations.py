"""Measurements from the events of runs: of a live one, what lies between its activities belongs to them."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from vflsim.results.observations import observed_log
from vflsim.timing.measured.activity_log import ActivityLog

Row = tuple[float, float, str, str, str | None, int]
"""Start, end, party, kind, peer and bytes of an event."""

LIVE: list[Row] = [
    (0.0, 1.0, "client-1", "compute.embed", None, 0),
    (1.5, 1.5, "client-1", "upload", "server", 0),
    (2.0, 2.0, "client-1", "transfer.embedding", "server", 80),
    (2.25, 3.0, "server", "compute.server_step", None, 0),
    (3.25, 3.25, "server", "transfer.gradient", "client-1", 40),
    (3.5, 3.5, "server", "transfer.gradient", "client-2", 40),
    (4.0, 5.0, "client-1", "compute.client_step", None, 0),
    (5.25, 6.0, "client-1", "compute.embed", None, 0),
]


def log_of(rows: list[Row], path: str, metrics: tuple[float, ...] = (0.0,), **changes: Any) -> ActivityLog:
    """Read rows as the events of a run, in which no evaluation has ended but at the times of ``metrics``."""
    frame = pd.DataFrame(rows, columns=["start_s", "end_s", "party", "kind", "peer", "bytes"])
    frame["index"] = frame.groupby(["party", "kind"]).cumcount()
    frame = frame.assign(round=0, drawn_s=0.0, sent_s=frame["start_s"], outcome="done").assign(**changes)
    for name in ("party", "kind", "peer", "outcome"):
        frame[name] = frame[name].astype("category")
    tables = {"events": pa.Table.from_pandas(frame), "metrics": pa.table({"time_s": metrics})}
    run = SimpleNamespace(
        folder=Path("results"), info=SimpleNamespace(path=path), table=lambda name, _=None: tables[name]
    )
    return observed_log(run, {(1, "embed"): [7.0, 8.0]})  # type: ignore[arg-type]


def test_what_a_live_party_takes_between_activities_belongs_to_the_next_one() -> None:
    log = log_of(LIVE, "live")
    assert log.operations[0, "server_step"].seconds.tolist() == [1.0]  # from the arrival at 2 s
    assert log.operations[1, "embed"].seconds.tolist() == [1.0, 1.0]  # the second one from the step's end at 5 s
    assert log.operations[1, "embed"].size.tolist() == [7.0, 8.0]
    assert log.operations[1, "client_step"].seconds.tolist() == [1.0]
    assert math.isnan(log.operations[1, "client_step"].size[0])


def test_a_live_message_is_under_way_from_what_its_sender_did_to_what_its_receiver_does() -> None:
    log = log_of(LIVE, "live")
    assert (log.uplinks[1].seconds.tolist(), log.uplinks[1].size.tolist()) == ([1.0], [80.0])
    assert (log.downlinks[1].seconds.tolist(), log.downlinks[1].size.tolist()) == ([1.0], [40.0])
    assert 2 not in log.downlinks
    assert log.notes == (
        "1 of 2 messages to clients are left out: no computation of an idle client follows them at once",
    )


def test_an_upload_delay_of_a_live_run_is_no_part_of_its_message() -> None:
    rows = [*LIVE]
    rows[1] = (1.25, 1.5, "client-1", "upload", "server", 0)
    log = log_of(rows, "live", drawn_s=[0, 0.25, 0, 0, 0, 0, 0, 0])
    assert log.upload_delays[1].seconds.tolist() == [0.25]
    assert log.uplinks[1].seconds.tolist() == [0.75]


def test_times_with_an_evaluation_in_them_are_left_out() -> None:
    log = log_of(LIVE, "live", metrics=(0.0, 3.75))
    assert log.downlinks == {}
    assert "1 times are left out: an evaluation lies in them" in log.notes
    assert len(log.operations[1, "client_step"].seconds) == 1


def test_a_message_to_a_busy_client_is_not_measured() -> None:
    rows = [*LIVE]
    rows[6] = (1.75, 5.0, "client-1", "compute.local_step", None, 0)
    log = log_of(rows, "live")
    assert log.downlinks == {}
    assert log.operations[1, "local_step"].seconds.tolist() == [3.5]


def test_a_simulated_run_is_measured_as_it_stands() -> None:
    rows: list[Row] = [
        (0.0, 1.0, "client-1", "compute.embed", None, 0),
        (1.0, 1.5, "client-1", "upload", "server", 0),
        (1.75, 2.0, "client-1", "transfer.embedding", "server", 80),
        (2.5, 3.0, "server", "compute.server_step", None, 0),
        (3.5, 3.5, "client-1", "transfer.share", "client-2", 10),
    ]
    sent = pd.Series([math.nan, math.nan, 1.5, math.nan, 3.0])
    log = log_of(rows, "event", drawn_s=[1, 0.5, math.nan, 0.5, math.nan], sent_s=sent)
    assert log.operations[0, "server_step"].seconds.tolist() == [0.5]
    assert log.upload_delays[1].seconds.tolist() == [0.5]
    assert log.uplinks[1].seconds.tolist() == [0.5]
    assert log.notes == ("1 messages between clients are left out",)


@pytest.mark.parametrize("outcome", ["abandoned", "lost", "unfinished"])
def test_what_was_not_completed_is_not_measured(outcome: str) -> None:
    outcomes = [outcome, *["done"] * (len(LIVE) - 1)]
    assert log_of(LIVE, "live", outcome=outcomes).operations[1, "embed"].seconds.tolist() == [1.0]
