"""vflsim: compare vertical-federated-learning protocols under identical timing.

>>> import vflsim
>>> scenario = vflsim.load("quickstart")
>>> results = vflsim.run(scenario)
>>> results.metrics, results.summary(), vflsim.plot(results, "time")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vflsim.errors import VflsimError

if TYPE_CHECKING:
    from vflsim.plotting.style import Picture
    from vflsim.results.read import Results
    from vflsim.results.sweep import Sweep
    from vflsim.results.tuning import Tuning
    from vflsim.scenario.models import Scenario

__version__ = "0.1.0"
__all__ = ["VflsimError", "load", "open_results", "plot", "run", "tune"]

# Functions import what they need, so that `vflsim --help` does not wait for PyTorch.


def load(source: str | Path | Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = ()) -> Scenario:
    """Load a scenario from a file, a YAML text or a mapping; ``overrides`` like ``["training.batch=32"]``.

    Where there is no such file, ``source`` may name a scenario that comes with vflsim: ``"quickstart"``.
    Raises ``ScenarioError``, which lists file, line, key, value and remedy of every problem.
    """
    from vflsim.scenario.load import load as load_scenario

    return load_scenario(source, overrides)


def run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    timing_only: bool = False,
    path: Literal["auto", "event", "vectorised"] = "auto",
    workers: int = 1,
    resume: bool = False,
    checkpoint_every: str | float | None = "60 s",
    eager: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 1,
    tf32: bool = False,
    progress: bool | None = None,
) -> Results:
    """Run every protocol with every seed; write the results to ``results/<name>`` (or ``out``) and return them.

    ``path`` selects how to compute the times of timing-only runs: event by event or by arrays, with the same tables.
    ``workers`` is the number of processes that run at a time (a script needs ``if __name__ == "__main__":`` around the
    call). ``resume`` keeps the finished runs in ``out`` and continues the others from their checkpoints, written every
    ``checkpoint_every`` (seconds, ``"5 min"``, None). ``eager`` trains client by client; ``device``, ``threads`` and
    ``tf32`` select where and how PyTorch computes. ``progress`` prints runs and the time that is left to the standard
    error; by default (None) in a terminal or a notebook only. Raises ``ScenarioError``, ``DataError``,
    ``ResultsError``. A failed run does not stop the others: after all runs, the first ``RunError`` is raised, and
    ``open_results`` reads the results.
    """
    from vflsim.scenario.models import Scenario
    from vflsim.studies.options import RunOptions
    from vflsim.studies.study import run_study
    from vflsim.terminal import shown

    options = RunOptions.of(
        workers=workers,
        resume=resume,
        checkpoint_every=checkpoint_every,
        eager=eager,
        device=device,
        threads=threads,
        tf32=tf32,
    )
    loaded = scenario if isinstance(scenario, Scenario) else load(scenario)
    with shown(loaded, progress) as watcher:
        study = run_study(loaded, out, timing_only=timing_only, path=path, options=options, watcher=watcher)
    for (protocol, seed), error in study.failures.items():
        error.add_note(
            f"in the run of {protocol} with seed {seed}; {len(study.failures)} of {len(study.results.runs)} runs failed"
            f"; all are kept: vflsim.open_results({str(study.results.folder)!r})"
        )
        raise error
    return study.results


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
    workers: int = 1,
    resume: bool = False,
    checkpoint_every: str | float | None = "60 s",
    eager: bool = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int = 1,
    tf32: bool = False,
) -> Tuning:
    """Tune keys of ``training`` for every protocol by validation rows; return scores and choices.

    ``over`` is ``"training.client_optimizer.lr,training.server_optimizer.lr=0.001,0.01"`` or ``{keys: values}``: keys
    with commas between them get the same value. ``results/<name>-tune`` (or ``out``) then holds ``tuned.yaml`` (every
    protocol with its own best value), ``common.yaml`` (the best for all) and ``tuning.parquet``. ``overrides`` apply to
    these scenarios too, ``in_tuning`` to the tuning runs alone. ``seeds`` must not be the scenario's; other parameters
    are as for ``run``. Raises ``ScenarioError``, ``DataError``, ``ResultsError``; a failed run rules out its value.
    """
    from vflsim.scenario.models import Scenario
    from vflsim.scenario.overrides import values_of
    from vflsim.studies.options import RunOptions
    from vflsim.studies.tune import one_axis, tune_protocols

    options = RunOptions.of(
        workers=workers,
        resume=resume,
        checkpoint_every=checkpoint_every,
        eager=eager,
        device=device,
        threads=threads,
        tf32=tf32,
    )
    key, values = values_of(over, "--over") if isinstance(over, str) else one_axis(over)
    source = scenario.document.raw if isinstance(scenario, Scenario) else scenario
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
    )
    return tuned.tuning


def open_results(folder: str | Path) -> Results:
    """Open a folder that ``vflsim run`` or ``vflsim.run`` has written. Raises ``ResultsError``."""
    from vflsim.results.read import Results

    return Results.open(folder)


def plot(results: Results | Sweep, kind: str, **options: Any) -> Picture:
    """Draw a figure of results or of a sweep; the Matplotlib figure also holds its ``numbers`` as pandas frames.

    ``kind`` is a name in :data:`vflsim.plotting.PLOTS` (of a sweep: ``SWEEP_PLOTS``); ``options`` are the parameters of
    the function it names. Raises ``ResultsError`` for an unknown name and for results without the tables it needs.
    """
    from vflsim.plotting import plot as draw

    return draw(results, kind, **options)
