import pickle
from pathlib import Path

import pytest
from tiny_worlds import tiny

from vflsim.errors import ScenarioError
from vflsim.learning.optimizers import Adam, Sgd
from vflsim.learning.training import Training
from vflsim.protocols.synchronous import Ignore
from vflsim.protocols.vafl import TSynchronous
from vflsim.scenario import Scenario, client_models, load, party_timings
from vflsim.scenario.sections import Every
from vflsim.timing.delays import Constant, Exponential


def with_(base: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert base.count(old) == 1, old
        base = base.replace(old, new)
    return base


def test_the_quickstart_says_what_it_means(quickstart: Path) -> None:
    scenario = load(quickstart)
    assert scenario.name == "quickstart"
    assert scenario.clients == 8
    assert {"wait", "ignore", "t-sync", "async", "fedvs"} <= scenario.protocols.keys()
    assert isinstance(scenario.protocols["ignore"].protocol, Ignore)
    assert scenario.protocols["t-sync"].protocol == TSynchronous(t=4)
    assert isinstance(scenario.training, Training)
    assert scenario.seeds == (0, 1, 2, 3, 4)


def test_path_text_and_mapping_give_equal_scenarios(base: str, tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text(base, encoding="utf-8")
    scenarios = [load(path), load(str(path)), load(base), load(load(base).document.raw)]
    assert all(scenario == scenarios[0] for scenario in scenarios)


def test_different_words_of_equal_meaning_are_equal(base: str) -> None:
    assert load(with_(base, ("compute: 1 ms", "compute: {kind: constant, value: 0.001}"))) == load(base)
    assert load(with_(base, ("compute: 1 ms", "compute: 1.5 ms"))) != load(base)


def test_an_override_counts_as_if_written(base: str) -> None:
    assert load(base, ["training.batch=16"]) == load(with_(base, ("batch: 32", "batch: 16")))


def test_scenarios_travel_between_processes(base: str) -> None:
    scenario = load(base)
    assert pickle.loads(pickle.dumps(scenario)) == scenario


@pytest.mark.parametrize(
    ("seeds", "expected"), [("[3, 1]", (3, 1)), ("0:3", (0, 1, 2)), ("'5 : 7'", (5, 6)), ("[0]", (0,))]
)
def test_seeds_are_a_list_or_a_range(seeds: str, expected: tuple[int, ...], base: str) -> None:
    assert load(with_(base, ("[0, 1]", seeds))).seeds == expected


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        ("5 s", Every(amount=5, unit="seconds")),
        ("0.5", Every(amount=0.5, unit="seconds")),
        ("N/2 min", Every(amount=120, unit="seconds")),
        ("1 round", Every(amount=1, unit="rounds")),
        ("2*N rounds", Every(amount=8, unit="rounds")),
        ("100 updates", Every(amount=100, unit="updates")),
    ],
)
def test_evaluation_is_timed_in_seconds_rounds_or_updates(every: str, expected: Every, base: str) -> None:
    assert load(with_(base, ("every: 5 s", f"every: {every}"))).evaluate.every == expected


def test_constants_may_use_earlier_ones_and_formulas_use_all(base: str) -> None:
    scenario = load(with_(base, ("partition:", "constants: {a: 2, b: a**2}\npartition:"), ("clients: 4", "clients: b")))
    assert scenario.symbols == {"a": 2.0, "b": 4.0, "N": 4}


def test_the_number_of_clients_may_follow_from_the_data(base: str) -> None:
    text = with_(base, ("name: digits", "name: handwritten"), ("  clients: 4\n  by: columns\n", "  by: views\n"))
    assert load(text).clients == 6


def test_a_protocol_refines_training_stop_and_evaluation_key_by_key(base: str) -> None:
    own = "training: {batch: 8}, stop: {rounds: 5}, evaluate: {every: 1 round}"
    scenario = load(with_(base, ("wait: {kind: synchronous}", f"wait: {{kind: synchronous, {own}}}")))
    assert scenario.training_of("wait").batch == 8
    assert scenario.training_of("wait").client_optimizer == scenario.training.client_optimizer
    assert scenario.training_of("two") == scenario.training
    assert scenario.stop_of("wait").criteria == {"time": 60.0, "rounds": 5}
    assert scenario.stop_of("two").criteria == {"time": 60.0}
    assert scenario.evaluate_of("wait").every == Every(amount=1, unit="rounds")


def test_clients_may_have_optimisers_of_their_own(base: str) -> None:
    old = "client_optimizer: {kind: sgd, lr: 0.1}"
    listed = "client_optimizer: [{kind: sgd, lr: 0.1 * m}, {select: 2..3, kind: adam, lr: i / 100}]"
    own = "wait: {kind: synchronous, training: {client_optimizer: {select: all, kind: adam, lr: m}}}"
    scenario = load(with_(base, (old, listed), ("wait: {kind: synchronous}", own)))
    rules = scenario.training_of("two").client_optimizers(4)
    assert rules == (Sgd(lr=0.1), Adam(lr=0.01), Adam(lr=0.02), Sgd(lr=0.4))
    assert scenario.training_of("wait").client_optimizers(4) == tuple(Adam(lr=m) for m in (1, 2, 3, 4))


def test_one_optimiser_serves_all_clients(base: str) -> None:
    assert load(base).training.client_optimizers(4) == (Sgd(lr=0.1),) * 4


def test_a_protocol_takes_a_criterion_away_with_null(base: str) -> None:
    text = with_(base, ("wait: {kind: synchronous}", "wait: {kind: synchronous, stop: {time: null, rounds: 3}}"))
    assert load(text).stop_of("wait").criteria == {"rounds": 3}


