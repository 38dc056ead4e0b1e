"""What coded learners share, compute and decode, against the same in the clear."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from coded_worlds import InTheClear, coded, world
from everything import everything
from thorough import is_thorough
from tiny_worlds import data_of

from vflsim.errors import NonFiniteError, WeightBoundError
from vflsim.learning.execution.operations import ImmediateExecutor, Operation
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.plan import MOST_KEPT, SegmentedBatch
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import setting
from vflsim.studies.checks.estimates import expectation
from vflsim.studies.checks.sizes import Size, size_of


def done(operation: Operation[Any]) -> Any:
    ImmediateExecutor().submit(operation)
    if operation.commit is not None:
        operation.commit()
    return operation.result


def message(sender: int, value: Any) -> Any:
    return SimpleNamespace(sender=sender, value=value)


def share_data(clients: dict[int, CodedClientLearner]) -> None:
    given = {client: done(learner.share_data()) for client, learner in clients.items()}
    for receiver, learner in clients.items():
        for sender, shares in given.items():
            if sender != receiver:
                learner.keep(message(sender, shares[receiver]))


def weights_of(learner: CodedClientLearner) -> np.ndarray:
    linears = list(learner.model.powers)
    blocks = [linear.weight.detach().numpy().T for linear in linears]
    if linears[0].bias is not None:
        blocks.append(sum(linear.bias.detach().numpy() for linear in linears)[None, :])
    return np.concatenate(blocks).astype(np.float64)


def randomise(learner: CodedClientLearner, draw: np.random.Generator) -> None:
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.copy_(torch.from_numpy(draw.normal(scale=0.7, size=tuple(parameter.shape))).clamp(-4, 4))


def one_round(
    server: Any, clients: dict[int, CodedClientLearner], batch: SegmentedBatch, k: int, responders: list[int]
) -> torch.Tensor:
    models = {client: done(learner.share_model(k)) for client, learner in clients.items()}
    answers = []
    for place in responders:
        received = {client: models[client][place] for client in clients}
        answers.append(message(place, done(clients[place].coded_embed(batch, received))))
    decoded: torch.Tensor = done(server.decode(batch, answers, list(clients))).value
    return decoded


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("arithmetic", "most_kept"), [("coded", MOST_KEPT), ("coded", 0), ("decoded", 0)])
@pytest.mark.parametrize("said", [{}, {"bias": True, "degree": 1}, {"prime": "2^61-1", "K": 1, "T": 2}])
def test_the_decoded_mean_is_the_quantised_mean_in_the_clear_bit_for_bit(
    said: dict, arithmetic: str, most_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vflsim.protocols.fedvs.shares.MOST_KEPT", most_kept)
    scenario, server, clients = world(arithmetic=arithmetic, **said)
    share_data(clients)
    clear = InTheClear(scenario, server.plan)
    sequence = scenario.protocols["fedvs"].protocol.batch_plan().batches(data_of(scenario).rows, scenario.training, 0)
    draw = np.random.default_rng(7)
    for k in range(100 if arithmetic == "coded" and is_thorough() else 20):
        for learner in clients.values():
            randomise(learner, draw)
        responders = [int(c) for c in draw.permutation(list(clients))[: server.plan.threshold]]
        decoded = one_round(server, clients, sequence.batch(k), k, responders)
        total = clear.total(sequence.batch(k), {c: weights_of(clients[c]) for c in clients}, k)
        assert torch.equal(decoded, clear.mean(total, len(clients)))


def test_only_the_answers_that_are_decoded_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, server, clients = world()
    share_data(clients)
    batch = (
        scenario.protocols["fedvs"].protocol.batch_plan().batches(data_of(scenario).rows, scenario.training, 0).batch(0)
    )
    calls: list[int] = []
    field = type(server.plan.quantiser.field)
    real = field.matmul
    monkeypatch.setattr(field, "matmul", lambda *args: calls.append(1) or real(*args))
    models = {client: done(learner.share_model(0)) for client, learner in clients.items()}
    for place, learner in clients.items():
        done(learner.coded_embed(batch, {client: models[client][place] for client in clients}))
    assert not calls


def test_padded_rows_are_left_out_and_count_for_nothing() -> None:
    scenario, server, clients = world(clients=9, K=4, more={"training__batch": 28})
    rows = data_of(scenario).rows
    assert rows % 4
    share_data(clients)
    clear = InTheClear(scenario, server.plan)
    sequence = scenario.protocols["fedvs"].protocol.batch_plan().batches(rows, scenario.training, 0)
    padded = next(k for k in range(sequence.per_epoch) if not sequence.batch(k).real.all())
    batch = sequence.batch(padded)
    decoded = one_round(server, clients, batch, padded, list(clients))
    assert len(decoded) == len(batch) < len(batch.rows)
    total = clear.total(batch, {c: weights_of(clients[c]) for c in clients}, padded)
    assert torch.equal(decoded, clear.mean(total, len(clients)))


def gradient_error(bits: int) -> float:
    """How far a client's step is from autograd's through the average of unrounded embeddings, largest entry."""
    scenario, server, clients = world(data_bits=bits, weight_bits=bits, prime="2^61-1", bias=True)
    share_data(clients)
    batch = (
        scenario.protocols["fedvs"].protocol.batch_plan().batches(data_of(scenario).rows, scenario.training, 0).batch(0)
    )
    decoded = one_round(server, clients, batch, 0, list(clients)[:5])
    handle = message(0, None)
    handle.value = done_handle(decoded)
    before = {c: weights_of(learner).copy() for c, learner in clients.items()}

    plain = {
        c: [p.detach().clone().requires_grad_() for p in learner.model.parameters()] for c, learner in clients.items()
    }
    rows = torch.from_numpy(batch.ids.copy())
    hs = []
    for c, parameters in plain.items():
        x = clients[c].parts.features["train"][rows].flatten(1)
        hs.append(x @ parameters[0].T + parameters[1] + (x * x) @ parameters[2].T + parameters[3])
    h = torch.stack(hs).mean(0)
    server.model.train()
    server.parts.task.loss(server.model(h), server.parts.labels["train"][rows]).backward()

    gradient = done(server.coded_step(batch, handle.value, list(clients)[:5], list(clients)))
    worst = 0.0
    for c, learner in clients.items():
        done(learner.client_step(batch, message(0, gradient)))
        lr = 0.2
        step = (before[c] - weights_of(learner)) / lr
        g = [p.grad.numpy() for p in plain[c]]
        expected = np.concatenate([g[0].T, g[2].T, (g[1] + g[3])[None, :]])
        assert np.abs(g[1] - g[3]).max() == 0
        width = len(expected) - 1
        # The row of the biases stands for their sum, of which every b^i takes the same step.
        worst = max(worst, np.abs(step[:width] - expected[:width]).max(), np.abs(step[width] - expected[width]).max())
    return float(worst)


def done_handle(value: torch.Tensor) -> Any:
    from vflsim.learning.execution.operations import Handle

    handle: Any = Handle(tuple(value.shape), value.dtype)
    handle.set(value)
    return handle


def test_a_client_steps_along_autograds_gradient_through_the_average_within_the_rounding() -> None:
    """Rounding moves x by 2^-(l+1), and H by what that makes of it: the bound halves with every bit.

    With |x| ≤ 3.2 and gradients of about 0.01 an entry, 2^-l is a generous bound of the difference.
    """
    errors = {bits: gradient_error(bits) for bits in (6, 10, 14, 18)}
    for bits, error in errors.items():
        assert error < 2.0**-bits, (bits, error)
    assert errors[6] > 8 * errors[18] > 0


def test_weights_beyond_the_bound_end_the_run_with_what_to_change() -> None:
    _, _, clients = world(weight_bound=0.5)
    learner = clients[3]
    share_data(clients)
    with torch.no_grad():
        next(learner.model.parameters())[0, 0] = -0.5
    done(learner.share_model(0))
    with torch.no_grad():
        next(learner.model.parameters())[0, 0] = -0.51
    with pytest.raises(WeightBoundError, match=r"a weight of client-3 is 0.51, and weight_bound is 0.5") as error:
        done(learner.share_model(1))
    assert "raise weight_bound" in error.value.remedy
    with torch.no_grad():
        next(learner.model.parameters())[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="not finite"):
        done(learner.share_model(2))


def test_sharing_again_gives_the_same_shares() -> None:
    _, _, clients = world()
    share_data(clients)
    one, other = done(clients[1].share_model(3))[2].value, done(clients[1].share_model(3))[2].value
    assert torch.equal(one.on_wire(), other.on_wire())
    assert not torch.equal(one.on_wire(), done(clients[1].share_model(4))[2].value.on_wire())
    secret, again = done(clients[1].share_data())[2].value, done(clients[1].share_data())[2].value
    assert torch.equal(secret.rows_at(np.arange(2)), again.rows_at(np.arange(2)))


def test_what_shares_weigh_and_cost_are_the_papers_counts() -> None:
    scenario, server, clients = world(clients=7, K=2)
    plan, n, h = server.plan, data_of(scenario).rows, 5
    columns = plan.columns
    assert sum(columns.values()) == 2 * 64
    height = -(-n // 2)
    data, model = clients[1].share_data(), clients[1].share_model(0)
    assert set(data.result) == set(model.result) == set(clients)
    assert data.result[2].shape == (height, columns[1])
    assert model.result[2].shape == (columns[1], h)
    assert {handle.dtype for handle in (*data.result.values(), *model.result.values())} == {torch.int32}
    log = np.log2(7) ** 2
    assert data.flops() == pytest.approx(2 * height * columns[1] * 7 * log)
    assert model.flops() == pytest.approx(2 * columns[1] * h * 7 * log)
    share_data(clients)
    batch = scenario.protocols["fedvs"].protocol.batch_plan().batches(n, scenario.training, 0).batch(0)
    done(model)
    answer = clients[1].coded_embed(batch, {c: done(learner.share_model(0))[1] for c, learner in clients.items()})
    assert answer.result.shape == (10, h)
    assert answer.flops() == pytest.approx(2 * 10 * h * 128)
    # A sampled time is that of an ordinary embedding of the whole batch: K|B| h d D multiplications.
    assert answer.units == pytest.approx(10 * h * 128 / (20 * columns[1] * h))
    assert model.units == pytest.approx(7 * log / 20)
    assert model.units / answer.units == pytest.approx(log / 10 * 7 * columns[1] / 128)
    decode = server.decode(batch, [message(c, answer.result) for c in (1, 2, 3, 4, 5)], list(clients))
    assert decode.flops() == pytest.approx(2 * 10 * h * 5 * np.log2(5) ** 2)
    assert decode.units == 0
    assert plan.storage == height * 128 * 4
    assert plan.sharing_factor(2) == pytest.approx(log / 10)
    assert plan.sharing_factor(np.e) == pytest.approx(np.log(7) ** 2 / 10)


def size(scenario: Scenario) -> Size:
    protocol = scenario.protocols["fedvs"].protocol
    return size_of(protocol, setting(scenario, "fedvs", data_of(scenario)))


def test_the_code_is_told_in_words() -> None:
    scenario = load(coded(more={"stop": {"rounds": 5}}))
    said = expectation(scenario, "fedvs", data_of(scenario)).particulars
    assert "R = 5 of 7 clients must answer (K = 2, T = 1), 2 may straggle" in said
    assert "p = 2^31 − 1, 8 + 12 bits" in said
    assert said.endswith("each client stores 23.04 kB of shares")  # 45 rows of a segment, 128 columns, 4 bytes


def test_quantised_features_kept_shares_and_what_a_round_computes_count_as_memory() -> None:
    scenario = load(coded())
    plain = load({**coded(), "protocols": {"fedvs": {"kind": "synchronous"}}})
    rows, columns = data_of(scenario).rows, 2 * 64
    passing = {"an evaluation", "activations of a batch"}  # the larger counts; evaluation of plain clients sums them
    held, others = (sum(n for part, n in size(each).parts.items() if part not in passing) for each in (scenario, plain))
    more = held - others
    made = setting(scenario, "fedvs", data_of(scenario))
    answers = 5 * -(-made.batch // 2)  # R coded embeddings, each of the rows of a segment
    round_ = 8 * made.widths[0] * (2 * columns + answers)  # rounded weights, and the draws that round them
    assert more == columns * (4 * rows + (8 + 4 * 7) * -(-rows // 2)) + round_
    decoded = load(coded(arithmetic="decoded"))
    assert size(decoded).bytes < size(scenario).bytes


def parcel(sender: int, value: Any) -> Any:
    return SimpleNamespace(sender=sender, value=value)


def coded_operations() -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """(kind, learner, how it is made), each with everything before it done."""
    scenario, coded_server, clients = world()
    one, plan = clients[1], clients[1].plan
    sequence = scenario.protocols["fedvs"].protocol.batch_plan().batches(plan.rows, scenario.training_of("fedvs"), 0)
    of = sequence.batch(0)
    yield "share_data", one, one.share_data
    for learner in clients.values():
        shared = learner.share_data()
        shared.run()
        shared.commit()
        for receiver, handle in shared.result.items():
            clients[receiver].keep(parcel(learner.party, handle))
    yield "share_model", one, lambda: one.share_model(0)
    models = {}
    for learner in clients.values():
        (operation := learner.share_model(0)).run()
        models[learner.party] = operation.result
    yield "coded_embed", one, lambda: one.coded_embed(of, {n: models[n][1] for n in models})
    arrived = []
    for learner in clients.values():
        (operation := learner.coded_embed(of, {n: models[n][learner.party] for n in models})).run()
        arrived.append(parcel(learner.party, operation.result))
    used, sharers = arrived[: plan.threshold], tuple(clients)
    yield "decode", coded_server, lambda: coded_server.decode(of, used, sharers)
    (decoded := coded_server.decode(of, used, sharers)).run()
    responders = [each.sender for each in used]
    make = lambda: coded_server.coded_step(of, decoded.result, responders, sharers)  # noqa: E731
    yield "coded_step", coded_server, make
    (step := make()).run()
    yield "client_step", one, lambda: one.client_step(of, parcel(0, step.result))


def test_a_coded_runs_operation_that_is_made_changes_nothing() -> None:
    kinds = []
    for kind, learner, make in coded_operations():
        _ = learner.model
        before = everything(learner)
        make()
        assert everything(learner) == before, kind
        kinds.append(kind)
    assert kinds == ["share_data", "share_model", "coded_embed", "decode", "coded_step", "client_step"]
