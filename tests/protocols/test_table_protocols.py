"""Who is used when, and how old it is: traces worked out by hand, and long random runs."""

import pytest
from pydantic import ValidationError
from thorough import every_pair
from tiny_worlds import RANDOM_TIMING, events, metrics, rounds, run, tiny

from vflsim.errors import ScenarioError
from vflsim.protocols import TSynchronous

AGES = ["row_age_mean", "row_age_max", "client_age_mean", "client_age_max"]


def timing(*delays: float, compute: str = "1 s") -> dict:
    """Embedding, client's step and server's step take 1 s each, links no time; one upload delay per client."""
    own = [{"select": str(m), "upload_delay": f"{delay} s"} for m, delay in enumerate(delays, start=1)]
    return {"server": {"compute": "1 s"}, "clients": [{"select": "all", "compute": compute}, *own]}


def three(said: dict, delays: tuple[float, ...], stop: int, **changes: object):
    return run(
        tiny(
            {"it": said},
            partition={"clients": 3, "by": "columns"},
            timing=timing(*delays),
            stop={"rounds": stop},
            evaluate={"every": "1 rounds"},
            **changes,
        )
    )


def trace(outcome) -> list[tuple[float, list[int]]]:
    return [(end, sorted(used)) for end, used in rounds(outcome)[["end_s", "used"]].to_numpy()]


def test_late_embeddings_count_for_a_later_step() -> None:
    outcome = three({"kind": "t_synchronous", "t": 2}, (0, 1, 6), 4)
    # Client 1 embeds until 1 and arrives; client 2 arrives at 2: step until 3. They step until 4, embed until 5 and
    # arrive at 5 and 6: step until 7. Client 3 arrives at 7, client 1 (4 s a turn now) at 9: step until 10, in which
    # client 2 arrives (10); client 1 at 12: step until 13.
    assert trace(outcome) == [(3, [1, 2]), (7, [1, 2]), (10, [1, 3]), (13, [1, 2])]
    uploads = events(outcome, "upload", "client-3")
    assert (uploads["outcome"] != "abandoned").all()


def test_row_age_and_client_age_equal_a_trace_worked_out_by_hand() -> None:
    outcome = three({"kind": "t_synchronous", "t": 2}, (0, 1, 6), 4)
    table = metrics(outcome)
    # Every client walks the batches 0, 1, 2, … (all of one epoch, 20 rows each); what never came counts from step -1.
    # step 0: batch 0 of clients 1, 2. Client 3 never came: 1.
    # step 1: batch 1 of clients 1, 2. Client 3: 2.
    # step 2: batch 2 of client 1: clients 2, 3 never sent it: 3, 3; batch 0 of client 3: 1, 2 sent it in step 0: 2, 2.
    # step 3: batch 3 of client 1: 4, 4; batch 2 of client 2: client 1 sent it in step 2: 1, client 3 never: 4.
    row_ages = [[0, 0, 1], [0, 0, 2], [0, 3, 3, 2, 2, 0], [0, 4, 4, 1, 0, 4]]
    client_ages = [[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 0, 1]]
    found = table.iloc[1:][AGES]
    assert len(found) == 4
    for row, rows, clients in zip(found.itertuples(index=False), row_ages, client_ages, strict=True):
        expected = (sum(rows) / len(rows), max(rows), sum(clients) / 3, max(clients))
        assert tuple(row) == pytest.approx(expected, abs=1e-12)
    assert table.iloc[0][AGES].isna().all()


def test_ages_of_several_steps_between_two_rows_are_averaged() -> None:
    outcome = run(
        tiny(
            {"it": {"kind": "t_synchronous", "t": 2}},
            partition={"clients": 3, "by": "columns"},
            timing=timing(0, 1, 6),
            stop={"rounds": 4},
            evaluate={"every": "3 rounds"},
        )
    )
    table = metrics(outcome)
    assert list(table["round"]) == [0, 3, 4]
    assert table["row_age_mean"].iloc[1] == pytest.approx((1 + 2 + 3 + 3 + 2 + 2) / 12)
    assert table["client_age_mean"].iloc[1] == pytest.approx((1 + 2 + 1) / 9)
    assert table["client_age_max"].iloc[1] == 2
    assert table["row_age_max"].iloc[1] == 3


