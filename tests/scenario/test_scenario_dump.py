from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from thorough import examples

from vflsim.scenario import Scenario, dump, load, party_timings, schema
from vflsim.scenario.translation import Known
from vflsim.shipped import shipped

SHIPPED = sorted(shipped().values())

DELAYS = st.one_of(
    st.sampled_from([0, 0.25, "5 ms", "i s", "(1 + m/N) ms"]),
    st.fixed_dictionaries({"kind": st.just("exponential"), "mean": st.sampled_from(["0.1 s", 2, "2 + 4*i/N", "k*m"])}),
    st.fixed_dictionaries({"kind": st.just("uniform"), "low": st.just(0), "high": st.sampled_from([1, "m", "50 ms"])}),
)
LINKS = st.fixed_dictionaries(
    {}, optional={"up": st.sampled_from(["300 Mbps", 1e6, "unlimited"]), "down": st.just("1 Gbps"), "latency": DELAYS}
)
SELECTIONS = st.sampled_from(["all", 1, "1..N/2", "N/2+1..N", "2,4", [1, "3..4"]])
TIMING = st.fixed_dictionaries(
    {"select": SELECTIONS}, optional={"upload_delay": DELAYS, "link": LINKS, "compute": DELAYS}
)
PROTOCOLS = st.sampled_from(
    [
        {"kind": "synchronous"},
        {"kind": "ignore", "exclude": "N/2+1..N"},
        {"kind": "ignore", "fastest": 3},
        {"kind": "t_synchronous", "t": "N/2", "cancel": True},
        {"kind": "asynchronous", "max_staleness": 5, "training": {"batch": 8}},
        {"kind": "synchronous", "stop": {"time": None, "rounds": 5}, "evaluate": {"every": "2 rounds"}},
    ]
)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() not in {"con", "prn", "aux", "nul"} and not name.lower().startswith(("com", "lpt"))
)
SCENARIOS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "constants": st.just({"k": 2}),
        "data": st.just({"name": "digits", "validation_fraction": 0.1}),
        "partition": st.just({"clients": "2*k", "by": "columns"}),
        "models": st.just(
            {"client": {"kind": "linear", "embedding": 4}, "aggregate": "mean", "server": {"kind": "linear"}}
        ),
        "training": st.fixed_dictionaries(
            {
                "batch": st.integers(1, 99),
                "client_optimizer": st.just({"kind": "sgd", "lr": 0.1}),
                "server_optimizer": st.just({"kind": "adam", "lr": "1/100"}),
            },
            optional={"dtype": st.just("float64")},
        ),
        "timing": st.fixed_dictionaries(
            {"clients": st.lists(TIMING, max_size=3), "server": st.just({"compute": "1 ms"})}
        ),
        "protocols": st.dictionaries(NAMES.map(str.lower), PROTOCOLS, min_size=1, max_size=3),
        "stop": st.just({"time": "60 s", "target": {"test_accuracy": 0.9, "validation_loss": 0.1}}),
        "evaluate": st.sampled_from([{"every": "5 s"}, {"every": "N updates", "costs_time": True}]),
        "seeds": st.one_of(st.just("0:5"), st.lists(st.integers(0, 2**63 - 1), min_size=1, unique=True)),
    }
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(SCENARIOS)
def test_what_is_dumped_loads_back_equal(raw: dict[str, Any]) -> None:
    scenario = load(raw)
    again = load(dump(scenario))
    assert again == scenario
    assert party_timings(again) == party_timings(scenario)
    assert dump(again) == dump(scenario)


def test_the_dump_holds_what_was_said_and_the_overrides(base: str) -> None:
    text = dump(load(base, ["training.batch=7", "timing.clients.1.upload_delay.mean=3 + i"]))
    assert "mean: 3 + i" in text
    assert "batch: 7" in text
    assert load(text).training.batch == 7


@pytest.mark.sampled(16)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_valid_and_dumps_back(path: Path) -> None:
    scenario = load(path)
    assert load(dump(scenario)) == scenario
    assert scenario.name in {path.stem, f"{path.parent.name}_{path.stem}"}  # figures of papers say whose


def test_the_canonical_timing_is_that_of_the_paper() -> None:
    """FedVS Sec. 6.2: mean 0.1 s for half of the clients, 2 + 4 i/N for i = 1..N/2 of the others, 300 Mbps."""
    timings = party_timings(load(next(path for path in SHIPPED if path.stem == "fashion_mnist_stragglers")))[1:]
    means = [timing.upload_delay.expectation() for timing in timings]
    assert means[:14] == [0.1] * 14
    assert means[14:] == pytest.approx([2 + 4 * i / 28 for i in range(1, 15)], rel=1e-15)
    assert {timing.link.up for timing in timings} == {timing.link.down for timing in timings} == {3e8}


def keys_of(raw: object, loc: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(raw, dict):
        return [found for key, item in raw.items() for found in [(*loc, key), *keys_of(item, (*loc, key))]]
    if isinstance(raw, list):
        return [found for index, item in enumerate(raw) for found in keys_of(item, (*loc, index))]
    return []


@pytest.mark.sampled(16)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_schema_knows_every_key_of_the_shipped_scenarios(path: Path) -> None:
    raw = load(path).document.raw
    known = Known(raw, schema)
    free = {"arguments", "constants", "operations", "protocols", "target"}  # mappings whose keys the user chooses
    for loc in keys_of(raw):
        if isinstance(loc[-1], str) and not free & set(loc[-2:-1]):
            assert loc[-1] in known.keys(loc[:-1]), loc


def test_the_schema_shows_entries_and_overrides() -> None:
    known = Known({"protocols": {"p": {"kind": "asynchronous"}}}, schema)
    timing = {"select", "compute", "link", "upload_delay", "activation", "availability", "power"}
    assert timing == set(known.keys(("timing", "clients", 0)))
    assert {"training", "stop", "evaluate", "kind", "max_staleness"} <= set(known.keys(("protocols", "p")))
    assert "t" not in known.keys(("protocols", "p"))
    assert {"synchronous", "ignore", "t_synchronous"} <= set(known.words(("protocols", "p", "kind")))
    assert "select" in known.keys(("models", "client"))
    assert schema()["$schema"].endswith("2020-12/schema")


def test_every_field_of_the_vocabulary_is_reachable_in_the_schema() -> None:
    assert set(Known({}, schema).keys(())) == set(Scenario.model_fields)
