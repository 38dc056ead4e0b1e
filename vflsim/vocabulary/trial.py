"""Trials of metrics, measures and stop rules from outside: their answers are as promised, and repeat themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vflsim.vocabulary.measure import FinishedRun, Measure
from vflsim.vocabulary.measure import as_number as number_of
from vflsim.vocabulary.metric import Better, Metric, Scored, TaskName, as_number
from vflsim.vocabulary.stop_rule import Row, StopRule, as_answer, row_of

_ROWS, _CLASSES = 24, 3


def try_metric(metric: Metric) -> None:
    """Compute a metric of random, of perfect and of one-sided predictions. Raises ValueError for the first mistake."""
    _facts(metric)
    for task in metric.tasks:
        for what, prediction, target in _cases(task):
            _one(metric, task, what, prediction, target)


def _facts(metric: Metric) -> None:
    """Refuse facts that are missing, of another type, or contradict each other."""
    own = type(metric)
    tasks, better = getattr(own, "tasks", None), getattr(own, "better", None)
    known = get_args(TaskName)
    if not isinstance(tasks, tuple) or not tasks or not set(tasks) <= set(known):
        _refuse(own, "tasks", tasks, f"a tuple of some of {', '.join(known)}")
    if better not in get_args(Better):
        _refuse(own, "better", better, " or ".join(get_args(Better)))
    for end in ("least", "most"):
        value = getattr(own, end)
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            _refuse(own, end, value, "a finite number, or None for no limit")
    if own.least is not None and own.most is not None and not own.least < own.most:
        _refuse(own, "most", own.most, f"above least, {own.least:g}")
    for text in ("unit", "undefined"):
        if not isinstance(getattr(own, text), str):
            _refuse(own, text, getattr(own, text), "a text, empty for none")


def _refuse(own: type[Metric], key: str, value: object, allowed: str) -> None:
    raise ValueError(f"{own.__name__}.{key} is {value!r}; allowed: {allowed}; mend '{key}' of the class")


def _cases(task: TaskName) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield predictions and targets, in the shapes that a run has: random, perfect, of one class or value, one row."""
    draw = torch.Generator().manual_seed(1)
    for dtype in (torch.float64, torch.float32):
        if task == "multiclass":
            labels = torch.arange(_ROWS) % _CLASSES
            prediction = torch.randn(_ROWS, _CLASSES, generator=draw, dtype=dtype)
            perfect = 8 * F.one_hot(labels, _CLASSES).to(dtype)
        else:
            labels = (torch.arange(_ROWS) % 2)[:, None].to(dtype)
            if task == "regression":
                labels = torch.randn(_ROWS, 1, generator=draw, dtype=dtype)
            prediction = torch.randn(_ROWS, 1, generator=draw, dtype=dtype)
            perfect = labels.clone() if task == "regression" else 16 * labels - 8
        yield "random predictions", prediction, labels
        yield "perfect predictions", perfect, labels
        yield "labels that are all alike", prediction, labels[:1].expand_as(labels).clone()
        yield "one row", prediction[:1], labels[:1]


def _one(metric: Metric, task: TaskName, what: str, prediction: Tensor, target: Tensor) -> None:
    """Compute one case twice, and compare."""
    name = type(metric).__name__
    values = []
    for _ in range(2):
        given = Scored(task, prediction.clone(), target.clone(), _LOSSES[task])
        with torch.no_grad():
            values.append(as_number(metric.value(given), name))
        if not (torch.equal(given.prediction, prediction) and torch.equal(given.target, target)):
            raise ValueError(
                f"{name}.value changes the tensors that it is given; allowed: only to read them; copy them"
            )
    first, again = values
    where = f"for {what} of a {task} task"
    if first != again and not (math.isnan(first) and math.isnan(again)):
        raise ValueError(
            f"{name}.value gives {first:g}, then {again:g} {where}; allowed: a function of predictions and targets; "
            "draw no random numbers in it"
        )
    least, most = metric.facts.span
    defined = what in ("random predictions", "perfect predictions")
    if math.isnan(first) and (defined or not metric.undefined):
        remedy = f"mend 'value', or say when it has none: undefined = 'where …' of {name}"
        raise ValueError(f"{name}.value is NaN {where}; allowed: a number; {remedy}")
    if math.isinf(first) or first < least or first > most:
        raise ValueError(
            f"{name}.value is {first:g} {where}; allowed: finite, from {least:g} to {most:g}; mend 'value', or the "
            "range ('least', 'most') of the class"
        )


