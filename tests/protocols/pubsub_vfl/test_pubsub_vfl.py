"""PubSub-VFL: its schedule worked out by hand, its training in plain PyTorch, and what it refuses."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from plain_training import OWN, Plain, textbook
from three_clients import three_clients
from tiny_worlds import RANDOM_TIMING, data_of, events, metrics, raw, rounds, run, same_times, same_weights, tiny
from torch import Tensor

import vflsim
from vflsim.analysis.stages import Unanalysable
from vflsim.errors import ScenarioError, VflsimError
from vflsim.remote.party import refuse_unfit
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.simulation.run import Outcome

TWO = {"kind": "pubsub_vfl", "workers": {"active": 2, "passive": 2}, "capacity": 4, "average_every": 4}
ALONE = {"kind": "pubsub_vfl", "workers": {"active": 1, "passive": 1}, "capacity": 1}
BY_HAND: dict[str, Any] = {
    "server": {"compute": "4 ms"},
    "clients": [
        {
            "select": "all",
            "compute": {"kind": "by_operation", "operations": {"embed": "2 ms"}, "others": "1 ms"},
            "link": {"latency": "5 ms"},
        }
    ],
}
"""Embedding takes 2 ms, a message 5 ms, the server's step 4 ms, the client's step 1 ms."""


def table(outcome: Outcome, name: str) -> list[tuple[Any, ...]]:
    """The rows of a table of the protocol's own, times in ms."""
    rows = outcome.extra[name].to_pylist()
    return [(round(row.pop("time_s") * 1e3, 6), *row.values()) for row in rows]


def two_parties(protocol: dict[str, Any], **changes: Any) -> Scenario:
    changes = {"timing": BY_HAND, "partition__clients": 1, "stop": {"rounds": 8}, **changes}
    return tiny({"it": protocol}, **changes)


# --- time -------------------------------------------------------------------------------------------------------------


def test_two_workers_each_publish_and_step_beside_each_other() -> None:
    """Two batches each are in the queue at 7 and 9 ms; two workers of the server take two batches at a time."""
    outcome = run(two_parties(TWO))
    assert (rounds(outcome)["end_s"] * 1e3).tolist() == pytest.approx([11, 11, 15, 15, 28, 28, 32, 32])
    assert table(outcome, "workers")[:20] == [
        (2, "client-1", 1, 0, "embed"), (2, "client-1", 2, 1, "embed"),
        (4, "client-1", 1, 2, "embed"), (4, "client-1", 2, 3, "embed"),  # two each: as many as the queue takes
        (11, "server", 1, 0, "server_step"), (11, "server", 2, 1, "server_step"),
        (15, "server", 1, 2, "server_step"), (15, "server", 2, 3, "server_step"),
        (17, "client-1", 1, 0, "client_step"), (17, "client-1", 2, 1, "client_step"),  # their gradients come at 16
        (19, "client-1", 1, 4, "embed"), (19, "client-1", 2, 5, "embed"),
        (21, "client-1", 1, 2, "client_step"), (21, "client-1", 2, 3, "client_step"),  # here at 20
        (23, "client-1", 1, 6, "embed"), (23, "client-1", 2, 7, "embed"),
        (28, "server", 1, 4, "server_step"), (28, "server", 2, 5, "server_step"),  # here at 24
        (32, "server", 1, 6, "server_step"), (32, "server", 2, 7, "server_step"),
    ]  # fmt: skip
    averages = events(outcome, "compute.average")
    assert (averages["start_s"] * 1e3).round(6).tolist() == [15, 21]
    assert averages["party"].tolist() == ["server", "client-1"]
    assert (averages["end_s"] == averages["start_s"]).all()


def test_a_batch_that_is_late_is_put_off() -> None:
    """One worker, deadline 3 ms, two ids in its list: 0 (0–3), 1 (3–6), 0 (here at 7), 1 (here at 9)."""
    protocol = {**ALONE, "capacity": 2, "deadline": "3 ms"}
    outcome = run(two_parties(protocol, stop={"rounds": 3}))
    assert table(outcome, "late")[:2] == [(3, "server", 0, 1), (6, "server", 1, 1)]
    assert (rounds(outcome)["end_s"] * 1e3).tolist()[:2] == pytest.approx([11, 15])
    patient = run(two_parties({**ALONE, "capacity": 2}, stop={"rounds": 3}))
    assert "late" not in patient.extra
    assert (rounds(patient)["end_s"] * 1e3).tolist()[:2] == pytest.approx([11, 15])


def test_workers_share_the_link_of_their_party() -> None:
    """Both embed until 2 ms; 20 rows of 6 numbers of 8 bytes go one after the other on one link."""
    timing = {**BY_HAND, "network": "fifo", "clients": [{**BY_HAND["clients"][0], "link": {"up": "1 Mbps"}}]}
    outcome = run(two_parties(TWO, timing=timing, stop={"rounds": 4}))
    sent = events(outcome, "transfer.embedding").sort_values("end_s").iloc[:4]
    each = sent["bytes"].iloc[0] * 8 / 1e6
    assert (sent["end_s"] - 0.002).tolist() == pytest.approx([each, 2 * each, 3 * each, 4 * each])