def test_asynchronous_steps_on_every_arrival_in_arrival_then_client_order() -> None:
    outcome = run(
        tiny(
            "asynchronous",
            partition={"clients": 2, "by": "columns"},
            timing={"clients": [{"select": "1", "compute": "1 s"}, {"select": "2", "compute": "3 s"}]},
            stop={"rounds": 8},
            evaluate={"every": "1 rounds"},
        )
    )
    # Client 1 arrives at 1, 3, 5, …, client 2 at 3, 9, 15 (embedding and step take 3 s each): at 3 and 9 both.
    assert trace(outcome) == [(1, [1]), (3, [1]), (3, [2]), (5, [1]), (7, [1]), (9, [1]), (9, [2]), (11, [1])]
    table = metrics(outcome).iloc[1:]
    assert list(table["round"]) == [1, 3, 4, 5, 7, 8]  # two steps at one instant share a row
    # ages (client 1, client 2) by step: (0,1) | (0,2) (1,0) | (0,1) | (0,2) | (0,3) (1,0) | (0,1)
    assert list(table["client_age_mean"]) == [0.5, 0.75, 0.5, 1, 1, 0.5]
    assert list(table["client_age_max"]) == [1, 2, 1, 2, 3, 1]


def test_cancel_abandons_the_late_and_starts_everybody_afresh() -> None:
    outcome = three({"kind": "t_synchronous", "t": 2, "cancel": True}, (0, 1, 6), 3)
    # Client 3 is told at 3, at 7 and at 11 that the step went on without it, each time while it waits to upload.
    assert trace(outcome) == [(3, [1, 2]), (7, [1, 2]), (11, [1, 2])]
    uploads = events(outcome, "upload", "client-3")
    assert uploads[["start_s", "end_s", "index", "outcome"]].to_numpy().tolist() == [
        [1, 3, 0, "abandoned"],
        [4, 7, 1, "abandoned"],
        [8, 11, 2, "unfinished"],
    ]
    assert events(outcome, "transfer.embedding", "client-3").empty
    assert metrics(outcome)["bytes_up"].iloc[-1] == 6 * events(outcome, "transfer.embedding")["bytes"].iloc[0]


def test_cancel_lets_whoever_was_late_be_first_next_time() -> None:
    outcome = three({"kind": "t_synchronous", "t": 2, "cancel": True}, (0, 2, 2), 3)
    # Clients 2 and 3 arrive at 3: client 2 comes first; step until 4. Client 3 has no step to do: it arrives at 7,
    # client 1 at 6: step until 8, the instant at which client 2 would arrive. It starts afresh: 8 + 1 + 2 = 11, while
    # client 1 arrives at 10.
    assert trace(outcome) == [(4, [1, 2]), (8, [1, 3]), (12, [1, 2])]


def test_cancel_uses_the_same_batch_for_everybody_in_a_step() -> None:
    outcome = run(
        tiny(
            {"it": {"kind": "t_synchronous", "t": 2, "cancel": True}},
            timing=RANDOM_TIMING,
            stop={"rounds": 30},
            evaluate={"every": "30 rounds"},
        )
    )
    uploads = events(outcome, "transfer.embedding")
    used = rounds(outcome)
    assert len(used) == 30
    for number, clients in used[["round", "used"]].to_numpy():
        sent = set(uploads[uploads["round"] == number]["party"])
        assert {f"client-{m}" for m in clients} <= sent


def test_the_uploaded_first_pass_costs_time_and_bytes_before_training_starts() -> None:
    plain, filled = (
        run(
            tiny(
                {"it": {"kind": "asynchronous", "first_fill": fill}},
                timing={
                    "clients": {"select": "all", "compute": "1 s", "upload_delay": "2 s"},
                },
                stop={"rounds": 4},
            )
        )
        for fill in ("zeros", "upload")
    )
    # 90 rows are 4.5 batches: embedding them all takes 4.5 s, uploading 2 s
    assert rounds(plain)["end_s"].iloc[0] == 3
    assert rounds(filled)["end_s"].iloc[0] == 4.5 + 2 + 3
    fills = events(filled, "transfer.first_fill")
    assert len(fills) == 4
    assert (fills["bytes"] > 90 * 6 * 8).all()
    assert metrics(filled)["bytes_up"].iloc[-1] - metrics(plain)["bytes_up"].iloc[-1] == fills["bytes"].sum()


