"""What is learnt when clients crash and pause, against plain autograd.

Who took part when, and which client steps survived, is read from the run; everything else is worked out again.
"""

import pytest
import torch
from plain_training import Plain
from thorough import every_pair
from tiny_worlds import RANDOM_TIMING, data_of, events, raw, rounds, run

from vflsim.scenario import load
from vflsim.simulation.run import Outcome

SGD = {"kind": "sgd", "lr": 0.2, "momentum": 0.5}
COMES_AND_GOES = {
    "kind": "alternating",
    "up": {"kind": "exponential", "mean": "40 ms"},
    "down": {"kind": "exponential", "mean": "8 ms"},
}


def trained(protocol: dict, interrupted: str, seed: int, **changes: object) -> tuple[Plain, Outcome]:
    """A run with outages of every client, and a plain copy of its models."""
    away = {**COMES_AND_GOES, "interrupted": interrupted}
    said = raw(
        {"it": protocol},
        models__client={"kind": "mlp", "hidden": [7], "embedding": 5},
        training__client_optimizer=SGD,
        training__server_optimizer=SGD,
        timing={**RANDOM_TIMING, "clients": [*RANDOM_TIMING["clients"], {"select": "all", "availability": away}]},
        stop={"rounds": 60},
        evaluate={"every": "1000 rounds"},
        **changes,
    )
    scenario = load(said)
    outcome = run(scenario, seed=seed)
    return Plain(said, scenario, "it", seed, data_of(scenario)), outcome


def done(outcome: Outcome, kind: str, m: int) -> list[tuple[float, float, int]]:
    """(start, end, round) of what client m has finished of a kind, in order."""
    own = events(outcome, kind, f"client-{m}")
    own = own[own["outcome"] == "done"].sort_values("end_s", kind="stable")
    return list(own[["start_s", "end_s", "round"]].itertuples(index=False, name=None))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("interrupted", ["lost", "resumed"])
def test_synchronous_training_loses_the_client_steps_that_crashes_take(interrupted: str) -> None:
    plain, outcome = trained({"kind": "synchronous"}, interrupted, 3)
    ends = [*rounds(outcome)["end_s"], float("inf")]
    steps = {m: [start for start, _, _ in done(outcome, "compute.client_step", m)] for m in plain.clients}
    survived = 0
    for k in range(60):
        ids = plain.ids(1, k)
        loss = plain.loss([plain.embed(m, ids) for m in plain.clients], ids)
        gradients = {
            party: torch.autograd.grad(loss, plain.weights[party], retain_graph=True) for party in (0, *plain.clients)
        }
        plain.step(0, gradients[0])
        for m in plain.clients:
            mine = sum(ends[k] <= start < ends[k + 1] for start in steps[m])
            assert mine <= 1
            survived += mine
            if mine:
                plain.step(m, gradients[m])
    assert (survived < 59 * 4) is (interrupted == "lost")  # the last gradients come when the run is over
    assert plain.furthest(dict(outcome.weights)) <= 1e-12


@pytest.mark.sampled(2)
@every_pair(
    protocol={"async": {"kind": "asynchronous"}, "t=2": {"kind": "t_synchronous", "t": 2}},
    batches=["shared", "own"],
    interrupted=["lost", "resumed"],
)
def test_table_protocols_use_what_arrived_and_step_on_the_gradient_of_the_batch_in_hand(
    protocol: dict, batches: str, interrupted: str
) -> None:
    plain, outcome = trained(protocol, interrupted, 5, training__batches=batches)
    clients, rows = plain.clients, len(plain.y)
    arrived = {m: iter([k for _, _, k in done(outcome, "transfer.embedding", m)]) for m in clients}
    stepped = {}  # (client, batch) -> whether that step was done
    for m in clients:
        uploads = done(outcome, "upload", m)
        for start, _, _ in done(outcome, "compute.client_step", m):
            batch = [k for _, end, k in uploads if end <= start][-1]
            assert (m, batch) not in stepped
            stepped[m, batch] = True
    table = {m: torch.zeros(rows, plain.widths[m], dtype=torch.float64) for m in clients}
    for used in rounds(outcome)["used"]:
        batch = {m: next(arrived[m]) for m in sorted(used)}
        fresh = {m: plain.embed(m, plain.ids(m, k)) for m, k in batch.items()}
        groups: dict[tuple[int, int], list[int]] = {}
        for m in sorted(batch, key=lambda m: (m if batches == "own" else 0, batch[m], m)):
            groups.setdefault((m if batches == "own" else 0, batch[m]), []).append(m)
        for m, k in batch.items():
            table[m][plain.ids(m, k)] = fresh[m].detach()
        losses = []
        for members in groups.values():
            ids = plain.ids(members[0], batch[members[0]])
            losses.append(plain.loss([fresh[m] if m in members else table[m][ids] for m in clients], ids))
        every = torch.autograd.grad(sum(losses) / len(losses), plain.weights[0], retain_graph=True)
        mine = {}
        for members, loss in zip(groups.values(), losses, strict=True):
            for m in members:
                mine[m] = torch.autograd.grad(loss, plain.weights[m], retain_graph=True)
        plain.step(0, every)
        for m, k in batch.items():
            if stepped.get((m, k)):
                plain.step(m, mine[m])
    assert plain.furthest(dict(outcome.weights)) <= 1e-12
    if interrupted == "lost":
        assert any(outcome_ == "lost" for outcome_ in events(outcome, "compute.embed")["outcome"])
