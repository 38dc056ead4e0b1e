"""Lead of FedVS over each baseline in points of accuracy, paired over seeds: a Markdown table per results folder."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vflsim.errors import VflsimError
from vflsim.results import Results
from vflsim.results.statistics.pairs import leads

PARTS = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Parts of a run's virtual time at which the differences are shown."""


def table(results: Results, protocol: str) -> Iterator[str]:
    """Yield the lines of the table: differences at a few times, and how often the interval excludes 0 on each side."""
    end = float(results.metrics.groupby(["protocol", "seed"])["time_s"].max().min())
    times = [part * end for part in PARTS]
    yield f"| {results.name}: {protocol} minus | " + " | ".join(f"{t:g} s" for t in times) + " | leads | trails |"
    yield "|---|" + "---|" * (len(times) + 2)
    over = leads(results, protocol)
    for there, all_along in zip(leads(results, protocol, times=times), over, strict=True):
        half = (there.high - there.low) / 2
        differences = [
            f"{100 * mean:+.1f}" + ("" if np.isnan(width) else f" ± {100 * width:.1f}")
            for mean, width in zip(there.mean, half, strict=True)
        ]
        shares = [f"{100 * all_along.share(sign):.0f} %" for sign in (1, -1)]
        yield f"| {there.baseline} | " + " | ".join([*differences, *shares]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run has written")
    parser.add_argument("--protocol", default="fedvs", help="protocol to compare with all others")
    given = parser.parse_args()
    try:
        for folder in given.results:
            print("\n".join(table(Results.open(folder), given.protocol)), end="\n\n")
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
