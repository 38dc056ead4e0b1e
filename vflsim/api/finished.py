"""What finished runs show: a page, a trace, attacks, the importance of clients; and a sweep, as frames of pandas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflsim.party_names import naming

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.attacks import Evaluation
    from vflsim.explaining import Explanation
    from vflsim.results.read import Results
    from vflsim.results.sweeps import Sweep


def report(
    results: Results | Sweep | str | Path | Sequence[Results | Sweep | str | Path],
    out: str | Path | None = None,
    *,
    baseline: str | None = None,
) -> Path:
    """Write results as one HTML page that needs no network: the answer, figures, tables. Return its path.

    As ``vflsim report``. ``out`` defaults to ``report.html`` in the results folder, of several in the working
    directory; ``baseline`` is the protocol that others are compared with. Raises ``ResultsError``.

    Example: ``vflsim.report("results/mine")``
    """
    from vflsim.reporting import write_report

    several = isinstance(results, Sequence) and not isinstance(results, str)
    return write_report(results if several else [results], out, baseline=baseline)  # type: ignore[list-item, arg-type]


def trace(
    results: Results | str | Path,
    out: str | Path | None = None,
    *,
    protocol: str | None = None,
    seed: int | None = None,
) -> Path:
    """Write runs as a trace for ui.perfetto.dev, with messages as arrows. Return its path.

    As ``vflsim trace``. ``out`` defaults to ``trace.json`` in the results folder; ``.gz`` compresses it. Raises
    ``ResultsError`` if there is no such run, ``NotRecordedError`` if no run kept its events.

    Example: ``vflsim.trace("results/mine", protocol="wait", seed=0)``
    """
    from vflsim.results.trace import write_trace

    opened = _opened(results)
    with naming(opened.scenario):
        return write_trace(opened, out, protocol, seed)


def evaluate(
    results: Results | str | Path,
    attacks: Sequence[str] = (),
    options: Sequence[str] = (),
    *,
    protocols: Sequence[str] = (),
    seeds: Sequence[int] = (),
    trust: bool = False,
) -> Evaluation:
    """Attack finished runs: what their models and messages give away, and what they withstand.

    As ``vflsim evaluate``: ``attacks`` are names (default: all that apply), ``options`` such as ``"pgd.omega=1,2"``.
    The evaluation's ``tables`` are frames by attack. Modules that the results name are imported with ``trust`` alone,
    which runs their code. Raises ``ScenarioError`` and ``ResultsError``.

    Example: ``vflsim.evaluate("results/mine", ["pgd"]).tables["pgd"]``
    """
    from vflsim.attacks import chosen, evaluate as evaluate_runs

    stored = _chosen(_opened(results, trust), protocols, seeds)
    with naming(stored.scenario):
        return evaluate_runs(stored, chosen(attacks, options), protocols or None, seeds or None, needed=bool(attacks))


def explain(
    results: Results | str | Path,
    *,
    protocols: Sequence[str] = (),
    seeds: Sequence[int] = (),
    sd: float = 1.0,
    tsne_rows: int = 1000,
    trust: bool = False,
) -> Explanation:
    """Explain clients by their linear heads: importance, noisy test features, embeddings (VIM Sec. 5.2).

    As ``vflsim explain``: ``sd`` is that of the noise on test features, in scaled units; ``tsne_rows`` test rows are
    drawn in the plane (0: none). The explanation's ``clients`` and ``planes`` are frames. Modules that the results name
    are imported with ``trust`` alone, which runs their code. Raises ``ScenarioError`` and ``ResultsError``.

    Example: ``vflsim.explain("results/mine", tsne_rows=0).clients``
    """
    from vflsim.explaining import explain as explain_runs

    stored = _chosen(_opened(results, trust), protocols, seeds)
    with naming(stored.scenario):
        return explain_runs(stored, protocols or None, seeds or None, sd, tsne_rows)


def _opened(results: Results | str | Path, trust: bool = False) -> Results:
    from vflsim.results.read import Results

    return results if isinstance(results, Results) else Results.open(results, trust)


def _chosen(results: Results, protocols: Sequence[str], seeds: Sequence[int]) -> Results:
    """Return results that have these protocols and seeds. Raises ``ScenarioError`` for one that they do not have."""
    from vflsim.errors import check_known

    for name in protocols:
        check_known(name, results.protocols, "protocol", "protocols")
    for seed in seeds:
        check_known(str(seed), [*map(str, results.seeds)], "seed", "seeds")
    return results


def read_sweep(folder: str | Path, target: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read all runs of a sweep as one tidy frame: a row per run, its keys, protocol, seed and measures as columns.

    ``target`` replaces the scenario's: ``{"test_accuracy": 0.9}``. See :func:`vflsim.results.sweeps.table.sweep_frame`.
    Raises ``ResultsError``.

    Example: ``vflsim.read_sweep("results/batches")[["protocol", "seed"]]``
    """
    from vflsim.results.sweeps import Sweep
    from vflsim.results.sweeps.table import sweep_frame

    return sweep_frame(Sweep.open(folder, target))


def sweep_answers(sweep: Sweep | str | Path, target: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Say which values of a sweep's keys are best for each protocol: a row per comparison, protocol and point.

    Compared are time, bytes and energy to the target; of protocols that reached it nowhere, the main metric after as
    much of these as all have spent. ``verdict`` says how a point did for its protocol (best, not told apart, behind,
    not reached, failed), ``place`` how the protocol did among all. ``target`` replaces the scenario's. See
    :func:`vflsim.results.sweeps.answers.answers_frame` for the columns. Raises ``ResultsError``.

    Example: ``vflsim.sweep_answers("results/batches").query("verdict == 'best'")``
    """
    from dataclasses import replace

    from vflsim.results.sweeps import Sweep
    from vflsim.results.sweeps.answers import answers_frame

    if isinstance(sweep, Sweep):
        return answers_frame(sweep if target is None else replace(sweep, targets=target))
    return answers_frame(Sweep.open(sweep, target))
