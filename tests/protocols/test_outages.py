"""Every protocol while clients go down and come back: traces worked out by hand, and what rounds say of it."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_worlds import RANDOM_TIMING, WORLDS, data_of, events, metrics, raw, rounds, run, tiny

from vflsim.errors import IncompleteRoundError, ScenarioError
from vflsim.scenario import load
from vflsim.simulation.build import Parties, parties
from vflsim.simulation.run import Outcome, run_protocol

ALL = {
    "synchronous": {"kind": "synchronous"},
    "exclude": {"kind": "ignore", "exclude": "1"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "deadline": {"kind": "ignore", "deadline": "3 s"},
    "t-sync": {"kind": "t_synchronous", "t": 2},
    "t-sync-cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "t-sync-bounded": {"kind": "t_synchronous", "t": 2, "max_staleness": 1, "first_fill": "upload"},
    "asynchronous": {"kind": "asynchronous"},
    "asynchronous-bounded": {"kind": "asynchronous", "max_staleness": 1, "bounds": "row_age"},
    "centralised": {"kind": "centralised"},
}
WAITS_FOR_ALL = {"synchronous", "exclude", "t-sync-bounded", "asynchronous-bounded"}
INTERRUPTED = pytest.mark.parametrize("interrupted", ["lost", "resumed"])


def scenario(protocol: dict, availability: dict[str, Any], stop: Any = 6, **changes: Any) -> dict:
    """Three clients; embedding, client's and server's step take 1 s each, links no time; client m uploads in m s."""
    return raw(
        {"it": protocol},
        timing={
            "server": {"compute": "1 s"},
            "clients": [
                {"select": "all", "compute": "1 s", "upload_delay": "m s"},
                *({"select": select, "availability": said} for select, said in availability.items()),
            ],
        },
        partition={"clients": 3, "by": "columns"},
        stop={"rounds": stop} if isinstance(stop, int) else stop,
        **changes,
    )


def down(*times: Any, interrupted: str = "lost") -> dict:
    return {"kind": "intervals", "down": [*zip(times[::2], times[1::2], strict=True)], "interrupted": interrupted}


def fails(at: str, interrupted: str = "lost", repair: str = "never") -> dict:
    return {"kind": "failure", "at": at, "repair": repair, "interrupted": interrupted}


def trace(outcome: Outcome) -> list[tuple[float, list[int]]]:
    return [(end, sorted(used)) for end, used in rounds(outcome)[["end_s", "used"]].to_numpy()]


def spans(outcome: Outcome, kind: str, client: int) -> list[list]:
    return events(outcome, kind, f"client-{client}")[["start_s", "end_s", "outcome"]].to_numpy().tolist()


def failure_of(said: dict) -> IncompleteRoundError:
    """The error that ends the run."""
    made = load(said)
    outcome = run_protocol(made, "it", 0, data_of(made), timing_only=True)
    assert isinstance(outcome.error, IncompleteRoundError)
    assert outcome.info.status == "failed"
    return outcome.error


# --- worked out by hand ---------------------------------------------------------------------------------------------


def test_a_crashed_client_joins_the_round_that_synchronous_training_waits_in() -> None:
    outcome = run(load(scenario(ALL["synchronous"], {"2": down(7.5, 9, 14.5, 21, 24, 25)}, 4)))
    # Round 0: client 3 arrives at 4, step until 5. Round 1: client 2 steps until 6, embeds until 7, and crashes before
    # it has uploaded; from 9 on it embeds batch 1 anew and arrives at 12: step until 13.
    # Round 2: client 2 steps until 14, embeds until 14.5. From 21 on, until 22, until 24: arrived before the crash. The
    # server steps from 24 to 25 (client 3 has arrived at 18); the gradient is sent at 25, when client 2 is up again and
    # has been told that round 3 is current: it embeds until 26, and arrives at 28; client 3 at 30: step until 31.
    assert trace(outcome) == [(5, [1, 2, 3]), (13, [1, 2, 3]), (25, [1, 2, 3]), (31, [1, 2, 3])]
    assert spans(outcome, "upload", 2) == [
        [1, 3, "done"],
        [7, 7.5, "lost"],
        [10, 12, "done"],
        [22, 24, "done"],
        [26, 28, "done"],
    ]
    assert [k for *_, k in spans(outcome, "compute.embed", 2)] == ["done", "done", "done", "lost", "done", "done"]
    assert len(events(outcome, "compute.client_step", "client-2")) == 2  # rounds 0 and 1: the gradient of 2 went astray
    assert metrics(outcome)["updates"].iloc[-1] == 2 + 3 + 3


def test_a_paused_client_goes_on_where_it_was() -> None:
    outcome = run(load(scenario(ALL["synchronous"], {"3": down(0.5, 1.5, 3, 6, interrupted="resumed")}, 2)))
    # Client 3 embeds for 0.5 s, and for 0.5 s from 1.5 on; uploads for 1 s, and for 2 s from 6 on: step until 9.
    assert trace(outcome) == [(9, [1, 2, 3]), (15, [1, 2, 3])]
    assert spans(outcome, "compute.embed", 3)[0] == [0, 2, "done"]
    assert spans(outcome, "upload", 3)[0] == [2, 8, "done"]


def test_a_client_that_uploads_twice_in_a_round_is_used_once_and_leaves_nothing_behind() -> None:
    outcome = run(load(scenario(ALL["synchronous"], {"1": down(2.5, 2.75)}, 3)))
    # Client 1 arrives at 2 and, after its crash, again at 4.75, when the server is busy with round 0 (4 to 5).
    assert trace(outcome) == [(5, [1, 2, 3]), (11, [1, 2, 3]), (17, [1, 2, 3])]
    sent = events(outcome, "transfer.embedding", "client-1")
    assert list(sent["round"]) == [0, 0, 1, 2]
    assert list(sent["end_s"]) == [2, 4.75, 8, 14]
    assert metrics(outcome)["updates"].iloc[-1] == 3 * 2


def test_fastest_counts_a_client_that_uploads_twice_once() -> None:
    outcome = run(load(scenario(ALL["fastest"], {"1": down(2.1, 2.2), "2": down(0, 0.5)}, 2)))
    # Client 1 arrives at 2 and again at 4.2; client 2 at 3.5: step until 4.5. Then client 1 steps until 5.5, embeds
    # until 6.5 and arrives at 7.5; client 2 at 6.5 + 2: step until 9.5.
    assert trace(outcome) == [(4.5, [1, 2]), (9.5, [1, 2])]
    assert [list(missing) for missing in rounds(outcome)["missing"]] == [[3], [3]]


def test_a_deadline_passes_while_a_client_is_down() -> None:
    outcome = run(load(scenario(ALL["deadline"], {"1": down(1.5, 3.5)}, 3)))
    # Round 0, until 3: client 2; step until 4. Client 1 crashes before its upload ends; from 3.5 on it embeds batch 0,
    # arrives at 5.5 and is told that round 0 is over: it embeds batch 1 until 6.5. Client 3 arrives at 4 with round 0.
    # Round 1, from 4 to 7: client 2 (5, 6, 8) and client 1 (7.5) are late; client 3 (embeds until 5) arrives at 8:
    # the first is client 1 at 7.5, step until 8.5. Round 2, from 8.5 to 11.5: client 2 arrives with round 1 at 8 and
    # joins: batch 2 until 9.5, 11.5. Client 1 steps until 9.5, 10.5, 11.5: both in time.
    assert trace(outcome) == [(4, [2]), (8.5, [1]), (12.5, [1, 2])]


def test_cancel_lets_a_crashed_client_join_the_step_that_is_current() -> None:
    outcome = run(load(scenario(ALL["t-sync-cancel"], {"1": down(4.5, 6)}, 3)))
    # Step 0: clients 1 and 2 arrive at 2 and 3, done at 4. Client 1 crashes in its client step. Step 1: client 3 (no
    # step to do) embeds until 5, arrives at 8; client 2 steps until 5, embeds until 6, arrives at 8; client 1, from 6
    # on, embeds until 7 and arrives at 8: the first two of that instant are 1 and 2, done at 9.
    assert trace(outcome)[:2] == [(4, [1, 2]), (9, [1, 2])]
    assert spans(outcome, "compute.client_step", 1)[0] == [4, 4.5, "lost"]
    # Client 3's first upload ends in the instant of the step, and is sent: nobody needs it any more.
    assert spans(outcome, "upload", 3)[:2] == [[1, 4, "done"], [5, 8, "done"]]


def test_an_own_pace_goes_on_with_the_next_batch_and_old_gradients_are_not_taken_for_new_ones() -> None:
    outcome = run(load(scenario(ALL["asynchronous"], {"1": down(2.5, 3.25)}, {"time": "8 s"})))
    # Client 1's batch 0 arrives at 2, and the server steps from 2 to 3, when the gradient is lost with its receiver
    # down. From 3.25 on it embeds batch 1, which arrives at 5.25.
    mine = events(outcome, "transfer.embedding", "client-1")
    assert mine[["round", "end_s"]].to_numpy().tolist()[:2] == [[0, 2], [1, 5.25]]
    assert spans(outcome, "compute.client_step", 1)[0][0] >= 6.25
    lost = events(outcome, "transfer.gradient")
    assert lost[lost["outcome"] == "lost"][["end_s", "peer", "bytes"]].to_numpy().tolist() == [[3, "client-1", 0]]


def test_a_gradient_for_work_from_before_the_crash_is_thrown_away() -> None:
    outcome = run(load(scenario(ALL["asynchronous"], {"1": down(2.25, 2.5)}, {"time": "9 s"})))
    # Client 1's batch 0 arrives at 2; it is up again when the gradient comes at 3, embeds batch 1 until 3.5 and uploads
    # until 4.5: the server is free for it at 5 (client 2: 3 to 4; client 3: 4 to 5) and steps until 6. Only then does
    # client 1 step.
    assert trace(outcome)[:4] == [(3, [1]), (4, [2]), (5, [3]), (6, [1])]
    assert spans(outcome, "compute.client_step", 1)[0] == [6, 7, "done"]


def test_a_first_pass_that_is_lost_is_repeated() -> None:
    said = {"kind": "asynchronous", "first_fill": "upload"}
    outcome = run(load(scenario(said, {"2": down(5, 6)}, 1)))
    # 90 rows are 4.5 batches. Clients 1 and 3 are done at 5.5 and 7.5, client 2 from 6 on at 6 + 4.5 + 2.
    assert spans(outcome, "compute.first_fill", 2) == [[0, 4.5, "done"], [6, 10.5, "done"]]
    assert spans(outcome, "upload.first_fill", 2) == [[4.5, 5, "lost"], [10.5, 12.5, "done"]]
    assert len(events(outcome, "transfer.first_fill")) == 3
    # Client 1 has embedded its batch 0 at 6.5 and uploaded it at 7.5; the server begins at 12.5.
    assert trace(outcome) == [(13.5, [1])]


def test_a_queried_client_that_crashes_is_asked_again_when_it_is_back() -> None:
    said = {"kind": "asynchronous", "max_staleness": 1}
    outcome = run(load(scenario(said, {"2": down(3.5, 5), "3": down(0, 20)}, 3)))
    # Client 1 arrives at 2: step 0 until 3. Client 2 arrives at 3, and client 3, which never came, would be 2 old: the
    # server waits for it until 20, when it asks; the answer comes at 20 + 1 + 3 (its own work waits for the processor,
    # or comes before): step 1 ends at 25 or 26.
    queries = events(outcome, "transfer.query")
    assert queries[queries["peer"] == "client-3"]["start_s"].iloc[0] == 20
    assert [used for _, used in trace(outcome)][:2] == [[1], [2]]


def test_a_query_under_way_when_its_receiver_crashes_is_sent_again() -> None:
    said = {"kind": "asynchronous", "max_staleness": 0}
    outcome = run(load(scenario(said, {"3": down(4, 7)}, 1)))
    # Client 1 arrives at 2; clients 2 and 3 are asked at 2 and answer after their embedding (done at 1): 3 + 2 and
    # 3 + 3. Client 3 crashes at 4 and is asked again at 7: it embeds its next batch first (7 to 8), or the answer.
    queries = events(outcome, "transfer.query")
    assert list(queries[queries["peer"] == "client-3"]["start_s"]) == [2, 7]
    assert list(queries[queries["peer"] == "client-2"]["start_s"]) == [2]
    answers = events(outcome, "upload.answer", "client-3")
    assert list(answers["outcome"]) == ["lost", "done"]
    assert trace(outcome)[0] == (answers["end_s"].iloc[1] + 1, [1])


def test_all_crash_at_once_and_come_back() -> None:
    outcome = run(load(scenario(ALL["synchronous"], {"all": down(1.5, 3)}, 1)))
    assert trace(outcome) == [(3 + 1 + 3 + 1, [1, 2, 3])]


def test_the_servers_link_is_at_zero_for_a_while() -> None:
    said = scenario(ALL["synchronous"], {}, 2)
    bits = 8 * events(run(load(said), timing_only=True), "transfer.embedding")["bytes"].iloc[0]
    said["timing"] |= {"network": "fifo"}
    said["timing"]["server"]["link"] = {"down": [[0, "inf"], [1.5, 0], [10, float(bits)]]}
    outcome = run(load(said))
    # Everybody waits for the link until 10; then each embedding takes 1 s, one after the other: step from 13 to 14.
    assert trace(outcome)[0] == (14, [1, 2, 3])
    sent = events(outcome, "transfer.embedding").iloc[:3]
    assert sorted(sent["end_s"]) == [11, 12, 13]


# --- every protocol -------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@INTERRUPTED
@pytest.mark.parametrize("name", ALL)
def test_a_client_that_comes_and_goes_ends_no_run(name: str, interrupted: str) -> None:
    away = {"kind": "alternating", "up": "7 s", "down": "2 s", "interrupted": interrupted}
    outcome = run(load(scenario(ALL[name], {"2": away})))  # which verifies the run
    assert len(rounds(outcome)) == 6
    outages = events(outcome, "outage")
    if name == "centralised":
        assert outages.empty
    else:
        assert set(outages["party"]) == {"client-2"}
        assert outages["start_s"].to_list() == [7.0 + 9 * k for k in range(len(outages))]
        assert len(outages) == (rounds(outcome)["end_s"].iloc[-1] + 2) // 9
    if name in ("synchronous", "exclude"):
        plain = run(load(scenario(ALL[name], {})))
        assert rounds(outcome)["end_s"].iloc[-1] > rounds(plain)["end_s"].iloc[-1]


@pytest.mark.sampled(4)
@INTERRUPTED
@pytest.mark.parametrize("name", ALL)
def test_when_a_client_is_gone_for_good_a_run_goes_on_without_it_or_says_that_it_cannot(name, interrupted) -> None:
    said = scenario(ALL[name], {"2": fails("6 s", interrupted)}, 8)
    if name in WAITS_FOR_ALL:
        error = failure_of(said)
        assert "cannot be completed: needs" in str(error)
        assert "client 2 went down for good at 6 s" in str(error)
        return
    outcome = run(load(said))
    if name != "centralised":
        late = rounds(outcome)[rounds(outcome)["end_s"] > 8]
        assert len(late) > 0
        assert all(2 in missing for missing in late["missing"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(ALL.keys() - {"centralised"}))
def test_when_all_are_gone_nobody_goes_on(name: str) -> None:
    error = failure_of(scenario(ALL[name], {"all": fails("6 s")}, 50))
    assert "went down for good at 6 s" in str(error)
    assert "0 can still come" in str(error) or "needs client" in str(error)


@pytest.mark.parametrize("name", ["synchronous", "fastest", "t-sync-cancel"])
def test_hopelessness_is_noticed_while_others_toggle_for_ever(name: str) -> None:
    toggles = {"kind": "alternating", "up": "20 s", "down": "1 s", "interrupted": "lost"}
    error = failure_of(scenario(ALL[name], {"1": toggles, "2": fails("9 s"), "3": fails("10 s", "resumed")}, 500))
    assert " went down for good at " in str(error)


def test_the_error_names_the_round_who_is_missing_and_how_many_are_needed() -> None:
    assert str(failure_of(scenario(ALL["synchronous"], {"2": fails("12.3 s")}))).splitlines()[0] == (
        "server at 12.3 s: round 2 cannot be completed: needs 3 × 'embedding' from as many of 3 clients, 0 here, 2 can "
        "still come; client 2 went down for good at 12.3 s"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["synchronous", "deadline", "t-sync-bounded", "asynchronous"])
def test_outages_work_in_both_worlds(name: str, world: str) -> None:
    protocol = {**ALL[name], **({"deadline": "12 ms"} if name == "deadline" else {})}
    away = {"kind": "alternating", "up": "25 ms", "down": "5 ms", "interrupted": "lost"}
    pauses = {**away, "up": {"kind": "exponential", "mean": "20 ms"}, "interrupted": "resumed"}
    said = raw({"it": protocol}, stop={"rounds": 12}, evaluate={"every": "4 rounds"})
    said["timing"]["clients"] += [{"select": "2", "availability": away}, {"select": "3", "availability": pauses}]
    outcome = run(load(said), kind=world)
    assert len(rounds(outcome)) == 12
    assert metrics(outcome)["test_loss"].notna().all()


# --- what stays the same --------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@INTERRUPTED
def test_protocols_see_the_same_draws_under_the_same_outages(interrupted: str) -> None:
    away = {
        "kind": "alternating",
        "up": {"kind": "exponential", "mean": "40 ms"},
        "down": {"kind": "exponential", "mean": "10 ms"},
        "interrupted": interrupted,
    }
    timing = {**RANDOM_TIMING, "clients": [*RANDOM_TIMING["clients"], {"select": "all", "availability": away}]}
    timing["clients"].append({"select": "1..2", "activation": {"kind": "poisson", "rate": "200 /s"}})
    made = tiny(ALL | {"deadline": {"kind": "ignore", "deadline": "20 ms"}}, timing=timing, stop={"time": "0.5 s"})
    drawn, down_at = [], []
    for name in [name for name in ALL if name != "centralised"]:  # the first one excludes nobody
        frame = events(run(made, name, timing_only=True)).astype({"party": str, "kind": str})
        down_at.append(frame[frame["kind"] == "outage"].groupby("party")["start_s"].agg(list).to_dict())
        frame = frame[frame["drawn_s"].notna()]
        drawn.append(frame.set_index(["party", "kind", "index"])["drawn_s"])
        assert drawn[-1].index.is_unique
    for one in drawn[1:]:
        both = drawn[0].to_frame("one").join(one.rename("other"), how="inner")
        assert len(both) > 50
        assert (both["one"] == both["other"]).all()
    for each in down_at:  # one of the protocols excludes client 1
        assert each == {party: times for party, times in down_at[0].items() if party in each}
        assert len(each) >= 3


@INTERRUPTED
def test_a_run_with_outages_is_the_same_in_every_bit_when_repeated(interrupted: str) -> None:
    away = {"kind": "alternating", "up": "4 s", "down": "1 s", "interrupted": interrupted}
    made = load(scenario(ALL["t-sync"], {"all": away}))
    assert run(made).tables == run(made).tables


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["synchronous", "t-sync-cancel", "asynchronous", "t-sync-bounded"])
def test_what_crashes_leave_behind_does_not_pile_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Parties] = []

    def remembered(*arguments: Any) -> Parties:
        kept.append(parties(*arguments))
        return kept[-1]

    monkeypatch.setattr("vflsim.simulation.run.parties", remembered)
    away = {"kind": "alternating", "up": {"kind": "exponential", "mean": "5 s"}, "down": "10 ms", "interrupted": "lost"}
    run(load(scenario(ALL[name], {"all": away}, {"time": "600 s"})), timing_only=True)
    (made,) = kept
    left = [len(here) for box in made.shared.mailboxes.values() for here in box._messages.values()]
    assert sum(left) < 12


def test_evaluation_includes_those_who_are_down() -> None:
    outcome = run(load(scenario(ALL["fastest"], {"3": down(1, 99)}, evaluate={"every": "1 rounds"})))
    assert metrics(outcome)["test_loss"].notna().all()
    assert len(metrics(outcome)) == 7


def test_an_evaluation_that_takes_time_is_refused_where_work_is_lost() -> None:
    with pytest.raises(ScenarioError, match=r"cannot wait for client 2, whose outages lose its work(.|\n)*costs_time"):
        load(scenario(ALL["fastest"], {"2": down(1, 2)}, evaluate={"every": "1 rounds", "costs_time": True}))
    resumed = down(1, 2, interrupted="resumed")
    assert load(scenario(ALL["fastest"], {"2": resumed}, evaluate={"every": "1 rounds", "costs_time": True}))
    assert load(scenario(ALL["exclude"], {"1": down(1, 2)}, evaluate={"every": "1 rounds", "costs_time": True}))


def test_an_evaluation_that_takes_time_waits_for_a_pause_to_end() -> None:
    made = load(
        scenario(
            ALL["synchronous"],
            {"2": down(5.5, 8, interrupted="resumed")},
            2,
            evaluate={"every": "1 rounds", "costs_time": True},
        )
    )
    outcome = run(made)
    assert spans(outcome, "compute.evaluate", 2)[0][1] > 8
    assert metrics(outcome)["test_loss"].notna().all()


def test_availability_must_say_what_becomes_of_work_in_flight() -> None:
    with pytest.raises(ScenarioError, match="'interrupted' is missing"):
        load(scenario(ALL["fastest"], {"2": {"kind": "failure", "at": 1, "repair": 1}}))
