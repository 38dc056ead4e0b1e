"""Markdown tables of what the strongest attackers find in messages: features by attackers, and labels.

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
    "from messages": ("value", "r2", "none"),
    "own features": ("chance", "r2", "own"),
    "both": ("value", "r2", "own"),
    "beyond own": ("value", "partial_r2", "own"),
    "all others' features": ("chance", "r2", "others"),
    "beyond all others'": ("value", "partial_r2", "others"),
    "control": ("value", "control", "none"),
}
"""The columns of the table of features: which number of which measure, beside which features."""
ATTACKERS = ("server", "client", "two clients", "clients", "server and client")


def features(results: Results, folder: Path) -> pd.DataFrame:
    """Return a row per protocol and attacker: R² and partial R² of the strongest, means over parties, then seeds.

    ``chosen`` is what it has chosen most often without features beside. What an attacker has not, such as features of
    its own, is NaN.
    """
    best = _strongest(folder, "reconstruction")
    means = _means(best, ["protocol", "attacker", "measure", "features"])
    rows = []
    for protocol in results.protocols:
        for attacker in ATTACKERS:
            own = best[(best["protocol"] == protocol) & (best["attacker"] == attacker) & (best["features"] == "none")]
            if len(own):
                numbers = [
                    _number(means, (protocol, attacker, measure, beside), column)
                    for column, measure, beside in FEATURES.values()
                ]
                rows.append((protocol, attacker, *numbers, own["chosen"].mode()[0]))
    return pd.DataFrame(rows, columns=["protocol", "attacker", *FEATURES, "chosen"])


def labels(results: Results, folder: Path) -> pd.DataFrame:
    """Return a row per protocol and attacker: what the strongest finds without and with known labels, by chance too.

    ``untrained`` is what features alone give away to whom knows as many labels. Means as above.
    """
    table = _table(folder, "label_inference")
    best = table[table["view"] == "strongest"]
    means = _means(best, ["protocol", "attacker", "known"])
    alone = _means(table[table["method"] == "untrained"], ["protocol", "attacker"])
    known = sorted(best["known"].unique())
    columns = [name for count in known for name in (f"{count} known", f"by chance, {count}")]
    rows = []
    for protocol in results.protocols:
        for attacker in ("client", "two clients", "clients"):
            if (protocol, attacker) not in means.index.droplevel("known"):
                continue
            numbers = [
                _number(means, (protocol, attacker, count), column) for count in known for column in ("value", "chance")
            ]
            own = best[(best["protocol"] == protocol) & (best["attacker"] == attacker) & (best["known"] == known[-1])]
            rows.append(
                (protocol, attacker, *numbers, _number(alone, (protocol, attacker), "value"), own["chosen"].mode()[0])
            )
    return pd.DataFrame(rows, columns=["protocol", "attacker", *columns, "untrained", "chosen"])


def _strongest(folder: Path, attack: str) -> pd.DataFrame:
    table = _table(folder, attack)
    return table[table["view"] == "strongest"]


def _means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return table.groupby([*keys, "seed"])[["value", "chance"]].mean().groupby(keys).mean()


def _number(means: pd.DataFrame, place: tuple[object, ...], column: str) -> float:
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
    said = parser.parse_args()
    if said.evaluated and len(said.evaluated) != len(said.results):
        parser.error("--evaluated: give one folder for each of the results")
    try:
        for folder, evaluated in zip(said.results, said.evaluated or map(_beside, said.results), strict=True):
            results = Results.open(folder)
            for title, table in {
                "features, R², a lower bound": features(results, evaluated),
                "labels, a lower bound": labels(results, evaluated),
            }.items():
                cells = [_cells(row) for row in table.itertuples(index=False, name=None)]
                print(f"{folder.name}: {title}\n", *markdown_table(list(table), cells), sep="\n")
                print()
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
