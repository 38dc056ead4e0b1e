"""No scenario that is accepted wraps: sums stay within the field, or the run ends with an error that says why."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coded_worlds import coded
from fault_worlds import watched_sums
from hypothesis import assume, given, settings, strategies as st
from thorough import examples
from tiny_worlds import coding_plan_of, data_of, learners, metrics, raw, rounds, run
from torch import Tensor

from vflsim.errors import ScenarioError, WeightBoundError
from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.execution.operations import run_operation
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.plan import CodingPlan
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation.run import run_protocol
from vflsim.studies.checks.data import read_and_check

PRIMES = ["2^31-1", "2^61-1", "auto"]
ROWS = 4


def with_features(scenario: Scenario, features: list[Tensor]) -> LoadedData:
    """The data of a scenario with other features: one tensor (rows, columns) a client."""
    before = data_of(scenario)
    labels = {split: labels[: len(features[0])] for split, labels in before.labels.items()}
    parts = tuple({"train": x, "validation": x[:0], "test": x} for x in features)
    return replace(before, features=parts, shapes=tuple((x.shape[1],) for x in features), labels=labels)


def largest_weights(clients: Mapping[int, CodedClientLearner], bound: float, signs: random.Random | None) -> None:
    """Give every weight the largest magnitude: with the signs of the first row (the largest sum), or with random ones.

    Of several powers each has its own columns; a bias is divided among them.
    """
    for learner in clients.values():
        x = learner.parts.features["train"][0].flatten()
        linears = learner._linears()
        with torch.no_grad():
            for power, linear in enumerate(linears, start=1):
                toward = torch.sign(x**power).nan_to_num(1.0) + (x == 0)
                if signs is not None:
                    toward = torch.tensor([signs.choice([-1.0, 1.0]) for _ in range(len(x))], dtype=x.dtype)
                linear.weight.copy_((bound * toward).expand_as(linear.weight))
                if linear.bias is not None:
                    linear.bias.fill_(bound if power == 1 else 0.0)


def shared_and_decoded(
    scenario: Scenario, plan: CodingPlan, clients: Mapping[int, CodedClientLearner], rows: int
) -> tuple[list[int], list[int], list[int]]:
    """The sum of every row and column: in Python's integers, decoded from R coded embeddings, and in the clear."""
    batch = scenario.protocols["fedvs"].protocol.batch_plan().batches(rows, scenario.training, 0).batch(0)
    data = {n: learner.share_data() for n, learner in clients.items()}
    models = {n: learner.share_model(0) for n, learner in clients.items()}
    for operation in (*data.values(), *models.values()):
        run_operation(operation)
    answers = []
    for n, learner in clients.items():
        learner.data_shares = {other: operation.result[n] for other, operation in data.items()}
        operation = learner.coded_embed(batch, {other: each.result[n] for other, each in models.items()})
        run_operation(operation)
        answers.append(operation.result.value)
    holders = random.Random(rows).sample(range(len(answers)), plan.threshold)
    values = torch.stack([answers[holder].on_wire().long() for holder in holders])
    decoded = plan.quantiser.field.signed(plan.code.decode(values, holders)).reshape(-1, plan.embedding)
    exact = np.zeros((len(batch.rows), plan.embedding), dtype=object)
    for n in clients:
        secret = data[n].result[n].value.secret
        assert int(secret.quantised.abs().sum(1).max()) <= plan.row_bounds[n]
        exact += secret.rows(batch).numpy().astype(object) @ models[n].result[n].value.secret.quantised.numpy().astype(
            object
        )
    return exact.ravel().tolist(), decoded.flatten().tolist(), answers[0].decoded().flatten().tolist()


