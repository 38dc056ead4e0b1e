"""Inference under deadlines: when replies arrive, what counts by a deadline, and what is predicted from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from kept_runs import assert_interruptions_change_no_byte, files_of
from live_kinds import LIVE
from protocols_by_kind import KINDS
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, metrics, run, tiny
from torch import Tensor
from torch.nn.functional import cross_entropy

from vflsim.codecs import Plain
from vflsim.codecs.frame import ONLY, Envelope
from vflsim.errors import RunError
from vflsim.protocol import Answering, Learners, Synchronous
from vflsim.scenario.models import Scenario
from vflsim.simulation.answers import later_answers, not_answerable
from vflsim.simulation.run import Outcome, run_protocol

DELAYS = {1: 0.0, 2: 0.010, 3: 0.030}
ROWS = [50, 50, 50, 30]
"""Queries of 50 rows each about 180 test rows."""
SLOW = {"up": "8 Mbps", "down": "8 Mbps", "latency": "1 ms"}
"""A byte takes a microsecond."""
BY_HAND: dict[str, Any] = {
    "partition": {"clients": 3, "by": "columns"},
    "models__server": {"kind": "linear"},
    "timing": {
        "network": "dedicated",
        "server": {"compute": "5 ms", "link": SLOW},
        "clients": [
            {"select": "all", "compute": "2 ms", "link": SLOW},
            *({"select": str(client), "upload_delay": seconds} for client, seconds in DELAYS.items() if seconds),
        ],
    },
}


def asking(protocol: Any = "synchronous", said: dict[str, Any] | None = None, **changes: Any) -> Scenario:
    """Train for a few rounds, then ask."""
    said = {"deadline": ["20 ms", "60 ms"], "query_rows": 50} if said is None else said
    protocol = protocol if isinstance(protocol, str) else {"it": protocol}
    return tiny(protocol, **{**BY_HAND, "evaluate": {"every": "4 rounds", **said}, **changes})


def answers(outcome: Outcome) -> pd.DataFrame:
    return outcome.extra["answers"].to_pandas()


def arrivals(outcome: Outcome) -> np.ndarray:
    """Seconds by query and client."""
    frame = outcome.extra["arrivals"].to_pandas()
    return frame.pivot(index="query", columns="client", values="arrival_s").to_numpy()


def passes(*shape: int, dtype: torch.dtype = torch.float64) -> float:
    """Seconds on the way of a message, with or without a tensor: 2 ms of latency, and its bytes, as written."""
    written = Plain().encode(Envelope("it", 0, 0), {ONLY: torch.zeros(shape, dtype=dtype)} if shape else {})
    return 0.002 + len(written) * 1e-6


def arrives(rows: int, delay: float, dtype: torch.dtype = torch.float64) -> float:
    """Seconds until a reply is there."""
    return passes() + 0.002 * rows / 20 + delay + passes(rows, 6, dtype=dtype)


@pytest.fixture(scope="module")
def trained() -> Outcome:
    return run(asking())


def embeddings(outcome: Outcome, split: str) -> list[Tensor]:
    """h of every client from the weights that the run left."""
    data, w = data_of(asking()), outcome.weights
    return [
        data.features[m - 1][split].flatten(1) @ w[f"client-{m}.1.weight"].T + w[f"client-{m}.1.bias"] for m in DELAYS
    ]


def scored(outcome: Outcome, joined: Tensor) -> tuple[float, float]:
    """Loss and accuracy of a linear server, by PyTorch alone."""
    w, labels = outcome.weights, data_of(asking()).labels["test"]
    logits = joined @ w["server.weight"].T + w["server.bias"]
    return float(cross_entropy(logits, labels)), float((logits.argmax(1) == labels).double().mean())


def test_replies_arrive_after_question_computation_delay_and_reply(trained: Outcome) -> None:
    wanted = [[arrives(rows, delay) for delay in DELAYS.values()] for rows in ROWS]
    np.testing.assert_allclose(arrivals(trained), wanted, rtol=1e-12)
    rows = trained.extra["arrivals"].to_pandas().groupby("query")["rows"].unique()
    assert [each.tolist() for each in rows] == [[each] for each in ROWS]


def test_an_answer_comes_at_its_deadline_or_when_all_has_arrived(trained: Outcome) -> None:
    """By 20 ms those of 50 rows have one reply and that of 30 rows two; by 60 ms all have all."""
    assert arrives(50, 0.010) > 0.020 > arrives(30, 0.010)
    last = [arrives(rows, 0.030) for rows in ROWS]
    found = answers(trained).set_index("deadline_s")
    assert found.index.tolist() == [0.02, 0.06, math.inf]
    assert found.loc[0.02, ["queries", "answer_s_mean", "complete", "empty"]].tolist() == [4, 0.02, 0, 0]
    assert found.loc[0.02, ["replies_mean", "embeddings_mean"]].tolist() == [1.25, 1.25]
    for deadline in (0.06, math.inf):
        row = found.loc[deadline]
        assert row["answer_s_mean"] == pytest.approx(np.mean(last), rel=1e-12)
        assert row["answer_s_median"] == pytest.approx(np.median(last), rel=1e-12)
        assert row["answer_s_p95"] == pytest.approx(np.quantile(last, 0.95), rel=1e-12)
        assert row["answer_s_max"] == pytest.approx(max(last), rel=1e-12)
        assert row[["complete", "empty", "embeddings_mean"]].tolist() == [1, 0, 3]


@pytest.mark.parametrize("missing", ["absent", "zeros", "mean"])
def test_what_stands_for_a_missing_embedding(trained: Outcome, missing: str) -> None:
    """Client 1 always came, client 2 for the last 30 rows, client 3 never; the aggregate is the mean."""
    outcome = trained if missing == "absent" else run(asking(said={
        "deadline": "20 ms", "query_rows": 50, "missing": missing
    }))  # fmt: skip
    (h1, h2, _), means = embeddings(outcome, "test"), [h.mean(0) for h in embeddings(outcome, "train")]
    late = torch.arange(180) >= 150
    if missing == "absent":
        joined = torch.where(late[:, None], (h1 + h2) / 2, h1)
    elif missing == "zeros":
        joined = (h1 + torch.where(late[:, None], h2, 0.0)) / 3
    else:
        joined = (h1 + torch.where(late[:, None], h2, means[1]) + means[2]) / 3
    loss, accuracy = scored(outcome, joined)
    row = answers(outcome).iloc[0]
    assert row["test_loss"] == pytest.approx(loss, rel=1e-12)
    assert row["test_accuracy"] == pytest.approx(accuracy, rel=1e-12)


@pytest.mark.parametrize(("missing", "loss"), [("absent", None), ("zeros", "bias")])
def test_without_any_embedding_the_labels_or_the_stand_ins_decide(missing: str, loss: str | None) -> None:
    outcome = run(asking(said={"deadline": "1 ms", "missing": missing}))
    row, data = answers(outcome).iloc[0], data_of(asking())
    assert row[["empty", "embeddings_mean", "answer_s_mean"]].tolist() == [1, 0, 0.001]
    if loss == "bias":
        assert row["test_loss"] == pytest.approx(scored(outcome, torch.zeros(180, 6, dtype=torch.float64))[0])
        return
    counts = np.bincount(data.labels["train"].numpy(), minlength=10) + 1
    log = np.log(counts / counts.sum())
    assert row["test_loss"] == pytest.approx(-log[data.labels["test"].numpy()].mean(), rel=1e-12)


UNLIKE = ["synchronous", "t-synchronous", "fedvs", "vimadmm", "vimadmm_j", "fdml", "fdml-mean", "fedbcd", "pyvertical",
          "agg_vfl", "easter", "easter-clear", "synchronous-blinded"]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "missing"), [*((each, "absent") for each in UNLIKE), ("fedvs", "mean"), ("easter", "zeros")]
)
def test_who_waits_for_all_has_the_metrics_of_the_last_evaluation(name: str, missing: str) -> None:
    said = {"deadline": ["10 ms", "90 s"], "query_rows": 7, "missing": missing}
    scenario = asking(KINDS[name], said, timing=RANDOM_TIMING, partition={"clients": 4})
    outcome = run(scenario)
    last, found, party = metrics(outcome).iloc[-1], answers(outcome), ".server" * name.startswith("easter")
    for row in (1, 2):
        for metric in ("test_loss", "test_accuracy"):
            assert found.loc[row, metric] == pytest.approx(last[metric + party], rel=1e-12), metric
    assert found["complete"].tolist()[1:] == [1, 1]
    assert found.loc[1, "answer_s_max"] == found.loc[2, "answer_s_max"] < 90


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["synchronous", "fedvs", "easter"])
def test_clients_computed_together_answer_as_clients_computed_one_by_one(name: str) -> None:
    scenario = asking(KINDS[name], timing=RANDOM_TIMING)
    together, alone = answers(run(scenario)), answers(run(scenario, execution=EAGER))
    pd.testing.assert_frame_equal(together, alone, rtol=1e-9)


def test_later_deadlines_have_more_embeddings_and_later_answers() -> None:
    deadlines = [f"{each} ms" for each in range(2, 90, 8)]
    found = answers(run(asking(said={"deadline": deadlines, "query_rows": 3}, timing=RANDOM_TIMING)))
    for name in ("answer_s_mean", "answer_s_max", "replies_mean", "embeddings_mean", "complete"):
        assert found[name].is_monotonic_increasing, name
        assert found[name].nunique() > 3, name
    assert found["empty"].is_monotonic_decreasing
    assert (found["answer_s_max"] <= found["deadline_s"]).all()


def test_deadlines_change_no_byte_of_training(tmp_path: Path) -> None:
    without, with_ = (run(asking("asynchronous", said, timing=RANDOM_TIMING)) for said in ({}, None))
    files = [files_of(each, tmp_path / str(n), asking()) for n, each in enumerate((without, with_))]
    assert files[1].keys() - files[0].keys() == {"answers.parquet", "arrivals.parquet"}
    assert [name for name in files[0] if name != "run.json" and files[0][name] != files[1][name]] == []


def test_replies_of_one_size_arrive_at_the_same_times_under_every_protocol() -> None:
    scenarios = [asking(KINDS[name], timing=RANDOM_TIMING) for name in ("synchronous", "asynchronous", "vimadmm")]
    first, *others = (arrivals(run(each)) for each in scenarios)
    assert all((each == first).all() for each in others)
    assert (arrivals(run(scenarios[0], seed=1)) != first).all()


def test_a_resumed_run_answers_as_one_that_was_not_interrupted(tmp_path: Path) -> None:
    scenario = asking(timing=RANDOM_TIMING)
    assert_interruptions_change_no_byte(scenario, tmp_path)


def test_blinded_embeddings_count_when_all_have_come() -> None:
    found = answers(run(asking(KINDS["synchronous-blinded"], {"deadline": ["35 ms", "60 ms"], "query_rows": 50})))
    last = [arrives(rows, 0.030, torch.int32) for rows in ROWS]
    assert min(last) > 0.035 > arrives(50, 0.010, torch.int32)
    assert found["replies_mean"].tolist() == [2, 3, 3]
    assert found["embeddings_mean"].tolist() == [0, 3, 3]
    assert found["empty"].tolist() == [1, 0, 0]
    assert found["answer_s_max"].tolist() == pytest.approx([0.035, max(last), max(last)], rel=1e-12)


def test_a_client_that_is_away_replies_when_it_is_back_and_one_that_has_crashed_never() -> None:
    away = {"kind": "intervals", "down": [[0.003, 0.103]]}
    here = [arrives(50, delay) for delay in DELAYS.values()]
    for what, first in (("resumed", here[0] + 0.1), ("lost", math.nan)):
        clients = [*BY_HAND["timing"]["clients"], {"select": "1", "availability": {**away, "interrupted": what}}]
        said = {"deadline": ["60 ms", "200 ms"], "query_rows": 50}
        outcome = run(asking(said=said, timing={**BY_HAND["timing"], "clients": clients}))
        np.testing.assert_allclose(arrivals(outcome)[0], [first, *here[1:]], rtol=1e-9)
        waits = [0.06, 0.2, max(here)] if math.isnan(first) else [0.06, first, first]
        np.testing.assert_allclose(answers(outcome)["answer_s_max"], waits, rtol=1e-9)
        back = [arrives(ROWS[3], delay) for delay in DELAYS.values()]
        np.testing.assert_allclose(arrivals(outcome)[3], back, rtol=1e-9)


class Failing(Answering, Synchronous):
    """Its server cannot predict."""

    kind: Literal["failing"] = "failing"  # type: ignore[assignment]

    def answer(self, learners: Learners[Any, Any], embeddings: Mapping[int, Tensor | None]) -> Tensor:
        raise ZeroDivisionError("by hand")


def test_an_error_of_the_answers_is_the_runs() -> None:
    scenario = asking().with_protocols({"own": Failing()})
    outcome = run_protocol(scenario, "own", 0, data_of(scenario))
    assert isinstance(outcome.error, RunError)
    assert "no answers under evaluate.deadline: by hand" in str(outcome.error)
    assert (outcome.info.status, outcome.extra) == ("failed", {})


def test_timing_alone_answers_nothing() -> None:
    assert run(asking(), timing_only=True).extra == {}


ASKED: dict[str, Any] = {"every": "2 rounds", "deadline": ["20 ms", "60 ms"], "query_rows": 4}


def asking_once(kind: str) -> Scenario:
    return tiny({"it": KINDS[kind]}, timing=RANDOM_TIMING, stop={"rounds": 2}, evaluate=ASKED)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", LIVE)
def test_the_weights_of_a_run_answer_as_its_learners_do(kind: str) -> None:
    scenario = asking_once(kind)
    outcome = run(scenario, execution=EAGER)
    assert outcome.error is None
    found = later_answers(scenario, "it", scenario.seeds[0], data_of(scenario), outcome.weights)
    assert found.keys() == {"arrivals", "answers"}
    assert all(found[name].equals(outcome.extra[name]) for name in found)


def test_other_weights_answer_otherwise() -> None:
    scenario = asking_once("synchronous")
    outcome = run(scenario, execution=EAGER)
    weights = {name: torch.zeros_like(tensor) for name, tensor in outcome.weights.items()}
    assert not later_answers(scenario, "it", 0, data_of(scenario), weights)["answers"].equals(outcome.extra["answers"])


def test_weights_and_features_that_are_not_here_are_named() -> None:
    scenario = asking_once("synchronous")
    data = data_of(scenario)
    weights = {f"{party}.weight": torch.zeros(1) for party in ("server", "client-1", "client-2", "client-4")}
    assert not_answerable(data, (1, 2, 4), weights) == ""
    assert not_answerable(data, (1, 2, 3, 4), weights) == "the weights of client-3 are not here"
    features = [each if n != 1 else {split: x[:1].expand_as(x) for split, x in each.items()}
                for n, each in enumerate(data.features)]  # fmt: skip
    assert "all rows of client-2 are alike here" in not_answerable(replace(data, features=features), (1, 2), weights)
