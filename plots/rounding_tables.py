"""Test accuracy in per cent over the swept value, mean ± standard deviation over seeds: Tables 1 and 2 of rounding.

Several sweeps make several tables.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from vflsim.errors import VflsimError
from vflsim.results.sweeps import Sweep
from vflsim.tables.formats import markdown_table


def table(sweep: Sweep) -> Iterator[str]:
    """Yield a row per protocol, and a column for each value of the sweep: the accuracy at the end."""
    columns = [results.metrics.dropna(subset="test_accuracy") for results in sweep.results]
    ends = [found.groupby(["protocol", "seed"])["test_accuracy"].last() for found in columns]
    rows = [[f"`{name}`", *(_cell(end.get(name, pd.Series())) for end in ends)] for name in sweep.protocols]
    yield from markdown_table([f"{sweep.scenario}: {sweep.key}", *map(str, sweep.values)], rows)


def _cell(values: pd.Series) -> str:
    spread = f" ± {100 * values.std():.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{spread}" if len(values) else "—"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim sweep has written")
    given = parser.parse_args()
    try:
        print("\n\n".join("\n".join(table(Sweep.open(folder))) for folder in given.results))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