scale = st.builds(lambda exponent, mantissa: mantissa * 10.0**exponent, st.integers(-9, 12), st.floats(1, 9.99))


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[Tensor], float, random.Random | None, float]:
    """What a scenario says, its clients' features, the weight bound, signs, and how far the weights have grown."""
    clients = draw(st.sampled_from([3, 5]))
    said: dict[str, Any] = {"clients": clients, "K": draw(st.sampled_from([1, 2][: clients // 2])), "T": 1}
    said |= {"degree": draw(st.integers(1, 3)), "bias": draw(st.booleans()), "prime": draw(st.sampled_from(PRIMES))}
    bound = draw(st.one_of(st.sampled_from([4.0, 1.0, 0.3, 7.0, 1e-3]), scale))
    said["weight_bound"] = bound
    if said["prime"] != "auto" and draw(st.booleans()):
        bits = st.integers(0, 26 if said["prime"] == "2^61-1" else 15)
        said |= {"data_bits": draw(bits), "weight_bits": draw(bits)}
    pick = random.Random(draw(st.integers(0, 2**32)))
    largest = draw(st.lists(scale, min_size=clients, max_size=clients))
    shape = draw(st.sampled_from(["halves", "equal", "any", "sparse"]))
    features = []
    for size in largest:
        columns = pick.choice([1, 2, 20])
        x = torch.tensor([[pick.uniform(-1, 1) for _ in range(columns)] for _ in range(ROWS)], dtype=torch.float64)
        if shape == "halves":  # every rounding is by a half, and upwards
            x = torch.sign(x) * 0.5 + torch.round(x * 3)
        elif shape == "equal":
            x = torch.sign(x)
        elif shape == "sparse":
            x = x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(pick.randrange(2**32))) < 0.3)
        x[0] = torch.where(x[0] == 0, x[0], torch.sign(x[0]) * x.abs().max())  # the first row is the largest, of all
        features.append(x * size)
    return said, features, bound, draw(st.sampled_from([None, pick])), draw(st.sampled_from([1.0, 1.0, 0.999, 1.001]))


@settings(max_examples=examples(50), deadline=None, derandomize=True)
@given(cases())
def test_what_is_accepted_never_wraps(case: Any) -> None:
    said, features, bound, signs, grown = case
    scenario = load(coded(more={"training__batch": 4}, **said))
    data = with_features(scenario, features)
    try:
        plan = coding_plan_of(scenario, "fedvs", data)
    except ValueError:  # what is said then is tested below
        assume(False)
    assert plan.worst <= plan.quantiser.field.largest
    clients: Any = learners(scenario, "fedvs", 0, data)[1]
    largest_weights(clients, bound * grown, signs)
    if grown > 1:
        with pytest.raises(WeightBoundError):
            shared_and_decoded(scenario, plan, clients, ROWS)
        return
    exact, decoded, clear = shared_and_decoded(scenario, plan, clients, ROWS)
    assert max(map(abs, exact)) <= plan.worst
    assert exact == decoded == clear


@pytest.mark.parametrize("columns", [20, 300])
@pytest.mark.parametrize("data_bits", [36, 44])
def test_bounds_are_not_rounded_down(columns: int, data_bits: int) -> None:
    """Near the largest sum of the field, where float64 has a step of 128 or more, no sum may be overlooked."""
    bits = {"prime": "2^61-1", "data_bits": data_bits, "weight_bits": 0}
    one_row = {"training__batch": "all"}
    scenario = load(coded(clients=3, degree=1, more=one_row, K=1, weight_bound=1, **bits))
    largest, accepted = 2**60 - 2, 0
    pick = torch.Generator().manual_seed(columns + data_bits)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(30):
        x = torch.rand(1, columns, generator=pick, dtype=torch.float64) + 0.5
        x *= largest / 2**data_bits / float(x.sum())
        x *= 1 - 2**-50 * float(torch.rand(1, generator=pick)) * columns  # on either side of the limit
        data = with_features(scenario, [x, nothing, nothing])
        try:
            plan = coding_plan_of(scenario, "fedvs", data)
        except ValueError:
            continue
        accepted += 1
        assert int(plan.quantiser.data(x).abs().sum(1).max()) <= min(plan.row_bounds[1], largest)
    assert accepted > 0


# --- whole runs -----------------------------------------------------------------------------------------------------


def growing(lr: float, bound: float, arithmetic: str = "coded", **said: Any) -> dict[str, Any]:
    """A scenario whose clients' weights grow fast."""
    optimizer = {"kind": "sgd", "lr": lr}
    more = {"training__client_optimizer": optimizer, "stop": {"rounds": 40}, "evaluate": {"every": "1 rounds"}}
    return coded(clients=5, weight_bound=bound, arithmetic=arithmetic, more=more, **said)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("lr", [8.0, 60.0])
def test_weights_that_outgrow_their_bound_end_the_run_and_until_then_every_sum_is_exact(prime: str, lr: float) -> None:
    scenario = load(growing(lr, 1.5, prime=prime))
    with watched_sums(scenario, "fedvs") as over:
        outcome = run_protocol(scenario, "fedvs", 0, data_of(scenario))
    assert outcome.info.status == "failed"
    assert isinstance(outcome.error, WeightBoundError)
    said = str(outcome.error)
    where = re.match(r"client-\d+, share_model, round (\d+) at [\d.e+-]+ s: a weight of client-\d+ ", said)
    assert where is not None, said
    assert re.search(r"1\.5\b", said), "the limit"
    assert "weight_bound" in said.partition("remedy:")[2], "and what to change"
    assert "learning rate" in said.partition("remedy:")[2]
    assert len(over) >= int(where[1]), "every round before has been decoded, and was exact"
    shown = metrics(outcome)["round"].iloc[-1]
    assert shown <= int(where[1])


def test_both_arithmetics_end_with_the_same_error() -> None:
    errors = []
    for arithmetic in ("coded", "decoded"):
        scenario = load(growing(8.0, 1.5, arithmetic))
        outcome = run_protocol(scenario, "fedvs", 0, data_of(scenario))
        assert isinstance(outcome.error, WeightBoundError)
        errors.append(str(outcome.error))
    assert errors[0] == errors[1]


@pytest.mark.slow
def test_a_larger_bound_trains_on_with_fewer_bits() -> None:
    small, large = load(growing(0.2, 1.5)), load(growing(0.2, 64.0))
    codes = [run(each).extra["coding"].to_pylist()[0] for each in (small, large)]
    fewer, more = sorted(code["data_bits"] + code["weight_bits"] for code in codes)
    assert fewer < more == codes[0]["data_bits"] + codes[0]["weight_bits"]
    ended = run_protocol(load(growing(8.0, 1.5)), "fedvs", 0, data_of(small))
    assert isinstance(ended.error, WeightBoundError)
    assert len(rounds(run(load(growing(8.0, 64.0))))) == 40


def test_a_timing_only_run_knows_no_weights() -> None:
    scenario = load(growing(60.0, 1.5))
    outcome = run_protocol(scenario, "fedvs", 0, data_of(scenario), timing_only=True)
    assert outcome.error is None


# --- what is refused when it is loaded ------------------------------------------------------------------------------

SCENARIO = """\
name: bounds
data: {file: features.csv, label: y, scale: none}
partition: {clients: 5, by: columns}
models:
  client: {kind: polynomial, degree: DEGREE, embedding: 3}
  aggregate: mean
  server: {kind: mlp, hidden: [4]}
training:
  batch: 4
  client_optimizer: {kind: sgd, lr: 0.1}
  server_optimizer: {kind: sgd, lr: 0.1}
  dtype: float64
timing:
  server: {compute: 1 ms}
protocols:
  wait: {kind: synchronous}
  coded:
    kind: fedvs
    K: 2
    SAID
stop: {rounds: 3}
"""


@pytest.mark.parametrize(
    ("magnitude", "degree", "said"),
    [
        pytest.param(1.0, 1, "data_bits: 16\n    weight_bits: 16", id="too many bits"),
        pytest.param(1e6, 1, "prime: 2^31-1", id="too large features"),
        pytest.param(1e6, 4, "prime: auto", id="too large powers"),
        pytest.param(1e160, 3, "prime: auto", id="infinite powers"),
        pytest.param(1e160, 3, "data_bits: 4\n    weight_bits: 4", id="infinite powers, bits given"),
        pytest.param(1e307, 1, "data_bits: 4\n    weight_bits: 4", id="infinite sums, bits given"),
        pytest.param(1.0, 1, "weight_bound: 1e9", id="too large a bound"),
        pytest.param(1.0, 1, "weight_bound: 1e300\n    prime: 2^61-1", id="much too large a bound"),
    ],
)
def test_what_could_wrap_is_refused_with_file_line_and_key(
    tmp_path: Path, magnitude: float, degree: int, said: str
) -> None:
    pick = np.random.default_rng(3)
    rows = [[*map(str, magnitude * pick.uniform(0.5, 1, 10)), str(label)] for label in pick.integers(0, 3, 30)]
    header = [*(f"f{column}" for column in range(10)), "y"]
    (tmp_path / "features.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    (tmp_path / "bounds.yaml").write_text(SCENARIO.replace("DEGREE", str(degree)).replace("SAID", said))
    with pytest.raises(ScenarioError) as refused:
        read_and_check(load(tmp_path / "bounds.yaml"))
    text = str(refused.value)
    assert re.search(r"bounds\.yaml:(1[6-9]|2\d): protocols\.coded", text), text
    assert "allowed:" in text
    assert len(text) < 1000


def test_what_cannot_wrap_is_accepted() -> None:
    scenario = load(raw({"fedvs": {"kind": "fedvs", "K": 1, "data_bits": 4, "weight_bits": 8}}))
    read_and_check(scenario)
