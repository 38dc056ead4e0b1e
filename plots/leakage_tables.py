"""Markdown tables of what parties' messages give away: features by attackers and by what they have, and labels.

Takes folders of results that `vflsim evaluate` has attacked by reconstruction and label_inference.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, VflsimError
from vflsim.results import Results
from vflsim.tables.formats import markdown_table

FEATURES = {
    "own features alone": ("chance", "r2", "last", "own"),
    "last view": ("value", "r2", "last", "none"),
    "and own features": ("value", "r2", "last", "own"),
    "all epochs": ("value", "r2", "all", "none"),
    "and own features ": ("value", "r2", "all", "own"),
    "beyond own": ("value", "partial_r2", "all", "own"),
    "others' features alone": ("chance", "r2", "last", "others"),
    "last view beyond": ("value", "partial_r2", "last", "others"),
    "all epochs beyond": ("value", "partial_r2", "all", "others"),
}
"""The columns of the table of features: which number, which measure, which epochs, beside which features."""
UNAIDED = ("sign", "clusters")
"""Methods that need no label."""


def features(results: Results, folder: Path, method: str = "linear") -> pd.DataFrame:
    """Return a row per protocol and attacker: its view, and R² and partial R², means over parties, then seeds.

    The view is the one with the largest R² of all epochs, or of the last where a run kept no more, without features.
    What an attacker has not, such as features of its own, is NaN.
    """
    found = _table(folder, "reconstruction").query("method == @method")
    keys = ["protocol", "attacker", "view", "epochs", "features", "measure"]
    means = found.groupby([*keys, "seed"])[["value", "chance"]].mean().groupby(keys).mean()
    alone = means.xs(("none", "r2"), level=("features", "measure"))["value"].unstack("epochs")
    best = alone["all"].fillna(alone["last"]) if "all" in alone else alone["last"]
    rows = []
    for protocol in results.protocols:
        for attacker in ("server", "client"):
            if (protocol, attacker) not in best.index.droplevel("view"):
                continue
            view = best.loc[protocol, attacker].idxmax()
            numbers = [_number(means, (protocol, attacker, view), said) for said in FEATURES.values()]
            rows.append((protocol, attacker, view, *numbers))
    return pd.DataFrame(rows, columns=["protocol", "attacker", "view", *FEATURES])


def labels(results: Results, folder: Path) -> pd.DataFrame:
    """Return a row per protocol, a column per method: its measure for the view that gives most, means as above.

    ``clusters by chance`` is what clusters find in labels in random order.
    """
    found = _table(folder, "label_inference")
    keys = ["protocol", "method", "view"]
    means = found.groupby([*keys, "seed"])[["value", "chance"]].mean().groupby(keys).mean()
    best = means.loc[means.groupby(["protocol", "method"])["value"].idxmax()].droplevel("view")
    table = best["value"].unstack("method")
    if "clusters" in table:
        table["clusters by chance"] = best["chance"].unstack("method")["clusters"]
    known = [name for name in table if not name.startswith(UNAIDED)]
    first = [name for name in ("sign", "clusters", "clusters by chance") if name in table]
    order = [name for name in results.protocols if name in table.index]
    return table.loc[order, [*first, *known]].rename_axis("protocol").reset_index()


def _number(means: pd.DataFrame, key: tuple[str, str, str], said: tuple[str, str, str, str]) -> float:
    column, measure, epochs, beside = said
    place = (*key, epochs, beside, measure)
    return float(means.loc[place, column]) if place in means.index else float("nan")


def _table(folder: Path, attack: str) -> pd.DataFrame:
    try:
        return pq.read_table(folder / f"{attack}.parquet").to_pandas()
    except FileNotFoundError:
        raise ResultsError(
            "not evaluated", str(folder), remedy=f"run `vflsim evaluate RESULTS --attack {attack}`"
        ) from None


def _cells(row: tuple[object, ...]) -> list[str]:
    return [
        each if isinstance(each, str) else "–" if each != each else f"{each:.2f}".replace("-0.00", "0.00")
        for each in row
    ]


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.resolve().name}-evaluated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="folders that vflsim run has written")
    parser.add_argument("--evaluated", type=Path, action="append", default=[], help="the attacks' folder, of each")
    parser.add_argument("--method", default="linear", help="the probe of features (default: linear, with labels)")
    said = parser.parse_args()
    if said.evaluated and len(said.evaluated) != len(said.results):
        parser.error("--evaluated: give one folder for each of the results")
    try:
        for folder, evaluated in zip(said.results, said.evaluated or map(_beside, said.results), strict=True):
            results = Results.open(folder)
            tables = {"features, R²": features(results, evaluated, said.method)}
            if said.method == "linear":
                tables["labels"] = labels(results, evaluated)
            for title, table in tables.items():
                cells = [_cells(row) for row in table.itertuples(index=False, name=None)]
                print(f"{folder.name}: {title}\n", *markdown_table([name.strip() for name in table], cells), sep="\n")
                print()
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
