"""The models that a run left: they predict and score as the run did, through its codec, and can be differentiated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from attacked_runs import NOTHING_UPLOADED, finished, of_kind
from protocols_by_kind import KINDS
from tiny_worlds import raw

from vflsim.errors import ResultsError
from vflsim.learning.execution.operations import Handle
from vflsim.results import Results
from vflsim.scenario import load
from vflsim.studies.study import run_study
from vflsim.trained import StudyResults, TrainedModels, trained_models
from vflsim.trained.models import SplitAnswer

torch.set_num_threads(1)
UPLOADING = [kind for kind in KINDS if kind not in NOTHING_UPLOADED]


def opened(results: Results) -> StudyResults:
    return StudyResults.open(results.folder)


def loss_of(models: TrainedModels, prediction: torch.Tensor, split: str = "test") -> float:
    return float(models.data.task.loss(prediction.detach(), models.data.labels[split]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [kind for kind in UPLOADING if kind != "synchronous-rounded"])  # its noise is new
def test_the_prediction_has_the_loss_that_the_run_ended_with(kind: str) -> None:
    """EASTER's and AggVFL's mean over parties is not the active party's, which stands in a column of its own.

    LASER's is the mean of the heads' losses, and the prediction the heads' mean, whose loss is smaller: it is convex.
    """
    results = of_kind(kind)
    models = trained_models(results, kind, 0)
    uploads = models.uploads(torch.arange(len(models.data.labels["test"])))
    last = results.run(kind, 0).frame("metrics").iloc[-1]
    column = "test_loss.server" if kind.startswith("easter") else "test_loss"
    loss = loss_of(models, uploads.predict(uploads.received))
    assert loss < last[column] if kind == "laser_vfl" else loss == pytest.approx(last[column], rel=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", UPLOADING)
def test_the_prediction_can_be_differentiated_by_every_upload(kind: str) -> None:
    models = trained_models(of_kind(kind), kind, 0)
    uploads = models.uploads(torch.tensor([3, 1, 4]), "train")
    leaves = {client: h.clone().requires_grad_() for client, h in uploads.sent.items()}
    twice = {client: torch.cat([h, h]) for client, h in leaves.items()}
    prediction = uploads.predict(twice)
    assert prediction.shape == (6, models.data.outputs)
    assert torch.allclose(prediction[:3], prediction[3:])
    prediction[:, 0].sum().backward()
    assert all(leaf.grad is not None and bool(leaf.grad.any()) for leaf in leaves.values())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_the_model_of_every_kind_predicts_embeds_and_has_the_weights_of_every_party(kind: str) -> None:
    model = opened(of_kind(kind)).model(kind, seed=0)
    assert {f"{party}.{name}" for party, own in model.weights.items() for name in own} == {
        *of_kind(kind).weights(kind, 0)
    }
    rows = len(model.data.labels["test"])
    prediction = model.predict()
    assert prediction.shape == (rows, model.data.outputs)
    assert not prediction.requires_grad
    assert {len(h) for h in model.embeddings().values()} <= {rows}
    last = of_kind(kind).run(kind, 0).frame("metrics").iloc[-1]
    column = "test_loss.server" if kind.startswith("easter") else "test_loss"
    if kind != "synchronous-rounded":  # its noise is new
        loss = loss_of(model, prediction)
        assert loss < last[column] if kind == "laser_vfl" else loss == pytest.approx(last[column], rel=1e-9)
        assert torch.allclose(model.predict(rows=[3, 1]), prediction[[3, 1]])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "reason"), NOTHING_UPLOADED.items())
def test_a_server_without_uploads_has_no_prediction_of_them(kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        trained_models(of_kind(kind), kind, 0).uploads(torch.arange(3))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("aggregate", "codec"),
    [
        ("mean", {"kind": "scalar_quantiser", "bits": 3, "dither": "none"}),
        ("sum", {"kind": "by_direction", "up": {"kind": "top_k", "count": 2}}),
        ("max", {"kind": "top_k", "count": 2}),
        ("concat", {"kind": "vector_quantiser", "bits": 2, "dither": "none"}),
        ("weighted", {"kind": "top_k", "count": 2, "error_feedback": True}),
        ("learned_mean", {"kind": "top_k", "count": 2}),
    ],
)
def test_uploads_go_through_the_codec_as_in_evaluation(aggregate: str, codec: dict, tmp_path: Path) -> None:
    entry = {"kind": "synchronous", "codec": codec, "models": {"aggregate": aggregate}}
    results = finished({"it": entry}, tmp_path / "study")
    models = trained_models(results, "it", 0)
    uploads = models.uploads(torch.arange(len(models.data.labels["test"])))
    loss = results.run("it", 0).frame("metrics")["test_loss"].iloc[-1]
    assert loss_of(models, uploads.predict(uploads.received)) == pytest.approx(loss, rel=1e-9)
    assert loss_of(models, uploads.predict(uploads.sent)) != pytest.approx(loss, rel=1e-6)
    assert not torch.equal(uploads.received[1], uploads.sent[1])


def test_the_gradient_comes_back_straight_through_the_codec() -> None:
    models = trained_models(of_kind("synchronous", codec={"kind": "top_k", "count": 2}), "synchronous", 0)
    wiring = models.uploads(torch.arange(4)).wiring
    h = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    arrived = wiring.arrive(1, h)
    assert int((arrived != 0).sum()) == 8
    arrived.square().sum().backward()
    assert torch.equal(h.grad, 2 * arrived.detach())


def test_an_active_servers_own_embedding_belongs_to_the_same_rows() -> None:
    models = trained_models(
        of_kind(
            "synchronous",
            partition={"clients": 3, "by": "columns", "active": True},
            models={
                "client": {"kind": "linear", "embedding": 6},
                "aggregate": "concat",
                "active": {"kind": "mlp", "hidden": [5], "embedding": 4},
                "server": {"kind": "mlp", "hidden": [8]},
            },
        ),
        "synchronous",
        0,
    )
    rows = torch.tensor([7, 2])
    some, all_ = models.uploads(rows), models.uploads(torch.arange(18))
    assert torch.allclose(some.predict(some.sent), all_.predict(all_.sent)[rows])


def test_any_split_is_scored_from_answers() -> None:
    models = trained_models(of_kind("synchronous"), "synchronous", 0)
    answers = models.answers("train")
    score = models.score(answers, "train")["loss"]
    uploads = models.uploads(torch.arange(90), "train")
    assert score == pytest.approx(loss_of(models, uploads.predict(uploads.sent), "train"), rel=1e-9)
    silent = Handle((90, 6), torch.float64)
    silent.set(torch.zeros(90, 6, dtype=torch.float64))
    assert models.score({**answers, 2: SplitAnswer(2, silent)}, "train")["loss"] != score


def test_a_protocol_with_learners_of_its_own_has_to_say_how_it_predicts(tmp_path: Path) -> None:
    active = {
        "partition": {"clients": 3, "by": "columns", "active": True},
        "models__active": {"kind": "linear", "embedding": 6},
    }
    results = finished(
        {"own": {"kind": "module", "path": "outside_protocols.two_trip:TwoTrip"}}, tmp_path / "study", **active
    )
    with pytest.raises(ValueError, match="its server is not that of split training"):
        trained_models(results, "own", 0).uploads(torch.arange(3))


def test_a_run_that_is_not_there_is_named() -> None:
    with pytest.raises(ResultsError, match="no run of protocol 'wait' with seed 0"):
        trained_models(of_kind("synchronous"), "wait", 0)


def test_rows_and_splits_that_a_run_does_not_have_are_refused() -> None:
    model = opened(of_kind("synchronous")).model("synchronous")
    rows = len(model.data.labels["test"])
    with pytest.raises(ResultsError, match=rf"there is no row {rows} of the split 'test'\n  allowed: 0 to {rows - 1}"):
        model.predict(rows=[0, rows])
    with pytest.raises(ResultsError, match=r"no rows of the split 'validation'\n  allowed: train, test"):
        model.predict("validation")


def test_a_run_without_trained_models_is_refused_in_words(tmp_path: Path) -> None:
    run_study(load(raw("synchronous", stop={"rounds": 3}, seeds=[0])), tmp_path / "timing", timing_only=True)
    with pytest.raises(ResultsError, match=r"it simulated the timing alone[\s\S]*run it without --timing-only"):
        StudyResults.open(tmp_path / "timing").model("synchronous")
    finished(
        {"it": {"kind": "synchronous", "training": {"server_optimizer": {"kind": "sgd", "lr": 1e300}}}}, tmp_path / "b"
    )
    with pytest.raises(ResultsError, match=r"the run diverged: .*loss became[\s\S]*a finished run that trained models"):
        StudyResults.open(tmp_path / "b").model("it", seed=0)


@pytest.mark.parametrize("damage", ["absent", "cut", "other"])
def test_damaged_weights_are_refused(damage: str, tmp_path: Path) -> None:
    place = tmp_path / "study"
    shutil.copytree(of_kind("synchronous").folder, place)
    weights = place / "synchronous" / "seed-0" / "weights.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    if damage == "cut":
        weights.write_bytes(content[: len(content) // 2])
    elif damage == "other":
        shutil.copy(of_kind("pyvertical").folder / "pyvertical" / "seed-0" / weights.name, weights)
    results = type(of_kind("synchronous")).open(place)
    with pytest.raises(ResultsError, match=r"weights"):
        trained_models(results, "synchronous", 0)
