"""Asynchronous and t-synchronous training against plain autograd and a table kept by hand.

Only who took part in which step, and when clients stepped, is read from the run: batches, table, ages, re-queries,
gradients and updates are worked out again.
"""

import pytest
import torch
from plain_training import Plain
from thorough import every_pair, in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, raw, rounds, run
from torch import Tensor

from vflsim.scenario import load
from vflsim.simulation.run import Outcome
from vflsim.vocabulary.execution_options import USUAL, Execution

SGD = {"kind": "sgd", "lr": 0.2, "momentum": 0.5, "weight_decay": 0.01}


def replayed(said: dict, seed: int = 0, execution: Execution = USUAL) -> tuple[float, dict[str, float]]:
    """Largest difference between the weights of the run and of the replay, and counts of what happened."""
    scenario = load(said)
    (name,) = said["protocols"]
    protocol = said["protocols"][name]
    outcome = run(scenario, seed=seed, execution=execution)
    plain = Plain(said, scenario, name, seed, data_of(scenario))
    clients = plain.clients
    bound, by_row = protocol.get("max_staleness"), protocol.get("bounds") == "row_age"
    own, rows = scenario.training_of(name).batches == "own", len(plain.y)

    steps = events(outcome, "compute.client_step")
    steps = steps[steps["outcome"] == "done"]
    done = {m: int((steps["party"] == f"client-{m}").sum()) for m in clients}
    answers = {m: iter(answered(outcome, m)) for m in clients}
    step_ends = {m: list(steps[steps["party"] == f"client-{m}"]["end_s"]) for m in clients}
    history = {m: [[w.detach().clone() for w in plain.weights[m]]] for m in clients}

    table = {m: torch.zeros(rows, plain.widths[m], dtype=torch.float64) for m in clients}
    if protocol.get("first_fill") == "upload":
        table = {m: plain.embed(m, slice(None)).detach() for m in clients}
    row_step = {m: torch.full((rows,), -1) for m in clients}
    last = dict.fromkeys(clients, -1)
    embedded = dict.fromkeys(clients, 0)
    seen = {"groups": 0, "requeried": 0, "row_age_max": 0, "client_age_max": 0}
    losses, totals = [], []

    for k, used in enumerate(rounds(outcome)["used"]):
        used = sorted(used)
        batch = {m: plain.ids(m, embedded[m]) for m in used}
        fresh = {m: plain.embed(m, batch[m]) for m in used}
        groups: dict[tuple[int, int], list[int]] = {}  # by (whose sequence, place in it)
        for m in sorted(used, key=lambda m: (m if own else 0, embedded[m], m)):
            groups.setdefault((m if own else 0, embedded[m]), []).append(m)
        for m in used:
            table[m][batch[m]] = fresh[m].detach()
            row_step[m][batch[m]], last[m] = k, k
        if bound is not None:
            stale: list[tuple[float, int, Tensor, int]] = []
            for members in groups.values():
                ids = batch[members[0]]
                ages = {m: k - (int(row_step[m][ids].min()) if by_row else last[m]) for m in clients}
                for m in (m for m in clients if ages[m] > bound):
                    began, arrived = next(answers[m])
                    stale.append((arrived, m, ids, sum(end <= began for end in step_ends[m])))
            for _, m, ids, stepped in sorted(stale, key=lambda answer: answer[:2]):
                table[m][ids] = plain.embed(m, ids, history[m][stepped]).detach()
                row_step[m][ids], last[m] = k, k
            seen["requeried"] += len(stale)
        age_sum, age_count = 0, 0
        group_losses = []
        for members in groups.values():
            ids = batch[members[0]]
            assert all(torch.equal(ids, batch[m]) for m in members)
            hs = [fresh[m] if m in members else table[m][ids] for m in clients]
            hs = [*(plain.embed(m, ids) for m in plain.holders if m not in clients), *hs]  # an active server's own
            group_losses.append(plain.loss(hs, ids))
            for m in clients:
                ages = k - row_step[m][ids]
                age_sum, age_count = age_sum + int(ages.sum()), age_count + len(ages)
                seen["row_age_max"] = max(seen["row_age_max"], int(ages.max()))
        seen["client_age_max"] = max(seen["client_age_max"], *(k - last[m] for m in clients))
        seen["groups"] = max(seen["groups"], len(groups))
        losses.append(sum(float(loss.detach()) for loss in group_losses) / len(groups))
        totals.append((age_sum, age_count))
        mean = sum(group_losses) / len(groups)
        at_server = {m: torch.autograd.grad(mean, w, retain_graph=True) for m, w in plain.weights.items() if m <= 0}
        mine = {}
        for members, loss in zip(groups.values(), group_losses, strict=True):
            for m in members:  # its own group's loss, undivided; the graph reaches back to its own weights
                mine[m] = torch.autograd.grad(loss, plain.weights[m], retain_graph=True)
        for m, every in at_server.items():
            plain.step(m, every)
        for m in used:
            embedded[m] += 1
            if embedded[m] <= done[m]:
                plain.step(m, mine[m])
                history[m].append([w.detach().clone() for w in plain.weights[m]])

    table_of_metrics = metrics(outcome)
    whole = table_of_metrics.iloc[1:]
    assert len(whole) == 1  # evaluated at the end only: it covers every step
    assert whole["train_loss"].iloc[0] == pytest.approx(sum(losses) / len(losses), abs=1e-12)
    assert whole["row_age_mean"].iloc[0] == pytest.approx(sum(t for t, _ in totals) / sum(n for _, n in totals))
    assert whole["row_age_max"].iloc[0] == seen["row_age_max"]
    assert whole["client_age_max"].iloc[0] == seen["client_age_max"]
    assert [list(rest) for rest in answers.values()] == [[]] * len(clients)
    assert abs(plain.test_loss() - whole["test_loss"].iloc[0]) < 1e-12
    return plain.furthest(dict(outcome.weights)), seen


