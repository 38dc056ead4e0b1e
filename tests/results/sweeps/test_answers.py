"""What a sweep answers: best values by cost and by accuracy, what is not told apart, and which protocol is first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluated_runs import Curve, write_evaluations
from scipy import stats

import vflsim
from vflsim.results.statistics.estimates import GEOMETRIC, MEAN, SeedSample
from vflsim.results.statistics.pairs import Ratio
from vflsim.results.sweeps import Sweep
from vflsim.results.sweeps.answers import answers, answers_frame, select_best
from vflsim.results.sweeps.answers_table import answer_tables, sentences
from vflsim.results.sweeps.axis import is_choice, sections_of
from vflsim.results.sweeps.table import SweepResults
from vflsim.vocabulary.amounts import spanned


def sample(values: list[float], censored: tuple[int, ...] = (), first: int = 0) -> SeedSample:
    late = np.array([place in censored for place in range(len(values))], dtype=bool)
    return SeedSample((*range(first, first + len(values)),), np.array(values), late)


def test_close_is_what_a_one_sided_t_test_with_bonferronis_level_does_not_put_behind() -> None:
    rng = np.random.default_rng(5)
    common = rng.normal(0, 0.2, 5)
    values = {
        name: np.exp(mean + common + rng.normal(0, 0.05, 5))
        for name, mean in zip("abcd", (1, 1.02, 1.1, 1.5), strict=True)
    }
    found = select_best({name: sample([*each]) for name, each in values.items()}, GEOMETRIC)
    best = min(values, key=lambda name: float(np.log(values[name]).mean()))
    chances = {
        name: stats.ttest_rel(np.log(each), np.log(values[best]), alternative="greater").pvalue
        for name, each in values.items() if name != best
    }  # fmt: skip
    assert found.best == best
    assert found.close == tuple(name for name, chance in chances.items() if chance >= 0.05 / 3)
    assert 0 < len(found.close) < 3


def test_pairs_tell_apart_what_single_intervals_do_not() -> None:
    slow, fast = [10.0, 20.0, 40.0], [9.0, 17.9, 36.2]  # intervals of the means overlap almost wholly
    assert select_best({"slow": sample(slow), "fast": sample(fast)}, GEOMETRIC).close == ()
    apart = select_best({"slow": sample(slow), "fast": sample(fast, first=7)}, GEOMETRIC)  # no common seed
    assert (apart.best, apart.close) == ("fast", ("slow",))


def test_a_censored_candidate_is_never_the_best_and_counts_by_its_bounds() -> None:
    best, bounded = sample([5.0, 6.0, 7.0]), sample([60.0, 60.0, 60.0], (0, 1, 2))
    early = sample([1.0, 1.0, 1.0], (0, 1, 2))  # ended before the best one got there: nothing is known
    found = select_best({"early": early, "best": best, "bounded": bounded}, GEOMETRIC)
    assert (found.best, found.close) == ("best", ("early",))
    assert select_best({"early": early, "bounded": bounded}, GEOMETRIC).best is None


def test_one_seed_tells_nothing_apart_and_the_first_of_equal_ones_is_taken() -> None:
    assert select_best({"a": sample([1.0]), "b": sample([9.0])}, MEAN).close == ("b",)
    found = select_best({"a": sample([0.9, 0.8]), "b": sample([0.9, 0.8])}, MEAN, highest=True)
    assert (found.best, found.close) == ("a", ("b",))
    assert select_best({"a": sample([0.1]), "b": sample([0.9])}, MEAN, highest=True).best == "b"


@pytest.mark.parametrize("candidates", [2, 6])
def test_the_truly_best_is_lost_in_at_most_one_of_twenty_studies(candidates: int) -> None:
    rng, lost, studies = np.random.default_rng(candidates), 0, 400
    for _ in range(studies):
        values = rng.normal(0, 1, (candidates, 4)) + rng.normal(0, 2, 4)
        found = select_best({name: sample([*own]) for name, own in enumerate(values)}, MEAN)
        lost += 0 not in (found.best, *found.close)  # all are equally good: take the first for the best
    assert lost / studies <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)


TARGET = {"test_accuracy": 0.9, "for": "1 evaluation"}
KEY = "protocols.t-sync.t"


def write(folder: Path, protocol: str, seed: int, curve: Curve, rate: float = 100, **info: Any) -> None:
    """One run: its accuracy after each so many seconds, with ``rate`` bytes and 2 J a second."""
    columns = {"round": np.arange(len(curve)), "energy_j": [2.0 * time for time, _ in curve]}
    write_evaluations(folder, protocol, seed, curve, rate, columns, **{"stop_reason": "time", **info})


def reached(seconds: float, end: float = 60) -> Curve:
    """An accuracy that is 0.9 from some time on, evaluated just before it, too."""
    return [(0, 0.1), (seconds - 1e-6, 0.1), (seconds, 0.9), (end, 0.9)]


def swept(
    folder: Path, points: Mapping[Any, Mapping[str, Sequence[Curve]]], keys: Sequence[str] = (KEY,), target: bool = True
) -> Sweep:
    """A sweep: the runs of every protocol, seed by seed, at every value (or tuple of values)."""
    entries = []
    for place, (value, protocols) in enumerate(points.items()):
        said = {"name": "s", "protocols": {name: {"kind": "synchronous"} for name in protocols}, "stop": {"time": 60}}
        here = folder / f"p{place}"
        here.mkdir()
        (here / "scenario.yaml").write_text(json.dumps(said | ({"target": TARGET} if target else {})))
        for name, curves in protocols.items():
            for seed, curve in enumerate(curves):
                write(here, name, seed, curve, 400 if name == "async" else 100)
        values = value if isinstance(value, tuple) else (value,)
        entries.append({"values": values, "folder": f"p{place}", "finished": True})
    page = {"scenario": "s", "keys": keys, "timing_only": False, "points": entries}
    (folder / "sweep.json").write_text(json.dumps(page))
    return Sweep.open(folder)


ASYNC = [reached(9), reached(10), reached(12)]
T_SYNC = {1: [30, 31, 35], 2: [7, 8, 9.5], 4: [7.2, 7.9, 9.9]}


@pytest.fixture
def line(tmp_path: Path) -> Sweep:
    return swept(tmp_path, {t: {"t-sync": [*map(reached, own)], "async": ASYNC} for t, own in T_SYNC.items()})


def test_a_table_for_each_cost_names_best_values_ties_and_the_first(line: Sweep) -> None:
    time, spent, energy = answer_tables(line)
    assert [table.title for table in (time, spent, energy)] == [
        f"s: best by {cost} to test_accuracy ≥ 0.9 for 1 evaluation" for cost in ("time", "bytes", "energy")
    ]
    assert [*time.header] == ["protocol", "best t", "time to the target", "not told apart", "against the first"]
    low, high = stats.ttest_1samp(np.log(np.array([9, 10, 12]) / T_SYNC[2]), 0).confidence_interval(0.95)
    ratio = f"1.27 ({np.exp(low):.3g} … {np.exp(high):.3g}) ×"
    cost, other = (
        str(spanned(stats.gmean(own), np.exp(ends.low), np.exp(ends.high), "s"))
        for own in (T_SYNC[2], [9, 10, 12])
        for ends in [stats.ttest_1samp(np.log(own), 0).confidence_interval(0.95)]
    )
    assert [*time.rows] == [
        ("t-sync", "2", cost, "4", "first"), ("async", "any", other, "—", ratio)
    ]  # fmt: skip
    assert [row[:2] for row in spent.rows] == [("t-sync", "2"), ("async", "any")]
    assert time.notes[0].startswith(f"t-sync with t = 2 reaches the target soonest, {cost}; every other")
    assert any(note.startswith("“any”") for note in energy.notes)
    assert any("best partly by chance" in note for note in energy.notes)
    assert not any("At an end" in note for note in energy.notes)
    assert sentences(line)[0] == time.notes[0]


def test_a_censored_value_is_not_best_and_ratios_to_it_are_bounds(tmp_path: Path) -> None:
    late = [reached(50), [(0, 0.1), (60, 0.2)], [(0, 0.1), (60, 0.2)]]
    never = [[(0, 0.1), (40, 0.3)]] * 3
    sweep = swept(
        tmp_path, {1: {"t-sync": late, "wait": never}, 2: {"t-sync": [*map(reached, (7, 8, 9))], "wait": never}}
    )
    time = answers(sweep)[0]
    assert time.choices["wait"].best is None
    frame = answers_frame(sweep).set_index(["by", "protocol", "t"])
    verdicts = frame["verdict"]
    assert [verdicts["time", name, t] for name, t in (("t-sync", 1), ("t-sync", 2), ("wait", 1))] == [
        "not reached", "best", "not reached"
    ]  # fmt: skip
    (table, *_) = answer_tables(sweep)
    assert [*table.rows[1][1:4]] == ["—", "> 40 s", "—"]
    found = time.against_first("wait")
    assert isinstance(found, Ratio)
    assert found.bound == "least"
    low = stats.ttest_1samp(np.log(40 / np.array([7, 8, 9])), 0).confidence_interval(0.9).low
    assert found.mean == pytest.approx(np.exp(low))


def test_where_no_target_was_reached_accuracies_are_compared_after_what_all_have_spent(tmp_path: Path) -> None:
    curves = {1: [[(0, 0.1), (10, 0.3), (20, 0.5 + s), (40, 0.8)] for s in (0, 0.01, 0.03)],
              2: [[(0, 0.1), (10, 0.2), (30, 0.7 + s)] for s in (0, 0.02, 0.04)]}  # fmt: skip
    never = [[(0, 0.1), (24, 0.2), (50, 0.4)]] * 3
    sweep = swept(tmp_path, {t: {"t-sync": own, "async": never} for t, own in curves.items()}, target=False)
    time, spent, energy = answers(sweep)
    assert [time.competition.after, spent.competition.after, energy.competition.after] == [30, 3000, 60]
    best = time.choices["t-sync"].best
    assert best is not None
    assert (best.positions, time.estimate(best).mean) == ((1,), pytest.approx(0.72))
    best = time.choices["async"].best
    assert best is not None
    assert (best.positions, time.estimate(best).mean) == ((0, 1), pytest.approx(0.2))  # at 24 s
    found = spent.competition.samples[best].values  # 400 B a second: 2,800 B after 7 s, so none after 10 s
    assert [*found] == [0.1, 0.1, 0.1]
    assert answer_tables(sweep)[1].title == "s: best by test_accuracy after 3 kB"
    assert sentences(sweep)[0].startswith("After 30 s, t-sync with t = 2 has the highest test accuracy, 0.720 ± 0.050;")


def test_a_protocol_that_reached_the_target_nowhere_is_compared_by_its_accuracy_alone(tmp_path: Path) -> None:
    never = {t: [[(0, 0.1), (40, 0.3 + t / 10 + s)] for s in (0, 0.01, 0.02)] for t in (1, 2)}
    sweep = swept(tmp_path, {t: {"t-sync": own, "async": ASYNC} for t, own in never.items()})
    frame = answers_frame(sweep)
    after = frame[frame["metric"].notna() & (frame["by"] == "time")]
    assert set(after["protocol"]) == {"t-sync"}
    assert set(after["after"]) == {40}
    assert after.set_index("t")["verdict"].to_dict() == {1: "behind", 2: "best"}


def test_diverged_runs_rule_their_value_out(tmp_path: Path) -> None:
    points = {t: {"t-sync": [*map(reached, own)]} for t, own in T_SYNC.items()}
    sweep = swept(tmp_path, points)
    write(tmp_path / "p1", "t-sync", 0, [(0, 0.1), (2, 0.2)], status="diverged", stop_reason=None, error="inf")
    frame = answers_frame(Sweep.open(sweep.folder))
    assert frame[frame["by"] == "time"].set_index("t")["verdict"].to_dict() == {1: "behind", 4: "best", 2: "failed"}
    (table, *_, last) = answer_tables(Sweep.open(sweep.folder))
    assert [*table.header][-1] == "not told apart"  # one protocol alone
    assert "At an end of the values, so that others may be better: t-sync (t = 4)." in last.notes


def test_of_several_keys_each_has_its_best_value(tmp_path: Path) -> None:
    points = {(t, up): {"t-sync": [reached(s + t + k) for s in (5, 6, 8)], "wait": [reached(20 - k), reached(25 - k)]}
              for t in (1, 2) for k, up in enumerate((64, 32))}  # fmt: skip
    sweep = swept(tmp_path, points, (KEY, "training.batch"))
    (table, *_) = answer_tables(sweep)
    assert [*table.header[1:3]] == ["best t", "best batch size"]
    assert [row[:3] for row in table.rows] == [("t-sync", "1", "64"), ("wait", "any", "32")]
    frame = answers_frame(sweep)
    assert {"t", "batch"} <= {*frame.columns}
    assert len(frame[frame["by"] == "time"]) == 8


def test_what_is_the_worlds_is_no_choice_and_protocols_compete_at_each_of_its_values(tmp_path: Path) -> None:
    points = {(t, up): {"t-sync": [reached(s + t * (1 + k)) for s in (5, 6, 8)], "wait": [reached(20 - 15 * k)] * 3}
              for t in (1, 2) for k, up in enumerate(("50 Mbps", "5 Mbps"))}  # fmt: skip
    sweep = swept(tmp_path, points, (KEY, "timing.clients.link.up"))
    (table, *_, last) = answer_tables(sweep)
    assert [*table.header[:4]] == ["bandwidth", "protocol", "best t", "time to the target"]
    assert [(*row[:3], row[-1].partition(" ")[0]) for row in table.rows] == [
        ("50 Mbps", "t-sync", "1", "first"), ("50 Mbps", "wait", "any", "2.77"),
        ("5 Mbps", "t-sync", "1", "1.65"), ("5 Mbps", "wait", "any", "first"),
    ]  # fmt: skip
    assert table.notes[0].startswith("up = 50 Mbps: t-sync with t = 1 reaches the target soonest")
    assert table.notes[1].startswith("up = 5 Mbps: wait reaches the target soonest")
    assert "Choices, of which there is a best: t (in protocols)." in last.notes
    assert any(note.startswith("No choice, but the world or the measurement: up (in timing).") for note in last.notes)
    frame = answers_frame(sweep)
    best = frame[(frame["by"] == "time") & (frame["verdict"] == "best")]
    assert [*zip(best["protocol"], best["t"], best["up_Mbps"], strict=True)] == [
        ("t-sync", 1, 50), ("wait", 1, 50), ("wait", 2, 50), ("t-sync", 1, 5), ("wait", 1, 5), ("wait", 2, 5),
    ]  # fmt: skip


@pytest.mark.parametrize(("key", "sections", "choice"), [
    ("protocols.t-sync.t", ("protocols",), True),
    ("protocols.t-sync.stop.time", ("stop",), False),
    ("training.client_optimizer.lr,training.server_optimizer.lr", ("training",), True),
    ("codec", ("codec",), True),
    ("partition.clients", ("partition",), False),
    ("stop.rounds", ("stop",), False),
    ("constants.mean_ms", ("timing",), False),
    ("constants.patience", ("protocols",), True),
    ("constants.base", ("timing", "protocols"), False),  # by way of the others
    ("constants.unused", (), False),
    ("constants.ends", ("stop",), False),
])  # fmt: skip
def test_where_a_key_lies_decides_whether_it_is_a_choice(key: str, sections: tuple[str, ...], choice: bool) -> None:
    scenario = {
        "constants": {"base": 1, "mean_ms": "2*base", "patience": "base + 1", "unused": 3, "ends": 9},
        "timing": {"clients": [{"upload_delay": {"kind": "exponential", "mean": "(mean_ms*m) ms"}}]},
        "protocols": {"t-sync": {"kind": "t_synchronous", "t": "patience", "stop": {"time": "ends"}}},
    }
    assert sections_of(key, scenario) == sections
    assert is_choice(key, scenario) is choice


def test_timing_alone_and_a_single_setting_answer_nothing(tmp_path: Path) -> None:
    assert answer_tables(swept(tmp_path, {1: {"t-sync": [reached(5)]}})) == []


def test_a_sweep_shows_its_tables_as_html_and_has_its_frames(line: Sweep) -> None:
    found = SweepResults.open(line.folder)
    page = found._repr_html_()
    assert page.count("<table>") == len(found.tables()) == 8
    assert "<td>t-sync</td><td>2</td>" in page
    assert len(found.runs()) == 18
    assert found.answers().equals(answers_frame(line))
    assert vflsim.sweep_answers(line.folder, {"test_accuracy": 0.95})["by"].unique().tolist() == [
        "time",
        "bytes",
        "energy",
    ]
    assert vflsim.sweep_answers(line, {"test_accuracy": 0.95})["metric"].notna().all()
