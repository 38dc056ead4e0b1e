"""Tune every protocol alike: sweep over keys of ``training``, then choose by validation rows."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from vflsim.errors import ScenarioError
from vflsim.learning.data.shelf import Shelf
from vflsim.results.store.write import write_file
from vflsim.results.sweeps import Sweep
from vflsim.results.sweeps.tuning import (
    COMMON,
    OWN,
    PREFIX,
    TUNING,
    Score,
    Tuning,
    main_validation_metric,
    tuning_markdown,
)
from vflsim.scenario.load import load, quickened
from vflsim.scenario.models import Scenario
from vflsim.stopping import UNSCORED
from vflsim.studies.plan import Axis, planned
from vflsim.studies.study import checked
from vflsim.studies.sweep import SweepDone, SweepWatcher, run_sweep
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, RunOptions
from vflsim.vocabulary.plain_yaml import dump, flow

SEEDS = "10000:10001"
"""The default tuning seeds."""
_NAME_LENGTH = 64 - len(COMMON) - 1


@dataclass(frozen=True, slots=True)
class Tuned:
    """Result of a tuning: scores and choices, the written scenarios, and the sweep."""

    tuning: Tuning
    own: Path
    common: Path | None
    done: SweepDone


def tune_protocols(
    source: str | Path | Mapping[str, Any],
    key: str,
    values: Sequence[Any],
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    *,
    seeds: Sequence[int] | str = SEEDS,
    metric: str | None = None,
    score: Score = "plateau",
    in_tuning: Sequence[str] = (),
    options: RunOptions = DEFAULT_OPTIONS,
    watcher: SweepWatcher | None = None,
) -> Tuned:
    """Run every protocol with each value of a key of ``training`` and write ``results/<scenario>-tune`` (or ``out``).

    All protocols get the same grid and the same number of runs, with tuning ``seeds`` (a list, or ``"10000:10003"``)
    that the scenario does not report. ``score`` rates each run on a validation ``metric``; the tuning never reads test
    metrics, and targets end no run. ``in_tuning`` overrides keys of the tuning runs alone, such as a shorter
    ``stop.time``. ``key`` may list several keys, separated by commas: all get the same value.

    Besides the sweep's folders, which ``options`` can resume, it writes ``tuning.parquet`` and ``tuning.md`` (every
    score), ``tuned.yaml`` (the scenario with each protocol's own best value) and ``common.yaml`` (with the best value
    for all, unless none works for all). Both hold the validation rows out, so that reported runs train on the same rows
    as the tuning.

    Raises the errors of ``run_sweep``; ScenarioError without validation rows, for a reported seed, for keys outside
    ``training`` and keys that a protocol overrides, and if only a target would end a run.
    """
    axis = Axis(key, tuple(values))
    scenario, keys = load(source, overrides), axis.keys
    listed = seeds if isinstance(seeds, str) else flow(list(seeds))
    only = [*overrides, *in_tuning, "record=summary", f"seeds={listed}"]
    tuned = load(source, only)
    _check(scenario, tuned, keys, values, score)
    only += _without_targets(tuned)
    shelf = Shelf()
    metric = _metric(load(source, only), metric, shelf)
    folder = Path(out) if out is not None else default_folder(quickened(scenario, options.quick))
    plan = planned(source, [axis], overrides=only, quick=options.quick, shelf=shelf)
    done = run_sweep(plan, folder, options=options, watcher=watcher)
    tuning = Tuning(Sweep.open(folder), metric, score)
    candidates = [load(source, [*overrides, *(f"{each}={flow(value)}" for each in keys)]) for value in values]
    texts = {OWN: own_text(scenario, candidates, keys, tuning)}
    if tuning.common is not None:
        texts[COMMON] = common_text(candidates, tuning)
    for text in texts.values():
        load(text)  # check before writing
    places = {name: write_file(folder / f"{name}.yaml", text) for name, text in texts.items()}
    if tuning.common is None:
        (folder / f"{COMMON}.yaml").unlink(missing_ok=True)  # of an earlier tuning
    write_file(folder / "tuning.parquet", tuning.table())
    write_file(folder / "tuning.md", tuning_markdown(tuning))
    write_file(folder / TUNING, tuning.page())  # written last, because it marks a complete tuning
    return Tuned(tuning, places[OWN], places.get(COMMON), done)


def one_axis(over: Mapping[str, Sequence[Any]]) -> tuple[str, list[Any]]:
    """Return the key and the values of a mapping with one entry. Raises ScenarioError for more or fewer."""
    if len(over) != 1:
        remedy = "put commas between keys that go together, or sweep over whole optimisers"
        raise ScenarioError(f"a tuning has one axis, not {len(over)}", "over", "{keys: values}", remedy)
    ((key, values),) = over.items()
    return key, list(values)


def default_folder(scenario: Scenario) -> Path:
    """Return the default results folder of a tuning."""
    return Path("results") / f"{scenario.name}-tune"


def own_text(scenario: Scenario, candidates: Sequence[Scenario], keys: Sequence[str], tuning: Tuning) -> str:
    """Write the scenario as YAML with each protocol's chosen value; protocols without a choice stay unchanged.

    ``candidates`` are the scenarios of the values; whole parts of ``training`` come from them.
    """
    raw = copy.deepcopy(scenario.document.raw)
    parts = dict.fromkeys(key.split(".")[1] for key in keys)
    for name, position in tuning.chosen.items():
        if position is not None:
            training = candidates[position].document.raw["training"]
            block = raw["protocols"][name].get("training") or {}
            raw["protocols"][name]["training"] = {**block, **{part: training[part] for part in parts}}
    return _page(raw, OWN, tuning, "each protocol's own best value")


def common_text(candidates: Sequence[Scenario], tuning: Tuning) -> str:
    """Write the scenario as YAML with the best value for all protocols together."""
    assert tuning.common is not None
    raw = copy.deepcopy(candidates[tuning.common].document.raw)
    return _page(raw, COMMON, tuning, "the best value for all protocols")


def _page(raw: dict[str, Any], kind: str, tuning: Tuning, what: str) -> str:
    raw["name"] = f"{raw['name'][:_NAME_LENGTH]}-{kind}"
    chosen = (
        f"{'none' if at is None else flow(tuning.sweep.values[at])} ({name})" for name, at in tuning.chosen.items()
    )
    common = "none" if tuning.common is None else flow(tuning.sweep.values[tuning.common])
    listed = ", ".join(chosen) if kind == OWN else common
    head = [
        f"# {tuning.sweep.scenario} with {what}:",
        f"# {tuning.sweep.key} = {listed}.",
        "# Chosen by vflsim tune on validation rows, which stay out of training here, too; tuning.md has all scores.",
    ]
    return "\n".join(head) + "\n\n" + dump(raw)


def _check(scenario: Scenario, tuned: Scenario, keys: Sequence[str], values: Sequence[Any], score: Score) -> None:
    """Raise ScenarioError for an impossible or unfair tuning; ``tuned`` is the scenario of its runs."""
    over = f"--over {','.join(keys)}"
    if outside := [key for key in keys if key.split(".")[0] != "training" or "." not in key]:
        allowed = "keys such as training.client_optimizer.lr, or training.client_optimizer as a whole"
        raise ScenarioError(f"{outside[0]!r} is no key of training", over, allowed, "vflsim sweep goes over any key")
    if len(values) < 2:
        raise ScenarioError(f"{len(values)} value leaves nothing to choose from", over, "at least two values")
    if not scenario.data.validation_fraction:
        what = "there are no validation rows to choose by (test rows are for reporting)"
        remedy = "set it in the scenario, or with --set data.validation_fraction=0.1"
        raise ScenarioError(what, "data.validation_fraction", "above 0", remedy)
    if both := sorted(set(tuned.seeds) & set(scenario.seeds)):
        what = f"the scenario reports seed {both[0]}, so it cannot be a tuning seed"
        raise ScenarioError(what, "--seeds", "seeds that are not reported", f"--seeds [{max(scenario.seeds) + 1}], say")
    if score not in get_args(Score):
        raise ScenarioError(f"there is no score {score!r}", "--score", ", ".join(get_args(Score)))
    for name in scenario.protocols:
        block = (scenario.document.raw["protocols"][name] or {}).get("training") or {}
        for key in keys:
            if (part := key.split(".")[1]) in block:
                what = f"{name} has its own training.{part}, which the grid would not reach"
                where = f"protocols.{name}.training.{part}"
                raise ScenarioError(what, where, "none in a tuning", f"take it out, or --set {where}=null")
        if all(rule.by == "row" for rule in tuned.stop_of(name).each()):
            what = f"targets end no run in a tuning, and nothing else ends those of {name}"
            raise ScenarioError(what, "stop", f"another of {UNSCORED} besides", "add --set stop.time=…")


def _without_targets(scenario: Scenario) -> list[str]:
    """Return overrides that remove targets and rules on metrics: these stop runs by test rows, and before a plateau."""
    raw = scenario.document.raw
    places = {"stop": raw["stop"]}
    places |= {f"protocols.{name}.stop": entry.get("stop") for name, entry in raw["protocols"].items()}
    return [
        f"{place}.{key}=null"
        for place, stop in places.items()
        for key in ("target", "rules")
        if stop and stop.get(key) is not None
    ]


def _metric(scenario: Scenario, metric: str | None, shelf: Shelf) -> str:
    """Return the metric to score; ScenarioError if the data's task does not have it."""
    training = scenario.training_of(next(iter(scenario.protocols)))
    names = checked(scenario, timing_only=False, shelf=shelf).of(training).task.metric_names
    known = tuple(f"{PREFIX}{name}" for name in ("loss", *names, *scenario.metrics))
    if metric is not None and metric not in known:
        what = f"{metric!r} is no metric of this task's validation rows"
        raise ScenarioError(what, "--metric", ", ".join(known), "test rows are for reporting")
    return metric or main_validation_metric(known)
