"""Markdown tables at the common and at each protocol's own learning rate: scores, results, leads."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from fedvs_leads import table as leads_table

from vflsim.errors import VflsimError
from vflsim.intervals import t_interval
from vflsim.results import Results
from vflsim.results.statistics.doubts import plateau_of
from vflsim.results.sweeps.tuning import Tuning, leaf, tuning_markdown
from vflsim.tables.formats import markdown_table
from vflsim.vocabulary.plain_yaml import flow


def results_table(tuning: Tuning, common: Results, own: Results) -> Iterator[str]:
    """Yield a row per protocol: its rate, its rounds, and the metric with the common and its own rate, over seeds."""
    at = "none" if tuning.common is None else flow(tuning.sweep.values[tuning.common])
    name = leaf(tuning.sweep.key)
    header = ["", "rounds", f"{name} {at}: end", "plateau", f"own {name}", "end", "plateau"]
    rows = []
    for protocol in common.protocols:
        chosen = tuning.chosen.get(protocol)
        rate = "none" if chosen is None else flow(tuning.sweep.values[chosen])
        (rounds, *first), (_, *second) = (_cells(results, protocol) for results in (common, own))
        rows.append([f"`{protocol}`", rounds, *first, rate, *second])
    yield from markdown_table(header, rows)


def _cells(results: Results, protocol: str) -> tuple[str, str, str]:
    """Format mean rounds, and the metric at the end and on its plateau, over finished seeds."""
    metric = results.main_metric
    runs = [run for run in results.runs if run.protocol == protocol]
    frames = [run.table("metrics").to_pandas() for run in runs if not run.failed]
    if not frames:
        return "—", "all failed", "—"
    lost = "" if len(frames) == len(runs) else f" ({len(runs) - len(frames)} of {len(runs)} failed)"
    ends = [float(frame[metric].dropna().iloc[-1]) for frame in frames]
    plateaus = [plateau_of(frame, metric) for frame in frames]
    rounds = f"{np.mean([frame['round'].iloc[-1] for frame in frames]):,.0f}"
    return rounds, _percent(ends) + lost, _percent(plateaus)


def _percent(values: list[float]) -> str:
    found = t_interval(values)
    return f"{100 * found.mean:.1f}" + ("" if found.n < 2 else f" ± {100 * found.half_width:.1f}") + " %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tuning", type=Path, help="folder that vflsim tune has written")
    parser.add_argument("common", type=Path, help="results of its common.yaml")
    parser.add_argument("own", type=Path, help="results of its tuned.yaml")
    parser.add_argument("--protocol", default="fedvs", help="protocol to compare with all others")
    given = parser.parse_args()
    try:
        tuning, common, own = Tuning.open(given.tuning), Results.open(given.common), Results.open(given.own)
        lines = [*tuning_markdown(tuning).splitlines()[2:], "", *results_table(tuning, common, own), ""]
        for results in (common, own):
            lines += [*leads_table(results, given.protocol), ""]
        print("\n".join(lines))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
