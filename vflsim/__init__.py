"""vflsim: compare vertical-federated-learning protocols under identical timing.

>>> import vflsim
>>> scenario = vflsim.load("quickstart")
>>> results = vflsim.run(scenario)
>>> results.metrics, results.summary(), vflsim.plot(results, "time")
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflsim.api.finished import evaluate, explain, read_sweep, report, sweep_answers, trace
from vflsim.api.fits import fit
from vflsim.api.scenarios import analyze, check
from vflsim.errors import VflsimError
from vflsim.version import __version__ as __version__

if TYPE_CHECKING:
    from typing import Unpack

    from vflsim.api.frames import Frame
    from vflsim.plotting.style import Picture
    from vflsim.results.read import Results
    from vflsim.results.sweeps import Sweep
    from vflsim.results.sweeps.table import SweepResults, TuningResults
    from vflsim.scenario.models import Scenario
    from vflsim.trained.models import ComparedResults, StudyResults
    from vflsim.vocabulary.execution_options import ExecutionOptions

__all__ = [
    "VflsimError",
    "analyze",
    "check",
    "compare",
    "evaluate",
    "explain",
    "export",
    "fit",
    "load",
    "open_results",
    "plot",
    "read_sweep",
    "report",
    "run",
    "sweep",
    "sweep_answers",
    "trace",
    "tune",
    "verify",
]

# Functions import what they need, so that `vflsim --help` does not wait for PyTorch.


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = ()) -> Scenario:
    """Load a scenario from a file, a YAML text or a mapping; ``overrides`` like ``["training.batch=32"]``.

    Where there is no such file, ``source`` may name a scenario that comes with vflsim: ``"quickstart"``.
    Raises ``ScenarioError``, which lists file, line, key, value and remedy of every problem.

    Example: ``vflsim.load("mine.yaml", ["training.batch=32"]).training.batch``
    """
    from vflsim.scenario.load import load as load_scenario

    return load_scenario(source, overrides)


def run(
    scenario: Scenario | str | Path | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    *,
    frame: Frame | None = None,
    label: str | None = None,
    parties: Mapping[str, Sequence[str]] | None = None,
    active: str | None = None,
    protocols: str | Sequence[str] | Mapping[str, Any] = (),
    timing_only: bool = False,
    path: Literal["auto", "event", "vectorised"] = "auto",
    progress: bool | None = None,
    **execution: Unpack[ExecutionOptions],
) -> StudyResults:
    """Run every protocol with every seed; write the results to ``results/<name>`` (or ``out``) and return them.

    ``protocols`` names those to run (default: all); runs of the others in ``out`` that fit the scenario stay.
    ``path`` selects how to simulate: event by event, or by arrays where rounds allow it, with the same tables (of
    training: but for rounding). Runs in ``out`` that fit the scenario are kept, interrupted or shorter ones continue
    from checkpoints, and others are moved aside. ``progress`` prints runs and the time that is left to the standard
    error; by default (None) in a terminal or a notebook only. ``execution`` are
    :class:`~vflsim.vocabulary.execution_options.ExecutionOptions` such as ``workers``, ``resume``,
    ``checkpoint_every``, ``device`` and ``threads``: those of ``vflsim run``.

    ``frame`` gives the data: a frame of pandas or polars, or the path of a CSV or Parquet file. ``label`` is the column
    to predict, ``parties`` maps names to columns, ``active`` names the party that holds the label. ``scenario`` may
    then be left out, or have only the sections that differ from what ``vflsim new --from`` writes; ``protocols`` may be
    kinds, or entries by name.

    Raises ``ScenarioError``, ``DataError``, ``ResultsError``; TypeError for an option that there is not. A failed run
    does not stop the others: after all runs, the first ``RunError`` is raised, and ``open_results`` reads the results.

    Examples: ``vflsim.run("mine.yaml", progress=False).summary()``, ``vflsim.run(frame=frame, label="y",
    parties={"bank": ["a", "b"], "shop": ["c"]}, active="bank", protocols=["synchronous"])``
    """
    from vflsim.api.frames import scenario_for
    from vflsim.scenario.load import quickened
    from vflsim.studies.display import shown
    from vflsim.studies.runs.store import chosen
    from vflsim.studies.study import default_folder, run_study
    from vflsim.trained.models import StudyResults
    from vflsim.vocabulary.execution_options import RunOptions

    options = RunOptions.of(**execution)
    with scenario_for(scenario, out, frame, label, parties, active, protocols, timing_only) as (loaded, names):
        loaded = quickened(loaded, options.quick)
        folder = Path(out) if out is not None else default_folder(loaded, timing_only)
        loaded = chosen(loaded, names, folder, timing_only, options)
        with shown(progress, loaded) as display:
            watcher = None if display is None else display.alone
            study = run_study(loaded, folder, timing_only=timing_only, path=path, options=options, watcher=watcher)
    for (protocol, seed), error in study.failures.items():
        error.add_note(
            f"in the run of {protocol} with seed {seed}; {len(study.failures)} of {len(study.results.runs)} runs failed"
            f"; all are kept: vflsim.open_results({str(study.results.folder)!r})"
        )
        raise error
    return StudyResults(study.results.folder, study.results.scenario, study.results.runs)


def tune(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: str | Mapping[str, Sequence[Any]],
    out: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    in_tuning: Sequence[str] = (),
    seeds: Sequence[int] | str = "10000:10001",
    metric: str | None = None,
    score: Literal["plateau", "area"] = "plateau",
    progress: bool | None = None,
    **execution: Unpack[ExecutionOptions],
) -> TuningResults:
    """Tune keys of ``training`` for every protocol by validation rows; return scores and choices.

    ``over`` is ``"training.client_optimizer.lr,training.server_optimizer.lr=0.001,0.01"`` or ``{keys: values}``: keys
    with commas between them get the same value. ``results/<name>-tune`` (or ``out``) then holds ``tuned.yaml`` (every
    protocol with its own best value), ``common.yaml`` (the best for all) and ``tuning.parquet``. ``overrides`` apply to
    these scenarios too, ``in_tuning`` to the tuning runs alone. ``seeds`` must not be the scenario's; other parameters
    are as for ``run``. Raises ``ScenarioError``, ``DataError``, ``ResultsError``; a failed run rules out its value.

    Example: ``vflsim.tune("mine.yaml", "training.client_optimizer.lr=0.1,0.2", seeds=[100]).chosen``
    """
    from vflsim.results.sweeps.table import TuningResults
    from vflsim.scenario.models import Scenario
    from vflsim.scenario.overrides import values_of
    from vflsim.studies.display import shown
    from vflsim.studies.tune import one_axis, tune_protocols
    from vflsim.vocabulary.execution_options import RunOptions

    options = RunOptions.of(**execution)
    key, values = values_of(over, "--over") if isinstance(over, str) else one_axis(over)
    source = scenario.document.raw if isinstance(scenario, Scenario) else scenario
    with shown(progress) as watcher:
        tuned = tune_protocols(
            source,
            key,
            values,
            overrides,
            out,
            seeds=seeds,
            metric=metric,
            score=score,
            in_tuning=in_tuning,
            options=options,
            watcher=watcher,
        )
    tuning = tuned.tuning
    return TuningResults(tuning.sweep, tuning.metric, tuning.score)


def sweep(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: Mapping[str, Any],
    out: str | Path | None = None,
    *,
    zip: bool = False,
    overrides: Sequence[str] = (),
    protocols: Sequence[str] = (),
    timing_only: bool = False,
    progress: bool | None = None,
    **execution: Unpack[ExecutionOptions],
) -> SweepResults:
    """Run a scenario at every point of a grid; write ``results/<name>-sweep-<keys>`` (or ``out``) and return the sweep.

    ``over`` maps keys to their values: ``{"t-sync.t": [1, 2, 4], "clients.link.up": "5, 50, 500 Mbps"}``; with
    ``zip``, first, second, … values go together. A run that does not depend on what differs between points is done
    once. Points and runs in ``out`` that fit are kept; ``protocols`` are those to run (default: all), and runs of
    others are moved aside. Other parameters are as for ``run``. :func:`read_sweep` makes a frame of the results,
    :func:`sweep_answers` says which values are best. Raises ``ScenarioError``, ``DataError``, ``ResultsError``. Failed
    runs stop nothing: they are kept, a warning counts them, and the frame has their errors.

    Example: ``vflsim.sweep("mine.yaml", {"training.batch": [16, 32]}, "results/batches").points``
    """
    from vflsim.results.sweeps.table import SweepResults
    from vflsim.scenario.models import Scenario
    from vflsim.studies.display import shown
    from vflsim.studies.plan import axes_of, planned
    from vflsim.studies.sweep import run_sweep
    from vflsim.vocabulary.execution_options import RunOptions

    options = RunOptions.of(**execution)
    source = scenario.document.raw if isinstance(scenario, Scenario) else scenario
    axes = axes_of(source, over, overrides)
    plan = planned(
        source, axes, zipped=zip, overrides=overrides, timing_only=timing_only, protocols=protocols, quick=options.quick
    )
    with shown(progress) as watcher:
        done = run_sweep(plan, out, options=options, watcher=watcher)
    if done.failures:
        (position, protocol, seed), error = next(iter(done.failures.items()))
        first = f"{done.sweep.setting(done.sweep.points[position])}, {protocol}, seed {seed}: {error}"
        warnings.warn(f"{len(done.failures)} of {plan.runs} runs failed, the first at {first}", stacklevel=2)
    return SweepResults.open(done.sweep.folder)


def open_results(folder: str | Path, *, trust: bool = False) -> StudyResults:
    """Open a folder that ``vflsim run`` or ``vflsim.run`` has written. Raises ``ResultsError``.

    With ``trust``, rebuilding models may import the modules that the results name, which runs their code.

    Example: ``vflsim.open_results("results/mine").metrics``
    """
    from vflsim.trained.models import StudyResults

    return StudyResults.open(folder, trust)


def verify(
    results: str | Path,
    *,
    rerun: bool = False,
    protocols: Sequence[str] = (),
    seeds: Sequence[int] = (),
    rounds: int | None = None,
    from_checkpoint: bool = False,
    workers: int = 1,
    trust: bool = False,
) -> list[str]:
    """List every problem of a folder of results, or of a sweep: changed files, broken rules; empty if it is sound.

    ``rerun`` also computes runs again, as they were computed, in a temporary folder, and compares the bytes of tables
    and weights; ``protocols`` and ``seeds`` choose some of the runs, ``rounds`` takes only so many of each from its
    beginning, ``from_checkpoint`` only what follows its last checkpoint, ``workers`` runs at a time. A warning names
    runs that cannot repeat themselves, such as those that the wall clock ends. Modules that the scenario names are
    imported with ``trust`` alone, which runs their code. Raises ``ResultsError``, ``ScenarioError``, ``DataError``.

    Example: ``vflsim.verify("results/mine", rerun=True, rounds=3)``
    """
    from vflsim.results.verify import verify_folder
    from vflsim.studies.rerun import Sample, rerun as computed_again

    problems = verify_folder(results)
    if rerun:
        for each in computed_again(results, Sample(protocols, seeds, rounds, from_checkpoint), workers, trust):
            problems += [f"{each.name}: {problem}" for problem in each.problems]
            if each.left_out:
                warnings.warn(f"{each.name} was not computed again: {each.left_out}", stacklevel=2)
    return problems


def compare(
    studies: Results | str | Path | Sequence[Results | str | Path], baseline: str | None = None
) -> ComparedResults:
    """Join the results of several studies (or their folders); ``compare([…]).summary()`` is one table of all.

    A protocol that several studies have gets the study's name, as in ``wait (mlp)``. ``baseline`` is the protocol that
    the others are compared with; by default the first that waits for all clients. Raises ``ResultsError``.

    Example: ``vflsim.compare(["results/mine", "results/other"]).summary()``
    """
    from vflsim.results.read import Results
    from vflsim.trained.models import ComparedResults

    each_one = [studies] if isinstance(studies, Results | str | Path) else studies
    results = [each if isinstance(each, Results) else open_results(each) for each in each_one]
    return ComparedResults.of(results).against(baseline)


def export(
    results: Results | Sweep | str | Path,
    to: Literal["mlflow", "tensorboard", "wandb", "trackio"],
    out: str | Path | None = None,
    *,
    uri: str | None = None,
) -> str:
    """Export results, or a sweep's, to a tracker; return where the runs are, and how to look at them.

    Every series is there by rounds and by virtual time. ``out`` is the folder of the local store (default: one beside
    the results, ``<results>-<to>``), ``uri`` the address of an MLflow server instead. Needs the tracker's library:
    ``pip install vflsim[mlflow]``, and likewise for the others. Raises ``ResultsError``.

    Example: ``vflsim.export("results/mine", "tensorboard")``
    """
    from vflsim.exporting.trackers import export as exported

    folder = Path(results) if isinstance(results, str | Path) else results.folder
    return exported(folder, to, None if out is None else Path(out), uri)


def plot(results: Results | Sweep, kind: str, **options: Any) -> Picture:
    """Draw a figure of results or of a sweep; the Matplotlib figure also holds its ``numbers`` as pandas frames.

    ``kind`` is a name in :data:`vflsim.plotting.PLOTS` (of a sweep: ``SWEEP_PLOTS``); ``options`` are the parameters of
    the function it names. Raises ``ResultsError`` for an unknown name and for results without the tables it needs.

    Example: ``vflsim.plot(vflsim.open_results("results/mine"), "time").savefig("time.png")``
    """
    from vflsim.plotting import plot as draw

    return draw(results, kind, **options)
