"""The base class of attacks, and their inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import nan
from typing import Annotated, ClassVar, Literal

import torch
from scipy.special import betaincinv
from torch import Tensor
from torch.nn import functional

from vflsim.finished import CONFIDENCE, PredictionTask, Results, StoredRun, TrainedModels, Uploads
from vflsim.protocol import SHARED, Part, Quantity, Split, generator
from vflsim.scenario import Scenario, ScenarioData

OneOrEach = Annotated[int | Literal["each"], Quantity(at_least=1, whole=True, word="each")]
"""The number of a client, or each of them in turn."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of an attack by (or on) a ``party``, under a ``setting`` of the attack's options.

    ``low`` and ``high`` are a 95 % interval of the value over rows, ``chance`` is the value of an attacker who knows
    nothing, with its interval; NaN where there is none. ``chosen`` says what the strongest attacker has chosen.
    """

    measure: str
    value: float
    party: str = ""
    setting: Mapping[str, float | int | str] = field(default_factory=dict)
    low: float = nan
    high: float = nan
    chance: float = nan
    chance_low: float = nan
    chance_high: float = nan
    chosen: str = field(default="", kw_only=True)


@dataclass
class AttackedRun:
    """One finished run, its scenario and its data; its models are made when first needed.

    ``selected`` names the protocols that are attacked. ``remarks`` collects the reasons for what an attack leaves out
    of this run.
    """

    results: Results
    run: StoredRun
    scenario: Scenario
    loaded: ScenarioData
    selected: tuple[str, ...]
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def models(self) -> TrainedModels:
        """The run's models. Raises ``ResultsError`` if they cannot be made."""
        return TrainedModels(self.run, self.scenario, self.loaded.of(self.scenario.training_of(self.run.protocol)))

    def beside(self, protocol: str) -> AttackedRun:
        """Return the run of another protocol with the same seed. Raises ``ValueError`` if it did not finish."""
        for run in self.results.runs:
            if (run.protocol, run.seed) == (protocol, self.run.seed) and not run.failed:
                return AttackedRun(self.results, run, self.scenario, self.loaded, self.selected)
        raise ValueError(f"there is no finished run with seed {self.run.seed}")

    def uploads(self, count: int, split: Split = "test") -> Uploads:
        """Return the server's inputs for up to ``count`` rows of a split: the same rows for all protocols of a seed.

        Raises ``ValueError`` if the server's prediction is no function of embeddings.
        """
        return self.models.uploads(self.rows(count, split), split)

    def rows(self, count: int, split: Split = "test") -> torch.Tensor:
        """Choose up to ``count`` rows of a split, ascending. Raises ``ValueError`` if it has none."""
        rows = len(self.models.data.labels[split])
        if not rows:
            raise ValueError(f"there are no {split} rows; allowed: data.{split}_fraction above 0")
        chosen = generator(self.run.seed, SHARED, "attack.rows").permutation(rows)[:count]
        return torch.from_numpy(chosen).sort().values


class Attack(Part, ABC):
    """An attack is one final class: its fields are its options, ``on`` measures one run."""

    kind: str
    title: ClassVar[str]
    """Its name in words, for headings."""
    measures: ClassVar[Mapping[str, str]]
    """What it measures, in the order of its tables: the label of each measure."""
    drawn: ClassVar[tuple[str, ...]]
    """The measures that its figure shows."""
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """The least and the greatest value that a measure can have, where there are any: intervals end there."""
    note: ClassVar[str] = ""
    """What the numbers mean, in a sentence below the tables."""

    def check(self, results: Results, scenario: Scenario) -> None:
        """Raise ``ValueError`` if the options do not fit these results, whatever the protocol."""

    @abstractmethod
    def on(self, attacked: AttackedRun) -> Iterable[Measured]:
        """Measure one run. Raises ``ValueError`` with the reason if the attack does not apply to it.

        Random numbers come from ``streams``, keyed by the run's seed: a repetition gives the same bytes.
        """


def binomial_low(hits: int, trials: int, alpha: float) -> float:
    """Return the lower end of Clopper and Pearson's one-sided interval of a share, of error level ``alpha``."""
    return float(betaincinv(hits, trials - hits + 1, alpha)) if hits else 0.0


def share(hits: torch.Tensor) -> tuple[float, float, float]:
    """Return the share of true elements, with its exact two-sided 95 % interval; NaN of none."""
    count, trials, alpha = int(hits.sum()), hits.numel(), (1 - CONFIDENCE) / 2
    if not trials:
        return nan, nan, nan
    return count / trials, binomial_low(count, trials, alpha), 1 - binomial_low(trials - count, trials, alpha)


def need_classes(task: PredictionTask) -> None:
    """Raise ``ValueError`` for a regression, whose predictions are neither right nor wrong."""
    if task.name == "regression":
        raise ValueError(f"a {task.name} has no classes to mistake; allowed: binary and multiclass tasks")


def classes_of(prediction: Tensor, task: PredictionTask) -> Tensor:
    """Return the predicted class of every row, int64, as the task's accuracy counts it."""
    return (prediction[:, 0] > 0).long() if task.name == "binary" else prediction.argmax(1)


def truth_of(labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the class of every row, int64."""
    return (labels[:, 0] > 0.5).long() if task.name == "binary" else labels


def total_loss(prediction: Tensor, labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the sum of the losses of the rows: of the loss that the run was trained on."""
    if task.own_loss is not None:
        return task.loss(prediction, labels) * len(prediction)
    if task.name == "binary":
        return functional.binary_cross_entropy_with_logits(prediction, labels, reduction="none")[:, 0].sum()
    return functional.cross_entropy(prediction, labels, reduction="none").sum()


def logits_of(prediction: Tensor, labels: Tensor, task: PredictionTask) -> Tensor:
    """Return the logit of every row's own class; of a yes-or-no task the logit, with its sign turned for no."""
    if task.name == "binary":
        return torch.where(labels[:, 0] > 0.5, prediction[:, 0], -prediction[:, 0])
    return prediction.gather(1, labels[:, None])[:, 0]
