"""Run every protocol of a scenario with every seed; write each run as soon as it ends."""

import contextlib
from pathlib import Path

from vflsim.learning.data.shelf import Shelf
from vflsim.party_names import with_names
from vflsim.scenario.document import Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.resolve import ScenarioData, location_of
from vflsim.stopping import UNSCORED, Stop
from vflsim.studies.checks.data import read_and_check
from vflsim.studies.checks.describe import described
from vflsim.studies.checks.rounds import refuse_hopeless
from vflsim.studies.checks.tryout import refuse_broken
from vflsim.studies.engines import Engine, Here
from vflsim.studies.pool import Pool, Study
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.runs.simulator_choice import PathWish, choices
from vflsim.studies.runs.spec import StudySpec
from vflsim.vocabulary.execution_options import DEFAULT_OPTIONS, RunOptions


@with_names(lambda scenario, *_, **__: scenario.document.raw)
def run_study(
    scenario: Scenario,
    out: Path | str | None = None,
    *,
    timing_only: bool = False,
    path: PathWish = "auto",
    options: RunOptions = DEFAULT_OPTIONS,
    watcher: Watcher | None = None,
    engine: Engine | None = None,
) -> Study:
    """Run every protocol with every seed and write ``results/<scenario>`` (``…-timing``; or ``out``).

    A failed run keeps its partial tables and does not stop the others. All protocols run with one seed before the next
    seed begins, so that an interrupted study has compared all protocols on its first seeds. Runs that are trained side
    by side (``options.together``) begin with the first of them. An interrupted study keeps its finished runs; without
    any it restores the folder. ``path`` selects how to simulate. Neither ``path`` nor what
    executes the runs (``engine``, or this study's own workers) changes the files, but for the rounding of training.
    Raises ``ScenarioError``, ``DataError`` and ``ResultsError`` (also if another process uses the folder).
    """
    folder = Path(out) if out is not None else default_folder(scenario, timing_only)
    watcher = watcher or Watcher()
    watcher.doing("reading the data, checking keys, models and timing")
    paths = choices(scenario, path, timing_only)
    data = checked(scenario, timing_only, options.workers)  # report all errors before writing anything
    spec = StudySpec(scenario, folder, paths, timing_only, options, described=tuple(described(scenario, data)))
    context = contextlib.nullcontext(engine) if engine else engine_of(options, len(spec.runs), data.shelf, spec, data)
    return Pool([spec], lambda _: watcher, lambda _: data).run(context)[0]


def engine_of(
    options: RunOptions,
    units: int,
    shelf: Shelf | None = None,
    spec: StudySpec | None = None,
    data: ScenarioData | None = None,
) -> Engine:
    """Choose what executes units: this process, which may hold a study's data already, workers, or a cluster.

    This process and its workers take data that are on the ``shelf``.
    """
    if options.cluster is not None:
        from vflsim.studies.engines.ray import RayEngine  # needs an optional library

        return RayEngine(options.cluster)
    if options.workers == 1:
        return Here(spec, data, shelf)
    from vflsim.studies.engines.processes import Crew  # joblib and cloudpickle take a while to import

    return Crew(min(options.workers, units), shelf)


def checked(scenario: Scenario, timing_only: bool, workers: int = 1, shelf: Shelf | None = None) -> ScenarioData:
    """Check a study and return its data, which go to the ``shelf``.

    Raises ``ScenarioError`` and ``DataError`` if it cannot run.
    """
    if timing_only:
        _must_end(scenario)
    data = read_and_check(scenario, workers, training=not timing_only, shelf=shelf)
    refuse_hopeless(scenario, data)
    refuse_broken(scenario, data, timing_only)
    return data


def default_folder(scenario: Scenario, timing_only: bool) -> Path:
    """Return the default results folder."""
    return Path("results") / (f"{scenario.name}-timing" if timing_only else scenario.name)


def _endless(stop: Stop) -> str:
    more = ", and asks no rule on metrics" if stop.rules else ""
    return f"a timing-only run never reaches a target alone{more}"


def _must_end(scenario: Scenario) -> None:
    """Raise ScenarioError for a protocol that never stops without training."""
    allowed = f"another of {UNSCORED} besides"
    remedy = "add `time: 600 s`, say, or train"
    problems = [
        Problem(location_of(scenario, name, "stop"), _endless(scenario.stop_of(name)), allowed, remedy)
        for name in scenario.protocols
        if all(rule.by == "row" for rule in scenario.stop_of(name).each())
    ]
    if problems:
        raise failure(problems, scenario.document)
