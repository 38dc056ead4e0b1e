"""What a sweep has shown, as frames of pandas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from vflsim.results.sweeps.sweep import Sweep


def read_sweep(folder: str | Path, target: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read all runs of a sweep as one tidy frame: a row per run, its keys, protocol, seed and measures as columns.

    ``target`` replaces the scenario's: ``{"test_accuracy": 0.9}``. See :func:`vflsim.results.sweeps.frame.sweep_frame`.
    Raises ``ResultsError``.

    Example: ``vflsim.read_sweep("results/batches")[["protocol", "seed"]]``
    """
    from vflsim.results.sweeps.frame import sweep_frame
    from vflsim.results.sweeps.sweep import Sweep

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

    from vflsim.results.sweeps.answers import answers_frame
    from vflsim.results.sweeps.sweep import Sweep

    if isinstance(sweep, Sweep):
        return answers_frame(sweep if target is None else replace(sweep, targets=target))
    return answers_frame(Sweep.open(sweep, target))