def test_more_workers_are_faster_while_computation_is_what_takes_time() -> None:
    ends = {
        many: rounds(run(two_parties({**TWO, "workers": {"active": many, "passive": many}, "capacity": 16},
                                     stop={"rounds": 60}), timing_only=True))["end_s"].iloc[-1]
        for many in (1, 2, 4)
    }  # fmt: skip
    assert ends[1] > 1.8 * ends[2] > 3 * ends[4]


@pytest.mark.parametrize("clients", [1, 4])
def test_with_one_worker_each_and_one_batch_in_the_queue_it_is_synchronous_to_the_bit(clients: int) -> None:
    protocols = {"one": ALONE, "other": {"kind": "synchronous"}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, partition__clients=clients)
    one, other = (run(scenario, name) for name in protocols)
    assert same_weights(one, other)
    assert same_times(one, other)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(8))
def test_every_batch_has_one_step_whatever_workers_queues_deadlines_and_outages_there_are(number: int) -> None:
    pick = random.Random(number)
    active, passive, spare = pick.randint(2, 4), pick.randint(1, 4), pick.randint(0, 4)
    capacity = max(active, passive) + spare
    protocol = {"kind": "pubsub_vfl", "workers": {"active": active, "passive": passive}, "capacity": capacity}
    protocol |= {"average_every": pick.randint(1, 9), **pick.choice([{}, {"deadline": pick.choice(["1 ms", "9 ms"])}])}
    away = {"kind": "alternating", "up": "9 ms", "down": {"kind": "exponential", "mean": "3 ms"}}
    more = {"select": "all", "availability": pick.choice(["always", {**away, "interrupted": "resumed"}])}
    timing = {**RANDOM_TIMING, "network": pick.choice(["fifo", "fair"]), "clients": [*RANDOM_TIMING["clients"], more]}
    scenario = tiny({"it": protocol}, timing=timing, partition__clients=pick.randint(1, 4), stop={"rounds": 60})
    rows = run(scenario, timing_only=True).extra["workers"].to_pylist()
    batches = sorted(row["batch"] for row in rows if row["party"] == "server")
    assert batches[: 60 - capacity] == [*range(60 - capacity)]
    assert len(set(batches)) == len(batches)


# --- training ---------------------------------------------------------------------------------------------------------


def replayed(said: dict[str, Any]) -> tuple[float, Outcome]:
    """The largest difference between the weights of a run and of its schedule, played in plain PyTorch; and the run.

    The schedule is the table ``workers``: who embedded or stepped on which batch, in this order. Weights are lists of
    tensors for each worker; after every ``average_every`` steps of a party all its lists become their mean.
    """
    protocol, scenario = said["protocols"]["it"], load(said)
    outcome = run(scenario)
    plain = Plain(said, scenario, "it", 0, data_of(scenario))
    active = [0, OWN] if OWN in plain.weights else [0]
    models = {0: active, **{m: [m] for m in plain.clients}}
    many = {m: protocol["workers"]["passive" if m else "active"] for m in models}
    replicas = {
        (party, worker): {model: [w.detach().clone().requires_grad_() for w in plain.weights[model]] for model in held}
        for party, held in models.items() for worker in range(1, many[party] + 1)
    }  # fmt: skip
    rules = {
        (party, worker, model): textbook(said["training"]["client_optimizer" if party else "server_optimizer"])
        for party, worker in replicas for model in models[party]
    }  # fmt: skip
    sent: dict[int, dict[int, Tensor]] = defaultdict(dict)
    returned: dict[int, dict[int, Tensor]] = defaultdict(dict)
    means: dict[int, list[Tensor]] = {}
    steps = dict.fromkeys(models, 0)
    for row in outcome.extra["workers"].to_pylist():
        party = 0 if row["party"] == "server" else int(row["party"].removeprefix("client-"))
        worker, k, ids = row["worker"], row["batch"], plain.ids(1, row["batch"])
        mine = replicas[party, worker]
        if row["what"] == "embed":
            sent[k][party] = plain.embed(party, ids, mine[party]).detach()
            continue
        if party:
            output = (plain.embed(party, ids, mine[party]) * returned[k][party]).sum()
            leaves: list[Tensor] = []
        else:
            plain.weights[0] = mine[0]
            leaves = [sent[k][m].requires_grad_() for m in plain.clients]
            own = [plain.embed(OWN, ids, mine[OWN])] if OWN in mine else []
            output = plain.loss([*own, *leaves], ids)
        weights = [w for model in models[party] for w in mine[model]]
        found = torch.autograd.grad(output, [*leaves, *weights])
        if not party:
            returned[k] = dict(zip(plain.clients, found, strict=False))
        gradients = iter(found[len(leaves) :])
        for model in models[party]:
            with torch.no_grad():
                rules[party, worker, model].step(mine[model], [next(gradients) for _ in mine[model]])
        steps[party] += 1
        if steps[party] % protocol["average_every"] == 0:
            for model in models[party]:
                lists = [replicas[party, n][model] for n in range(1, many[party] + 1)]
                for place, tensors in enumerate(zip(*lists, strict=True)):
                    mean = torch.stack(tensors).detach().mean(0)
                    for each in lists:
                        each[place] = mean.clone().requires_grad_()
                means[model] = [w.detach().clone() for w in lists[0]]
    plain.weights |= means
    assert min(steps.values()) > 3 * protocol["average_every"]
    return plain.furthest(dict(outcome.weights)), outcome


