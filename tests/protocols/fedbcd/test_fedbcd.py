"""FedBCD: its updates, its messages, and its equality with synchronous training for one local step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from away_clients import assert_outages_delay_rounds_and_training_continues
from plain_training import LEARNING, Plain
from thorough import every_pair
from three_clients import MLP, three_clients
from tiny_worlds import (
    EAGER,
    RANDOM_TIMING,
    apart,
    data_of,
    events,
    learners,
    metrics,
    rounds,
    run,
    same_times,
    same_weights,
    tiny,
)
from torch import Tensor, nn

from vflsim.codecs.frame import frame_bytes
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import ImmediateExecutor, Operation
from vflsim.learning.learners.client import ClientLearner, ClientParts
from vflsim.learning.learners.server import ServerParts
from vflsim.learning.models.aggregates import SumAggregate
from vflsim.learning.optimizers import Sgd
from vflsim.learning.tasks import REGRESSION
from vflsim.protocols.fedbcd import BlockServer
from vflsim.scenario import load
from vflsim.vocabulary.execution_options import USUAL, Execution

Q, ROWS = 3, 20
DOUBLE = torch.float64
PARALLEL: dict[str, Any] = {"kind": "fedbcd", "local_steps": Q}
SEQUENTIAL = {**PARALLEL, "order": "sequential"}
EITHER = {"parallel": PARALLEL, "sequential": SEQUENTIAL}
POLYNOMIAL = {"kind": "polynomial", "degree": 3, "embedding": 5}

either = pytest.mark.parametrize("order", EITHER)
both = pytest.mark.parametrize("execution", [USUAL, EAGER], ids=["batched", "eager"])


def client_steps(plain: Plain, m: int, ids: Tensor, held: Tensor) -> None:
    """θ_m ← θ_m − η ∇θ_m h_m(θ_m) · held, Q times."""
    for _ in range(Q):
        plain.step(m, torch.autograd.grad((plain.embed(m, ids) * held).sum(), plain.weights[m]))


def server_steps(plain: Plain, hs: list[Tensor], ids: Tensor, count: int) -> float:
    """θ_0 ← θ_0 − η ∂ℓ/∂θ_0 with all embeddings held; return the last loss before a step."""
    loss = torch.zeros(())
    for _ in range(count):
        loss = plain.loss(hs, ids)
        plain.step(0, torch.autograd.grad(loss, plain.weights[0]))
    return float(loss.detach())


def in_parallel(plain: Plain, ids: Tensor, steps: int = Q) -> float:
    hs = [plain.embed(m, ids).detach().requires_grad_() for m in plain.clients]
    loss = plain.loss(hs, ids)
    held = torch.autograd.grad(loss, hs)
    server_steps(plain, [h.detach() for h in hs], ids, steps)
    for m, gradient in zip(plain.clients, held, strict=True):
        client_steps(plain, m, ids, gradient)
    return float(loss.detach())


def in_turn(plain: Plain, ids: Tensor) -> float:
    hs = [plain.embed(m, ids).detach() for m in plain.clients]
    for place, m in enumerate(plain.clients):
        leaf = hs[place].clone().requires_grad_()
        (held,) = torch.autograd.grad(plain.loss([*hs[:place], leaf, *hs[place + 1 :]], ids), leaf)
        client_steps(plain, m, ids, held)
        hs[place] = plain.embed(m, ids).detach()
    return server_steps(plain, hs, ids, Q)


@pytest.mark.sampled(2)
@every_pair(
    joined={
        "mean": ("mean", MLP),
        "sum": ("sum", POLYNOMIAL),
        "concat": ("concat", MLP),
        "max": ("max", POLYNOMIAL),
        "weighted": ("weighted", MLP),
    },
    order=[*EITHER],
    execution={"batched": USUAL, "eager": EAGER},
)
def test_many_rounds_are_those_of_the_equations(
    many: int, joined: tuple[str, dict[str, Any]], order: str, execution: Execution
) -> None:
    aggregate, client = joined
    said = three_clients(
        EITHER[order],
        models__aggregate=aggregate,
        models__client=client,
        stop={"rounds": many} if order == "sequential" else {"updates": 3 * Q * many},
        evaluate={"every": f"{many} rounds"},
    )
    scenario = load(said)
    outcome, plain = run(scenario, execution=execution), Plain(said, scenario, "it", 0, data_of(scenario))
    one = in_parallel if order == "parallel" else in_turn
    losses = [one(plain, plain.ids(1, t)) for t in range(many)]
    table = metrics(outcome)
    assert table["train_loss"].iloc[1] == pytest.approx(sum(losses) / many, abs=1e-10)
    assert table["updates"].iloc[-1] == 3 * Q * many
    assert plain.furthest(dict(outcome.weights)) <= 1e-10
    assert many < LEARNING or losses[-1] < losses[0] - 0.05


def test_the_server_takes_one_step_a_round_if_told_so(many: int) -> None:
    """As in the experiments of VIM's authors."""
    said = three_clients({**PARALLEL, "server_steps": 1}, stop={"updates": 3 * Q * many})
    scenario = load(said)
    plain = Plain(said, scenario, "it", 0, data_of(scenario))
    for t in range(many):
        in_parallel(plain, plain.ids(1, t), steps=1)
    assert plain.furthest(dict(run(scenario).weights)) <= 1e-10


