"""The metrics of a model's predictions: every kind, and what is known of a column of the metrics table.

To add one: a final class like those below, and its name in ``MetricKind``. Nothing else names metrics.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, final, get_args

from pydantic import AfterValidator, Field
from typing_extensions import override

from vflsim.vocabulary.base import Shorthand, kind_from_text
from vflsim.vocabulary.imported import OrModule
from vflsim.vocabulary.metric import Better, Metric, MetricFacts, Scored, TaskName

_CLASSES: Final[tuple[TaskName, ...]] = ("multiclass", "binary")


@final
class MeanLoss(Metric):
    """The loss that the run trains on, as the mean over the rows.

    Example: ``{kind: loss}``
    """

    kind: Literal["loss"] = "loss"
    tasks: ClassVar[tuple[TaskName, ...]] = ("multiclass", "binary", "regression")
    better: ClassVar[Better] = "lower"
    least: ClassVar[float | None] = 0
    always: ClassVar[bool] = True

    @override
    def value(self, scored: Scored) -> float:
        return float(scored.mean_loss(scored.prediction, scored.target))


@final
class Accuracy(Metric):
    """The share of rows with the right class: that of the largest logit (the first, if several), or yes above 0.

    Example: ``{kind: accuracy}``
    """

    kind: Literal["accuracy"] = "accuracy"
    tasks: ClassVar[tuple[TaskName, ...]] = _CLASSES
    better: ClassVar[Better] = "higher"
    least: ClassVar[float | None] = 0
    most: ClassVar[float | None] = 1
    always: ClassVar[bool] = True

    @override
    def value(self, scored: Scored) -> float:
        # Counted and divided in Python: exact, whatever the number of rows.
        return int((scored.predicted == scored.labels).count_nonzero()) / len(scored)


@final
class Auc(Metric):
    """The area under the ROC curve: the probability that a yes has a larger logit than a no.

    Example: ``{kind: auc}``
    """

    kind: Literal["auc"] = "auc"
    tasks: ClassVar[tuple[TaskName, ...]] = ("binary",)
    better: ClassVar[Better] = "higher"
    least: ClassVar[float | None] = 0
    most: ClassVar[float | None] = 1
    undefined: ClassVar[str] = "where only one class is there, or a prediction is not finite"
    always: ClassVar[bool] = True

    @override
    def value(self, scored: Scored) -> float:
        from sklearn.metrics import roc_auc_score  # slow to import, and only binary tasks need it

        scores, truth = scored.prediction.detach().double().cpu().numpy().ravel(), scored.labels.cpu().numpy() > 0
        if truth.all() or not truth.any() or not bool(scored.prediction.isfinite().all()):
            return math.nan
        return float(roc_auc_score(truth, scores))


@final
class RootMeanSquaredError(Metric):
    """The root of the mean squared error, in the unit of the labels.

    Example: ``{kind: rmse}``
    """

    kind: Literal["rmse"] = "rmse"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)
    better: ClassVar[Better] = "lower"
    least: ClassVar[float | None] = 0
    always: ClassVar[bool] = True

    @override
    def value(self, scored: Scored) -> float:
        return math.sqrt(_residual(scored) / len(scored))


@final
class R2(Metric):
    """R² = 1 − Σ (y − ŷ)² / Σ (y − ȳ)².

    Example: ``{kind: r2}``
    """

    kind: Literal["r2"] = "r2"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)
    better: ClassVar[Better] = "higher"
    most: ClassVar[float | None] = 1
    undefined: ClassVar[str] = "where all labels are equal"
    always: ClassVar[bool] = True

    @override
    def value(self, scored: Scored) -> float:
        target = scored.target.double()
        spread: float = (target - target.mean()).square().sum().item()
        return 1 - _residual(scored) / spread if spread > 0 else math.nan


@final
class MacroF1(Metric):
    """F1 = 2 hits / (2 hits + misses + false alarms) of each class, as the mean over classes that occur or are said.

    Example: ``{kind: macro_f1}``
    """

    kind: Literal["macro_f1"] = "macro_f1"
    tasks: ClassVar[tuple[TaskName, ...]] = _CLASSES
    better: ClassVar[Better] = "higher"
    least: ClassVar[float | None] = 0
    most: ClassVar[float | None] = 1

    @override
    def value(self, scored: Scored) -> float:
        guess, true = scored.predicted.cpu().numpy(), scored.labels.cpu().numpy()
        classes = {*guess.tolist(), *true.tolist()}
        scores = [
            2 * int(((guess == k) & (true == k)).sum()) / int((guess == k).sum() + (true == k).sum()) for k in classes
        ]
        return sum(scores) / len(scores)


@final
class MeanAbsoluteError(Metric):
    """The mean of \\|y − ŷ\\|, in the unit of the labels.

    Example: ``{kind: mae}``
    """

    kind: Literal["mae"] = "mae"
    tasks: ClassVar[tuple[TaskName, ...]] = ("regression",)
    better: ClassVar[Better] = "lower"
    least: ClassVar[float | None] = 0

    @override
    def value(self, scored: Scored) -> float:
        return float((scored.target.double() - scored.prediction.double()).abs().mean())


def _residual(scored: Scored) -> float:
    total: float = (scored.target.double() - scored.prediction.double()).square().sum().item()
    return total


MetricKind: TypeAlias = MeanLoss | Accuracy | Auc | RootMeanSquaredError | R2 | MacroF1 | MeanAbsoluteError
METRICS: tuple[type[Metric], ...] = get_args(MetricKind)
"""Every kind of metric; those that are ``always`` reported stand in the order of their columns."""

AnyMetric = Annotated[
    MetricKind, Field(discriminator="kind"), OrModule(Metric), Shorthand(kind_from_text, {"type": "string"})
]
"""A field that takes any kind of metric, or its name."""

REPORTED: Mapping[str, Metric] = MappingProxyType(
    {kind.model_fields["kind"].default: kind.model_validate({}) for kind in METRICS if kind.always}
)
"""The metrics that every run of their tasks reports, by name, in the order of the columns."""

LOSS: Final = "loss"
"""The name of the loss among the metrics."""

Known: TypeAlias = Mapping[str, MetricFacts]
"""The metrics of a scenario's own key ``metrics``, by name."""
NO_METRICS: Final[Known] = MappingProxyType({})

