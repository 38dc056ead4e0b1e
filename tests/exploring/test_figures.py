"""Figures of the page: equal, to the digits, to those of ``vflsim analyze``, ``check`` and timing-only runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import vflsim
from vflsim.exploring.base import Base, turned
from vflsim.exploring.figures import AT_ONCE, ROUNDS, delay_curves, figures, timeline
from vflsim.exploring.rounds import MESSAGES, simulated
from vflsim.exploring.slow_figures import ROUNDS_AT_ONCE, VALUES_AT_ONCE, choices, choices_at_once, closed_forms, tables
from vflsim.scenario.load import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.studies.checks.estimates import expectation
from vflsim.studies.checks.trials import by_events
from vflsim.timing.delays import Constant, Exponential, LogNormal, Pareto, Weibull


@pytest.fixture(scope="module")
def scenario(template: Base) -> Scenario:
    raw = turned(template, {**template.begin, "clients": 7, "stragglers": 2, "t": 5, "K": 2})
    return load(raw)


@pytest.fixture(scope="module")
def data(scenario: Scenario) -> ScenarioData:
    return ScenarioData(scenario)


@pytest.fixture(scope="module")
def found(scenario: Scenario, data: ScenarioData) -> dict[str, Any]:
    answer = figures(scenario, data)
    return {**answer, "protocols": {each["name"]: each for each in answer["protocols"]}}


def test_rounds_bytes_and_durations_are_those_of_a_timing_only_run(
    found: dict[str, Any], scenario: Scenario, tmp_path: Path
) -> None:
    raw = {**scenario.document.raw, "stop": {"rounds": ROUNDS}, "record": "rounds", "seeds": [scenario.seeds[0]]}
    raw["evaluate"] = {"every": f"{ROUNDS} rounds"}
    results = vflsim.run(raw, out=tmp_path / "timed", timing_only=True, progress=False)
    for run in results.runs:
        own, last = found["protocols"][run.protocol], run.table("metrics").to_pylist()[-1]
        ends = run.table("rounds")["end_s"].to_numpy()
        assert own["rounds"] == len(ends) == ROUNDS
        assert own["ecdf"]["x"] == np.sort(run.round_durations()).tolist()
        assert own["step_s"] == ends[-1] / ROUNDS
        assert own["round_bytes"] == (last["bytes_up"] + last["bytes_down"] + last["bytes_peer"]) / ROUNDS
        used = sum(map(len, run.table("rounds")["used"].to_pylist()))
        assert own["used_per_s"] == used / ends[-1]


def test_mean_round_and_bytes_are_those_of_vflsim_check(scenario: Scenario, data: ScenarioData) -> None:
    endless = load({**scenario.document.raw, "stop": {"rounds": 10_000}})  # else a run may end within a round
    for name in scenario.protocols:
        loaded = data.of(scenario.training_of(name))
        expected = expectation(endless, name, loaded)
        own = simulated(scenario, name, loaded, expected.steps)
        assert (own.step_s, own.round_bytes) == (expected.step_s, expected.round_bytes)


def test_closed_forms_are_those_of_vflsim_analyze(scenario: Scenario, data: ScenarioData) -> None:
    analyses = vflsim.analyze(scenario)
    frame = analyses.frame
    numbers = analyses.figure().numbers["closed_form"]
    for name in scenario.protocols:
        own = closed_forms(scenario, data, name)
        rows = frame[frame["protocol"] == name].to_dict("records")
        assert len(own["rows"]) == len(rows) > 0
        for mine, theirs in zip(own["rows"], rows, strict=True):
            for key, value in mine.items():
                expected = theirs[key]
                if value is None:
                    assert expected is None or math.isnan(expected)
                else:
                    assert value == (list(expected) if isinstance(expected, tuple) else expected)
        curve = numbers[numbers["protocol"] == name]
        assert (own["curve"] is None) == curve.empty
        if own["curve"] is not None:
            known = curve.set_index("seconds")
            for x, lower, upper in zip(*own["curve"].values(), strict=True):
                assert (known.loc[x, "lower"], known.loc[x, "upper"]) == (lower, upper)
        json.dumps(own, allow_nan=False)


def test_the_tables_and_the_best_k_are_those_of_vflsim_analyze(scenario: Scenario, data: ScenarioData) -> None:
    by_k, by_t = vflsim.analyze(scenario, protocols=["coded"]).choices("coded")
    mine = tables(scenario, data, "coded")
    assert [(each["key"], each["rows"]) for each in mine] == [
        (each.key, [[str(cell) for cell in row] for row in each.rows]) for each in (by_k, by_t)
    ]
    assert by_k.notes[0].startswith(f"best K: {mine[0]['best']}")
    assert mine[1]["best"] == ""
    assert tables(scenario, data, "wait") == []


def test_each_choice_is_what_the_scenario_with_that_value_takes(scenario: Scenario, data: ScenarioData) -> None:
    found = {each["key"]: each for each in choices(scenario, data, rounds=20, most=3)}
    assert {*found} == {"t", "K"}
    assert [row["value"] for row in found["t"]["rows"]] == [1, 4, 5, 7]
    assert not found["t"]["all"]
    assert [row["value"] for row in found["K"]["rows"]] == [1, 2]  # which divide the batch and keep R = 2 K + 1 ≤ 7
    for key, name in (("t", "t-sync"), ("K", "coded")):
        for row in found[key]["rows"]:
            raw = {**scenario.document.raw, "protocols": {name: dict(scenario.document.raw["protocols"][name])}}
            raw["protocols"][name][key] = row["value"]
            other = load(raw)
            own = simulated(other, name, ScenarioData(other, data.shelf).of(other.training_of(name)), row["rounds"])
            assert (row["step_s"], row["used_per_s"]) == (own.step_s, own.used_per_s)
    rows = found["t"]["rows"]
    assert found["t"]["best"] == max(rows, key=lambda row: row["used_per_s"])["value"]
    assert found["K"]["best"] == min(found["K"]["rows"], key=lambda row: row["step_s"])["value"]
    assert found["K"]["present"] == 2


def test_a_first_look_at_choices_takes_only_what_arrays_can_simulate(
    scenario: Scenario, data: ScenarioData, template: Base
) -> None:
    by_t, by_k = choices_at_once(scenario, data)
    assert [row["value"] for row in by_k["rows"]] == [1, 2]
    values = [row["value"] for row in by_t["rows"]]
    assert 3 <= len(values) <= VALUES_AT_ONCE + 1
    assert {5, 7} <= {*values} <= {*range(1, 8)}  # the present one, and the last
    for found, name in ((by_t, "t-sync"), (by_k, "coded")):
        for row in found["rows"]:
            protocol = scenario.protocols[name].protocol.model_copy(update={found["key"]: row["value"]})
            own = simulated(scenario, name, data.of(scenario.training), ROUNDS_AT_ONCE, protocol)
            assert not own.by_events
            assert (row["rounds"], row["step_s"]) == (ROUNDS_AT_ONCE, own.step_s)
    shared = load(turned(template, template.held))
    by_t, by_k = choices_at_once(shared, ScenarioData(shared))
    assert by_t["best"] is not None
    assert by_k["best"] is None  # arrays do not carry shares between clients on links that they share


def test_where_messages_wait_rounds_are_simulated_by_events_and_say_why(template: Base) -> None:
    raw = turned(template, {**template.held, "stragglers": 3, "network": "fifo"})
    raw["timing"]["server"]["concurrency"] = 4
    scenario = load(raw)
    loaded = ScenarioData(scenario).of(scenario.training)
    own = simulated(scenario, "wait", loaded, ROUNDS)
    assert own.by_events == "a message may have to wait for one of the 4 slots of the server"
    assert len(own.ends) == MESSAGES // (2 * 8)
    assert own.waited[0] == pytest.approx(0, abs=1e-12)
    assert sum(own.waited.values()) == pytest.approx(1)
    assert sum(own.waited[client] for client in (6, 7, 8)) == pytest.approx(1)
    rounds = by_events(scenario, "wait", loaded, len(own.ends), "rounds").tables.rounds
    assert rounds is not None
    assert own.ends.tolist() == rounds["end_s"].to_pylist()
    asynchronous = simulated(scenario, "async", loaded, ROUNDS)
    assert len(asynchronous.ends) == ROUNDS  # a step has two messages, not two a client


def test_a_run_that_fails_says_so(template: Base, tmp_path: Path) -> None:
    raw = turned(template, template.begin)
    raw["timing"]["clients"].append({
        "select": "1", "availability": {"kind": "intervals", "down": [["3 s", "unlimited"]], "interrupted": "lost"},
    })  # fmt: skip
    raw["protocols"] = {"wait": raw["protocols"]["wait"]}
    scenario = load(raw)
    (own,) = figures(scenario, ScenarioData(scenario))["protocols"]
    assert "client-1" in own["error"] or "client 1" in own["error"]
    assert own["rounds"] < ROUNDS
    json.dumps(own, allow_nan=False)


@pytest.mark.parametrize(
    ("delay", "law"),
    [
        (Exponential(mean=2.0), stats.expon(scale=2.0)),
        (Weibull(shape=0.7, scale=2.0), stats.weibull_min(0.7, scale=2.0)),
        (LogNormal(sigma=1.0, median=2.0), stats.lognorm(1.0, scale=2.0)),
        (Pareto(shape=2.5, minimum=2.0), stats.pareto(2.5, scale=2.0)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_curves_of_a_delay_are_its_density_and_survival(delay: Any, law: Any) -> None:
    curves = delay_curves(delay)
    x, y = np.array(curves["density"]["x"]), curves["density"]["y"]
    inside = [place for place, value in enumerate(y) if value is not None and abs(x[place] - 2.0) > 1e-9]
    assert len(inside) >= len(x) - 3
    assert np.array(y, float)[inside] == pytest.approx(law.pdf(x[inside]), rel=1e-9, abs=1e-12)
    assert curves["survival"]["y"] == pytest.approx(law.sf(curves["survival"]["x"]), rel=1e-9, abs=1e-12)
    assert curves["survival"]["y"][-1] == pytest.approx(1e-4, rel=1e-6)
    assert curves["mean"] == pytest.approx(law.mean())
    assert curves["quantiles"]["0.9"] == pytest.approx(law.ppf(0.9))


def test_a_constant_delay_has_an_atom_and_no_density() -> None:
    curves = delay_curves(Constant(value=2.0))
    assert curves["atoms"] == [2.0]
    assert {*curves["density"]["y"]} == {None}
    survival = dict(zip(curves["survival"]["x"], curves["survival"]["y"], strict=True))
    assert (survival[2.0], survival[np.nextafter(2.0, 0)]) == (0.0, 1.0)


def test_the_timeline_shows_five_rounds_of_the_chosen_protocol(scenario: Scenario, data: ScenarioData) -> None:
    shown = figures(scenario, data, "t-sync")["timeline"]
    assert (shown["protocol"], shown["rounds"]) == ("t-sync", 5)
    (panel,) = shown["panels"]
    assert len(panel["steps"]) == 5
    assert panel["parties"] == ["server", *(f"client {client}" for client in range(1, 8))]
    assert figures(scenario, data)["timeline"]["protocol"] == "wait"


def test_a_timeline_of_many_messages_comes_later(template: Base) -> None:
    scenario = load(turned(template, {**template.begin, "clients": 28, "K": 4}))
    data = ScenarioData(scenario)
    assert timeline(scenario, data, "coded", AT_ONCE) == {"protocol": "coded"}
    assert "panels" in timeline(scenario, data, "wait", AT_ONCE)
