"""What the strongest attackers find in each entry's messages against the time to the target: a table and a picture.

Takes results with a target, and folders that `vflsim evaluate` has written of reconstruction and label_inference.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from vflsim.errors import ResultsError, VflsimError
from vflsim.intervals import t_interval
from vflsim.plotting.looks import PALETTE
from vflsim.plotting.script import picture_file
from vflsim.plotting.style import Picture, legend, picture, remark, target_label, x_axis
from vflsim.results import Results, write_file
from vflsim.tables.formats import markdown_table

FOUND = {
    "labels, 0 known": ("label_inference", "client", {"known": 0}),
    "labels, 4 known": ("label_inference", "client", {"known": 4}),
    **{
        f"{attacker}: {name}": ("reconstruction", attacker, {"measure": measure, "features": beside})
        for attacker in ("server", "client", "server and client")
        for name, measure, beside in (
            ("features", "r2", "none"),
            ("beyond own", "partial_r2", "own"),
            ("beyond all others'", "partial_r2", "others"),
            ("control", "control", "none"),
        )
    },
}
"""The columns of what is found: of which attack, by which attacker, and which of its rows."""
DRAWN = {
    "server: features": "server: features, R²",
    "server and client: features": "server with a client: features, R²",
    "client: features": "client: features, R²",
    "labels, 4 known": "client: labels, balanced accuracy",
}
COSTS = {"time_to_target": "s", "bytes_to_target": "B"}
UNITS = {"time_to_target": " [s]", "bytes_to_target": " [MB]"}
COLOURS, MARKERS = 7, "osD^v"
"""Entries of one kind look alike elsewhere; here each has its own colour and marker."""


def leakage(results: Results, folders: list[Path]) -> pd.DataFrame:
    """Return a row per protocol and measure: protocol, measure, n, mean, low, high, at_least.

    Measures are those of ``FOUND``, means over parties and then over seeds with their 95 % intervals, the costs to the
    first target, and the accuracy at the end. ``at_least`` is a cost's lower bound where seeds have not reached it.
    """
    rows = []
    for name, (attack, attacker, only) in FOUND.items():
        table = pd.concat([_strongest(folder, attack) for folder in folders])
        for column, value in {"attacker": attacker, **only}.items():
            table = table[table[column] == value]
        for protocol, values in table.groupby(["protocol", "seed"])["value"].mean().groupby("protocol"):
            each = t_interval(values.to_numpy())
            rows.append((protocol, name, each.n, each.mean, each.low, each.high, np.nan))
    summary = results.estimates()
    summary = summary[summary["baseline"].isna()]
    if not summary["measure"].isin(COSTS).any():
        raise ResultsError("no target was measured", str(results.folder), remedy="a scenario with a target")
    for name in (*COSTS, f"end_{results.main_metric}"):
        for each in summary[summary["measure"] == name].to_dict("records"):
            rows.append(
                (each["protocol"], name, each["n"], *(each[key] for key in ("mean", "low", "high", "at_least")))
            )
    table = pd.DataFrame(rows, columns=["protocol", "measure", "n", "mean", "low", "high", "at_least"])
    order = {name: place for place, name in enumerate(results.protocols)}
    attacked = set(table.loc[table["measure"].isin(FOUND), "protocol"])
    return table[table["protocol"].isin(attacked)].sort_values(
        "protocol", key=lambda names: names.map(order), kind="stable"
    )


def _strongest(folder: Path, attack: str) -> pd.DataFrame:
    try:
        table = pq.read_table(folder / f"{attack}.parquet").to_pandas()
    except FileNotFoundError:
        remedy = "run `vflsim evaluate RESULTS --attack reconstruction --attack label_inference`"
        raise ResultsError("not evaluated", str(folder), remedy=remedy) from None
    return table[table["view"] == "strongest"]


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the printed table; ± is half an interval over three seeds or more."""
    measured = dict.fromkeys(table["measure"])
    ends = [each for each in measured if each not in COSTS and each not in FOUND]
    measures = [*COSTS, *ends, *(each for each in FOUND if each in measured)]
    rows = []
    for protocol, own in table.groupby("protocol", sort=False):
        of = own.set_index("measure").to_dict("index")
        rows.append([str(protocol), *(_cell(measure, of.get(measure)) for measure in measures)])
    return ["protocol", *(measure.replace("_", " ") + UNITS.get(measure, "") for measure in measures)], rows


