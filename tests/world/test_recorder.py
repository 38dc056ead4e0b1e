"""What a run leaves behind."""

from __future__ import annotations

import math

import pytest

from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.staleness import StepFacts
from vflsim.world.messages import Embedding
from vflsim.world.record import Recorder


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