@pytest.mark.sampled(2)
@both
@pytest.mark.parametrize("aggregate", ["mean", "concat"])
def test_one_parallel_step_is_synchronous_training_to_the_bit(aggregate: str, execution: Execution) -> None:
    protocols = {"wait": {"kind": "synchronous"}, "once": {**PARALLEL, "local_steps": 1}}
    scenario = tiny(protocols, timing=RANDOM_TIMING, models__aggregate=aggregate, models__client=MLP)
    one, other = (run(scenario, name, execution=execution) for name in protocols)
    assert same_weights(one, other)
    assert same_times(one, other)
    assert metrics(one).equals(metrics(other))


def test_one_parallel_step_costs_the_flops_of_synchronous_training() -> None:
    timing = {"clients": [{"select": "all", "compute": {"kind": "flops", "rate": "1e6 FLOPS"}}],
              "server": {"compute": {"kind": "flops", "rate": "1e6 FLOPS"}}}  # fmt: skip
    protocols = {"wait": {"kind": "synchronous"}, "once": {**PARALLEL, "local_steps": 1}}
    scenario = tiny(protocols, timing=timing, models__client=MLP)
    assert same_times(*(run(scenario, name) for name in protocols))


class Squared(nn.Module):
    """h = θ² x."""

    def __init__(self, theta: float) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([theta], dtype=DOUBLE))

    def forward(self, x: Tensor) -> Tensor:
        return self.theta.square() * x


def submitted(operation: Operation[Any]) -> Any:
    ImmediateExecutor().submit(operation)
    return operation.result


def test_two_local_steps_by_hand() -> None:
    """h = θ² x = 2 at both clients (θ = 1, x = 2), w = ½, y = 3: w (2 + 2) − y = −1, ∂ℓ/∂h = −2 w = −1, ∂ℓ/∂w = −8.

    The server, η = 0.05, holds H = 4: w becomes 0.9, and, by 2 (3.6 − 3) 4 = 4.8, 0.66. A client, η = 0.1, holds −1:
    ∇θ = −2 θ x = −4, so that θ becomes 1.4, and then ∇θ = −5.6, so that it becomes 1.96: h = 7.6832.
    The next client's turn is at H = 9.6832 and w = 0.66: ∂ℓ/∂h = 2 (0.66 · 9.6832 − 3) 0.66 = 4.47586…
    """
    batch, labels = Batch(0, np.array([0])), {"train": torch.tensor([[3.0]], dtype=DOUBLE)}

    def top() -> nn.Module:
        made = nn.Linear(1, 1, bias=False, dtype=DOUBLE)
        made.weight.data.fill_(0.5)
        return made

    server = BlockServer(ServerParts((1, 2), (1, 1), labels, top, Sgd(lr=0.05), SumAggregate(), REGRESSION, 1, DOUBLE))
    features = {"train": torch.full((1, 1), 2.0, dtype=DOUBLE)}
    clients = {m: ClientLearner(ClientParts(m, features, lambda: Squared(1.0), Sgd(lr=0.1), 1, 1)) for m in (1, 2)}
    messages = [SimpleNamespace(sender=m, batch=batch, value=submitted(clients[m].embed(batch))) for m in (2, 1)]
    step = submitted(server.server_step(messages))
    assert step.loss.value == pytest.approx(1)
    held = SimpleNamespace(value=step.gradient_for(messages[1]))
    assert float(held.value.value) == pytest.approx(-1)
    assert float(server.model.weight.detach()) == pytest.approx(0.9)
    assert submitted(server.local_step(messages)).loss.value == pytest.approx(0.36)
    assert float(server.model.weight.detach()) == pytest.approx(0.66)
    submitted(clients[1].client_step(batch, held))
    assert float(clients[1].model.theta.detach()) == pytest.approx(1.4)
    submitted(clients[1].step_again(batch, held))
    assert float(clients[1].model.theta.detach()) == pytest.approx(1.96)
    messages[1] = SimpleNamespace(sender=1, batch=batch, value=submitted(clients[1].answer(batch)))
    assert float(submitted(server.gradient(messages, 2)).value) == pytest.approx(2 * (0.66 * 9.6832 - 3) * 0.66)
    assert float(server.model.weight.detach()) == pytest.approx(0.66)