_LOSSES: dict[TaskName, Callable[[Tensor, Tensor], Tensor]] = {
    "multiclass": F.cross_entropy,
    "binary": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}


_MEASURED_ROWS = 8


def try_measure(measure: Measure, columns: Mapping[str, Sequence[str]]) -> None:
    """Measure runs with these columns of metrics, rounds and events. Raises ValueError for the first mistake."""
    name, unit = type(measure).__name__, measure.unit
    if not isinstance(unit, str):
        raise ValueError(f"{name}.unit is {unit!r}; allowed: a text, empty for none; mend 'unit' of the class")
    if unknown := [each for each in measure.columns if each not in columns["metrics"]]:
        allowed = ", ".join(columns["metrics"])
        raise ValueError(f"there is no column {unknown[0]!r}; allowed: {allowed}; choose one of them")
    for has_rounds, has_events in ((True, True), (True, False), (False, False)):
        run, before = (_run(columns, has_rounds, has_events) for _ in range(2))
        first, again = (number_of(measure.value(run), name) for _ in range(2))
        if first != again and not (math.isnan(first) and math.isnan(again)):
            what = f"{name}.value is {first:g}, then {again:g} for the same tables"
            raise ValueError(f"{what}; allowed: a function of the tables alone; mend 'value' of the class")
        for table in ("metrics", "rounds", "events"):
            one, other = getattr(run, table), getattr(before, table)
            if one is not None and not one.equals(other):
                what = f"{name}.value changes the table {table}"
                raise ValueError(f"{what}; allowed: only to read it; copy it; mend 'value' of the class")


def _run(columns: Mapping[str, Sequence[str]], has_rounds: bool, has_events: bool) -> FinishedRun:
    import pandas as pd

    frames = {
        table: pd.DataFrame({name: pd.Series(_values(name)) for name in names})
        for table, names in columns.items()
        if {"metrics": True, "rounds": has_rounds, "events": has_events}[table]
    }
    return FinishedRun("trial", 0, frames["metrics"], frames.get("rounds"), frames.get("events"))


def _values(column: str) -> list[Any]:
    if column in ("used", "missing", "fresh"):  # numbers of clients
        return [np.arange(1, 3, dtype=np.int32)] * _MEASURED_ROWS
    if column in ("party", "kind", "outcome", "peer"):
        return ["server" if column == "party" else "compute.embed" if column == "kind" else "done"] * _MEASURED_ROWS
    if column.endswith("_s"):
        return [0.5 * (number + 1) for number in range(_MEASURED_ROWS)]
    if column in ("round", "updates"):
        return [*range(_MEASURED_ROWS)]
    return [1 / (number + 1) for number in range(_MEASURED_ROWS)]


_RULE_ROWS = 12


def try_stop_rule(rule: StopRule, columns: Sequence[str]) -> None:
    """Ask a rule about rows with these columns. Raises ValueError for the first mistake."""
    name, rows = type(rule).__name__, list[Row]()
    known = rule.columns
    if not isinstance(known, tuple) or not all(isinstance(each, str) for each in known):
        raise ValueError(f"{name}.columns is {known!r}; allowed: a tuple of names; mend 'columns' of the class")
    if unknown := [each for each in known if each not in columns]:
        raise ValueError(f"there is no column {unknown[0]!r}; allowed: {', '.join(columns)}; choose one of them")
    for number in range(_RULE_ROWS):
        values = dict.fromkeys(columns, 1 / (number + 1))
        values |= {"time_s": 0.5 * number, "round": number, "updates": 2 * number}
        values |= {"train_loss": math.nan} if not number else {}
        rows.append(row_of(values))
        first, again = (as_answer(rule.ends(tuple(rows)), name) for _ in range(2))
        if first != again:
            what = f"{name}.ends answers {first!r}, then {again!r} about the same rows"
            raise ValueError(f"{what}; allowed: a function of the rows alone; keep no state; mend 'ends' of the class")
