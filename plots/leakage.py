"""Leakage against what the target costs: features that the server reconstructs, labels that clients infer.

Takes results with a target, and the folder that `vflsim evaluate` has written of reconstruction and label_inference.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, VflsimError
from vflsim.plotting.script import picture_file
from vflsim.plotting.style import Picture, legend, picture, remark, target_label, x_axis
from vflsim.plotting.theme import protocol_styles
from vflsim.results import Results, write_file
from vflsim.tables.formats import markdown_table

FEATURES, LABELS = "features", "labels"
LABEL_OF = {FEATURES: "features: explained variance R²", LABELS: "labels: advantage [points]"}
COSTS = {"time_to_target": ("time", "s"), "bytes_to_target": ("bytes", "B")}


def leakage(results: Results, folder: Path) -> pd.DataFrame:
    """Return a row per attacked protocol: features, labels, and for each cost its mean and whether it is reached.

    ``features`` is the R² of the server's best attack on each client, with its own features or without, at least 0,
    which guessing the mean has.
    ``labels`` is by how many points a client's best attack beats that on its features alone, in balanced accuracy; NaN
    where clients receive no gradients, because they hold the labels. Both are means over clients, then over seeds. A
    cost that a seed did not reach is a lower bound.
    """
    found = _table(folder, "reconstruction").query("attacker == 'server' and measure == 'r2' and features != 'others'")
    features = _best(found).clip(lower=0)
    found = _table(folder, "label_inference").query("measure == 'balanced_accuracy'")
    alone = found["method"] == "untrained"
    labels = 100 * (_best(found[~alone]) - _best(found[alone])).clip(lower=0)
    received = found.loc[found["view"] != "own model", "protocol"].unique()
    labels = labels[labels.index.isin(received, level="protocol")]
    table = pd.DataFrame({FEATURES: _mean(features), LABELS: _mean(labels)})
    summary = results.estimates()
    for cost in COSTS:
        own = summary[(summary["measure"] == cost) & summary["baseline"].isna()].set_index("protocol")
        if own.empty:
            raise ResultsError("no target was measured", str(results.folder), remedy="a scenario with a target")
        table[cost] = own["mean"].fillna(own["at_least"]).astype(float)
        table[f"{cost}_reached"] = own["reached"] == own["n"]
    return table.loc[[name for name in results.protocols if name in table.index]].rename_axis("protocol").reset_index()


def _table(folder: Path, attack: str) -> pd.DataFrame:
    try:
        table = pq.read_table(folder / f"{attack}.parquet").to_pandas()
    except FileNotFoundError:
        raise ResultsError(
            "not evaluated", str(folder), remedy=f"run `vflsim evaluate RESULTS --attack {attack}`"
        ) from None
    single = (table["view"] != "strongest") & (table["attacker"] != "clients")
    return table[single]


def _best(found: pd.DataFrame) -> "pd.Series[float]":
    return found.groupby(["protocol", "seed", "party"])["value"].max()


def _mean(values: "pd.Series[float]") -> "pd.Series[float]":
    return values.groupby(["protocol", "seed"]).mean().groupby("protocol").mean()


def drawn(table: pd.DataFrame, results: Results) -> Picture:
    """Draw both kinds of leakage over both costs, a marker per protocol."""
    names, handles = list(table["protocol"]), []
    styles = protocol_styles(results)
    goal = target_label(str(results.estimates().query("measure == 'time_to_target'")["target"].iloc[0]))
    with picture(7.6, 6.0, {"leakage": table}) as figure:
        panels = figure.subplots(2, 2, sharex="col", sharey="row")
        for row, leak in zip(panels, LABEL_OF, strict=True):
            for axes, (cost, (label, unit)) in zip(row, COSTS.items(), strict=True):
                marks = []
                for each in table.to_dict("records"):
                    style = styles[each["protocol"]]
                    filled = style.color if each[f"{cost}_reached"] else "white"
                    look: dict[str, Any] = {"color": style.color, "marker": style.marker, "markerfacecolor": filled}
                    marks += axes.plot(each[cost], each[leak], **look, linestyle="", markersize=7, alpha=0.9)
                handles = handles or marks
                axes.set_ylim(bottom=0)
                x_axis(axes, f"{label} to {goal}", unit, logarithmic=True)
                axes.label_outer()
            row[0].set_ylabel(LABEL_OF[leak])
        if not table[[f"{cost}_reached" for cost in COSTS]].all(axis=None):
            remark(panels[0, 0], "hollow: target not reached, a lower bound")
        legend(figure, handles, names)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder that vflsim run has written")
    parser.add_argument("--evaluated", type=Path, help="folder of vflsim evaluate (default: RESULTS-evaluated)")
    parser.add_argument("--out", type=Path, help="PNG to write (default: RESULTS/leakage.png)")
    given = parser.parse_args()
    try:
        results = Results.open(given.results)
        table = leakage(
            results, given.evaluated or given.results.with_name(f"{given.results.resolve().name}-evaluated")
        )
        cells = [
            [str(each) if isinstance(each, str | bool) else f"{each:.4g}" for each in row] for row in table.to_numpy()
        ]
        print("\n".join(markdown_table(list(table.columns), cells)))
        print(write_file(picture_file(given.out or given.results, "leakage", "--out"), drawn(table, results).png()))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
