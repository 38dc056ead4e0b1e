"""Describe data, task, classes, batches and overrides of a scenario in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vflsim.learning.batches import Split
from vflsim.learning.data.labels import USUAL_CLASSES
from vflsim.learning.data.loaded import LoadedData
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, party_timings
from vflsim.streams import few, party_name
from vflsim.vocabulary.plain_yaml import flow, walked
from vflsim.vocabulary.selections import members

_DURATIONS = ("compute", "upload_delay", "latency")
"""The keys of ``timing`` whose plain numbers are constant durations."""
_NAMED = 5
"""The most classes that a warning names."""
_NEEDED: tuple[tuple[Split, str, str], ...] = (
    ("train", "training", "no model can learn them"),
    ("test", "test", "no test metric sees them"),
)
"""The splits that should contain every class, and the consequence of a missing class."""


def described(scenario: Scenario, data: ScenarioData) -> list[str]:
    """Return a line each for the data's size and preparation, the task, batches, overrides of protocols, warnings."""
    loaded = data.of(scenario.training)
    return [
        f"data: {loaded.summary()}{_noise(scenario)}", *loaded.facts.sentences(), _task(loaded),
        _batches(scenario, loaded), *overrides(scenario), *_instant(scenario), *_seconds(scenario), *_warnings(loaded),
    ]  # fmt: skip


def _instant(scenario: Scenario) -> Iterator[str]:
    """Yield a line about parties whose computations take no time because nothing says that they take some."""
    parties = scenario.timing.server, *party_timings(scenario)[1:]
    silent = [party_name(party) for party, each in enumerate(parties) if "compute" not in each.model_fields_set]
    if silent:
        yield f"computations take 0 s at {few(silent)}: `compute` is left out of their timing"


def _seconds(scenario: Scenario) -> Iterator[str]:
    """Yield a line about durations without a unit: they are seconds, and milliseconds are often meant."""
    texts = [
        f"{'.'.join(step for step in loc if isinstance(step, str))}: {value} is {value} s"
        for loc, value in walked(scenario.document.raw.get("timing"), ("timing",))
        if loc[-1] in _DURATIONS and isinstance(value, int | float) and value > 0
    ]
    if texts := [*dict.fromkeys(texts)]:
        yield f"times without a unit are seconds: {few(texts)}; write `5 ms` for milliseconds"


def overrides(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each protocol that overrides the scenario's training, codec, stop rule and so on."""
    raw = scenario.document.raw["protocols"]
    for name in scenario.protocols:
        entry = raw[name] if isinstance(raw[name], Mapping) else {}
        pairs = (
            ("models", scenario.models, scenario.models_of(name)),
            ("training", scenario.training, scenario.training_of(name)),
            ("stop", scenario.stop, scenario.stop_of(name)),
            ("evaluate", scenario.evaluate, scenario.evaluate_of(name)),
        )
        differing = {
            f"{block}.{key}": entry[block][key]
            for block, common, override in pairs
            for key in type(override).model_fields
            if getattr(common, key) != getattr(override, key) and key in entry.get(block, {})
        }
        differing |= {"codec": entry["codec"]} if scenario.codec_of(name) != scenario.codec else {}
        differing |= {"mechanism": entry["mechanism"]} if scenario.protocols[name].mechanism is not None else {}
        differing |= {"blinding": entry["blinding"]} if "blinding" in entry else {}
        if differing:
            yield f"{name} differs: " + ", ".join(f"{key}: {flow(value)}" for key, value in differing.items())


def rows_by_class(data: LoadedData, split: Split) -> list[int]:
    """Count a split's rows of each class, by class number. Raises ValueError for a task without classes."""
    if not data.class_names:
        raise ValueError(f"a {data.task.name} task has no classes")
    numbers = data.labels[split].cpu().numpy().reshape(-1).astype(np.int64)
    counts: list[int] = np.bincount(numbers, minlength=len(data.class_names)).tolist()
    return counts


def _noise(scenario: Scenario) -> str:
    noise = scenario.data.noise
    if noise is None:
        return ""
    clients = members(noise.select, scenario.symbols)
    where = "in place of" if noise.replace else "on"
    return f"; N(0, {noise.sd:g}²) {where} the features of client {few([str(client) for client in clients])}"


def _task(data: LoadedData) -> str:
    name, labels = data.task.name, data.labels["train"].cpu().numpy()
    guess = " (guessed from the labels; data.task says otherwise)" if data.guessed else ""
    if not data.class_names:
        return f"task: {name}{guess}, training labels from {float(labels.min()):.6g} to {float(labels.max()):.6g}"
    counts = rows_by_class(data, "train")
    rarest = min(range(len(counts)), key=counts.__getitem__)
    names = data.class_names
    classes = f"negative {names[0]}, positive {names[1]}" if name == "binary" else f"{len(names)} classes"
    rows = f"{counts[rarest]:,} of {len(labels):,} training rows"
    return f"task: {name}{guess}, {classes}; the rarest class, {names[rarest]}, has {rows}"


def _batches(scenario: Scenario, data: LoadedData) -> str:
    names_by_text: dict[str, list[str]] = {}
    for name, entry in scenario.protocols.items():
        training = scenario.training_of(name)
        sequence, size = entry.protocol.batch_plan().batches(data.rows, training, 0), training.batch_of(data.rows)
        text = f"all {size:,} training rows" if size == data.rows else f"{size:,} of {data.rows:,} training rows"
        text += f", {sequence.per_epoch:,} an epoch"
        text += f", the last of {sequence.smallest:,}" if sequence.smallest < size else ""
        names_by_text.setdefault(text, []).append(name)
    if len(names_by_text) == 1:
        return f"batch: {next(iter(names_by_text))}"
    return "batch: " + "; ".join(f"{text} ({', '.join(names)})" for text, names in names_by_text.items())


def _warnings(data: LoadedData) -> Iterator[str]:
    for what, names in (
        ("the label", data.class_names),
        *((repr(v.column), v.categories) for v in data.facts.categories),
    ):
        if alike := _alike(names):
            yield (
                f"warning: {what} has {', '.join(map(repr, alike))}, one number in several spellings, each of which "
                "counts for itself; write them alike if they mean the same"
            )
    if data.guessed and len(data.class_names) > USUAL_CLASSES and all(map(_whole, data.class_names)):
        yield (
            f"warning: the labels are {len(data.class_names)} different whole numbers, and are taken for classes; if "
            "they are amounts, say data.task: regression"
        )
    for split, kind, meaning in _NEEDED if data.class_names else ():
        if absent := _absent(data, split):
            named = ", ".join(absent[:_NAMED]) + (f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else "")
            yield (
                f"warning: {len(absent)} of {len(data.class_names)} classes ({named}) without {kind} rows: {meaning}; "
                "look at data.split, data.test_fraction and data.train_rows"
            )


def _absent(data: LoadedData, split: Split) -> list[str]:
    """Return the names of the classes without a row in a split."""
    return [name for name, count in zip(data.class_names, rows_by_class(data, split), strict=True) if not count]


def _alike(names: Sequence[str]) -> list[str]:
    """Return the first names that are the same whole number."""
    by_number: dict[int, list[str]] = {}
    for name in filter(_whole, names):
        by_number.setdefault(int(name), []).append(name)
    return next((alike for alike in by_number.values() if len(alike) > 1), [])


def _whole(label: str) -> bool:
    return label.removeprefix("-").isdigit()
