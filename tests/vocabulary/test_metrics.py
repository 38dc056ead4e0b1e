"""Every metric is one class in a literal table; what is known of columns follows from it."""

from math import isnan

import pytest
import torch
from pydantic import ValidationError
from sklearn.metrics import f1_score, mean_absolute_error

from vflsim.vocabulary.imported import tried_out
from vflsim.vocabulary.metric import Metric, Scored, TaskName
from vflsim.vocabulary.metrics import (
    COLUMNS,
    METRICS,
    REPORTED,
    MacroF1,
    MeanAbsoluteError,
    facts_of,
    higher_is_better,
    is_share,
    range_of,
    unit_of,
)

OWN = {"kwh": facts_of("rmse").model_copy(update={"unit": "kWh"})}


@pytest.mark.parametrize("metric", sorted(REPORTED))
def test_every_metric_has_a_direction_with_or_without_its_split(metric: str) -> None:
    up = higher_is_better(metric)
    assert up == higher_is_better(f"test_{metric}") == higher_is_better(f"validation_{metric}")
    assert up == (metric in {"accuracy", "auc", "r2"})
    assert {f"test_{metric}", f"validation_{metric}"} <= set(COLUMNS)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown metric test_f1; allowed: loss, accuracy"):
        higher_is_better("test_f1")
    with pytest.raises(ValueError, match=r"unknown metric test_f1; .*, kwh$"):
        higher_is_better("test_f1", OWN)


def test_a_scenarios_own_metrics_are_known_where_they_are_given() -> None:
    assert not higher_is_better("test_kwh", OWN)
    assert unit_of("validation_kwh.client-2", OWN) == "kWh"
    assert range_of("test_kwh", OWN) == (0, float("inf"))
    assert is_share("test_accuracy", OWN)
    assert not is_share("test_kwh", OWN)
    assert not is_share("time_s", OWN)
    assert unit_of("time_s") == ""


@pytest.mark.parametrize("kind", METRICS, ids=lambda kind: kind.__name__)
def test_every_metric_passes_the_trial_of_those_from_outside(kind: type[Metric]) -> None:
    tried_out(kind.model_validate({}))


def scored(task: TaskName, prediction: torch.Tensor, target: torch.Tensor) -> Scored:
    return Scored(task, prediction, target, lambda one, other: (one - other).abs().mean())


def test_the_f1_of_classes_is_that_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(3)
    logits, labels = torch.randn(40, 5, generator=draw), torch.randint(0, 4, (40,), generator=draw)
    found = MacroF1().value(scored("multiclass", logits, labels))
    assert found == pytest.approx(f1_score(labels, logits.argmax(1), average="macro"))
    one, yes = torch.randn(40, 1, generator=draw), (torch.rand(40, 1, generator=draw) > 0.7).double()
    found = MacroF1().value(scored("binary", one, yes))
    assert found == pytest.approx(f1_score(yes[:, 0], one[:, 0] > 0, average="macro"))


def test_the_mean_absolute_error_is_that_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(4)
    said, true = torch.randn(30, 1, generator=draw), torch.randn(30, 1, generator=draw)
    found = MeanAbsoluteError().value(scored("regression", said, true))
    assert found == pytest.approx(mean_absolute_error(true, said))


def test_a_regression_has_no_classes() -> None:
    values = torch.zeros(3, 1)
    for name in ("predicted", "labels"):
        with pytest.raises(ValueError, match="a regression has no classes; allowed: a metric with tasks"):
            getattr(scored("regression", values, values), name)


def test_a_metric_is_undefined_where_it_says_so() -> None:
    alike = scored("binary", torch.randn(4, 1), torch.ones(4, 1))
    assert {name for name, each in REPORTED.items() if "binary" in each.tasks and isnan(each.value(alike))} == {"auc"}
    assert {name for name, each in REPORTED.items() if each.facts.undefined} == {"auc", "r2"}


def test_metrics_have_no_other_keys() -> None:
    with pytest.raises(ValidationError):
        MacroF1.model_validate({"average": "micro"})
