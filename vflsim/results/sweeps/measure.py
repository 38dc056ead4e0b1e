"""What tables and figures of a sweep show: a measure of the summary, a metric, or a quantile of the rounds."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from vflsim.results.read import NotRecordedError, Results
from vflsim.results.statistics.estimates import Estimate
from vflsim.results.statistics.quantiles import LEVELS, round_quantiles
from vflsim.results.tables.footnotes import final_label

QUANTILE = "quantile"
"""The ``statistic`` of estimates of quantiles."""
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")


@dataclass(frozen=True)
class ShownMeasure:
    """A measure as ``Sweep.estimates`` takes it, about a target or not, in words."""

    measure: str
    target: str | None
    label: str


def shown_measure(name: str, known: Mapping[str, Sequence[str]], where: str) -> ShownMeasure:
    """Find what a user calls ``name`` among the measures ``known``, each with its targets.

    ``p99`` is the 99th percentile of round durations, and a metric is its final level: the plateau, or for runs that a
    target ended the last value. Raises NotRecordedError, which lists the allowed ones, for anything else.
    """
    if name in known:
        target = next(iter(known[name]), None)
        words = name.replace("_", " ")
        return ShownMeasure(name, target, words if target is None else words.replace("target", target))
    if level_of(name) is not None:
        return ShownMeasure(name, None, f"{name} of round durations")
    for kind in ("plateau", "end"):
        if f"{kind}_{name}" in known:
            return ShownMeasure(f"{kind}_{name}", None, final_label(name))
    metrics = [measure.removeprefix("end_") for measure in known if measure.startswith("end_")]
    others = [measure for measure in known if not measure.startswith(("end_", "plateau_"))]
    what = f"there is no metric, measure or percentile {name!r}"
    raise NotRecordedError(what, where, ", ".join([*metrics, *others, *map(percentile, LEVELS)]))


def percentile(level: float) -> str:
    """Name the quantile of a level: ``p99``."""
    return f"p{100 * level:.6g}"


def level_of(measure: str) -> float | None:
    """Return the level of ``p99``, 0.99; None for other names."""
    found = _PERCENTILE.fullmatch(measure)
    level = float(found[1]) / 100 if found else 0.0
    return level if level > 0 else None


def quantile_rows(results: Results, level: float) -> pd.DataFrame:
    """Estimate a quantile of every protocol's rounds, in the columns of a summary without measure and targets.

    Raises NotRecordedError if rounds were not kept.
    """
    rows = []
    for row in round_quantiles(results, [level]).to_dict("records"):
        lost = [run for run in results.failed if run.protocol == row["protocol"]]
        diverged = sum(run.diverged for run in lost)
        found = Estimate(row["runs"], row["runs"], row["value"], row["low"], row["high"], statistic=QUANTILE)
        facts = {"protocol": row["protocol"], "unit": "s", "failed": len(lost) - diverged, "diverged": diverged}
        rows.append(facts | vars(found))
    return pd.DataFrame(rows, columns=["unit", "protocol", "failed", "diverged", *Estimate.__dataclass_fields__])


def has_values(found: pd.DataFrame) -> bool:
    """Whether some protocol has a value at some point."""
    return bool((~found["mean"].map(math.isnan)).any())
