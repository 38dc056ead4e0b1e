"""Targets of metrics. Stop rules, tables and figures all use the :class:`TargetWatch` in this file.

Evaluations are noisy: near its plateau a metric passes values that it does not keep. So a target is reached when it
is *held*: when consecutive evaluations over a stretch all meet it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from vflsim.vocabulary.base import Part
from vflsim.vocabulary.metric import Better
from vflsim.vocabulary.metrics import COLUMNS, Known, column_of, columns_of, facts_of, is_share
from vflsim.vocabulary.quantities import (
    Number,
    Quantity,
    counted,
)

Unit: TypeAlias = Literal["evaluations", "seconds", "rounds"]
Row: TypeAlias = Mapping[str, float]
"""A row of the metrics table: ``time_s``, ``round``, ``updates`` and whatever was evaluated."""

_FOR = "for"
_PERCENT = re.compile(r"(?P<amount>.*\S)\s*%\s*", re.DOTALL)
_FORMS = "5 evaluations, 20 s or 30 rounds"
_OWN_COLUMN = r"^(validation|test)_[a-z][a-z0-9_]*(\.(server|client-[1-9][0-9]*))?$"


@dataclass(frozen=True)
class Held:
    """How long a target must be met, in evaluations in a row, virtual seconds, or rounds (server steps)."""

    amount: float
    unit: Unit

    def __str__(self) -> str:
        if self.unit == "seconds":
            return f"{self.amount:g} s"
        return f"{self.amount:g} {self.unit if self.amount != 1 else self.unit.removesuffix('s')}"


USUALLY = Held(5, "evaluations")
"""How long a target must be met by default."""


@dataclass(frozen=True)
class Target:
    """A metric, the value that it must reach, and how long it must hold that value.

    ``better`` is the metric's better direction; None: that of a metric which every run reports.
    """

    metric: str
    value: float
    held: Held = USUALLY
    better: Better | None = None

    @cached_property
    def higher_is_better(self) -> bool:
        """Whether the metric grows as the model improves."""
        return (self.better or facts_of(self.metric).better) == "higher"

    @property
    def bound(self) -> str:
        """The metric and the value: ``test_accuracy ≥ 0.9``."""
        return f"{self.metric} {'≥' if self.higher_is_better else '≤'} {self.value:g}"

    def met(self, value: float) -> bool:
        """Tell whether a value is at least as good as the target's; NaN never is."""
        return value >= self.value if self.higher_is_better else value <= self.value

    def __str__(self) -> str:
        return f"{self.bound} for {self.held}"


class TargetWatch:
    """Find the first stretch that holds a target, from the rows of a run's metrics in order.

    The stretch begins with an evaluation that meets the target, and lasts as long as every evaluation does. It is
    complete after ``held`` evaluations, or at the first evaluation that many seconds or rounds after its beginning.
    The target is reached where a complete stretch begins.

    A row without a change of any model since the row before is no new evaluation: only its time counts.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.began: Row | None = None
        """The first row of the stretch that is complete or may become complete."""
        self.complete = False
        self._evaluations = 0
        self._before: tuple[float, ...] | None = None

    def add(self, row: Row) -> bool:
        """Add a row, and tell whether the target has been reached and held."""
        if self.complete:
            return True
        # The training loss is a mean over the server's steps since the row before.
        names = ("round",) if self.target.metric.startswith("train_") else ("round", "updates")
        state = tuple(row[name] for name in names)
        new, self._before = state != self._before, state
        if new:
            if not self.target.met(row.get(self.target.metric, float("nan"))):
                self.began, self._evaluations = None, 0
                return False
            self.began = self.began or row
            self._evaluations += 1
        self.complete = self.began is not None and self._lasted(row, self.began) >= self.target.held.amount
        return self.complete

    def _lasted(self, row: Row, began: Row) -> float:
        match self.target.held.unit:
            case "seconds":
                return row["time_s"] - began["time_s"]
            case "rounds":
                return row["round"] - began["round"]
        return self._evaluations


def _metrics(info: ValidationInfo) -> Known:
    """Return the scenario's own metrics, which the context of the validation has."""
    metrics: Known = (info.context or {}).get("metrics") or {}
    return metrics


def _metric(name: str, info: ValidationInfo) -> str:
    columns = columns_of(_metrics(info))
    if column_of(name) not in columns:
        raise ValueError(
            f"there is no metric {name!r}; allowed: {', '.join(columns)}, and {_FOR} ({_FORMS}); "
            "choose one, or name a metric of your own under the scenario's key `metrics`"
        )
    return name


def _levels(targets: Any, info: ValidationInfo) -> Any:
    """Turn per cents of metrics that are shares into numbers, and refuse levels that no run could reach."""
    if not isinstance(targets, Mapping):
        return targets
    symbols, levels, wrong = (info.context or {}).get("symbols") or {}, dict(targets), []
    for metric in (name for name in targets if _is_share_target(name, _metrics(info))):
        try:
            levels[metric] = _level(targets[metric], symbols)
        except ValueError as error:
            problem = PydanticCustomError("value_error", "{error}", {"error": str(error)})
            wrong.append(InitErrorDetails(type=problem, loc=(metric,), input=targets[metric]))
    if wrong:
        raise ValidationError.from_exception_data("target", wrong)
    return levels


