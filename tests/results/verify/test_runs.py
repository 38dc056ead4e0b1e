"""Every rule is broken once, by a change as small as possible, and has to be the one that complains."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import list_runs, toy_run

from vflsim.errors import ResultsError
from vflsim.results import RunInfo, RunTables, run_folder, verify_folder, verify_run, write_run

Columns = dict[str, list[Any]]
Change = Callable[[Columns, Columns, Columns], None]


def broken(toy: tuple[RunTables, RunInfo], change: Change, **info: object) -> list[str]:
    tables, page = toy
    metrics, rounds, events = (table.to_pydict() for table in (tables.metrics, tables.rounds, tables.events))
    change(metrics, rounds, events)
    return verify_run(RunTables(metrics, rounds, events), page.model_copy(update=info))


def first(events: Columns, kind: str, party: str = "", skip: int = 0) -> int:
    rows = [n for n, k in enumerate(events["kind"]) if k.startswith(kind) and party in events["party"][n]]
    return rows[skip]


@pytest.mark.parametrize("protocol", ["wait", "ignore", "t-sync", "async"])
def test_sound_runs_break_nothing(protocol: str):
    assert verify_run(*toy_run(protocol, 1, horizon=40)) == []


def test_what_was_not_recorded_is_not_checked(toy: tuple[RunTables, RunInfo]):
    tables, info = toy
    assert verify_run(tables.kept("summary"), info) == []
    assert verify_run(tables.kept("rounds"), info) == []


def compute_overlaps(metrics, rounds, events):
    later = first(events, "compute.", "client-1", skip=1)
    earlier = first(events, "compute.", "client-1")
    events["start_s"][later] = events["end_s"][earlier] - 1e-9


def zero_length_compute_inside_another(metrics, rounds, events):
    later, earlier = first(events, "compute.", "client-1", skip=1), first(events, "compute.", "client-1")
    events["start_s"][later] = events["end_s"][later] = (events["start_s"][earlier] + events["end_s"][earlier]) / 2


def negative_duration(metrics, rounds, events):
    row = first(events, "upload")
    events["end_s"][row] = events["start_s"][row] - 0.001


def negative_draw(metrics, rounds, events):
    events["drawn_s"][first(events, "upload")] = -0.1


def no_time(metrics, rounds, events):
    events["end_s"][first(events, "latency")] = np.nan


def after_the_end(metrics, rounds, events):
    events["end_s"][first(events, "upload", "client-5", skip=1)] = metrics["time_s"][-1] + 1


def before_the_start(metrics, rounds, events):
    events["start_s"][first(events, "upload")] = -1.0


def unknown_outcome(metrics, rounds, events):
    events["outcome"][first(events, "transfer")] = "vanished"


def unfinished_too_early(metrics, rounds, events):
    events["outcome"][first(events, "transfer")] = "unfinished"


def negative_bytes(metrics, rounds, events):
    events["bytes"][first(events, "latency")] = -1


def no_receiver(metrics, rounds, events):
    events["peer"][first(events, "transfer")] = None


def index_twice(metrics, rounds, events):
    events["index"][first(events, "upload", "client-2", skip=1)] = 0


def upload_missing(metrics, rounds, events):
    at = first(events, "upload", "client-2")
    for column in events.values():
        del column[at]


def upload_longer_than_drawn(metrics, rounds, events):
    events["drawn_s"][first(events, "upload")] += 1e-6


def drawn_without_index(metrics, rounds, events):
    events["index"][first(events, "upload")] = -1


def a_byte_too_many(metrics, rounds, events):
    metrics["bytes_up"][-1] += 1


def a_message_lost(metrics, rounds, events):
    row = first(events, "transfer", "client-1", skip=1)
    for column in events.values():
        del column[row]


def a_message_twice(metrics, rounds, events):
    row = first(events, "transfer", "client-1", skip=1)
    for column in events.values():
        column.append(column[row])


def a_byte_lost_in_the_middle(metrics, rounds, events):
    metrics["bytes_down"][3] -= 1


def counted_in_the_wrong_direction(metrics, rounds, events):
    metrics["bytes_peer"] = metrics["bytes_up"]
    metrics["bytes_up"] = [0] * len(metrics["bytes_up"])


def peers_not_counted(metrics, rounds, events):
    events["peer"][first(events, "transfer", "client-1")] = "client-2"


def time_runs_backwards(metrics, rounds, events):
    metrics["time_s"][2], metrics["time_s"][3] = metrics["time_s"][3], metrics["time_s"][2]


def metrics_start_late(metrics, rounds, events):
    metrics["time_s"][0] = 0.5


def updates_decrease(metrics, rounds, events):
    metrics["updates"][3] = 0


def a_round_left_out(metrics, rounds, events):
    for column in rounds.values():
        del column[2]


def a_gap_between_rounds(metrics, rounds, events):
    rounds["start_s"][3] += 1e-9


def a_round_of_negative_length(metrics, rounds, events):
    rounds["end_s"][3] = rounds["start_s"][4] = rounds["start_s"][3] - 1


def a_late_first_round(metrics, rounds, events):
    rounds["start_s"][0] = 0.1


def a_round_after_the_end(metrics, rounds, events):
    rounds["end_s"][-1] = metrics["time_s"][-1] + 1


def a_round_uncounted(metrics, rounds, events):
    metrics["round"][-1] += 1


def used_and_missing(metrics, rounds, events):
    rounds["missing"][4] = [*rounds["missing"][4], rounds["used"][4][0]]


def a_stranger_used(metrics, rounds, events):
    rounds["used"][4] = [*rounds["used"][4], 99]


def a_client_twice(metrics, rounds, events):
    rounds["used"][4] = [*rounds["used"][4], rounds["used"][4][0]]


def an_update_too_many(metrics, rounds, events):
    metrics["updates"][3:] = [number + 1 for number in metrics["updates"][3:]]


def embeddings_counted_as_updates(metrics, rounds, events):
    kinds = zip(events["kind"], events["outcome"], events["end_s"], strict=True)
    ends = [
        end for kind, outcome, end in kinds if outcome == "done" and kind in ("compute.embed", "compute.client_step")
    ]
    metrics["updates"] = [sum(end <= now for end in ends) for now in metrics["time_s"]]


def a_round_counted_early(metrics, rounds, events):
    metrics["round"][3] += 1


def ages_from_the_step_before(metrics, rounds, events):
    for name in ("client_age_mean", "client_age_max"):
        metrics[name] = [age + 1 for age in metrics[name]]


def a_mean_of_other_ages(metrics, rounds, events):
    metrics["client_age_mean"][4] *= 1.0001


def the_least_age_for_the_most(metrics, rounds, events):
    metrics["client_age_max"] = metrics["client_age_mean"]


def everybody_used(metrics, rounds, events):
    rounds["used"] = [sorted([*used, *others]) for used, others in zip(rounds["used"], rounds["missing"], strict=True)]
    rounds["missing"] = [[] for _ in rounds["used"]]


def everybody_fresh(metrics, rounds, events):
    rounds["fresh"] = [sorted([*used, *others]) for used, others in zip(rounds["used"], rounds["missing"], strict=True)]


def a_step_of_nobody(metrics, rounds, events):
    events["party"][first(events, "compute.server_step", skip=4)] = "client-8"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (compute_overlaps, "while client-1 still computes"),
        (zero_length_compute_inside_another, "while client-1 still computes"),
        (negative_duration, "negative duration"),
        (negative_draw, "drawn a negative duration"),
        (no_time, "has no time"),
        (after_the_end, "ends after the run"),
        (before_the_start, "starts before the run"),
        (unknown_outcome, "outcome that is none of done, abandoned, unfinished"),
        (unfinished_too_early, "is unfinished, but the run continued until 18.0 s"),
        (negative_bytes, "negative number of bytes"),
        (no_receiver, "has no receiver"),
        (index_twice, "uses an index for the second time"),
        (drawn_without_index, "was drawn, but has no index"),
        (upload_missing, "the highest index is"),
        (upload_longer_than_drawn, "did not last as long as was drawn"),
        (a_message_lost, "of which 1 are missing"),
        (a_message_twice, "is listed twice"),
        (a_byte_too_many, "metrics at 18.0 s: bytes_up is"),
        (a_byte_lost_in_the_middle, "metrics at 6.0 s: bytes_down is"),
        (counted_in_the_wrong_direction, "bytes_peer is"),
        (peers_not_counted, "bytes_peer is 0, its transfers add up to 8192"),
        (time_runs_backwards, "time_s does not ascend"),
        (metrics_start_late, "first row is not at time 0"),
        (updates_decrease, "updates is 0, and is less than in the row before"),
        (a_round_left_out, "does not follow the previous round"),
        (a_gap_between_rounds, "does not start at the end of the previous round"),
        (a_round_of_negative_length, "has a negative duration"),
        (a_late_first_round, "the first starts at 0.1 s"),
        (a_round_after_the_end, "after the run (18.0 s)"),
        (a_round_uncounted, "the rounds until then add up to 35"),
        (used_and_missing, "both used and missing: ["),
        (a_stranger_used, "no participants of the run: [99]"),
        (a_client_twice, "a client is named twice"),
        (an_update_too_many, "the clients' steps until then add up to"),
        (embeddings_counted_as_updates, "the clients' steps until then add up to"),
        (a_round_counted_early, "the rounds until then add up to"),
        (ages_from_the_step_before, "its rounds since the row before give"),
        (a_mean_of_other_ages, "its rounds since the row before give"),
        (the_least_age_for_the_most, "its rounds since the row before give"),
        (everybody_used, "messages had arrived"),
        (everybody_fresh, "its rounds since the row before give"),
        (a_step_of_nobody, "when the server has completed nothing"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_caught(toy: tuple[RunTables, RunInfo], change: Change, sentence: str):
    problems = broken(toy, change)
    assert any(sentence in problem for problem in problems), problems


def test_code_from_outside_may_step_on_a_message_again(toy: tuple[RunTables, RunInfo]):
    def twice(metrics, rounds, events):  # client 4, which had sent one embedding
        first = next(k for k, used in enumerate(rounds["used"]) if 4 in used)
        place = next(k for k, used in enumerate(rounds["used"]) if k > first and 4 not in used)
        rounds["used"][place] = sorted([*rounds["used"][place], 4])
        rounds["missing"][place] = [each for each in rounds["missing"][place] if each != 4]

    assert any("used has client-4" in each for each in broken(toy, twice))
    assert not any("used has" in each for each in broken(toy, twice, inputs={"mine.py": "0" * 64}))


@pytest.mark.parametrize("age", ["client_age", "row_age"])
def test_staleness_is_held_against_the_age_it_bounds(toy: tuple[RunTables, RunInfo], age: str):
    oldest = toy[0].metrics["client_age_max"].to_numpy()

    def set_ages(metrics, rounds, events):
        metrics["row_age_mean"] = [np.nan] * len(oldest)
        metrics["row_age_max"] = (oldest // 2).tolist()

    bound = int(np.nanmax(oldest if age == "client_age" else oldest // 2))
    assert broken(toy, set_ages, max_staleness=bound, staleness_bounds=age) == []
    problems = broken(toy, set_ages, max_staleness=bound - 1, staleness_bounds=age)
    assert any(f"{age}_max is {bound}, max_staleness is {bound - 1}" in problem for problem in problems)
    assert broken(toy, set_ages, max_staleness=None, staleness_bounds=None) == []


def test_a_transfer_that_ends_at_a_metrics_row_may_stand_on_either_side_of_it(toy: tuple[RunTables, RunInfo]):
    def end_at_a_row(counted: bool) -> Change:
        def change(metrics, rounds, events):
            row = first(events, "transfer", "server")
            at = next(n for n, t in enumerate(metrics["time_s"]) if t > events["end_s"][row])
            events["end_s"][row] = metrics["time_s"][at]
            if not counted:
                metrics["bytes_down"][at] -= events["bytes"][row]

        return change

    assert broken(toy, end_at_a_row(counted=True)) == []
    assert broken(toy, end_at_a_row(counted=False)) == []


def test_many_violations_of_a_rule_are_counted_not_listed(toy: tuple[RunTables, RunInfo]):
    def change(metrics, rounds, events):
        pairs = zip(events["kind"], events["outcome"], strict=True)
        events["outcome"] = ["vanished" if kind.startswith("latency") else outcome for kind, outcome in pairs]

    problems = broken(toy, change)
    assert len(problems) == 4
    assert "more" in problems[-1]


class TestFolder:
    @pytest.fixture
    def copied(self, toy_folder: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(toy_folder, tmp_path / "toy"))

    def test_a_sound_folder_has_no_problems(self, toy_folder: Path):
        assert verify_folder(toy_folder) == []

    def test_problems_name_the_run(self, copied: Path):
        tables, info = toy_run("wait", 1, horizon=30)
        rounds = tables.rounds.to_pydict()
        a_late_first_round({}, rounds, {})
        write_run(run_folder(copied, "wait", 1), RunTables(tables.metrics, rounds, tables.events), {}, info)
        list_runs(copied)
        assert verify_folder(copied) == ["wait/seed-1: rounds: the first starts at 0.1 s instead of 0"]

    def test_failed_and_damaged_runs_are_problems(self, copied: Path):
        tables, info = toy_run("wait", 1, horizon=30)
        failed = info.model_copy(update={"status": "failed", "error": "boom"})
        write_run(run_folder(copied, "wait", 1), tables, {}, failed)
        list_runs(copied)
        (copied / "async" / "seed-2" / "events.parquet").write_bytes(b"PAR1")
        (copied / "async" / "seed-1" / "metrics.parquet").unlink()
        problems = verify_folder(copied)
        assert problems[0] == "wait/seed-1: the run failed: boom"
        assert problems[1] == "async/seed-1: metrics.parquet is missing"
        assert problems[2].startswith("async/seed-1: ")
        assert problems[3] == "async/seed-2: events.parquet has changed since it was written (another SHA-256)"
        assert problems[4].startswith("async/seed-2: ")
        assert "events.parquet: damaged" in problems[4]
        assert len(problems) == 5

    def test_an_absent_folder_is_an_error(self, tmp_path: Path):
        with pytest.raises(ResultsError, match="no such folder"):
            verify_folder(tmp_path / "nowhere")
