"""Test accuracy of every party in per cent, mean ± standard deviation over seeds: EASTER's Tables II, IV, VI and VII.

A protocol with one model for all parties has one number. Several results make several tables.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from vflsim.errors import VflsimError
from vflsim.results import Results
from vflsim.tables.formats import markdown_table

METRIC = "test_accuracy"


def table(results: Results) -> Iterator[str]:
    """Yield a row per protocol: rounds, virtual time, bytes, and the mean and each party's accuracy at the end."""
    metrics = results.metrics
    parties = [name.removeprefix(f"{METRIC}.") for name in metrics if name.startswith(f"{METRIC}.")]
    last = metrics.dropna(subset=METRIC).groupby(["protocol", "seed"], sort=False).last().reset_index()
    rows = []
    for protocol in results.protocols:
        own = last[last["protocol"] == protocol]
        sent = own[["bytes_up", "bytes_down", "bytes_peer"]].sum(axis=1).mean() / 1e6
        cells = [_cell(own[METRIC]), *(_cell(own[f"{METRIC}.{party}"]) for party in parties)]
        spent = f"{own['time_s'].mean():,.0f} s"
        rows.append([f"`{protocol}`", f"{own['round'].mean():,.0f}", spent, f"{sent:,.0f} MB", *cells])
    yield from markdown_table([results.name, "rounds", "time", "sent", "mean", *parties], rows)


def _cell(values: pd.Series) -> str:
    if values.isna().all():
        return "—"
    spread = f" ± {100 * values.std():.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run has written")
    given = parser.parse_args()
    try:
        print("\n\n".join("\n".join(table(Results.open(folder))) for folder in given.results))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