def test_a_parallel_round_sends_embeddings_up_and_gradients_down() -> None:
    found = events(run(load(three_clients(PARALLEL, stop={"updates": 3 * Q}, training__batch=ROWS))))
    found = found[(found["outcome"] == "done") & (found["round"] == 0)]
    size = frame_bytes(("",)) + 8 * ROWS * MLP["embedding"]
    sent = found[found["kind"].str.startswith("transfer.")]
    assert sorted(zip(sent["kind"], sent["bytes"], strict=True)) == [
        *[("transfer.embedding", size)] * 3,
        *[("transfer.gradient", size)] * 3,
    ]
    kinds = events(run(load(three_clients(PARALLEL, stop={"rounds": 3}))), party="server")["kind"].value_counts()
    assert kinds["compute.server_step"] == 3
    assert kinds["compute.local_step"] == 2 * (Q - 1)  # the run ends with the third round's first step


def test_a_sequential_round_lets_one_client_step_after_another() -> None:
    found = events(run(load(three_clients(SEQUENTIAL, stop={"rounds": 1}, training__batch=ROWS))))
    found = found[found["outcome"] == "done"].sort_values("end_s")
    steps = found[found["kind"] == "compute.client_step"]
    assert list(steps["party"]) == [f"client-{m}" for m in (1, 2, 3) for _ in range(Q)]
    answers = found[found["kind"] == "transfer.answer"]
    assert (answers["bytes"] == frame_bytes(("",)) + 8 * ROWS * MLP["embedding"]).all()
    assert steps["start_s"].iloc[Q] > answers["end_s"].iloc[0]
    server = found[(found["party"] == "server") & found["kind"].str.startswith("compute.")]["kind"]
    assert list(server) == [*["compute.gradient"] * 3, *["compute.local_step"] * (Q - 1), "compute.server_step"]


def test_later_local_steps_cost_a_forward_pass_too() -> None:
    scenario = load(three_clients(PARALLEL))
    server, clients = learners(scenario, "it", 0, data_of(scenario))
    batch, message = Batch(0, np.arange(ROWS)), SimpleNamespace(value=None, sender=1, batch=None)
    forward, first = clients[1].embed(batch).flops(), clients[1].client_step(batch, message).flops()
    assert clients[1].step_again(batch, message).flops() == forward + first
    embeddings = [SimpleNamespace(sender=m, batch=batch, value=clients[m].embed(batch).result) for m in clients]
    cost = server.server_step(embeddings).flops()
    assert server.local_step(embeddings).flops() == server.gradient(embeddings, 1).flops() == cost > 0


@either
def test_a_server_with_features_steps_its_own_model_as_often(order: str) -> None:
    """With Q = 1 in parallel this is synchronous training, too; with Q = 3 its embedding model has moved further."""
    own = {"partition": {"clients": 2, "by": "columns", "active": True},
           "models__active": {"kind": "linear", "embedding": 5}}  # fmt: skip
    outcome = run(load(three_clients(EITHER[order], **own)))
    once = run(load(three_clients({**EITHER[order], "local_steps": 1}, **own)))
    assert apart(outcome, once) > 1e-3
    if order == "parallel":
        assert same_weights(once, run(load(three_clients({"kind": "synchronous"}, **own))))


@either
def test_noise_is_added_to_all_that_is_sent(order: str) -> None:
    """A sequential client releases its rows twice a round."""
    mechanism = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.5, "delta": 1e-5}
    outcome = run(
        load(three_clients({**EITHER[order], "mechanism": mechanism}, training__batch="all", stop={"rounds": 4}))
    )
    assert outcome.info.privacy is not None
    assert outcome.info.privacy.releases == {"parallel": 4, "sequential": 8}[order]


IN_COLUMNS = {"clients": 3, "by": "columns"}


def test_a_parallel_round_lasts_as_long_as_the_server_s_further_steps() -> None:
    """30 steps of 10 ms outlast the clients; the first round has none before it."""
    timing = {"server": {"compute": "10 ms"}, "clients": {"select": "all", "compute": "1 ms"}}
    said = {"kind": "fedbcd", "local_steps": 1, "server_steps": 30}
    lasted = rounds(run(tiny({"it": said}, timing=timing, stop={"rounds": 4})))
    assert (lasted["end_s"] - lasted["start_s"]).tolist() == pytest.approx([0.011, 0.3, 0.3, 0.3])


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", ["lost", "resumed"])
def test_a_turn_that_is_lost_is_taken_anew(interrupt: str) -> None:
    """Client 2 is away for 10 ms out of 60: before and after its turn, and in it."""
    turns = {"kind": "fedbcd", "local_steps": 2, "order": "sequential"}
    outcome = assert_outages_delay_rounds_and_training_continues(turns, interrupt, partition=IN_COLUMNS)
    steps = events(outcome, "compute.client_step", "client-2")
    assert (steps["outcome"] == "done").sum() >= 2 * 40