def _cell(measure: str, found: dict[Any, Any] | None) -> str:
    if found is None:
        return "–"
    if measure in COSTS:
        scale = 1e6 if COSTS[measure] == "B" else 1
        if np.isnan(found["mean"]):
            return f"> {_three(found['at_least'] / scale)}"
        spread = f" ({_three(found['low'] / scale)} … {_three(found['high'] / scale)})" if found["n"] > 2 else ""
        return _three(found["mean"] / scale) + spread
    spread = f" ± {found['high'] - found['mean']:.2f}" if found["n"] > 2 else ""
    return f"{found['mean']:.2f}{spread}".replace("-0.00", "0.00")


def _three(value: float) -> str:
    """Write three digits, and thousands without an exponent."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def drawn(table: pd.DataFrame, results: Results) -> Picture:
    """Draw a panel for each of ``DRAWN`` there is over the time to the target, a point with whiskers a protocol."""
    of = {(each["protocol"], each["measure"]): each for each in table.to_dict("records")}
    names = list(dict.fromkeys(table["protocol"]))
    goal = target_label(str(results.estimates().query("measure == 'time_to_target'")["target"].iloc[0]))
    missed = False
    measured = {measure: label for measure, label in DRAWN.items() if measure in set(table["measure"])}
    with picture(3.2 * len(measured), 4.6, {"leakage": table}) as figure:
        panels, handles = figure.subplots(1, len(measured)), {}
        for axes, (measure, label) in zip(panels, measured.items(), strict=True):
            for place, name in enumerate(names):
                cost, found = of[name, "time_to_target"], of.get((name, measure))
                if found is None:
                    continue
                reached = not np.isnan(cost["mean"])
                missed |= not reached
                color, marker = PALETTE[place % COLOURS], MARKERS[place // COLOURS % len(MARKERS)]
                handles[name] = axes.errorbar(
                    cost["mean"] if reached else cost["at_least"],
                    max(found["mean"], 0),
                    xerr=_whiskers(cost) if reached and cost["n"] > 2 else None,
                    yerr=_whiskers(found) if found["n"] > 2 else None,
                    fmt=marker,
                    color=color,
                    markerfacecolor=color if reached else "white",
                    markersize=6,
                    elinewidth=0.8,
                    linestyle="",
                )
            axes.set_ylim(-0.03, 1.03)
            axes.set_ylabel(label)
            x_axis(axes, f"time to {goal}", "s", logarithmic=True)
        if missed:
            remark(panels[0], "hollow: target not reached")
        legend(figure, list(handles.values()), list(handles))
    return figure


def _whiskers(each: dict[Any, Any]) -> list[list[float]] | None:
    low, high = each["mean"] - each["low"], each["high"] - each["mean"]
    return None if np.isnan(low + high) else [[max(low, 0)], [max(high, 0)]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a folder that vflsim run has written")
    parser.add_argument(
        "--evaluated", type=Path, action="append", help="folders of vflsim evaluate (default: RESULTS-evaluated)"
    )
    parser.add_argument("--out", type=Path, help="PNG to write (default: RESULTS/leakage.png)")
    given = parser.parse_args()
    try:
        results = Results.open(given.results)
        beside = given.results.with_name(f"{given.results.resolve().name}-evaluated")
        table = leakage(results, given.evaluated or [beside])
        print("A lower bound.\n", *markdown_table(*cells(table)), sep="\n")
        print(write_file(picture_file(given.out or given.results, "leakage", "--out"), drawn(table, results).png()))
    except VflsimError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
