"""The closed forms of scenarios against the simulation of the very same scenarios.

10⁵ rounds of the vectorised path where it is open and quick, else 2,000 server steps; timing only. A mean must lie
within its 99.9 % interval (batch means), an error level of 0.1 % a check with fixed seeds; and so must the shares of
rounds up to three quantiles. Bounds must hold.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from closed_forms_of import WARM_UP, found, half_width, reason
from tiny_worlds import data_of, raw, tiny

from vflsim.analysis.findings import ClosedForm
from vflsim.scenario import load
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.run import run_protocol
from vflsim.simulation.vectorised import obstacles, run_vectorised
from vflsim.studies.checks.rounds import analyse, closed_forms

FAST_SERVER: dict[str, Any] = {"compute": 0, "link": {}}


def scenario(protocol: dict[str, Any], *clients: dict[str, Any], steps: int = 2_000, **changes: Any) -> Any:
    """Four clients of a protocol called ``it``, as ``clients`` entries say."""
    changes.setdefault("timing__server", FAST_SERVER)
    said = raw({"it": protocol}, **changes, timing__clients=list(clients), record="rounds")
    said["stop"], said["evaluate"] = {"rounds": steps}, {"every": f"{steps} rounds"}
    return load(said)


def simulated(world: Any, seed: int = 0) -> tuple[np.ndarray, list[list[int]]]:
    """Durations of all rounds but the first ones, and who was used."""
    if obstacles(world, "it"):
        outcome = run_protocol(world, "it", seed, data_of(world), timing_only=True)
    else:
        outcome = run_vectorised(world, "it", seed, data_of(world))
    assert outcome.error is None
    rounds = outcome.tables.rounds.to_pandas()
    return (rounds["end_s"] - rounds["start_s"]).to_numpy()[WARM_UP:], rounds["used"].tolist()[WARM_UP:]


def check(form: ClosedForm, rounds: np.ndarray) -> None:
    """Mean, and shares up to quantiles, agree with what is known of them."""
    margin = half_width(rounds)
    assert form.mean.low - margin <= rounds.mean() <= form.mean.high + margin
    if form.law is None:
        return
    for x in np.unique(form.law.quantile([0.1, 0.5, 0.9])):
        below = (rounds <= x + 1e-9).astype(np.float64)
        least, most = float((form.slower or form.law).cdf(x)), float(form.law.cdf(x))
        assert least - half_width(below) - 1e-12 <= below.mean() <= most + half_width(below) + 1e-12


EXPONENTIAL = {"select": "all", "upload_delay": {"kind": "exponential", "mean": "0.1*m**2"}}
EVERYTHING = {
    "select": "all",
    "compute": {"kind": "lognormal", "median": "10 ms", "sigma": 0.8},
    "upload_delay": {"kind": "exponential", "mean": "(20*m) ms"},
    "link": {"up": "100 kbps", "down": "200 kbps", "latency": {"kind": "uniform", "low": "1 ms", "high": "9 ms"}},
}
CANONICAL = [
    {"select": "1..N/2", "upload_delay": {"kind": "exponential", "mean": 0.1}},
    {"select": "N/2+1..N", "upload_delay": {"kind": "exponential", "mean": "2 + 4*i/N"}},
]
SYNC = {"kind": "synchronous"}


def cancelling(t: int) -> dict[str, Any]:
    return {"kind": "t_synchronous", "t": t, "cancel": True}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("n", "protocol", "steps"),
    [(8, SYNC, 10**5 + WARM_UP), (16, SYNC, 10**5 + WARM_UP), (8, cancelling(5), 2_500), (16, cancelling(5), 2_500)],
    ids=["sync-8", "sync-16", "t-8", "t-16"],
)
def test_the_canonical_clients(n: int, protocol: dict[str, Any], steps: int) -> None:
    world = scenario(protocol, *CANONICAL, partition__clients=n, steps=steps)
    form = found(world)
    assert form.exactness != "bounds"
    rounds, _ = simulated(world)
    check(form, rounds)
    longer = scenario(protocol, {**CANONICAL[0]}, {**CANONICAL[1], "select": "N/2..N"}, partition__clients=n)
    with pytest.raises(AssertionError):
        check(found(longer), rounds)


@pytest.mark.slow
def test_rounds_in_which_everything_is_random_and_batches_differ() -> None:
    """90 rows in batches of 20: every fifth round embeds a batch of 10, and the one after it returns its gradient."""
    server = {
        "compute": {"kind": "uniform", "low": "1 ms", "high": "20 ms"},
        "link": {"up": "1 Mbps", "down": "1 Mbps", "latency": {"kind": "exponential", "mean": "2 ms"}},
    }
    world = scenario(SYNC, EVERYTHING, timing__server=server, timing__network="dedicated", steps=10**5)
    form = found(world)
    assert form.exactness != "bounds"
    assert any("smaller" in condition for condition in form.conditions)
    rounds, _ = simulated(world)
    check(form, rounds)
    one_size = scenario(
        SYNC, EVERYTHING, timing__server=server, timing__network="dedicated", training__last_batch="drop"
    )
    with pytest.raises(AssertionError):
        check(found(one_size), rounds)


@pytest.mark.slow
def test_flops_decide_with_a_jitter() -> None:
    jitter = {"kind": "lognormal", "median": 1.0, "sigma": 0.5}
    slow = {"kind": "flops", "rate": "100 kFLOPS", "jitter": jitter}
    world = scenario(
        SYNC,
        {"select": "all", "compute": slow, "upload_delay": {"kind": "exponential", "mean": "10 ms"}},
        timing__server={"compute": {"kind": "flops", "rate": "1 MFLOPS"}},
    )
    check(found(world), simulated(world)[0])


@pytest.mark.slow
def test_each_operation_has_the_law_that_is_its_own() -> None:
    jitter = {"kind": "lognormal", "mean": 1.0, "sigma": 0.5}
    compute = {
        "kind": "by_operation",
        "operations": {
            "embed": {"kind": "exponential", "mean": "20 ms"},
            "client_step": {"kind": "flops", "fixed": "5 ms", "rate": "1 MFLOPS", "jitter": jitter},
        },
        "others": "3 ms",
    }
    world = scenario(SYNC, {"select": "all", "compute": compute}, timing__server={"compute": compute}, steps=4_000)
    assert obstacles(world, "it")
    check(found(world), simulated(world)[0])


@pytest.mark.parametrize("network", ["fifo", "fair"])
def test_messages_that_share_links_leave_bounds(network: str) -> None:
    link = {"up": "1 Mbps", "down": "1 Mbps", "latency": "5 ms"}
    world = scenario(
        SYNC, {**EXPONENTIAL, "link": link}, timing__server={"link": link}, timing__network=network, steps=1_000
    )
    form = found(world)
    assert form.exactness == "bounds"
    rounds, _ = simulated(world)
    assert form.mean.low < rounds.mean() + half_width(rounds)
    assert rounds.mean() - half_width(rounds) < form.mean.high
    check(form, rounds)
    assert form.mean.high - form.mean.low < 0.1
    assert form.sd is None


def test_ignoring_for_good_is_synchronous_among_the_others() -> None:
    world = scenario({"kind": "ignore", "exclude": "4"}, EXPONENTIAL)
    check(found(world), simulated(world)[0])
    assert found(world).law == found(scenario(SYNC, EXPONENTIAL, partition__clients=3)).law


def test_rounds_that_drop_clients_depend_on_each_other() -> None:
    assert "before it joins again" in reason(scenario({"kind": "ignore", "fastest": 2}, EXPONENTIAL))
    assert "before it joins again" in reason(scenario({"kind": "ignore", "deadline": 0.5}, EXPONENTIAL))
    uniform = {"select": "all", "upload_delay": {"kind": "uniform", "low": 0.1, "high": 0.4}}
    never_late = scenario({"kind": "ignore", "deadline": 0.5}, uniform)
    assert found(never_late).law == found(scenario(SYNC, uniform)).law


def test_a_cancelled_round_depends_on_who_was_used_unless_that_makes_no_difference() -> None:
    free = scenario(cancelling(2), EXPONENTIAL)
    assert found(free).exactness != "bounds"
    world = scenario(cancelling(2), {**EXPONENTIAL, "compute": "30 ms"})
    form = found(world)
    assert form.exactness == "bounds"
    assert form.mean.high - form.mean.low == pytest.approx(0.03)
    rounds, _ = simulated(world)
    check(form, rounds)


def test_cancelled_rounds_use_clients_independently() -> None:
    world = scenario(cancelling(2), EXPONENTIAL)
    forms = [f for f in analyse(world, "it", data_of(world)).findings if f.name == "client age"]
    _, used = simulated(world)
    for form in forms:
        assert isinstance(form, ClosedForm)
        (client,) = form.clients
        gaps = np.diff([k for k, clients in enumerate(used) if client in clients])
        ages = np.concatenate([np.arange(gap) for gap in gaps]).astype(np.float64)
        check(form, ages)


def test_the_race_against_synchronous_rounds() -> None:
    alike = {"select": "all", "upload_delay": {"kind": "exponential", "mean": 2.0}}
    form = found(scenario(cancelling(3), alike), "share of a synchronous round")
    assert form.mean.low == pytest.approx((1 / 2 + 1 / 3 + 1 / 4) / (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=1e-5)


# --- clients at their own pace ----------------------------------------------------------------------------------------


def test_late_uploads_that_go_on_are_memoryless_with_exponential_delays() -> None:
    world = scenario({"kind": "t_synchronous", "t": 2}, EXPONENTIAL)
    assert found(world).exactness != "bounds"
    check(found(world), simulated(world)[0])


def test_arrivals_while_the_server_computes_form_a_chain() -> None:
    alike = {"select": "all", "upload_delay": {"kind": "exponential", "mean": 0.2}}
    world = scenario({"kind": "t_synchronous", "t": 2}, alike, timing__server={"compute": "80 ms"})
    assert found(world).exactness != "bounds"
    check(found(world), simulated(world)[0])


@pytest.mark.parametrize("protocol", [{"kind": "t_synchronous", "t": 2}, {"kind": "asynchronous"}], ids=["t", "async"])
def test_waits_of_clients_at_their_own_pace_have_no_closed_form(protocol: dict[str, Any]) -> None:
    link = {"up": "2 Mbps", "down": "2 Mbps", "latency": "5 ms"}
    server = {"compute": "10 ms", "link": link}
    world = scenario(protocol, {**EXPONENTIAL, "link": link, "compute": "5 ms"}, timing__server=server)
    assert "a step waits for the server, for links, or for clients" in reason(world)


@pytest.mark.slow
def test_asynchronous_steps_pool_the_clients_cycles() -> None:
    world = scenario(
        {"kind": "asynchronous"},
        {
            "select": "all",
            "compute": {"kind": "lognormal", "median": "100 ms", "sigma": 0.8},
            "upload_delay": {"kind": "exponential", "mean": "(200*m) ms"},
            "link": {"latency": {"kind": "uniform", "low": "10 ms", "high": "90 ms"}},
        },
        steps=4_000,
    )
    rounds, used = simulated(world)
    check(found(world), rounds)
    forms = [f for f in analyse(world, "it", data_of(world)).findings if f.name.startswith("steps from one")]
    for form in forms:
        assert isinstance(form, ClosedForm)
        gaps = np.diff([k for k, clients in enumerate(used) if form.clients[0] in clients]).astype(np.float64)
        assert abs(gaps.mean() - form.mean.low) <= half_width(gaps)
    assert len(forms) == 4


def test_poisson_activations_make_geometric_ages() -> None:
    world = scenario(
        {"kind": "asynchronous"}, {"select": "all", "activation": {"kind": "poisson", "rate": "0.5*m"}}, steps=4_000
    )
    rounds, used = simulated(world)
    check(found(world), rounds)
    ages = {f.clients[0]: f for f in analyse(world, "it", data_of(world)).findings if f.name == "client age"}  # type: ignore[union-attr]
    for client in (1, 4):
        form = ages[client]
        assert isinstance(form, ClosedForm)
        assert form.mean.low == pytest.approx(10 / client - 1)
        gaps = np.diff([k for k, clients in enumerate(used) if client in clients])
        check(form, np.concatenate([np.arange(gap) for gap in gaps]).astype(np.float64))


def test_exponential_server_steps_have_product_form() -> None:
    server = {"compute": {"kind": "exponential", "mean": "100 ms"}}
    world = scenario({"kind": "asynchronous"}, {**EXPONENTIAL, "compute": "50 ms"}, timing__server=server)
    form = found(world)
    assert (form.exactness, form.law) == ("exact", None)
    check(form, simulated(world)[0])


@pytest.mark.parametrize("compute", [0, {"kind": "exponential", "mean": "50 ms"}], ids=["at once", "exponential"])
def test_links_that_are_shared_equally_have_product_form(compute: Any) -> None:
    link = {"up": "200 kbps", "down": "200 kbps"}
    changes = {"timing__network": "fair", "timing__server": {"compute": compute, "link": link}}
    uploads = {"kind": "exponential", "mean": "50*m ms"}
    quick = {"up": "1 Mbps", "down": "1 Mbps", "latency": "5 ms"}
    world = scenario({"kind": "asynchronous"}, {"select": "all", "upload_delay": uploads, "link": quick}, **changes)
    form = found(world)
    assert (form.exactness, form.law) == ("exact", None)
    rounds, _ = simulated(world)
    check(form, rounds)
    slow = {"up": "100 kbps", "down": "100 kbps"}
    other = scenario({"kind": "asynchronous"}, {"select": "all", "upload_delay": uploads, "link": slow}, **changes)
    assert "a step waits" in reason(other), "clients' own links limit their share"
    unshared = scenario(
        {"kind": "asynchronous"}, {"select": "all", "upload_delay": uploads, "link": quick},
        **(changes | {"timing__network": "dedicated"}),
    )  # fmt: skip
    assert found(unshared).mean.low < rounds.mean() - half_width(rounds), "as if nobody waited for links"


def test_own_batches_send_their_ids() -> None:
    link = {"up": "100 kbps", "down": "100 kbps"}
    changes = {"timing__network": "dedicated", "training__batches": "own", "training__last_batch": "drop"}
    world = scenario({"kind": "asynchronous"}, {**EXPONENTIAL, "link": link}, **changes)
    check(found(world), simulated(world)[0])
    form = found(world, "steps from one of its own to the next")
    cycle = 0.1 + 8 * (60 + 20 * 6 * 8) / 1e5 + 8 * (60 + 8 * 20 + 20 * 6 * 8) / 1e5
    assert form.clients == (1,)
    assert form.mean.low == pytest.approx(found(world, "server steps per second").mean.low * cycle)


# --- what has none, and the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "client", "changes", "why"),
    [
        (SYNC, {"activation": {"kind": "poisson", "rate": 1, "busy": "queue"}}, {}, "queued"),
        (SYNC, {"activation": {"kind": "schedule", "times": [1, 2], "period": 3}}, {}, "depend on the time"),
        (SYNC, {}, {"evaluate__costs_time": True}, "evaluation costs time"),
        ({"kind": "asynchronous", "max_staleness": 3}, {}, {}, "queried again"),
        (SYNC, {"link": {"up": {"kind": "steps", "steps": [[0, 1e6], [1, 2e6]]}}}, {}, "changes in time"),
    ],
)
def test_what_has_no_closed_form_says_why(
    protocol: dict[str, Any], client: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    world = scenario(protocol, EXPONENTIAL, {"select": "all", **client})
    if changes:
        world = world.model_copy(update={"evaluate": world.evaluate.model_copy(update={"costs_time": True})})
    assert why in reason(world)


def test_windows_of_connections_leave_no_closed_form() -> None:
    assert "window depends on the messages before" in reason(scenario(SYNC, EXPONENTIAL, timing__transport="tcp"))


def test_centralised_rounds_are_server_steps() -> None:
    world = scenario(
        {"kind": "centralised"}, EXPONENTIAL, timing__server={"compute": {"kind": "exponential", "mean": 2}}
    )
    assert found(world).mean.low == 2.0


def test_every_formula_can_be_printed() -> None:
    protocols = {
        "sync": SYNC, "t": cancelling(2), "on": {"kind": "t_synchronous", "t": 2}, "async": {"kind": "asynchronous"},
        "out": {"kind": "ignore", "exclude": "1"}, "all": {"kind": "centralised"},
    }  # fmt: skip
    world = tiny(protocols, timing={"clients": [EXPONENTIAL]})
    for name in protocols:
        for finding in analyse(world, name, data_of(world, name)).findings:
            assert isinstance(finding, ClosedForm)
            for formula in finding.formulas():
                assert " = " in formula.text
                assert " = " in formula.latex


def test_the_curves_are_the_same_each_time_and_rise_from_0_to_1() -> None:
    said = raw({"sync": SYNC, "t": cancelling(2), "async": {"kind": "asynchronous"}})
    said["timing"] = {"clients": [EXPONENTIAL]}
    world = load(said)
    table = closed_forms(world, ScenarioData(world)).table
    assert isinstance(table, pa.Table)
    assert table.equals(closed_forms(world, ScenarioData(world)).table)
    frame = table.to_pandas()
    assert set(frame["protocol"]) == {"sync", "t", "async"}
    assert set(frame[frame["quantity"] == "client_age"]["client"]) == {1, 2, 3, 4}
    for _, curve in frame.groupby(["protocol", "quantity", "client"]):
        assert np.all(np.diff(curve["x"]) > 0)
        assert np.all(np.diff(curve["cdf"]) >= -1e-12)
        assert np.array_equal(curve["cdf"], curve["cdf_upper"])
        assert curve["cdf"].iloc[-1] >= 1 - 1.1e-5
    rounds = frame[(frame["protocol"] == "sync") & (frame["quantity"] == "round_duration")]
    area = rounds["x"].iloc[0] + np.trapezoid(1 - rounds["cdf"], rounds["x"])
    assert area == pytest.approx(analyse(world, "sync", data_of(world, "sync")).findings[0].mean.low, rel=2e-3)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "client",
    [
        {
            "link": {"latency": {"kind": "exponential", "mean": 0.5}},
            "upload_delay": {"kind": "exponential", "mean": 0.1},
        },
        {"compute": {"kind": "weibull", "shape": 0.2, "mean": 0.5}, "upload_delay": 0.1},
    ],
    ids=["gradients-overtake", "long-steps"],
)
def test_a_client_that_may_still_be_busy_with_the_round_before_has_no_closed_form(client: dict[str, Any]) -> None:
    assert "may outlast a round" in reason(scenario(cancelling(2), {"select": "all", **client}))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", [0.3, {"kind": "exponential", "mean": 0.3}], ids=["constant", "memoryless"])
def test_bounds_hold_where_client_steps_outlast_rounds(step: Any) -> None:
    client = {"select": "all", "compute": step, "upload_delay": {"kind": "exponential", "mean": "0.1*m"}}
    world = scenario(cancelling(1), client)
    form = found(world)
    assert form.exactness == "bounds"
    check(form, simulated(world)[0])


def test_numbers_that_cannot_be_had_are_a_reason_and_no_error(tmp_path: Path) -> None:
    file = tmp_path / "observed.npy"
    np.save(file, np.random.default_rng(0).random(2_000))
    observed = {"kind": "empirical", "file": str(file)}
    world = scenario(
        SYNC, {"select": "all", "compute": observed, "upload_delay": {"kind": "sum", "parts": [observed] * 2}}
    )
    assert "too large for its exact distribution" in reason(world)
    assert closed_forms(world, ScenarioData(world)).table.num_rows == 0


def test_nothing_known_means_no_table() -> None:
    world = scenario({"kind": "ignore", "fastest": 2}, EXPONENTIAL)
    assert closed_forms(world, ScenarioData(world)).table.num_rows == 0


def test_results_have_curves_of_rounds_with_many_random_parts() -> None:
    law = {"kind": "maximum", "parts": [{"kind": "exponential", "mean": k} for k in (1, 2, 3)]}
    compute = {"kind": "sum", "parts": [law, law]}
    nested = scenario({"kind": "synchronous"}, {"select": "all", "upload_delay": 0.1, "compute": compute})
    found = closed_forms(nested, ScenarioData(nested))
    assert found.left_out == ()
    assert found.table.num_rows > 0


def test_different_models_of_the_same_embedding_size_have_times_of_their_own() -> None:
    linear = {"kind": "linear", "embedding": 6}
    models = [{"select": "all", **linear}, {"select": "2", "kind": "mlp", "hidden": [60], "embedding": 6}]
    compute = {"select": "all", "compute": {"kind": "flops", "rate": "1 MFLOPS"}}
    same = {"models__client": models, "training__last_batch": "drop"}
    world = scenario({"kind": "synchronous"}, compute, steps=WARM_UP + 10, **same)
    assert simulated(world)[0] == pytest.approx(found(world).mean.low)


@pytest.mark.parametrize("batches", ["shared", "own"])
@pytest.mark.parametrize("clients", [2, 4])
def test_a_step_on_one_arrival_costs_the_flops_of_its_batch_whoever_walks_which_batches(
    batches: str, clients: int
) -> None:
    world = scenario(
        {"kind": "asynchronous"},
        {"select": "all", "compute": 0, "upload_delay": {"kind": "exponential", "mean": "2 ms"}},
        steps=20_000,
        partition__clients=clients,
        training__batches=batches,
        training__last_batch="drop",
        timing__server={"compute": {"kind": "flops", "rate": "5 MFLOPS"}, "link": {}},
    )
    rounds, _ = simulated(world)
    assert rounds.mean() == pytest.approx(found(world).mean.low, abs=half_width(rounds) + 1e-6)