def test_relative_paths_start_at_the_scenario(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "studies" / "own.yaml"
    path.parent.mkdir()
    path.write_text(with_(base, ("name: digits", "file: table.csv\n  label: y")), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load("studies/own.yaml").data.file == str(tmp_path / "studies" / "table.csv")


def test_later_entries_refine_earlier_ones_and_links_key_by_key(base: str) -> None:
    entries = """
    - {select: all, compute: 2 ms, link: {up: 300 Mbps, latency: 5 ms}}
    - {select: 2..3, link: {up: 3 Mbps}, upload_delay: m s}
    - {select: 3, link: {latency: 1 ms}}"""
    start, end = base.index("    - {select: all"), base.index("protocols:")
    timings = party_timings(load(base[:start] + entries.lstrip("\n") + "\n" + base[end:]))
    assert [timing.link.up for timing in timings[1:]] == [3e8, 3e6, 3e6, 3e8]
    assert [timing.link.latency.expectation() for timing in timings[1:]] == [0.005, 0.005, 0.001, 0.005]
    assert [timing.upload_delay.expectation() for timing in timings[1:]] == [0.0, 2.0, 3.0, 0.0]
    assert [timing.compute for timing in timings] == [Constant(value=0.001), *[Constant(value=0.002)] * 4]


def test_i_counts_within_the_selection_and_m_is_the_client(base: str) -> None:
    text = with_(base, ("select: 3..N", "select: '4, 2'"), ("mean: 2 + i", "mean: 10*i + m"))
    timings = party_timings(load(text))
    assert timings[4].upload_delay == Exponential(mean=14.0)
    assert timings[2].upload_delay == Exponential(mean=22.0)


def test_one_mapping_stands_for_a_list_of_one(base: str) -> None:
    start, end = base.index("  clients:\n    -"), base.index("protocols:")
    timings = party_timings(load(base[:start] + "  clients: {upload_delay: 1 s}\n" + base[end:]))
    assert [timing.upload_delay.expectation() for timing in timings] == [0, 1, 1, 1, 1]


def test_without_timing_only_rounds_can_end_a_run(base: str) -> None:
    start, end = base.index("timing:"), base.index("protocols:")
    text = base[:start] + base[end:]
    with pytest.raises(ScenarioError, match="time would never pass"):
        load(text)
    scenario = load(with_(text, ("time: 60 s", "rounds: 5")))
    assert {timing.compute.expectation() for timing in party_timings(scenario)} == {0.0}  # type: ignore[union-attr]


def test_the_last_model_that_selects_a_client_counts(base: str) -> None:
    models = "client: [{kind: linear, embedding: 8}, {select: 3..N, kind: mlp, hidden: [4*m], embedding: 8}]"
    found = client_models(load(with_(base, ("client: {kind: linear, embedding: 8}", models))), "wait")
    assert [model.kind for model in found] == ["linear", "linear", "mlp", "mlp"]
    assert [model.hidden for model in found[2:]] == [(12,), (16,)]  # type: ignore[attr-defined]


def test_many_clients_are_no_burden(base: str) -> None:
    text = with_(base, ("name: digits", "file: wide.csv\n  label: y"), ("clients: 4", "clients: 20000"))
    timings = party_timings(load(text))
    assert timings[20_000].upload_delay == Exponential(mean=20_000.0)


def test_all_problems_are_told_at_once_in_the_order_of_the_file(base: str) -> None:
    text = with_(base, ("name: base", "name: a/b"), ("batch: 32", "batch: 0"), ("t: 2", "tt: 2"), ("[0, 1]", "[]"))
    with pytest.raises(ScenarioError) as caught:
        load(text)
    lines = str(caught.value).splitlines()
    assert "4 problems" in lines[0] or "5 problems" in lines[0]
    places = [line.split(": ")[1] for line in lines[1:]]
    assert places == sorted(places, key=["name", "training.batch", "protocols.two.tt", "seeds"].index)
    assert all("allowed: " in line or "remedy: " in line for line in lines[1:])


def test_what_follows_from_a_wrong_number_of_clients_is_not_told(base: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(
            with_(base, ("clients: 4", "clients: none"), ("mean: 2 + i", "mean: N"), ("every: 5 s", "every: N rounds"))
        )
    assert caught.value.where.endswith("partition.clients")


def test_what_follows_from_a_wrong_constant_is_not_told(base: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(with_(base, ("partition:", "constants: {q: 1 +}\npartition:"), ("every: 5 s", "every: q")))
    assert caught.value.where.endswith("constants.q")


def test_a_scenario_from_python_names_the_key(base: str) -> None:
    raw = load(base).document.raw
    with pytest.raises(ScenarioError) as caught:
        load({**raw, "seeds": []})
    assert caught.value.where == "seeds"


def test_a_scenario_is_not_changed_by_accident(base: str) -> None:
    scenario: Scenario = load(base)
    with pytest.raises(ValueError, match="frozen"):
        scenario.name = "other"  # type: ignore[misc]


def test_timings_are_resolved_once_for_a_scenario() -> None:
    scenario = tiny(timing={"clients": {"compute": "(m) ms"}})
    assert party_timings(scenario) is party_timings(scenario)
    other = tiny(timing={"clients": {"compute": "(2*m) ms"}})
    changed = scenario.model_copy(update={"timing": other.timing})
    assert party_timings(changed) == party_timings(other) != party_timings(scenario)
