"""FedVS where clients are slow, crash, and come back: what is summed, when, and what becomes of late work.

Clients compute in no time, the server's step takes 1 s, links take no time, and upload delays are constant, so that
every round can be written down: the model is shared after ``share`` times the upload delay of the slowest, and the
round ends 1 s after the R-th upload. With ``watched_sums`` every decoded sum is compared with the plain one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from fault_worlds import watched_sums
from tiny_worlds import RANDOM_TIMING, data_of, events, metrics, raw, rounds, run, same_weights

from vflsim.errors import IncompleteRoundError, NoProgressError
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.timing.delays import Exponential
from vflsim.timing.sampler import Sampler

FOR_GOOD = {"kind": "failure", "repair": "never", "interrupted": "lost"}
Down = dict[str, Any]


def fedvs(
    *uploads: float,
    share: float = 1,
    down: dict[str, Down] | None = None,
    link: dict[str, Any] | None = None,
    stop: Any = 4,
    more: dict[str, Any] | None = None,
    **said: Any,
) -> dict[str, Any]:
    """Clients with these upload delays in seconds; ``said`` is about the protocol, ``more`` about everything else."""
    return raw(
        {"it": {"kind": "fedvs", "K": 1, "share_delay_factor": share, **said}},
        timing={
            "server": {"compute": "1 s"},
            "clients": [
                {"select": "all", "link": link or {}},
                *({"select": str(m), "upload_delay": f"{delay} s"} for m, delay in enumerate(uploads, start=1)),
                *({"select": select, "availability": each} for select, each in (down or {}).items()),
            ],
        },
        partition={"clients": len(uploads), "by": "columns"},
        stop={"rounds": stop, "time": "20000 s"} if isinstance(stop, int) else stop,
        **(more or {}),
    )


def lost(*times: Any, interrupted: str = "lost") -> Down:
    """Down from the first time to the second, from the third to the fourth, …"""
    return {"kind": "intervals", "down": [*zip(times[::2], times[1::2], strict=True)], "interrupted": interrupted}


def trained(said: dict[str, Any]) -> Outcome:
    """A finished run in coded arithmetic, whose sums are the plain ones, and which decoded arithmetic repeats."""
    protocol, coded = said["protocols"]["it"], load(said)
    with watched_sums(coded, "it") as over:
        outcome = run(coded)
    assert len(over) == len(rounds(outcome))
    told = dict(zip(rounds(outcome)["round"], over, strict=True)) if "given_up" not in outcome.extra else {}
    for k, chosen in summed(outcome).items():
        assert not told or k not in told or list(told[k]) == chosen
    other = run(load(said | {"protocols": {"it": {**protocol, "arithmetic": "decoded"}}}))
    assert metrics(outcome).equals(metrics(other))
    assert same_weights(outcome, other)
    return outcome


def timed(said: dict[str, Any]) -> Outcome:
    """A run of the timing plane alone, however it ends; its invariants are kept."""
    made = load(said)
    outcome = run_protocol(made, "it", 0, data_of(made), timing_only=True)
    assert outcome.error is not None or verify_run(outcome.tables, outcome.info) == []
    return outcome


def trace(outcome: Outcome) -> list[tuple[float, list[int]]]:
    """When every round ended, and whose answers it used."""
    return [(end, sorted(used)) for end, used in rounds(outcome)[["end_s", "used"]].to_numpy()]


def ends(outcome: Outcome) -> list[float]:
    return list(rounds(outcome)["end_s"])


def summed(outcome: Outcome) -> dict[int, list[int]]:
    """Over whom the sum of a round went at last, of the rounds in which the server has said so."""
    if "sharers" not in outcome.extra:
        return {}
    table = outcome.extra["sharers"].to_pandas()
    return {k: [*map(int, chosen)] for k, chosen in zip(table["round"], table["sharers"], strict=True)}


def spans(outcome: Outcome, kind: str, client: int) -> list[list[Any]]:
    return events(outcome, kind, f"client-{client}")[["start_s", "end_s", "outcome"]].to_numpy().tolist()


# --- as many stragglers as the code spares (Thm 5.1) ----------------------------------------------------------------

SEVEN = {"K": 2, "T": 1}  # R = 5 of 7


@pytest.mark.parametrize("arithmetic", ["coded", "decoded"])
def test_clients_that_share_and_never_upload_change_nothing_that_is_learnt(arithmetic: str) -> None:
    one = run(load(fedvs(1, 1, 1, 1, 1, 1e9, 1e9, share=0, stop=12, arithmetic=arithmetic, **SEVEN)))
    other = run(load(fedvs(1, 1, 1, 1, 1, 1, 1, share=0, stop=12, arithmetic=arithmetic, **SEVEN)))
    assert trace(one) == [(2 * k, [1, 2, 3, 4, 5]) for k in range(1, 13)]
    learnt = [column for column in metrics(one) if not column.startswith("bytes")]
    assert metrics(one)[learnt].equals(metrics(other)[learnt])
    assert same_weights(one, other)
    assert not summed(one)


def test_clients_that_crash_for_good_after_sharing_are_in_the_sum_of_that_round_and_in_none_after() -> None:
    more = {"evaluate": {"every": "1 rounds"}}
    gone = fedvs(1, 1, 1, 1, 1, 2, 2, share=1, down={"6,7": {**FOR_GOOD, "at": "2.5 s"}}, more=more, **SEVEN)
    outcome, without = trained(gone), run(load(fedvs(1, 1, 1, 1, 1, 2, 2, more=more, **SEVEN)))
    # Shares at 1 and 2, answers at 3, step until 4. Then shares at 5, where 6 and 7 are known to be down.
    assert trace(outcome) == [(4, [1, 2, 3, 4, 5]), *((4 + 3 * k, [1, 2, 3, 4, 5]) for k in (1, 2, 3))]
    assert summed(outcome) == {k: [1, 2, 3, 4, 5] for k in (1, 2, 3)}
    first = ["time_s", "round", "train_loss"]  # whoever is down does not step, as the evaluation shows
    assert metrics(outcome)[first].iloc[:2].equals(metrics(without)[first].iloc[:2])


def test_one_more_that_is_slow_is_waited_for() -> None:
    outcome = timed(fedvs(1, 1, 1, 1, 1e9, 1e9, 1e9, share=0, stop={"time": "100 s"}, **SEVEN))
    assert (outcome.info.stop_reason, len(rounds(outcome))) == ("time", 0)


def test_one_more_that_is_down_for_good_is_an_error_that_says_who_and_in_which_round() -> None:
    gone = {**FOR_GOOD, "at": "5.5 s"}
    outcome = timed(fedvs(1, 1, 1, 1, 1, 2, 2, down={"1,3,6": gone}, **SEVEN))
    assert isinstance(outcome.error, IncompleteRoundError)
    said = str(outcome.error)
    assert "round 1 cannot be completed: needs 5 × 'coded_embedding'" in said
    assert all(f"client {m} went down for good at 5.5 s" in said for m in (1, 3, 6))
    assert [number for number, _ in trace(outcome)] == [4]


def test_a_round_that_has_too_few_answers_in_time_is_skipped_and_the_next_one_trains() -> None:
    # Rounds take 1 + 1 + 1 s. Clients 1 to 3 are down from 3.5 on, in round 1: the others answer, but they are four.
    down = {"1..3": lost(3.5, 9)}
    outcome = trained(fedvs(1, 1, 1, 1, 1, 1, 1, down=down, deadline="5 s", too_few="skip", stop=3, **SEVEN))
    # Round 1 is given up at 3 + 5; round 2 has begun at 8, without 1 to 3: they come at 9 and share until 10, when the
    # sum goes over the others; answers of 4 to 7 at 10, of 1 to 3 at 11: the fifth. Step until 12.
    assert outcome.extra["given_up"].to_pylist() == [
        {"time_s": 8.0, "party": "server", "round": 1, "responders": 4, "threshold": 5}
    ]
    assert ends(outcome) == [3, 12, 15]
    assert summed(outcome) == {1: [4, 5, 6, 7], 2: [4, 5, 6, 7]}
    assert list(rounds(outcome)["round"]) == [0, 1, 2]
    told = events(outcome, "transfer.gradient").query("outcome == 'done'")
    assert told[told["round"] == 1]["bytes"].max() < told[told["round"] == 0]["bytes"].min()
    steps = events(outcome, "compute.client_step")
    assert set(steps["start_s"]) == {3.0, 12.0}  # the gradient of the round that was given up is none


def test_too_few_survivors_can_end_the_run_which_is_finished_and_sound() -> None:
    gone = {**FOR_GOOD, "at": "3.5 s"}
    outcome = trained(fedvs(1, 1, 1, 1, 1, 1, 1, down={"1..3": gone}, deadline="5 s", too_few="stop", **SEVEN))
    assert outcome.info.stop_reason == "too few survivors"
    assert ends(outcome) == [3]
    assert metrics(outcome)["time_s"].iloc[-1] == 8
    assert outcome.extra["given_up"].to_pandas()["responders"].tolist() == [4]


@pytest.mark.parametrize(
    ("said", "gone"),
    [({}, "1..3"), ({"sharers": 7}, "1")],
    ids=["too few to answer", "too few to share"],
)
def test_skipping_for_ever_is_an_error_as_soon_as_it_is_certain(said: dict[str, Any], gone: str) -> None:
    down = {gone: {**FOR_GOOD, "at": "3.5 s"}}
    outcome = timed(fedvs(1, 1, 1, 1, 1, 1, 1, down=down, deadline="5 s", too_few="skip", **SEVEN, **said))
    assert isinstance(outcome.error, IncompleteRoundError)
    assert "client-1" in str(outcome.error)
    assert events(outcome)["end_s"].max() == 8


def test_a_deadline_that_no_round_can_meet_is_an_error_and_not_a_run_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vflsim.protocols.fedvs.exchange.GIVEN_UP_IN_A_ROW", 50)
    outcome = timed(fedvs(3, 3, 3, deadline="1 s", too_few="skip"))
    assert isinstance(outcome.error, NoProgressError)
    assert "50 rounds in a row were given up, the latest after deadline: 1 s" in str(outcome.error)
    assert events(outcome)["end_s"].max() == 50


@pytest.mark.parametrize("late", ["abandoned", "finished"])
def test_after_rounds_that_were_skipped_training_goes_on(late: str) -> None:
    # Client 5 pauses in its upload of round 0, which ends at 5; for want of its share rounds from then on are given up.
    down = {"5": lost(3.5, 50, interrupted="resumed")}
    said = fedvs(2, 2, 2, 2, 2, down=down, late=late, deadline="10 s", too_few="skip", stop={"time": "100 s"})
    outcome = timed(said)
    assert outcome.error is None
    given_up = outcome.extra["given_up"].to_pandas()
    assert list(given_up["time_s"]) == [15, 25, 35, 45, 55][: len(given_up)]
    assert len(given_up) >= 4
    after = [end for end in ends(outcome) if end > 50]
    assert {later - end for end, later in pairwise(after)} == {5}
    assert 50 < after[0] <= 60
    assert after[-1] > 95


# --- whoever does not share is not in the sum -----------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("down", "end", "sums"),
    [
        # Shares at 2, answers at 4, step until 5, and so on: rounds of 5 s.
        pytest.param({}, [5, 10, 15], {}, id="nobody"),
        # Back in time to be waited for: client 5 shares from 1.5 to 3.5. Answers at 5.5, step until 6.5.
        pytest.param({"5": lost(1, 1.5)}, [6.5, 11.5, 16.5], {}, id="in its sharing delay, and back"),
        # At 2 the others find it down.
        pytest.param({"5": lost(1, 2.5)}, [5, 10, 15], {0: [1, 2, 3, 4]}, id="in its sharing delay"),
        pytest.param({"5": lost(3, 3.5)}, [5, 10, 15], {}, id="in its upload"),
        pytest.param({"5": lost(4.5, 4.75)}, [5, 10, 15], {}, id="between its upload and the gradient"),
        # Its step is lost, and it is in round 1 half a second late: shares at 7.5, answers at 9.5, step until 10.5.
        pytest.param({"5": lost(4.5, 5.5)}, [5, 10.5, 15.5], {}, id="when the gradient comes"),
        # At 7 the others find it down; it is back at 10.
        pytest.param({"5": lost(4.5, 10)}, [5, 10, 15], {1: [1, 2, 3, 4]}, id="for a round"),
        pytest.param({"5": lost(1, 1.5, 1.75, 3)}, [5, 10, 15], {0: [1, 2, 3, 4]}, id="twice"),
        # Clients 4 and 5 are not waited for at 2, and clients 1 to 3 go down at 3, in their uploads: back at 3.5, they
        # share until 5.5 and answer at 7.5; 4 and 5, back at 6, share until 8. Step until 8.5.
        pytest.param(
            {"4,5": lost(1, 6), "1..3": lost(3, 3.5)}, [8.5, 13.5, 18.5], {0: [1, 2, 3]}, id="all that are left"
        ),
        pytest.param({"all": lost(1, 1.5)}, [6.5, 11.5, 16.5], {}, id="all at once, in sharing"),
        # All over again from 3.5 on.
        pytest.param({"all": lost(3, 3.5)}, [8.5, 13.5, 18.5], {}, id="all at once, in their uploads"),
        # The step of round 0 is done at 5, nobody hears of it, and all begin round 1 at 5.5.
        pytest.param({"all": lost(4.5, 5.5)}, [5, 10.5, 15.5], {}, id="all at once, when the gradient comes"),
        pytest.param({"5": {**FOR_GOOD, "at": "1 s"}}, [5, 10, 15], {k: [1, 2, 3, 4] for k in range(3)}, id="for good"),
        pytest.param(
            {"4,5": {**FOR_GOOD, "at": "7.5 s"}}, [5, 10, 15], {2: [1, 2, 3]}, id="two for good, after sharing"
        ),
    ],
)
def test_the_sum_goes_over_those_who_have_shared(
    down: dict[str, Down], end: list[float], sums: dict[int, list[int]]
) -> None:
    outcome = trained(fedvs(2, 2, 2, 2, 2, down=down, stop=3))
    assert ends(outcome) == end
    assert summed(outcome) == sums


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("down", "losers"),
    [
        # A data share is under way from 0 to 2 (latencies of both ends).
        pytest.param({"5": lost(0.5, 0.6)}, "1..4", id="its own under way, and back before anybody misses them"),
        pytest.param({"5": lost(0.5, 5)}, "1..4", id="its own under way"),
        pytest.param({"1": lost(1, 1.5)}, "1", id="those of others under way"),
        pytest.param({"1": lost(2.5, 2.6)}, "1", id="arrived, and not yet looked at"),
        pytest.param({"1,5": lost(1, 1.5)}, "1,5", id="two at once"),
        pytest.param({"all": lost(1, 1.25)}, "all", id="all of all"),
        pytest.param({"1": lost(1, 4), "5": lost(3, 3.5)}, "1", id="whoever would be asked goes down, too"),
        pytest.param({"1": lost(1, 4), "5": lost(4.5, 7)}, "1", id="whoever has been asked goes down, too"),
        pytest.param({"5": lost(0, 3)}, "5", id="away when the others share"),
    ],
)
def test_data_shares_that_are_lost_are_sent_again(down: dict[str, Down], losers: str) -> None:
    outcome = trained(fedvs(3, 3, 3, 3, 3, down=down, link={"latency": "1 s"}, stop=5))
    assert len(rounds(outcome)) == 5
    assert summed(outcome).get(4, [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5], "by now everybody has everything"
    late = events(outcome, "compute.coded_embed").query("start_s > 20 and outcome == 'done'")
    assert set(late["party"]) == {f"client-{m}" for m in range(1, 6)}, "and everybody answers"


def test_data_shares_asked_for_in_vain_are_asked_for_again() -> None:
    # Client 5 sends its data one after the other, 1.15 s each and 4 s of latency, and crashes before client 4 has its
    # own. Client 4 asks for it at 20; the round is over at 20.1, and the question still on its way.
    said = fedvs(0, 0, 0, 20, 0, down={"5": lost(8, 8.1)}, stop=8)
    said["timing"]["server"]["compute"] = "0.1 s"
    said["timing"]["clients"].append({"select": "5", "link": {"up": "33 kbps", "latency": "4 s"}})
    outcome = timed(said)
    assert any(start > 60 for start, _, _ in spans(outcome, "compute.coded_embed", 4))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sharers", [None, 4])
@pytest.mark.parametrize("late", ["abandoned", "finished"])
def test_model_shares_partly_delivered_are_never_mixed(late: str, sharers: int | None) -> None:
    # A model share takes the sender's up-link about half a second: five at a time are under way. Client 1 crashes after
    # some of its own are through, client 2 when some of its peers' have arrived.
    down = {"1": lost(6, 6.5, 30, 31), "2": lost(7, 7.25), "5": lost(6.75, 12)}
    said = fedvs(2, 2.25, 2.5, 2.75, 3, down=down, link={"up": "20 kbps"}, stop=6, late=late)
    if sharers is not None:
        said["protocols"]["it"]["sharers"] = sharers
    outcome = trained(said)
    assert (events(outcome, "transfer.model_share")["outcome"] == "lost").any()
    assert len(rounds(outcome)) == 6


def test_the_weights_of_a_client_that_is_down_stay_as_they_were() -> None:
    outcome = trained(fedvs(2, 2, 2, 2, 2, down={"5": {**FOR_GOOD, "at": "7.5 s"}}, stop=6))
    before = run(load(fedvs(2, 2, 2, 2, 2, stop=2)))  # with the step of round 0, and not of round 1
    after = run(load(fedvs(2, 2, 2, 2, 2, stop=6)))
    mine = [key for key in outcome.weights if key.startswith("client-5.")]
    assert all(torch.equal(outcome.weights[key], before.weights[key]) for key in mine)
    assert not any(torch.equal(outcome.weights[key], after.weights[key]) for key in mine)


def test_whoever_missed_over_whom_the_sum_goes_is_told_when_it_is_back() -> None:
    # All five answers are needed. At 3 the sum goes over clients 1 to 4; client 5 is down then, and back at 5.
    outcome = trained(fedvs(2, 3, 3, 3, 3, K=2, sharers=4, down={"5": lost(2.5, 5)}, stop=2))
    assert summed(outcome)[0] == [1, 2, 3, 4]
    assert [len(used) for used in rounds(outcome)["used"]] == [5, 5]


def test_sharers_that_all_go_down_are_replaced_by_whoever_shares() -> None:
    # Clients 1 and 2 share at 2; the server knows at 3, and they crash at 3.5, their shares under way until 4.
    said = fedvs(2, 2, 6, 7, 8, sharers=2, down={"1,2": lost(3.5, 60)}, link={"latency": "1 s"}, stop=2)
    outcome = trained(said)
    assert summed(outcome)[0] == [3, 4, 5]
    assert ends(outcome)[0] < 60


def test_chosen_sharers_whose_shares_are_lost_share_again() -> None:
    # Clients 1 and 2 have shared when all crash; client 3 makes it three at 5.6, when 1 and 2 are sharing again.
    down = {"1,2": lost(2.5, 4.5), "3..5": lost(2.5, 2.6)}
    outcome = trained(fedvs(2, 2, 3, 9, 9, sharers=3, down=down))
    assert len(rounds(outcome)) == 4


# --- late work ------------------------------------------------------------------------------------------------------


def test_a_round_lasts_the_share_barrier_and_the_rth_upload_and_then_late_work_is_abandoned() -> None:
    outcome = trained(fedvs(0, 1, 2, 3, 4, share=2, stop=2))
    # Shares at 8, when client 5's have come; answers at 8, 9, 10; step until 11; the others' uploads are abandoned.
    assert trace(outcome) == [(11, [1, 2, 3]), (22, [1, 2, 3])]
    assert spans(outcome, "share", 5) == [[0, 8, "done"], [11, 19, "done"]]
    assert spans(outcome, "upload", 4) == [[8, 11, "done"], [19, 22, "done"]]  # at 11, as the step is done
    assert spans(outcome, "upload", 5) == [[8, 11, "abandoned"], [19, 22, "unfinished"]]
    sent = events(outcome, "transfer.coded_embedding", "client-4")
    assert sent["outcome"].tolist() == ["done", "unfinished"]


def test_late_work_can_be_finished_before_the_next_round_is_begun() -> None:
    outcome = trained(fedvs(0, 1, 2, 3, 4, share=2, stop=2, late="finished"))
    # As before until 11; client 5 uploads until 12, and shares from then on: until 20. Answers at 22, step until 23.
    assert trace(outcome) == [(11, [1, 2, 3]), (23, [1, 2, 3])]
    assert spans(outcome, "upload", 5) == [[8, 12, "done"], [20, 23, "unfinished"]]
    assert spans(outcome, "share", 5) == [[0, 8, "done"], [12, 20, "done"]]
    late = events(outcome, "transfer.coded_embedding", "client-5")
    assert late[["end_s", "outcome"]].to_numpy().tolist() == [[12, "done"]]


def test_the_sum_may_go_over_those_who_share_first() -> None:
    outcome = trained(fedvs(0, 1, 2, 3, 4, share=2, stop=2, sharers=2))
    # Shares at 0 and 2: the sum goes over 1 and 2. Answers at 2, 3, 4: step until 5. The others share no more.
    assert trace(outcome) == [(5, [1, 2, 3]), (10, [1, 2, 3])]
    assert summed(outcome) == {0: [1, 2], 1: [1, 2]}
    assert spans(outcome, "share", 3) == [[0, 2, "abandoned"], [5, 7, "abandoned"]]
    assert set(events(outcome, "transfer.model_share")["party"]) == {"client-1", "client-2"}
    assert spans(outcome, "upload", 4) == [[2, 5, "done"], [7, 10, "done"]]
    steps = events(outcome, "compute.client_step")
    assert set(steps["party"]) == {"client-1", "client-2"}, "only whose embedding is in the sum gets its gradient"
    empty = events(outcome, "transfer.gradient").query("round == 0").set_index("peer")["bytes"]
    assert empty["client-3"] == empty["client-4"] == empty["client-5"] < empty["client-1"] == empty["client-2"]


def test_whoever_shares_in_the_instant_in_which_there_are_enough_comes_in_client_order() -> None:
    outcome = trained(fedvs(1, 1, 1, 1, 1, stop=2, sharers=3))
    assert summed(outcome) == {0: [1, 2, 3], 1: [1, 2, 3]}


def test_late_work_is_finished_and_what_is_over_by_then_is_not_begun() -> None:
    outcome = timed(fedvs(1, 2, 3, 4, 50, share=0, stop=40, sharers=3, late="finished"))
    # Rounds of 4 s; client 5 answers round 0 at 50, in round 12, which it joins.
    uploads = events(outcome, "upload", "client-5")
    assert uploads[["start_s", "end_s", "round"]].to_numpy().tolist()[:2] == [[0, 50, 0], [50, 100, 12]]


@pytest.mark.parametrize(("late", "through"), [("abandoned", 0.5), ("finished", 1.0)])
def test_a_transfer_is_cut_by_the_gradient_and_its_bytes_so_far_count(late: str, through: float) -> None:
    size = int(events(timed(fedvs(0, 0, 0, stop=1)), "transfer.coded_embedding")["bytes"].max())
    said = fedvs(0, 0, 0, 1.5, share=0, stop=2, late=late)
    said["timing"] |= {"network": "dedicated"}
    said["timing"]["server"]["link"] = {"down": f"{8 * size} bps"}  # an answer takes 1 s
    outcome = timed(said)
    # Answers at 1, step until 2; client 4's is under way from 1.5 to 2.5.
    mine = events(outcome, "transfer.coded_embedding", "client-4").iloc[0]
    assert trace(outcome)[0] == (2, [1, 2, 3])
    assert (mine["start_s"], mine["outcome"]) == (1.5, "done" if through == 1 else "abandoned")
    assert mine["bytes"] == size * through
    assert mine["end_s"] == 1.5 + through


def test_the_kth_upload_delay_is_the_kth_whatever_the_protocol_and_sharing_has_draws_of_its_own() -> None:
    said = raw(
        {"it": {"kind": "fedvs", "K": 1, "share_delay_factor": 0.5}, "wait": {"kind": "synchronous"}},
        timing=RANDOM_TIMING,
        stop={"rounds": 20},
    )
    scenario = load(said)
    drawn = {}
    for name in ("it", "wait"):
        uploads = events(run(scenario, name, timing_only=True), "upload")
        drawn[name] = uploads.set_index(["party", "index"])["drawn_s"]
    both = drawn["it"].index.intersection(drawn["wait"].index)
    assert len(both) == 4 * 20
    assert (drawn["it"][both] == drawn["wait"][both]).all()
    shares = events(run(scenario, "it", timing_only=True), "share")
    for m in range(1, 5):
        sampler = Sampler(Exponential(mean=0.003 * m), 0, m, "share")
        mine = shares[shares["party"] == f"client-{m}"].sort_values("index")
        assert mine["drawn_s"].tolist() == pytest.approx([0.5 * sampler.draw(k) for k in range(20)], rel=1e-12)