def _is_share_target(name: Any, metrics: Known) -> bool:
    return isinstance(name, str) and column_of(name) in columns_of(metrics) and is_share(name, metrics)


def share_of(value: Any, symbols: Mapping[str, float]) -> tuple[float, bool]:
    """Read ``80 %`` as 0.8 and a number as it is; also return whether it was in per cent."""
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(Quantity().convert(percent["amount"] if percent else value, symbols))
    return number / 100 if percent else number, percent is not None


def _level(value: Any, symbols: Mapping[str, float]) -> float:
    level, percent = share_of(value, symbols)
    if not 0 <= level <= 1:
        remedy = f"; write {value} % if per cent are meant" if not percent and 1 < level <= 100 else ""
        raise ValueError(f"{value} is out of range; allowed: 0 to 1, as in 0.8 or 80 %{remedy}")
    return level


class _HeldField:
    """Annotation: ``5 evaluations``, ``20 s``, ``30 rounds`` become a ``Held``."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_held)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": "string",
            "description": f"a number of evaluations, a duration, or a number of rounds: {_FORMS}",
        }


def _held(value: Any, info: ValidationInfo) -> Held:
    if not isinstance(value, str) or re.fullmatch(r"[\s\d.eE+-]*", value):
        raise ValueError(f"{value!r} does not say of what; allowed: {_FORMS}")
    return Held(*counted(value, ("evaluation", "round"), info))


class Targets(Part):
    """Metrics and the values that they must reach, each for a duration: ``{test_accuracy: 0.9, for: 20 s}``.

    Examples: ``{test_accuracy: 90 %, for: 5 evaluations}``, ``{validation_loss: 0.3, for: 20 s}``
    """

    values: Annotated[dict[Annotated[str, AfterValidator(_metric)], Number], BeforeValidator(_levels)]
    """The first one reached counts. Metrics between 0 and 1 may be in per cent: ``test_accuracy: 80 %``."""
    held: Annotated[Held, _HeldField()] = Field(USUALLY, alias=_FOR)
    """How many evaluations in a row, virtual seconds or rounds must meet the target. Seconds depend least on the grid:
    noise holds a target just above a plateau for a few evaluations sooner or later."""

    _better: dict[str, Better] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _directions(self, info: ValidationInfo) -> Self:
        metrics = _metrics(info)
        self._better = {name: facts_of(name, metrics).better for name in self.values if column_of(name) not in COLUMNS}
        return self

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return {"values": value}
        values = {key: item for key, item in value.items() if key != _FOR}
        if not values:
            raise ValueError("a target without a metric; allowed: {test_accuracy: 0.9, for: 5 evaluations}, say")
        return {"values": values, **({_FOR: value[_FOR]} if value.get(_FOR) is not None else {})}

    @property
    def each(self) -> tuple[Target, ...]:
        """One target per metric, in the order given."""
        return tuple(
            Target(metric, value, self.held, self._better.get(metric)) for metric, value in self.values.items()
        )

    @property
    def better(self) -> Mapping[str, Better]:
        """The better directions of the scenario's own metrics among them."""
        return self._better

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        keys = handler.resolve_ref_schema(handler(schema))
        value, held = keys["properties"]["values"]["additionalProperties"], keys["properties"][_FOR]
        metrics = {name: {**value, **_documented(name)} for name in COLUMNS}
        scenario_metric = {**value, "description": "A metric of the scenario's key `metrics`, by its name there."}
        return {
            "type": "object",
            "description": keys.get("description", ""),
            "properties": {**metrics, _FOR: held},
            "patternProperties": {_OWN_COLUMN: scenario_metric},
            "additionalProperties": False,
            "minProperties": 1,
        }


def _documented(metric: str) -> JsonSchemaValue:
    """Describe a metric as a key of targets, with an example."""
    split, _, name = metric.partition("_")
    better = "At least" if facts_of(metric).better == "higher" else "At most"
    rows = "mean over the batches since the evaluation before" if split == "train" else f"on the {split} rows"
    return {"description": f"{better} this {name}, {rows}.", "examples": ["90 %" if is_share(metric) else 0.5]}


def named(places: Iterable[Targets | None]) -> tuple[Target, ...]:
    """Collect the targets of several places of a scenario, each once, in order."""
    return tuple(dict.fromkeys(target for place in places if place is not None for target in place.each))


def target_note(target: object) -> str:
    """Return the note on when a target is reached."""
    usual = " (what a target without `for` means)" if str(target).endswith(f" for {USUALLY}") else ""
    return f"Target: {target}{usual}; reached where the first such stretch of evaluations begins."


# --- budgets ----------------------------------------------------------------------------------------------------------
