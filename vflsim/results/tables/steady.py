"""The sections of ``summary.md`` about rounds within runs: steady state, and pairs round by round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from vflsim.results.statistics.replication import round_pairs, steady_rounds
from vflsim.text_table import markdown_table

if TYPE_CHECKING:
    from vflsim.results.run_set import RunSet

_STEADY = ("protocol", "runs", "with a sound interval", "warm-up [rounds]", "lag-1 correlation of batches")
_PAIRS = ("protocols", "seeds", "correlation", "narrower by")


def round_sections(results: RunSet) -> list[str]:
    """Return the sections as lines of Markdown; none if no rounds were kept."""
    alone, pairs = steady_rounds(results), round_pairs(results)
    lines: list[str] = []
    if len(alone):
        lines += ["", "## Rounds within runs", "", "Warm-up by MSER-5, intervals by batch means.", ""]
        lines += markdown_table(_STEADY, list(_steady(alone)))
    pairs = pairs[pairs["low"].notna()]
    if len(pairs):
        lines += ["", "## Round by round", "", "Within runs with the same seed, after the warm-up.", ""]
        lines += markdown_table(_PAIRS, list(_pairs(pairs)))
    return lines


def _steady(alone: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for name, own in alone.groupby("protocol", sort=False):
        sound = own["settled"] & ~own["correlated"] & own["enough"] & own["low"].notna()
        yield str(name), str(len(own)), str(sound.sum()), _range(own["warm_up"]), _range(own["lag1"])


def _pairs(pairs: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for (name, baseline), own in pairs.groupby(["protocol", "baseline"], sort=False):
        yield f"{name} − {baseline}", str(len(own)), _range(own["correlation"]), _range(own["narrower"])


def _range(values: pd.Series) -> str:
    """Format the smallest and the largest value: ``0.12 … 0.3``."""
    known = values.dropna()
    if known.empty:
        return "—"
    ends = (f"{end:.2g}" if abs(end) < 10 else f"{end:.0f}" for end in (known.min(), known.max()))
    return " … ".join(dict.fromkeys(ends)).replace("-", "−")
