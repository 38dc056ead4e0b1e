from math import isnan, sqrt

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from vflsim.learning.tasks import (
    BINARY,
    MULTICLASS,
    REGRESSION,
    TASKS,
    Auto,
    PredictionTask,
    task_of,
)
from vflsim.vocabulary.metrics import REPORTED

LABELS = {
    "multiclass": np.array([0, 2, 1, 1, 0, 2, 2, 0]),
    "binary": np.array([0, 1, 1, 0, 1, 0, 0, 1]),
    "regression": np.array([0.5, -1.0, 3.25, 2.0, 0.0, -0.125, 7.5, 1.0]),
}
CLASSES = {"multiclass": 3, "binary": 2, "regression": None}


def predictions(task: PredictionTask, rows: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randn(rows, task.outputs(CLASSES[task.name]), generator=generator, dtype=torch.float64)


def target(task: PredictionTask) -> torch.Tensor:
    return task.target(LABELS[task.name], torch.float64)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_metrics_of_a_task_are_known_and_reported_in_order(name: str) -> None:
    task = TASKS[name]
    assert task.name == name
    assert tuple(task.scores(predictions(task), target(task))) == ("loss", *task.metric_names)
    assert set(task.metric_names) <= set(REPORTED)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_loss_is_the_mean_over_rows(name: str) -> None:
    task = TASKS[name]
    prediction, wanted = predictions(task), target(task)
    per_row = [task.loss(prediction[i : i + 1], wanted[i : i + 1]) for i in range(len(wanted))]
    whole = task.loss(prediction, wanted)
    assert whole.shape == ()
    torch.testing.assert_close(whole, torch.stack(per_row).mean())


def test_the_server_has_one_output_unless_there_are_several_classes() -> None:
    assert BINARY.outputs(2) == 1
    assert REGRESSION.outputs(None) == 1
    assert MULTICLASS.outputs(10) == 10


@pytest.mark.parametrize("classes", [None, 0, 1])
def test_one_class_is_nothing_to_learn(classes: int | None) -> None:
    with pytest.raises(ValueError, match="at least 2 classes"):
        MULTICLASS.outputs(classes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_targets_have_the_shape_that_the_loss_takes(dtype: torch.dtype) -> None:
    classes = MULTICLASS.target(LABELS["multiclass"], dtype)
    assert (classes.dtype, classes.shape) == (torch.int64, (8,))
    for task in (BINARY, REGRESSION):
        values = task.target(LABELS[task.name], dtype)
        assert (values.dtype, values.shape) == (dtype, (8, 1))
        assert values.flatten().tolist() == LABELS[task.name].tolist()


def test_targets_are_copies() -> None:
    labels = LABELS["regression"].copy()
    values = REGRESSION.target(labels, torch.float64)
    labels[0] = 99
    assert values[0, 0] == 0.5


def test_multiclass_loss_by_hand() -> None:
    logits, wanted = predictions(MULTICLASS), target(MULTICLASS)
    expected = -torch.stack([row.softmax(0)[y].log() for row, y in zip(logits, wanted, strict=True)]).mean()
    torch.testing.assert_close(MULTICLASS.loss(logits, wanted), expected)


def test_binary_loss_by_hand() -> None:
    logits, wanted = predictions(BINARY), target(BINARY)
    p = 1 / (1 + (-logits).exp())
    torch.testing.assert_close(BINARY.loss(logits, wanted), -(wanted * p.log() + (1 - wanted) * (1 - p).log()).mean())


def test_binary_and_two_class_losses_agree() -> None:
    logits, wanted = predictions(BINARY), target(BINARY)
    two = torch.cat([torch.zeros_like(logits), logits], dim=1)
    torch.testing.assert_close(BINARY.loss(logits, wanted), F.cross_entropy(two, wanted.long().flatten()))


def test_classification_metrics_agree_with_scikit_learn() -> None:
    logits, wanted = predictions(MULTICLASS), LABELS["multiclass"]
    found = MULTICLASS.scores(logits, target(MULTICLASS))
    assert found.keys() == {"loss", "accuracy"}
    assert found["accuracy"] == accuracy_score(wanted, logits.numpy().argmax(1))
    scores = predictions(BINARY)
    found = BINARY.scores(scores, target(BINARY))
    assert found["accuracy"] == accuracy_score(LABELS["binary"], scores.numpy().ravel() > 0)
    assert found["auc"] == pytest.approx(roc_auc_score(LABELS["binary"], scores.numpy().ravel()), rel=1e-15)


def test_auc_is_the_chance_that_a_yes_outranks_a_no() -> None:
    scores = torch.tensor([[0.1], [0.4], [0.4], [0.35], [0.8], [0.1]])
    wanted = torch.tensor([[0.0], [0.0], [1.0], [1.0], [1.0], [1.0]])
    pairs = [(s > t) + 0.5 * (s == t) for s in scores[wanted == 1].tolist() for t in scores[wanted == 0].tolist()]
    assert BINARY.scores(scores, wanted)["auc"] == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize("only", [0.0, 1.0])
def test_auc_of_a_single_class_is_undefined(only: float) -> None:
    found = BINARY.scores(torch.randn(4, 1), torch.full((4, 1), only))
    assert isnan(found["auc"])
    assert 0 <= found["accuracy"] <= 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_auc_of_a_diverged_model_is_undefined(bad: float) -> None:
    assert isnan(BINARY.scores(torch.tensor([[bad], [0.0]]), torch.tensor([[1.0], [0.0]]))["auc"])


def test_a_logit_of_zero_means_no() -> None:
    assert BINARY.scores(torch.zeros(3, 1), torch.tensor([[0.0], [0.0], [1.0]]))["accuracy"] == 2 / 3


def test_regression_metrics_by_hand() -> None:
    prediction, wanted = predictions(REGRESSION), LABELS["regression"]
    errors = [(p - y) ** 2 for p, y in zip(prediction.flatten().tolist(), wanted, strict=True)]
    spread = sum((y - sum(wanted) / 8) ** 2 for y in wanted)
    found = REGRESSION.scores(prediction, target(REGRESSION))
    assert found["rmse"] == pytest.approx(sqrt(sum(errors) / 8), rel=1e-14)
    assert found["r2"] == pytest.approx(1 - sum(errors) / spread, rel=1e-13)
    assert found["r2"] == pytest.approx(r2_score(wanted, prediction.numpy().ravel()), rel=1e-13)
    torch.testing.assert_close(REGRESSION.loss(prediction, target(REGRESSION)).item(), found["rmse"] ** 2)


def test_r2_is_one_for_perfect_zero_for_the_mean_and_undefined_for_constant_targets() -> None:
    wanted = target(REGRESSION)
    assert REGRESSION.scores(wanted, wanted) == {"loss": 0.0, "rmse": 0.0, "r2": 1.0}
    assert REGRESSION.scores(wanted.mean().expand(8, 1), wanted)["r2"] == pytest.approx(0, abs=1e-15)
    assert isnan(REGRESSION.scores(wanted, torch.ones(8, 1))["r2"])


def test_metrics_do_not_need_detached_predictions() -> None:
    for task in TASKS.values():
        task.scores(predictions(task).requires_grad_(), target(task))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_task_decides_the_loss_and_others_are_refused(name: str) -> None:
    task = TASKS[name]
    assert task_of(name) is task_of(name, task.usual_loss) is task_of(name, Auto()) is task
    for other in TASKS.values():
        if other is not task:
            with pytest.raises(ValueError, match=f"{other.usual_loss.kind} does not fit a {name} task; allowed: auto"):
                task_of(name, other.usual_loss)


def test_the_prior_is_what_the_labels_alone_say() -> None:
    """Each class counts once more than it occurs; with that the loss of the prior is close to the labels' entropy."""
    shares = torch.tensor([3 + 1, 2 + 1, 3 + 1, 0 + 1], dtype=torch.float64) / (8 + 4)
    torch.testing.assert_close(MULTICLASS.prior(target(MULTICLASS), 4), shares.log(), rtol=1e-15, atol=0)
    torch.testing.assert_close(BINARY.prior(target(BINARY), 1).sigmoid(), torch.tensor([(4 + 1) / 10]).double())
    torch.testing.assert_close(
        REGRESSION.prior(target(REGRESSION), 1), torch.tensor([LABELS["regression"].mean()]).double()
    )
