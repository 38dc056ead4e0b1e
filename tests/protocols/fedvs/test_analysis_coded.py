"""The closed forms of coded rounds against the simulation of the very same scenarios, event by event.

Timing only, of 800 rounds where no other number is stated. Means, and the shares of rounds up to three quantiles, must
lie within their 99.9 % intervals by batch means: an error level of 0.1 % a check, with fixed seeds. Bounds must hold.
"""

from typing import Any

import numpy as np
import pytest
from closed_forms_of import WARM_UP, found, half_width, reason
from thorough import in_turn, is_thorough
from tiny_worlds import data_of, raw

from vflsim.analysis.findings import ClosedForm
from vflsim.protocols.fedvs.rounds import BARRIER, ONCE
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks.rounds import analyse, closed_forms

ROUNDS = 800
FREE: dict[str, Any] = {"compute": 0, "link": {}}
EXPONENTIAL = {"select": "all", "upload_delay": {"kind": "exponential", "mean": "0.1*m"}}
EVERYTHING = {
    "select": "all",
    "compute": {"kind": "lognormal", "median": "10 ms", "sigma": 0.8},
    "upload_delay": {"kind": "gamma", "shape": 2, "mean": "(20*m) ms"},
    "activation": {"kind": "poisson", "rate": 20},
}


def scenario(
    *clients: dict[str, Any], rounds: int = ROUNDS, protocol: dict[str, Any] | None = None, **changes: Any
) -> Scenario:
    """Six clients of a coded protocol called ``it``; 90 rows in 2 segments, batches of 10 of each, a last one of 5."""
    changes.setdefault("timing__server", FREE)
    changes.setdefault("partition__clients", 6)
    said = raw({"it": {"kind": "fedvs", "K": 2, **(protocol or {})}}, **changes, timing__clients=list(clients))
    said |= {"stop": {"rounds": rounds}, "evaluate": {"every": f"{rounds} rounds"}, "record": "events"}
    return load(said)


def simulated(world: Scenario) -> dict[str, np.ndarray]:
    """Of all rounds but the first ones: how long they are, and when in them the last client has sent its shares."""
    outcome = run_protocol(world, "it", 0, data_of(world), timing_only=True)
    assert outcome.error is None
    rounds, events = outcome.tables.rounds.to_pandas(), outcome.tables.events.to_pandas()
    shared = events[events["kind"] == "share"].groupby("round")["end_s"].max()
    begun = rounds["start_s"].to_numpy()
    last = shared.reindex(rounds["round"]).to_numpy() - begun
    return {"round duration": (rounds["end_s"].to_numpy() - begun)[WARM_UP:], BARRIER: last[WARM_UP:]}


def agrees(form: ClosedForm, rounds: np.ndarray) -> bool:
    """Whether a mean, and the shares up to quantiles, are what is known of them."""
    assert form.law is not None
    margin, slower = half_width(rounds), form.slower or form.law
    if not form.mean.low - margin <= rounds.mean() <= form.mean.high + margin:
        return False
    for x in np.unique(form.law.quantile([0.1, 0.5, 0.9])):
        below = (rounds <= x + 1e-9).astype(np.float64)
        spread = half_width(below) + 1e-9
        if not float(slower.cdf(x)) - spread <= below.mean() <= float(form.law.cdf(x)) + spread:
            return False
    return True


LINK = {"up": "1 Mbps", "down": "1 Mbps", "latency": "5 ms"}
LINKED = {**EXPONENTIAL, "link": LINK, "compute": "2 ms"}
FAR = {**LINKED, "link": {**LINK, "latency": {"kind": "uniform", "low": "1 ms", "high": "9 ms"}}}
SERVER = {"compute": {"kind": "uniform", "low": "1 ms", "high": "20 ms"}, "link": {}}
FINISHED = {"K": 1, "late": "finished"}
AWAY = {"kind": "alternating", "up": 1, "down": 1, "interrupted": "lost"}


# --- against the simulation -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rounds_of_exponential_delays() -> None:
    """A smaller last batch takes as long; one answer more or less, a larger batch, or no barrier is something else."""
    world = scenario(EXPONENTIAL)
    rounds = simulated(world)
    assert found(world).exactness != "bounds"
    assert agrees(found(world), rounds["round duration"])
    assert agrees(found(world, BARRIER), rounds[BARRIER])
    assert agrees(found(world, "5th of 6 uploads"), rounds["round duration"] - rounds[BARRIER])
    for wrong in (scenario(EXPONENTIAL, protocol={"T": 1, "K": 1}), scenario(EXPONENTIAL, training__batch=40)):
        assert not agrees(found(wrong), rounds["round duration"])
    assert not agrees(found(world, "5th of 6 uploads"), rounds["round duration"]), "no barrier"
    assert agrees(found(scenario(EXPONENTIAL, training__last_batch="drop")), rounds["round duration"])


