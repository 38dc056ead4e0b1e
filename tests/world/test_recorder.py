"""What a run leaves behind."""

from __future__ import annotations

import math
import tracemalloc
from array import array

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.books import COMPUTE, DOWN, RADIO
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.staleness import StepFacts
from vflsim.timing.party import Power
from vflsim.world import record as meter
from vflsim.world.messages import Embedding
from vflsim.world.record import OUTCOMES, Events, Meter, Recorder


def message(sender: int, receiver: int) -> Embedding:
    m = Embedding(round=2)
    m.sender, m.receiver = sender, receiver
    return m


def facts(used=(1,), missing=(2,), loss=None, row_ages=(6.0, 3, 4), client_ages=(0, 5), fresh=(1,)) -> StepFacts:
    return StepFacts(used=used, missing=missing, loss=loss, row_ages=row_ages, client_ages=client_ages, fresh=fresh)


def test_bytes_are_counted_by_direction() -> None:
    recorder = Recorder()
    for sender, receiver, sent in ((1, 0, 10), (0, 2, 200), (1, 2, 3000), (2, 0, 40000)):
        recorder.transfer(message(sender, receiver), 0, 1.0, 2.0, sent, "done")
    assert (recorder.bytes_up, recorder.bytes_down, recorder.bytes_peer) == (40010, 200, 3000)
    assert sum(recorder.events.table["bytes"]) == 43210


def test_a_transfer_that_never_got_to_move_starts_where_it_ends() -> None:
    recorder = Recorder()
    recorder.transfer(message(1, 0), 0, float("nan"), 2.0, 0, "abandoned")
    assert recorder.events.table[["start_s", "end_s"]].tolist() == [(2.0, 2.0)]


@pytest.mark.parametrize(("keep", "events", "rounds"), [("events", 1, 1), ("rounds", 0, 1), ("summary", 0, 0)])
def test_as_much_is_kept_as_was_asked_for_and_everything_is_counted(keep, events, rounds) -> None:
    recorder = Recorder(keep)
    recorder.transfer(message(1, 0), 0, 1.0, 2.0, 10, "done")
    recorder.step(facts(), 3.0)
    assert (len(recorder.events), len(recorder.round_rows)) == (events, rounds)
    assert (recorder.bytes_up, recorder.rounds, recorder.embeddings_used) == (10, 1, 1)


def test_a_round_lasts_from_the_previous_step_to_its_own() -> None:
    recorder = Recorder()
    for end in (2.0, 5.0):
        recorder.step(facts(used=(1, 2), missing=()), end)
    rows = recorder.round_rows
    assert list(zip(*(rows[name] for name in ("round", "start_s", "end_s")), strict=True)) == [(0, 0, 2), (1, 2, 5)]
    assert [rows[name].lists().to_pylist() for name in ("used", "missing")] == [[[1, 2], [1, 2]], [[], []]]


def test_losses_and_ages_are_over_the_steps_since_the_row_before() -> None:
    recorder = Recorder()
    empty = recorder.metrics(0.0, {"test_accuracy": 0.5})
    assert math.isnan(empty["train_loss"])
    assert math.isnan(empty["row_age_mean"])
    assert empty["test_accuracy"] == 0.5

    def loss(value: float) -> Handle[float]:
        handle: Handle[float] = Handle()
        handle.set(value)
        return handle

    recorder.step(facts(loss=loss(1.0), row_ages=(6.0, 3, 4), client_ages=(0, 5)), 1.0)
    recorder.step(facts(loss=loss(3.0), row_ages=(0.0, 1, 0), client_ages=(1, 0)), 2.0)
    row = recorder.metrics(2.0, {})
    assert (row["round"], row["train_loss"]) == (2, 2.0)
    assert (row["row_age_mean"], row["row_age_max"]) == (6 / 4, 4)
    assert (row["client_age_mean"], row["client_age_max"]) == (6 / 4, 5)
    recorder.step(facts(loss=loss(7.0), row_ages=(0.0, 1, 0)), 3.0)
    assert recorder.metrics(3.0, {})["train_loss"] == 7.0


def test_the_last_row_can_be_brought_up_to_date() -> None:
    recorder = Recorder()
    recorder.metrics(1.0, {})
    recorder.transfer(message(0, 1), 0, 1.0, 1.0, 10, "unfinished")
    recorder.recount()
    assert recorder.metric_rows[-1]["bytes_down"] == 10