@pytest.mark.sampled(2)
@pytest.mark.parametrize("changes", [
    {"partition__clients": 1},
    {"deadline": "2 ms"},
    {"workers": {"active": 3, "passive": 2}, "capacity": 7, "average_every": 3},
    {"partition": {"clients": 1, "by": "image_rows", "active": True},
     "models__active": {"kind": "mlp", "hidden": [7], "embedding": 5}},
], ids=["two parties", "deadline", "three clients", "active features"])  # fmt: skip
def test_weights_are_those_of_the_schedule_played_in_plain_pytorch(changes: dict[str, Any]) -> None:
    keys = {name: changes.pop(name) for name in [*changes] if name in (*TWO, "deadline")}
    said = three_clients(
        {**TWO, **keys}, timing=RANDOM_TIMING, stop={"rounds": 121}, evaluate={"every": "121 rounds"}, **changes
    )
    apart, outcome = replayed(said)
    assert apart <= 1e-12
    batches = [row["batch"] for row in outcome.extra["workers"].to_pylist() if row["party"] == "server"]
    assert sorted(batches)[:100] == [*range(100)]  # each once
    assert batches != sorted(batches)  # and not in order


def test_an_evaluation_sees_the_latest_average() -> None:
    """Before the first average nothing has been learnt; every later one is a mean of what was."""
    said: dict[str, Any] = {"timing": BY_HAND, "stop": {"rounds": 40}, "evaluate": {"every": "1 rounds"}}
    rows = metrics(run(two_parties({**TWO, "average_every": 20}, **said)))
    assert rows["test_loss"][rows["round"] < 20].nunique() == 1
    assert rows["test_loss"].iloc[-1] < rows["test_loss"].iloc[0]


# --- what it refuses and says -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "words"), [
    ({"workers": {"active": 0}}, "workers.active"),
    ({"workers": {"helpers": 2}}, "allowed: active, passive"),
    ({"capacity": 1}, r"fewer batches than workers\n  allowed: 2 or more"),
    ({"deadline": 0}, "allowed: a number above 0"),
    ({"average_every": 0}, "average_every"),
])  # fmt: skip
def test_mistakes_are_refused_with_what_is_allowed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load(raw({"it": {**TWO, **changes}}))


def test_a_client_that_loses_its_work_is_refused(tmp_path: Path) -> None:
    down = {"kind": "intervals", "down": [["1 s", "2 s"]], "interrupted": "lost"}
    timing = {**BY_HAND, "clients": [{**BY_HAND["clients"][0], "availability": down}]}
    with pytest.raises(VflsimError, match="which batches it has published"):
        vflsim.run(two_parties(TWO, timing=timing), out=tmp_path / "out")


def test_a_client_that_resumes_goes_on() -> None:
    down = {"kind": "intervals", "down": [["6 ms", "30 ms"]], "interrupted": "resumed"}
    timing = {**BY_HAND, "clients": [{**BY_HAND["clients"][0], "availability": down}]}
    late = run(two_parties({**TWO, "deadline": "3 ms"}, timing=timing), timing_only=True)
    assert rounds(late)["end_s"].iloc[-1] > 0.032


def test_live_runs_refuse_it() -> None:
    with pytest.raises(ScenarioError, match="share the processor of one process"):
        refuse_unfit(two_parties(TWO))


def test_check_says_who_works_and_why_no_round_is_traced() -> None:
    scenario = two_parties({**TWO, "deadline": "2 s"})
    protocol, resolved = scenario.protocols["it"].protocol, setting(scenario, "it", data_of(scenario))
    workers, late = "2 active and 2 passive workers on one link a party", "the server puts a batch off after 2 s"
    assert protocol.describe(resolved) == f"{workers}; 4 batches in a queue; {late}"
    with pytest.raises(Unanalysable):
        protocol.closed_forms(resolved)


def test_verify_knows_how_many_workers_compute_at_a_time() -> None:
    outcome = run(two_parties(TWO))
    assert verify_run(outcome.tables, outcome.info) == []
    fewer = outcome.info.model_copy(update={"workers": (2, 1)})
    assert "begins while all 1 workers of client-1 compute" in verify_run(outcome.tables, fewer)[0]