@pytest.mark.slow
def test_rounds_in_which_everything_is_random() -> None:
    world = scenario(EVERYTHING, timing__server=SERVER, rounds=1_500)
    rounds = simulated(world)
    assert found(world).exactness != "bounds"
    assert agrees(found(world), rounds["round duration"])
    assert agrees(found(world, BARRIER), rounds[BARRIER])
    assert not agrees(found(scenario(EVERYTHING)), rounds["round duration"]), "no server step"


@pytest.mark.slow
def test_sizes_decide_with_flops() -> None:
    """Coded embeddings, shares, decoding and steps at the cost of their operations, on links without contention."""
    flops = {"kind": "flops", "rate": "500 kFLOPS", "jitter": {"kind": "lognormal", "median": 1.0, "sigma": 0.5}}
    client = {"select": "all", "upload_delay": {"kind": "exponential", "mean": "(3*m) ms"}, "compute": flops}
    server = {"compute": {"kind": "flops", "rate": "1 MFLOPS"}}
    world = scenario(client, timing__server=server, rounds=1_000)
    rounds = simulated(world)["round duration"]
    assert agrees(found(world), rounds)
    for other in ("450 kFLOPS", "550 kFLOPS") if is_thorough() else ("450 kFLOPS",):
        faster = scenario({**client, "compute": {**flops, "rate": other}}, timing__server=server)
        assert not agrees(found(faster), rounds)


def test_decoding_and_the_step_on_it_take_the_time_of_their_flops() -> None:
    """Nothing is random, and the server alone takes time: a round is the slowest of five uploads and a server step."""
    client = {"select": "all", "upload_delay": "(3*m) ms"}
    server = {"compute": {"kind": "flops", "rate": "1 MFLOPS"}}
    world = scenario(client, timing__server=server, training__last_batch="drop", rounds=WARM_UP + 5)
    rounds = simulated(world)["round duration"]
    assert found(world).mean.low == pytest.approx(rounds.mean(), rel=1e-9)
    assert rounds.mean() > found(scenario(client, training__last_batch="drop")).mean.low * (1 + 1e-3)


@pytest.mark.slow
@in_turn(network=["fifo", "dedicated", "fair"])
def test_messages_under_way_leave_bounds(network: str) -> None:
    server = {"compute": "3 ms", "link": LINK}
    world = scenario(LINKED, timing__server=server, timing__network=network, rounds=300)
    form = found(world)
    assert form.exactness == "bounds"
    assert agrees(form, simulated(world)["round duration"])
    assert form.mean.high - form.mean.low < 0.15


@pytest.mark.slow
def test_latencies_that_are_drawn_leave_bounds() -> None:
    world = scenario(FAR, timing__server={"compute": "3 ms", "link": LINK}, rounds=300)
    assert agrees(found(world), simulated(world)["round duration"])


@pytest.mark.slow
def test_bounds_hold_in_every_round_that_follows_from_nothing_random() -> None:
    """All constant: the simulated round lies between the bounds, for links so slow that queues decide."""
    for network in ("fifo", "dedicated", "fair"):
        slow = {"up": "100 kbps", "down": "70 kbps", "latency": "5 ms"}
        client = {"select": "all", "upload_delay": "(30*m) ms", "compute": "2 ms", "link": slow}
        world = scenario(
            client, timing__server={"compute": "3 ms", "link": slow}, timing__network=network,
            training__last_batch="drop", rounds=WARM_UP + 15,
        )  # fmt: skip
        bounds, rounds = found(world).mean, simulated(world)["round duration"]
        assert bounds.low <= rounds.min() + 1e-9, network
        assert rounds.max() - 1e-9 <= bounds.high, network


CANONICAL = [
    {"select": "1..N/2", "upload_delay": {"kind": "exponential", "mean": 0.1}},
    {"select": "N/2+1..N", "upload_delay": {"kind": "exponential", "mean": "2 + 4*i/N"}},
]
WHOLE = {"data": {"name": "digits"}, "training__last_batch": "drop"}


