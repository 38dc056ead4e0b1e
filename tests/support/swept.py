"""Sweeps over one key, planned and run in one call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vflsim.studies.plan import Axis, planned
from vflsim.studies.sweep import SweepDone, run_sweep as run_plan


def run_sweep(
    source: str | Path | Mapping[str, Any],
    key: str,
    values: Sequence[Any],
    overrides: Sequence[str] = (),
    out: Path | None = None,
    *,
    timing_only: bool = False,
    **how: Any,
) -> SweepDone:
    plan = planned(source, [Axis(key, tuple(values))], overrides=overrides, timing_only=timing_only)
    return run_plan(plan, out, **how)