def test_a_party_can_record_what_it_likes(tiny) -> None:
    world = tiny(1)

    async def client(node):
        await node.sleep(1)
        node.record("weights", bound=3)

    world.run(tiny.idle, client)
    (row,) = world.recorder.own.rows["weights"]
    assert (row["party"], row["bound"]) == ("client-1", 3)
    assert row["time_s"] == 1 if not tiny.real else row["time_s"] > 0


# --- meter ------------------------------------------------------------------------------------------------------------


POWER = Power(idle=1.0, compute=3.0, radio=2.0, per_byte=0.5)


def noted(parties: dict[int, Power]) -> Meter:
    """Two rounds of party 1, which goes down in the second, and messages of party 2 to it."""
    made = Meter(parties)
    made.begin(COMPUTE, 0.0, 1)
    made.end(COMPUTE, 2.0, 1)
    made.end_round(2.0)
    made.begin(RADIO, 2.0, 2, 1)  # it goes on as the round of this instant has ended
    made.end(RADIO, 3.0, 2, 1, amount=4)
    made.begin(DOWN, 3.0, 1)
    made.end_round(4.0)
    made.end(DOWN, 5.0, 1)
    return made


def test_rounds_and_moments_have_the_energy_of_what_was_noted_before() -> None:
    made = noted({1: POWER})
    assert made.settle(6.0, 7.0) == [12.0, 13.0]
    assert made.rounds == array("d", [6.0, 6 + 1 + 2 + 2])
    assert made.settle(8.0) == [14.0]
    both = noted({1: POWER, 2: POWER})
    assert both.settle(6.0) == [12 + 6 + 2 + 2]


def test_a_full_buffer_is_settled_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = noted({1: POWER})
    monkeypatch.setattr(meter, "_FULL", 0)
    often = noted({1: POWER})
    assert often.rounds == array("d", [6.0, 11.0])
    assert (often.settle(8.0), often.by_party(8.0)) == (whole.settle(8.0), whole.by_party(8.0))


def test_parties_that_draw_nothing_are_not_noted() -> None:
    made = noted({3: POWER})
    assert made.settle(6.0) == [6.0]
    assert made.by_party(6.0)["seconds"] == [6.0, 0.0, 0.0]
    assert not made.counts_flops(1)
    assert not made.counts_flops(3)


# --- event table ------------------------------------------------------------------------------------------------------


times = st.floats(0, 1e9) | st.just(float("nan"))
whole = st.integers(-1, 2**63 - 1)
parties = st.integers(-1, 2**31 - 1)
kinds = st.sampled_from(["compute.embed", "upload", "latency.client-1→server", "transfer.ball"])
rows = st.tuples(times, times, parties, kinds, whole, parties, whole, whole, times, st.sampled_from(OUTCOMES))


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(given_rows=st.lists(rows, max_size=20))
def test_rows_come_back_as_they_were_recorded(given_rows) -> None:
    events = Events()
    for row in given_rows:
        events.add(*row)
    assert len(events) == len(given_rows)
    words = list(events.kinds)
    found = [
        (r["start_s"], r["end_s"], r["party"], words[r["kind"]], r["round"], r["peer"], r["bytes"], r["index"],
         r["drawn_s"], OUTCOMES[r["outcome"]])
        for r in events.table
    ]  # fmt: skip
    for one, other in zip(found, given_rows, strict=True):
        assert all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
    assert words == list(dict.fromkeys(row[3] for row in given_rows))


def test_rows_can_still_be_added_after_the_table_was_read() -> None:
    events = Events()
    events.add(0.0, 1.0, 1, "upload", 0, 0, 0, 0, 1.0)
    assert events.table["end_s"].tolist() == [1.0]
    events.add(1.0, 3.0, 1, "upload", 1, 0, 0, 1, 2.0, "abandoned")
    assert events.table["end_s"].tolist() == [1.0, 3.0]
    assert [OUTCOMES[code] for code in events.table["outcome"]] == ["done", "abandoned"]


def test_an_event_takes_less_than_80_bytes() -> None:
    tracemalloc.start()
    events = Events()
    for k in range(20_000):
        events.add(0.5 * k, 0.5 * k + 0.1, k % 50, "transfer.embedding", k, 0, 1024, k, 0.1)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size / len(events) < 80


def test_no_events_are_empty_columns() -> None:
    assert Events().table.shape == (0,)
    assert Events().table["party"].dtype == np.int32