@pytest.mark.sampled(1)
@in_turn(clients={"8": (8, 2), "16": (16, 4)})
def test_the_canonical_clients(clients: tuple[int, int]) -> None:
    """FedVS Sec. 6.2, 64 rows of every segment a batch; against 10⁵ rounds by numpy, and against simulated ones."""
    n, segments = clients
    world = scenario(
        *CANONICAL, **WHOLE, protocol={"K": segments}, partition__clients=n,
        training__batch=64 * segments, rounds=400 if n == 8 else 250,
    )  # fmt: skip
    form, threshold = found(world), 2 * segments + 1
    assert form.exactness != "bounds"
    assert agrees(form, simulated(world)["round duration"])
    means = np.array([0.1] * (n // 2) + [2 + 4 * i / n for i in range(1, n // 2 + 1)])
    generator = np.random.default_rng(n)
    shares, uploads = (generator.exponential(means * of, (100_001, n)) for of in (np.log2(n) ** 2 / 64, 1.0))

    def rounds(threshold: int) -> np.ndarray:
        fastest = np.sort(uploads, axis=1)[:, threshold - 1]
        return np.asarray(shares.max(axis=1) + fastest)

    assert agrees(form, rounds(threshold))
    assert not agrees(form, rounds(threshold - 1))
    assert not agrees(form, np.sort(uploads, axis=1)[:, threshold - 1]), "no barrier"


def test_a_round_of_many_canonical_clients() -> None:
    """28 canonical clients, K = 3, |B| = 85: 2.9 s a round."""
    world = scenario(*CANONICAL, **WHOLE, protocol={"K": 3}, partition__clients=28, training__batch=255)
    assert round(found(world).mean.low, 1) == 2.9


# --- what is said beside it -------------------------------------------------------------------------------------------


def test_the_threshold_and_who_is_spared() -> None:
    world = scenario(EXPONENTIAL)
    assert found(world, "recovery threshold R").mean.low == 5
    assert found(world, "stragglers spared").mean.low == 1


def test_the_data_are_shared_once() -> None:
    """n/K rows, N log²N evaluations, against the K|B| rows of an ordinary embedding of width h."""
    world = scenario({**EXPONENTIAL, "compute": "2 ms"})
    units = 45 * 6 * np.log2(6) ** 2 / (20 * 6)
    assert found(world, ONCE).mean.low == pytest.approx(0.002 * units)
    outcome = run_protocol(world.model_copy(update={"stop": world.stop.model_copy(update={"rounds": 2})}), "it", 0,
                           data_of(world), timing_only=True)  # fmt: skip
    events = outcome.tables.events.to_pandas()
    assert events[events["kind"] == "compute.share_data"]["end_s"].max() == pytest.approx(0.002 * units)


@pytest.mark.parametrize(
    ("protocol", "client", "why"),
    [
        ({"sharers": 5}, {}, "those who share first"),
        ({"deadline": 1.0, "too_few": "skip"}, {}, "may miss their deadline"),
        ({}, {"activation": {"kind": "schedule", "times": [1, 2], "period": 3}}, "depend on the time"),
        ({}, {"availability": AWAY}, "not always available"),
        ({}, {"link": {"up": {"kind": "steps", "steps": [[0, 1e6], [1, 2e6]]}}}, "changes in time"),
        (FINISHED, {}, "late uploads are finished first"),
    ],
)
def test_what_has_no_closed_form_says_why(protocol: dict[str, Any], client: dict[str, Any], why: str) -> None:
    assert why in reason(scenario({**EXPONENTIAL, **client}, protocol=protocol))


def test_a_deadline_that_no_round_can_miss_changes_nothing() -> None:
    uniform = {"select": "all", "upload_delay": {"kind": "uniform", "low": 0.1, "high": 0.4}}
    said = {"deadline": 10.0, "too_few": "skip"}
    assert found(scenario(uniform, protocol=said)).law == found(scenario(uniform)).law


def test_the_curves_of_results_rise_from_0_to_1() -> None:
    world = scenario(EXPONENTIAL)
    table = closed_forms(world, ScenarioData(world)).table
    assert table is not None
    frame = table.to_pandas()
    assert set(frame["quantity"]) == {"round_duration"}
    assert np.all(np.diff(frame["cdf"]) >= -1e-12)
    area = frame["x"].iloc[0] + np.trapezoid(1 - frame["cdf"], frame["x"])
    assert area == pytest.approx(found(world).mean.low, rel=2e-3)


def test_every_formula_can_be_printed() -> None:
    world = scenario(EXPONENTIAL)
    said = []
    for finding in analyse(world, "it", data_of(world)).findings:
        assert isinstance(finding, ClosedForm)
        said += [formula.text for formula in finding.formulas()]
        assert all(" = " in formula.latex for formula in finding.formulas())
    assert any(line.startswith("R = 2*(K + T - 1) + 1") for line in said)
    assert any("U_(" in line and line.startswith("T = B") for line in said)


def test_bounds_hold_where_the_server_s_latency_disorders_gradients_on_a_line() -> None:
    latency = {"kind": "exponential", "mean": "20 ms"}
    world = scenario(
        {"select": "all", "upload_delay": "10 ms"},
        protocol={"K": 1, "T": 1},
        partition__clients=3,
        training__batch=40,
        training__last_batch="drop",
        timing__network="fifo",
        timing__server={"compute": 0, "link": {"up": "1 Mbps", "down": "100 Mbps", "latency": latency}},
    )
    rounds = simulated(world)["round duration"]
    assert found(world).mean.low < rounds.mean() - half_width(rounds)
    assert rounds.mean() + half_width(rounds) < found(world).mean.high