_PARTY = re.compile(r"\.(server|client-[1-9][0-9]*)$")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")

COLUMNS = ("train_loss", *(f"{split}_{metric}" for split in ("validation", "test") for metric in REPORTED))
"""The columns of a run's metrics table that measure the model, of any task, without those of the key ``metrics``.

A protocol whose parties have predictors of their own adds a column for each: ``test_accuracy.client-2``.
"""


def _metric_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name columns of metrics; allowed: 1 to 32 of a-z, 0-9, _, beginning with a letter; "
            "choose another name"
        )
    if name in REPORTED:
        raise ValueError(f"every run reports {name}; allowed: a name that no metric has; remove it, or rename it")
    return name


MetricName: TypeAlias = Annotated[str, AfterValidator(_metric_name)]
"""A name of a metric of the key ``metrics``."""


def columns_of(metrics: Known = NO_METRICS) -> tuple[str, ...]:
    """Return the columns that measure the model, of any task, with the ``metrics`` of the scenario."""
    return (*COLUMNS, *(f"{split}_{metric}" for split in ("validation", "test") for metric in metrics))


def facts_of(metric: str, metrics: Known = NO_METRICS) -> MetricFacts:
    """Return what is known of a metric. A split may stand in front, a party behind: ``test_accuracy.client-2``.

    ``metrics`` are the scenario's. Raises ValueError for an unknown metric.
    """
    bare = _bare(metric)
    if bare in REPORTED:
        return REPORTED[bare].facts
    try:
        return metrics[bare]
    except KeyError:
        raise ValueError(f"unknown metric {metric}; allowed: {', '.join([*REPORTED, *metrics])}") from None


def is_known(metric: str, metrics: Known = NO_METRICS) -> bool:
    """Say whether a metric is one that every run of its task reports, or one of the ``metrics`` of the scenario."""
    bare = _bare(metric)
    return bare in REPORTED or bare in metrics


def unit_of(metric: str, metrics: Known = NO_METRICS) -> str:
    """Return the unit of a metric's values; empty for none, and for what is not known."""
    return facts_of(metric, metrics).unit if is_known(metric, metrics) else ""


def higher_is_better(metric: str, metrics: Known = NO_METRICS) -> bool:
    """Say whether a metric grows as the model improves. Raises ValueError for an unknown metric."""
    return facts_of(metric, metrics).better == "higher"


def is_share(metric: str, metrics: Known = NO_METRICS) -> bool:
    """Say whether a metric lies between 0 and 1; false for what is no metric, such as ``time_s``."""
    return is_known(metric, metrics) and facts_of(metric, metrics).is_share


def range_of(metric: str, metrics: Known = NO_METRICS) -> tuple[float, float]:
    """Return the least and the greatest value that a metric can have. Raises ValueError for an unknown metric."""
    return facts_of(metric, metrics).span


def column_of(metric: str) -> str:
    """Return the column that a party's own metric is about: ``test_accuracy`` of ``test_accuracy.client-2``."""
    return _PARTY.sub("", metric)


def belongs_to_a_party(metric: str) -> bool:
    """Say whether a metric is of one party's own predictor."""
    return _PARTY.search(metric) is not None


def _bare(metric: str) -> str:
    metric = column_of(metric)
    for split in ("train_", "validation_", "test_"):
        metric = metric.removeprefix(split)
    return metric