@pytest.mark.sampled(1)
@every_pair(
    bound=[0, 1, 3],
    said={"async": {"kind": "asynchronous"}, "t=2": {"kind": "t_synchronous", "t": 2}},
    bounds=["client_age", "row_age"],
)
def test_max_staleness_is_never_exceeded_over_a_long_random_run(said: dict, bounds: str, bound: int) -> None:
    changes = {"timing": RANDOM_TIMING, "stop": {"rounds": 300}, "evaluate": {"every": "1 rounds"}}
    free = run(tiny({"it": said}, **changes), timing_only=True)
    held = run(tiny({"it": {**said, "max_staleness": bound, "bounds": bounds}}, **changes), timing_only=True)
    assert metrics(free)[f"{bounds}_max"].max() > bound
    assert metrics(held)[f"{bounds}_max"].max() == bound
    answers = events(held, "transfer.answer")
    assert len(answers) > 5
    assert held.info.max_staleness == bound
    assert held.info.staleness_bounds == bounds


def test_a_bound_of_zero_makes_every_client_answer_every_step() -> None:
    outcome = run(
        tiny({"it": {"kind": "asynchronous", "max_staleness": 0}}, timing=RANDOM_TIMING, stop={"rounds": 25}),
        timing_only=True,
    )
    assert len(events(outcome, "transfer.query")) == 3 * 25


def test_a_query_is_answered_at_once_while_the_client_waits_to_upload() -> None:
    # Client 2 needs 1 s to embed and 100 s to upload; the age bound makes the server ask it before that.
    outcome = run(
        tiny(
            {"it": {"kind": "asynchronous", "max_staleness": 2}},
            partition={"clients": 2, "by": "columns"},
            timing={
                "clients": [
                    {"select": "all", "compute": "1 s"},
                    {"select": "2", "upload_delay": {"kind": "uniform", "low": "10 s", "high": "20 s"}},
                ]
            },
            stop={"rounds": 3},
        )
    )
    # Client 1 arrives at 1, 3, 5: at 5 client 2's age would be 3.
    query, answer = events(outcome, "transfer.query"), events(outcome, "compute.answer", "client-2")
    assert list(query["start_s"]) == [5]
    assert answer[["start_s", "end_s"]].to_numpy().tolist() == [[5, 6]]
    assert events(outcome, "upload.answer")["drawn_s"].between(10, 20).all()
    assert rounds(outcome)["end_s"].iloc[-1] == events(outcome, "upload.answer")["end_s"].iloc[0]


def test_poisson_activation_makes_client_ages_geometric() -> None:
    # Equal rates: each step's client is any of the four with probability 1/4, so the mean age is (1 - 1/4) / (1/4) = 3.
    outcome = run(
        tiny(
            "asynchronous",
            timing={"clients": {"select": "all", "activation": {"kind": "poisson", "rate": "1 /s"}}},
            stop={"rounds": 6000},
            evaluate={"every": "1500 rounds"},
            record="rounds",
        ),
        timing_only=True,
    )
    ages = metrics(outcome)["client_age_mean"].iloc[1:]
    assert ages.mean() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("t", [5, 0, -1])
def test_t_must_lie_between_one_and_the_number_of_clients(t: int) -> None:
    with pytest.raises(ScenarioError, match=r"allowed: (1 to 4|.*)"):
        tiny({"it": {"kind": "t_synchronous", "t": t}})


def test_cancel_refuses_own_batches() -> None:
    with pytest.raises(ScenarioError, match="cancel"):
        tiny({"it": {"kind": "t_synchronous", "t": 2, "cancel": True}}, training__batches="own")


def test_a_staleness_below_zero_is_refused() -> None:
    with pytest.raises(ValidationError):
        TSynchronous(t=1, max_staleness=-1)
