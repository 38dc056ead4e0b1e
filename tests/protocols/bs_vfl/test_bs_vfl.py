"""BS-VFL: its window, its updates, its round, and its equality with FedBCD without a window."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from in_events_order import computations, descend, gradients_of
from plain_training import Plain
from three_clients import three_clients
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, rounds, run, same_times, same_weights, tiny

from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

Q, ROUNDS = 3, 50
both = pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])


def by_hand(embed: list[float], trip: float, server: float, step: float) -> dict[str, Any]:
    """Constant times in ms: t₀ of each client, t₁, t₂ and t₃."""
    clients = [
        {
            "select": str(m),
            "compute": {"kind": "by_operation", "operations": {"embed": f"{e} ms"}, "others": f"{step} ms"},
            "link": {"latency": f"{trip} ms"},
        }
        for m, e in enumerate(embed, 1)
    ]
    return {"server": {"compute": f"{server} ms"}, "clients": clients}


@pytest.mark.sampled(2)
@both
@pytest.mark.parametrize("steps", [1, Q])
def test_without_a_window_it_is_fedbcd_in_parallel_to_the_bit(steps: int, execution: Execution) -> None:
    protocols = {
        "bs": {"kind": "bs_vfl", "window": 0, "local_steps": steps},
        "bcd": {"kind": "fedbcd", "local_steps": steps},
    }
    scenario = tiny(protocols, timing=RANDOM_TIMING)
    one, other = (run(scenario, name, execution=execution) for name in protocols)
    assert same_weights(one, other)
    assert same_times(one, other)


@pytest.mark.parametrize(
    ("embed", "trip", "server", "step", "local", "window"),
    [([2, 5, 3], 20, 4, 1, 2, 10), ([1, 1, 1], 7, 3, 0.5, 4, 4), ([6, 2, 4], 30, 16, 2, 1, 8)],
)
def test_constant_rounds_last_what_the_paper_says_while_the_server_is_never_idle(
    embed: list[float], trip: float, server: float, step: float, local: int, window: int
) -> None:
    """T rounds last max(M + T Q t₂, M + (T − 1) Q t₂ + t₂ + max(t₁ + Q t₃)), M = max(t₀ + t₁); t₁ is one way."""
    timing = by_hand(embed, trip, server, step)
    protocol = {"kind": "bs_vfl", "window": window, "local_steps": local}
    scenario = tiny({"it": protocol}, timing=timing, partition__clients=3, stop={"rounds": 40})
    outcome = run(scenario, timing_only=True)
    first = max(embed) + trip
    for number, end in enumerate(rounds(outcome)["end_s"]):
        assert end * 1e3 == pytest.approx(first + number * local * server + server)
    lasted = 30  # the first so many rounds: their last steps are before the run's end
    log = events(outcome, "compute.client_step", "client-1")
    of_clients = log["end_s"].iloc[lasted * local - 1] * 1e3
    of_server = (
        events(outcome, party="server").query("kind.str.startswith('compute')")["end_s"].iloc[lasted * local - 1]
    )
    assert max(of_clients, of_server * 1e3) == pytest.approx(
        max(first + lasted * local * server, first + (lasted - 1) * local * server + server + trip + local * step)
    )


def test_a_small_window_leaves_the_server_idle() -> None:
    timing = by_hand([2, 5, 3], 20, 4, 1)
    ends = {}
    for window in (0, 1, 2, 8, 40):
        scenario = tiny(
            {"it": {"kind": "bs_vfl", "window": window, "local_steps": 2}},
            timing=timing, partition__clients=3, stop={"rounds": 40},
        )  # fmt: skip
        ends[window] = float(rounds(run(scenario, timing_only=True))["end_s"].iloc[-1])
    assert ends[0] > ends[1] > ends[2] > ends[8] == ends[40]
    assert ends[8] == pytest.approx(0.025 + 39 * 0.008 + 0.004)


def test_a_client_steps_on_a_gradient_that_is_here_before_it_embeds_again() -> None:
    """D = 2, t₀ = 2, t₁ = 5, t₂ = 1, t₃ = 1.5, Q = 1 (ms): the client's first 28 ms."""
    scenario = tiny(
        {"it": {"kind": "bs_vfl", "window": 2}},
        timing=by_hand([2], 5, 1, 1.5), partition__clients=1, stop={"rounds": 12},
    )  # fmt: skip
    log = events(run(scenario, timing_only=True), party="client-1").query("kind.str.startswith('compute')")
    told = [(kind[8:], round(start * 1e3, 6)) for kind, start in zip(log["kind"], log["start_s"], strict=True)]
    assert told[:10] == [
        ("embed", 0), ("embed", 2), ("embed", 4),  # three wait: more than D
        ("client_step", 13),  # 2 + 5 + 1 + 5
        ("embed", 14.5),  # the gradient of batch 1 comes at 15, during this embedding,
        ("client_step", 16.5), ("client_step", 18),  # and that of batch 2 at 17, during the step on it
        ("embed", 19.5), ("embed", 21.5), ("client_step", 27.5),
    ]  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("window", [1, 4])
@both
def test_many_rounds_are_those_of_the_equations(window: int, execution: Execution) -> None:
    """Gradients are those at the embeddings sent; steps recompute h at the present parameters, in the run's order."""
    said = three_clients(
        {"kind": "bs_vfl", "window": window, "local_steps": Q},
        timing=RANDOM_TIMING, stop={"rounds": ROUNDS}, evaluate={"every": f"{ROUNDS} rounds"},
    )  # fmt: skip
    scenario = load(said)
    outcome, plain = run(scenario, execution=execution), Plain(said, scenario, "it", 0, data_of(scenario))
    sent: dict[int, list[Any]] = {m: [] for m in plain.clients}
    held: dict[int, deque[tuple[int, Any]]] = {m: deque() for m in plain.clients}
    taken, served = dict.fromkeys(plain.clients, 0), 0
    losses: list[float] = []
    ahead = 0
    for party, kind in computations(outcome):
        if kind == "embed":
            sent[party].append(plain.embed(party, plain.ids(1, len(sent[party]))).detach())
            ahead = max(ahead, len(sent[party]) - taken[party] // Q)
        elif kind in ("server_step", "local_step"):
            t = served // Q
            loss, by_h, by_top = gradients_of(plain, [sent[m][t] for m in plain.clients], plain.ids(1, t))
            plain.step(0, by_top)
            if kind == "server_step":
                losses.append(loss)
                for m, gradient in zip(plain.clients, by_h, strict=True):
                    held[m].append((t, gradient))
            served += 1
        else:
            t, gradient = held[party][0]
            descend(plain, party, plain.embed(party, plain.ids(1, t)), gradient)
            taken[party] += 1
            if taken[party] % Q == 0:
                held[party].popleft()
    assert ahead == window + 1
    assert metrics(outcome)["train_loss"].iloc[1] == pytest.approx(sum(losses) / ROUNDS, abs=1e-10)
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert losses[-1] < losses[0] - 0.05