def answered(outcome: Outcome, m: int) -> list[tuple[float, float]]:
    """When client m began to work on each query's answer, and when the answer arrived; in the order of the queries."""
    queries = events(outcome, "transfer.query")
    queries = queries[queries["peer"] == f"client-{m}"].sort_values("index")["end_s"].tolist()
    begins = events(outcome, "compute.answer", f"client-{m}")["start_s"].tolist()
    arrivals = events(outcome, "transfer.answer", f"client-{m}").sort_values("index")["end_s"].tolist()
    turns = [sorted(queries).index(end) for end in queries]  # queries may overtake each other on their way
    return [(begins[turn], arrivals[turn]) for turn in turns]


def table_scenario(protocol: dict, **changes: object) -> dict:
    return raw(
        {"it": protocol},
        models__client={"kind": "mlp", "hidden": [7], "embedding": 5},
        training__client_optimizer=SGD,
        training__server_optimizer=SGD,
        timing=RANDOM_TIMING,
        stop={"rounds": 80},
        evaluate={"every": "1000 rounds"},
        **changes,
    )


ASYNC = {"kind": "asynchronous"}
T2, T3 = ({"kind": "t_synchronous", "t": t} for t in (2, 3))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batches", ["shared", "own"])
@pytest.mark.parametrize("protocol", [ASYNC, T2, T3], ids=["async", "t=2", "t=3"])
def test_training_equals_plain_autograd_with_a_table_kept_by_hand(protocol: dict, batches: str) -> None:
    furthest, seen = replayed(table_scenario(protocol, training__batches=batches))
    assert furthest <= 1e-12
    assert seen["groups"] == protocol.get("t", 1)  # clients are out of step: several batches in one step
    assert seen["client_age_max"] > 1


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", [ASYNC, T2], ids=["async", "t=2"])
def test_one_by_one_it_does_too(protocol: dict) -> None:
    assert replayed(table_scenario(protocol), execution=EAGER)[0] <= 1e-12


@pytest.mark.sampled(1)
@in_turn(
    protocol={"async": ASYNC, "t=2": T2, "bounded": {"kind": "t_synchronous", "t": 2, "max_staleness": 1}},
    aggregate=["mean", "concat", "weighted"],
)
def test_an_active_servers_own_embedding_is_always_fresh_and_trained(protocol: dict, aggregate: str) -> None:
    own = {"kind": "mlp", "hidden": [6], "embedding": 5}
    partition = {"clients": 3, "active": True}
    said = table_scenario(protocol, models__active=own, models__aggregate=aggregate, partition=partition)
    assert replayed(said)[0] <= 1e-12


@pytest.mark.sampled(1)
@in_turn(aggregate=["sum", "max", "concat", "weighted"], first_fill=["zeros", "upload"])
def test_rows_never_received_are_zeros_or_the_uploaded_first_pass(aggregate: str, first_fill: str) -> None:
    said = table_scenario({**T2, "first_fill": first_fill}, models__aggregate=aggregate)
    assert replayed(said)[0] <= 1e-12


@pytest.mark.sampled(1)
@every_pair(
    limited={"async": (ASYNC, (2, 20)), "t=2": (T2, (1, 10))},
    batches=["shared", "own"],
    bounds=["client_age", "row_age"],
)
def test_rows_that_are_too_old_are_queried_afresh(
    limited: tuple[dict, tuple[int, int]], batches: str, bounds: str
) -> None:
    protocol, limits = limited
    bound = limits[bounds == "row_age"]
    said = table_scenario({**protocol, "max_staleness": bound, "bounds": bounds}, training__batches=batches)
    furthest, seen = replayed(said)
    assert furthest <= 1e-12
    assert seen["requeried"] > 10
    assert seen["row_age_max" if bounds == "row_age" else "client_age_max"] == bound


def test_the_last_partial_batch_may_be_dropped() -> None:
    assert replayed(table_scenario(T2, training__last_batch="drop"))[0] <= 1e-12


def test_the_optimiser_may_be_adam() -> None:
    said = table_scenario(T3)
    said["training"]["client_optimizer"] = said["training"]["server_optimizer"] = {"kind": "adam", "lr": 0.02}
    assert replayed(said)[0] <= 1e-12


def test_asynchronous_with_one_client_is_sequential_sgd() -> None:
    said = table_scenario(ASYNC, partition={"clients": 1, "by": "columns"})
    said["stop"] = {"updates": 100}
    scenario = load(said)
    outcome = run(scenario)
    plain = Plain(said, scenario, "it", 0, data_of(scenario))
    for k in range(100):
        plain.synchronous_step(plain.ids(1, k))
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    assert (metrics(outcome).iloc[1:]["client_age_max"] == 0).all()
