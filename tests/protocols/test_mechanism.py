"""Whole runs in which clients clip and perturb their embeddings: what changes, what does not, and what is reported."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from plain_training import Plain
from protocols_by_kind import HEADS
from thorough import is_thorough
from tiny_worlds import EAGER, RANDOM_TIMING, data_of, events, metrics, rounds, run, same_weights, tiny
from torch import Tensor

from vflsim.errors import BudgetError, ScenarioError
from vflsim.learning.learners.releases import Releases
from vflsim.learning.privacy.accounting import epsilon_of
from vflsim.protocols import PROTOCOLS
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.streams import generator
from vflsim.studies.checks.data import read_and_check
from vflsim.vocabulary.execution_options import USUAL, Execution

NOISE = {"kind": "gaussian", "clip": 1.0, "delta": 1e-5, "noise_multiplier": 0.5}
KINDS: dict[str, dict[str, Any]] = {
    "wait": {"kind": "synchronous"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "t-sync": {"kind": "t_synchronous", "t": 2},
    "t-cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "t-filled": {"kind": "t_synchronous", "t": 3, "first_fill": "upload"},
    "async": {"kind": "asynchronous"},
    "async-bounded": {"kind": "asynchronous", "max_staleness": 3},
    "vimsgd": {"kind": "vimsgd", "models": HEADS},
    "vimadmm": {"kind": "vimadmm", "rho": 1, "local_steps": 2, "models": HEADS},
    "vimadmm-j": {"kind": "vimadmm_j", "rho": 1, "local_steps": 2, "models": HEADS},
    "fdml": {"kind": "fdml", "models": HEADS},
    "pyvertical": {"kind": "pyvertical", "models": {"aggregate": "concat"}},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2},
    "c_vfl": {"kind": "c_vfl", "local_steps": 2},
    "ef_vfl": {"kind": "ef_vfl", "local_steps": 2},
    "ef_vfl-private": {"kind": "ef_vfl", "labels": "private"},
    "fedbcd-sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3, "angle": 80},
    "flex_vfl": {"kind": "flex_vfl", "local_steps": [2, 1, 2, 3, 1]},
    "laser_vfl": {"kind": "laser_vfl", "models": {"aggregate": "mean"}},
    "czofo": {"kind": "czofo", "samples": 2},
    "pubsub_vfl": {"kind": "pubsub_vfl", "average_every": 2},
}


def noisy(said: dict[str, Any], **mechanism: Any) -> dict[str, Any]:
    return {**said, "mechanism": {**NOISE, **mechanism}}


def facts(outcome: Outcome) -> Any:
    assert outcome.info.privacy is not None
    return outcome.info.privacy


def test_every_protocol_with_uploads_of_embeddings_is_in_the_list() -> None:
    taking = {kind.model_fields["kind"].default for kind in PROTOCOLS if kind.traits.mechanism}
    assert {said["kind"] for said in KINDS.values()} == taking


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", KINDS)
def test_noise_changes_what_is_learnt_and_no_time_no_message_and_no_round(name: str) -> None:
    scenario = tiny({"plain": KINDS[name], "noisy": noisy(KINDS[name])}, timing=RANDOM_TIMING)
    plain, other = run(scenario, "plain"), run(scenario, "noisy")
    assert rounds(plain).equals(rounds(other))
    assert events(plain).equals(events(other))
    assert plain.info.privacy is None
    losses = [metrics(outcome)["test_loss"].to_numpy()[1:] for outcome in (plain, other)]
    assert not np.isclose(*losses).any()


def test_hardly_any_noise_and_a_wide_clip_are_synchronous_training() -> None:
    quiet = noisy(KINDS["wait"], clip=1e4, noise_multiplier=1e-12)
    scenario = tiny({"plain": KINDS["wait"], "quiet": quiet})
    plain, other = run(scenario, "plain"), run(scenario, "quiet")
    assert max(float((plain.weights[key] - other.weights[key]).abs().max()) for key in plain.weights) < 1e-6


def test_wait_dp_is_clipped_and_noisy_training_written_anew() -> None:
    """Against plain PyTorch on one graph: clip, add the noise of the round, step everybody."""
    scenario = tiny({"dp": noisy(KINDS["wait"])}, stop={"rounds": 12})
    found = run(scenario, seed=3)
    plain = Plain(scenario.document.raw, scenario, "dp", 3, data_of(scenario))
    for k in range(12):
        ids = plain.ids(1, k)
        hs: list[Tensor] = []
        for m in plain.clients:
            h = plain.embed(m, ids)
            bits = generator(3, m, f"mechanism.embed/{k}").bit_generator
            words = bits.random_raw(h.numel()) // 2**12
            normal = torch.distributions.Normal(0.0, 1.0).icdf((torch.tensor(words.astype(float)) + 0.5) / 2**52)
            hs.append(h / torch.clamp(h.norm(dim=1, keepdim=True), min=1) + normal.reshape(h.shape))  # σ = 0.5 · 2 · 1
        parties = [0, *plain.clients]
        weights = [w for party in parties for w in plain.weights[party]]
        gradients = iter(torch.autograd.grad(plain.loss(hs, ids), weights))
        for party in parties if k < 11 else [0]:  # the run ends with the last step of the server
            plain.step(party, [next(gradients) for _ in plain.weights[party]])
    assert plain.furthest(found.weights) < 1e-9


@pytest.mark.parametrize(
    "execution", [USUAL, EAGER] if is_thorough() else [USUAL], ids=lambda how: "eager" if how.eager else "batched"
)
def test_the_same_noise_meets_every_protocol(monkeypatch: pytest.MonkeyPatch, execution: Execution) -> None:
    """Common random numbers: the k-th embedding of a client gets the same noise, whatever the protocol."""
    noise, found = Releases.noise, {}
    drawn: dict[tuple[int, int], Tensor] = {}

    def watched(self: Releases, kind: str, index: int, h: Tensor) -> Tensor:
        given = noise(self, kind, index, h)
        if kind == "embed":
            drawn[self._party, index] = given
        return given

    monkeypatch.setattr(Releases, "noise", watched)
    scenario = tiny({name: noisy(said) for name, said in KINDS.items()}, timing=RANDOM_TIMING, training__batch=18)
    for name in KINDS:
        drawn = found[name] = {}
        run(scenario, name, execution=execution)
    for one, other in combinations(KINDS, 2):
        common = found[one].keys() & found[other].keys()
        assert common, (one, other)
        for key in common:
            pair = [found[name][key].flatten() for name in (one, other)]
            shortest = min(map(len, pair))  # logits are as wide as the task has classes
            assert torch.allclose(pair[0][:shortest], pair[1][:shortest], atol=1e-14), (one, other)


def test_runs_with_noise_repeat_to_the_bit_and_differ_between_seeds() -> None:
    scenario = tiny({"async": noisy(KINDS["async"])}, timing=RANDOM_TIMING)
    one, again, other = run(scenario), run(scenario), run(scenario, seed=1)
    assert same_weights(one, again)
    assert not same_weights(one, other)


@pytest.mark.parametrize("kind", ["virtual", "real"])
def test_the_largest_number_of_releases_of_a_sample_is_its_epochs(kind: str) -> None:
    scenario = tiny(
        {"dp": noisy(KINDS["wait"])}, stop={"rounds": 12}, training__batch=20
    )  # 81 rows: 5 batches an epoch
    outcome = run(scenario, kind=kind)
    found = facts(outcome)
    assert found.releases == 3
    assert found.rows_released == 2 * 90 + 2 * 20
    assert found.epsilon_run == epsilon_of(0.5, 1e-5, 3)
    assert found.epsilon_client == epsilon_of(0.5, 1e-5, found.rows_released)
    assert found.epsilon_release < found.epsilon_run < found.epsilon_client
    assert (found.sigma, found.sensitivity, found.amplification_by_subsampling) == (1.0, 2.0, "none")


@pytest.mark.parametrize("name", ["t-filled", "async-bounded"])
def test_first_fills_and_answers_to_queries_are_releases(name: str) -> None:
    timing = {**RANDOM_TIMING, "network": "dedicated"}
    scenario = tiny({"dp": noisy(KINDS[name])}, timing=timing, stop={"rounds": 40}, training__batch=18)
    outcome = run(scenario)
    done = events(outcome)
    done = done[done["outcome"] == "done"].astype({"party": str, "kind": str})
    rows = {"compute.embed": 18, "compute.answer": 18, "compute.first_fill": 90}  # 90 training rows, 5 full batches
    made = done[done["kind"].isin(rows)]
    assert set(made["kind"]) == {"compute.embed", "compute.first_fill" if name == "t-filled" else "compute.answer"}
    assert facts(outcome).rows_released == made["kind"].map(rows).groupby(made["party"]).sum().max()


def test_a_budget_for_the_run_is_never_overdrawn() -> None:
    budget = {**KINDS["wait"], "mechanism": {**NOISE, "noise_multiplier": None, "epsilon": 5, "per": "run"}}
    budget["mechanism"] = {key: value for key, value in budget["mechanism"].items() if value is not None}
    budget["mechanism"]["releases"] = 2
    enough = tiny({"dp": budget}, stop={"rounds": 10})
    assert facts(run(enough)).epsilon_run == pytest.approx(5)
    beyond = tiny({"dp": budget}, stop={"rounds": 12})
    outcome = run_protocol(beyond, "dp", 0, data_of(beyond))
    assert isinstance(outcome.error, BudgetError)
    assert "the noise is for 2 releases of a sample" in str(outcome.error)
    assert "client-1, embed, round 10 at" in outcome.error.where
    assert facts(outcome).releases == 2
    assert run(beyond, timing_only=True).info.privacy is None


def test_timing_alone_has_nothing_to_protect_and_stays_vectorised() -> None:
    from vflsim.simulation.vectorised import obstacles, run_vectorised

    scenario = tiny(
        {"dp": noisy(KINDS["wait"]), "plain": KINDS["wait"]}, timing={**RANDOM_TIMING, "network": "dedicated"}
    )
    assert obstacles(scenario, "dp") == obstacles(scenario, "plain")
    if not obstacles(scenario, "dp"):
        quick = run_vectorised(scenario, "dp", 0, data_of(scenario, "dp"))
        assert quick.info.privacy is None
        assert quick.tables.rounds == run(scenario, "dp", timing_only=True).tables.rounds


def test_a_model_with_batch_normalisation_cannot_be_protected(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "normalising_client.py"
    module.write_text(
        "from torch import nn\n"
        "class Normalising(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 6))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    client = {"kind": "module", "path": "normalising_client:Normalising", "embedding": 6}
    scenario = tiny(
        {"plain": KINDS["wait"], "dp": noisy(KINDS["wait"])}, models__client=client, training__last_batch="drop"
    )
    with pytest.raises(ScenarioError, match="a sample changes the embeddings of others in its batch") as caught:
        read_and_check(scenario)
    assert caught.value.where.endswith("protocols.dp.mechanism")
