"""VFL-CZOFO and DPZV against their algorithms, written again in plain PyTorch with a table kept by hand.

Who took part in which step, and whether clients stepped after it, is read from the run. Directions and noise are drawn
from their streams. All else is worked out again: losses, clipping, estimates and updates, on a list of tensors a party.
"""

import pytest
import torch
from plain_training import Plain, join
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, raw, rounds, run
from torch import Tensor
from torch.nn import functional as F

from vflsim.learning.privacy.mechanisms import Gaussian
from vflsim.scenario import load
from vflsim.simulation.run import Outcome
from vflsim.streams import generator, torch_seed
from vflsim.vocabulary.execution_options import USUAL, Execution

NOISE = {"clip": 0.3, "delta": 1e-5, "noise_multiplier": 0.01}
CZOFO = {"kind": "czofo", "smoothing": 0.5, "samples": 2}
WEIGHTS = {**CZOFO, "perturbs": "weights"}
DPZV = {"kind": "dpzv", "smoothing": 0.5, "noise": NOISE}


def said_of(protocol: dict, steps: int = 150, **changes: object) -> dict:
    return raw(
        {"it": protocol},
        models__client={"kind": "mlp", "hidden": [7], "embedding": 5},
        training__client_optimizer={"kind": "sgd", "lr": 0.01, "momentum": 0.5},
        training__server_optimizer={"kind": "sgd", "lr": 0.05},
        timing=RANDOM_TIMING,
        stop={"rounds": steps},
        evaluate={"every": "1000 rounds"},
        **changes,
    )


def directions(said: dict, m: int, batch: int, origin: int, shape: tuple[int, ...]) -> Tensor:
    """u_1 … u_q: of norm 1 along the last axis, or standard normal."""
    protocol = said["protocols"]["it"]
    draw = torch.Generator().manual_seed(torch_seed(0, m, f"directions/{origin}/{batch}"))
    u = torch.randn(protocol.get("samples", 1), *shape, generator=draw, dtype=torch.float64)
    return u if protocol.get("directions") == "gaussian" else F.normalize(u, dim=-1)


def replayed(said: dict, execution: Execution = USUAL) -> tuple[float, Outcome]:
    """The largest difference between the weights of the run and of the replay, and the run."""
    protocol, scenario = said["protocols"]["it"], load(said)
    outcome = run(scenario, execution=execution)
    plain = Plain(said, scenario, "it", 0, data_of(scenario))
    kind, mu, q = protocol["kind"], protocol["smoothing"], protocol.get("samples", 1)
    sphere, own = protocol.get("directions") != "gaussian", scenario.training_of("it").batches == "own"
    steps = events(outcome, "compute.client_step")
    steps = steps[steps["outcome"] == "done"]
    done = {m: int((steps["party"] == f"client-{m}").sum()) for m in plain.clients}
    table = {m: torch.zeros(len(plain.y), plain.widths[m], dtype=torch.float64) for m in plain.clients}
    embedded = dict.fromkeys(plain.clients, 0)
    for k, (m,) in enumerate(rounds(outcome)["used"]):
        number = embedded[m]
        ids, weights = plain.ids(m, number), plain.weights[m]
        flat = torch.cat([w.detach().flatten() for w in weights])

        def at(vector: Tensor, m: int = m, ids: Tensor = ids, weights: list[Tensor] = weights) -> Tensor:
            parts = torch.split(vector, [w.numel() for w in weights])
            return plain.embed(m, ids, [part.view_as(w) for part, w in zip(parts, weights, strict=True)]).detach()

        def losses(h: Tensor, m: int = m, ids: Tensor = ids) -> Tensor:  # of each row
            hs = [h if j == m else table[j][ids] for j in plain.clients]
            hs = [*(plain.embed(j, ids) for j in plain.holders if j not in plain.clients), *hs]
            logits = plain.server(plain.weights[0], join(plain.aggregate, hs, plain.shares))
            return -F.log_softmax(logits, 1)[torch.arange(len(ids)), plain.y[ids]]

        outputs = kind == "czofo" and protocol.get("perturbs") != "weights"
        shape = (len(ids), plain.widths[m]) if outputs else flat.shape
        u = directions(said, m, number, m if own else -1, tuple(shape))
        h = plain.embed(m, ids)
        if kind == "dpzv":
            pairs = [(at(flat + mu * each), at(flat - mu * each)) for each in u]
            h = sum(above + below for above, below in pairs) / (2 * q)
        table[m][ids] = h.detach()
        loss = losses(h.detach()).mean()
        at_server = {j: torch.autograd.grad(loss, plain.weights[j], retain_graph=True) for j in plain.weights if j <= 0}
        with torch.no_grad():
            if kind == "dpzv":
                slopes = torch.stack([(losses(above) - losses(below)) / (2 * mu) for above, below in pairs], 1)
                clipped = slopes * (NOISE["clip"] / slopes.norm(dim=1, keepdim=True)).clamp(max=1)
                bits = generator(0, 0, f"mechanism.slopes/{k}").bit_generator
                noise = Gaussian(**NOISE).noise((q,), torch.float64, bits)
                received = (clipped.sum(0) + noise) / len(ids)
            else:
                points = [h + mu * each for each in u] if outputs else [at(flat + mu * each) for each in u]
                received = torch.stack([losses(point).mean() - loss for point in points]) / mu
            factor = shape[-1] if sphere else 1
            estimate = sum(slope * each for slope, each in zip(received, u, strict=True)) * factor / q
        embedded[m] += 1
        if embedded[m] <= done[m]:
            if outputs:
                plain.step(m, torch.autograd.grad(h, weights, estimate))
            else:
                parts = torch.split(estimate, [w.numel() for w in weights])
                plain.step(m, [part.view_as(w) for part, w in zip(parts, weights, strict=True)])
        for party, every in at_server.items():
            plain.step(party, every)
    assert abs(plain.test_loss() - metrics(outcome)["test_loss"].iloc[-1]) < 1e-12
    return plain.furthest(dict(outcome.weights)), outcome


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [CZOFO, WEIGHTS, DPZV], ids=["czofo", "weights", "dpzv"])
def test_a_thousand_steps_are_those_of_the_algorithm(protocol: dict) -> None:
    furthest, _ = replayed(said_of(protocol, 1000))
    assert furthest <= 1e-12


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", [CZOFO, WEIGHTS, DPZV], ids=["czofo", "weights", "dpzv"])
@pytest.mark.parametrize("changes", [
    {"models__aggregate": "concat"},
    {"models__aggregate": "max", "training__batches": "own"},
    {"models__active": {"kind": "mlp", "hidden": [6], "embedding": 5}, "partition": {"clients": 3, "active": True}},
], ids=["concat", "max, own batches", "active server"])  # fmt: skip
def test_so_are_those_with_other_aggregates_batches_and_an_active_server(protocol: dict, changes: dict) -> None:
    assert replayed(said_of({**protocol, "samples": 3, "directions": "gaussian"}, 60, **changes))[0] <= 1e-12


def test_so_are_those_of_one_by_one() -> None:
    assert replayed(said_of(CZOFO), EAGER)[0] <= 1e-12
