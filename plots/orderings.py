"""Figures of the study of orderings: ranks by world, agreement of worlds, cost fronts."""

import argparse
from hashlib import sha256
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from orderings_estimates import (
    COSTS,
    DATA,
    TABLES,
    WORLDS,
    Block,
    blocks,
    estimates,
    protocols,
    ranks,
    runs,
    tau_between_worlds,
)


def ranks_figure(frame: pd.DataFrame, measure: str = "seconds") -> Figure:
    """Draw a heat map per data set: protocols by worlds, ranks in the cells; grey where the target was not reached."""
    there = [data for data in DATA if data in set(frame["data"])]
    names = protocols(frame)
    figure, axes = plt.subplots(
        1, len(there), figsize=(3.6 * len(there) + 1.4, 5.2), sharey=True, squeeze=False, layout="constrained"
    )
    image = None
    for axis, data in zip(axes[0], there, strict=True):
        columns = [block for block in blocks(frame) if block[0] == data]
        values = rank_matrix(frame, columns, measure)
        image = axis.imshow(np.ma.masked_invalid(values), vmin=1, vmax=len(names), cmap="viridis_r", aspect="auto")
        axis.set_facecolor("0.85")
        for (row, column), rank in np.ndenumerate(values):
            dark = np.isfinite(rank) and rank > 0.55 * len(names)
            text = f"{rank:.0f}" if np.isfinite(rank) else "–"
            axis.text(column, row, text, ha="center", va="center", color="white" if dark else "black", fontsize=8)
        axis.set_xticks(range(len(columns)), [world for _, world in columns], rotation=35, ha="right")
        axis.set_yticks(range(len(names)), names)
        axis.set_title(data)
    figure.colorbar(image, ax=axes[0], label=f"rank by {measure} to the target (1: first)", shrink=0.8)
    return figure


def rank_matrix(frame: pd.DataFrame, columns: list[Block], measure: str) -> np.ndarray:
    """Return ranks, protocols by blocks; NaN where not all seeds reached the target."""
    names = protocols(frame)
    found = [estimates(frame, block, COSTS[measure]) for block in columns]
    ranked = [ranks(each, names) for each in found]
    return np.array(
        [
            [
                rank[name] if name in each and not each[name].censored else np.nan
                for rank, each in zip(ranked, found, strict=True)
            ]
            for name in names
        ]
    )


def agreement_figure(frame: pd.DataFrame) -> Figure:
    """Draw Kendall's τ between worlds, a heat map per data set."""
    there = [data for data in DATA if data in set(frame["data"])]
    figure, axes = plt.subplots(1, len(there), figsize=(3.3 * len(there) + 1, 3.6), squeeze=False, layout="constrained")
    image = None
    for axis, data in zip(axes[0], there, strict=True):
        found = tau_between_worlds(frame, data)
        image = axis.imshow(found.to_numpy(), vmin=-1, vmax=1, cmap="PuOr")
        for (row, column), value in np.ndenumerate(found.to_numpy()):
            axis.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="white" if abs(value) > 0.65 else "black",
            )
        axis.set_xticks(range(len(found)), found.columns, rotation=35, ha="right")
        axis.set_yticks(range(len(found)), found.index)
        axis.set_title(data)
    figure.colorbar(image, ax=axes[0], label="Kendall's τ of seconds to the target", shrink=0.8)
    return figure


def front(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points that no other point beats in both columns, in the order of the first."""
    ordered = points.sort_values(list(points.columns))
    best = ordered.iloc[:, 1].cummin()
    return ordered[(ordered.iloc[:, 1] <= best) & ~best.duplicated()]


def costs_of(frame: pd.DataFrame, block: Block) -> pd.DataFrame:
    """Return mean seconds and bytes to the target of the protocols that reached it with all seeds."""
    found = {name: estimates(frame, block, COSTS[name]) for name in ("seconds", "bytes")}
    names = [name for name, each in found["seconds"].items() if not each.censored]
    return pd.DataFrame({key: [found[key][name].mean for name in names] for key in found}, index=names)


def fronts_figure(frame: pd.DataFrame) -> Figure:
    """Draw seconds against bytes to the target, a panel per block, with the Pareto front."""
    there = [data for data in DATA if data in set(frame["data"])]
    names = protocols(frame)
    colours = dict(zip(names, plt.get_cmap("tab20").colors, strict=False))
    marks = dict(zip(names, "osD^v<>pPX*hd8", strict=False))
    figure, axes = plt.subplots(
        len(there), len(WORLDS), figsize=(13.5, 2.5 * len(there) + 0.9), squeeze=False, layout="constrained"
    )
    for row, data in enumerate(there):
        for column, world in enumerate(WORLDS):
            axis = axes[row][column]
            axis.set(xscale="log", yscale="log")
            axis.tick_params(labelsize=7)
            for side in (axis.xaxis, axis.yaxis):
                side.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=5))
                side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                side.set_minor_formatter(NullFormatter())
            if row == 0:
                axis.set_title(world)
            if column == 0:
                axis.set_ylabel(f"{data}\nMB to the target")
            if row == len(there) - 1:
                axis.set_xlabel("s to the target")
            if (data, world) not in blocks(frame):
                continue
            points = costs_of(frame, (data, world))
            edge = front(points)
            axis.step(edge["seconds"], edge["bytes"] / 1e6, where="post", color="0.6", zorder=1)
            for name, point in points.iterrows():
                axis.scatter(
                    point["seconds"], point["bytes"] / 1e6, color=colours[name], marker=marks[name], s=26, zorder=2
                )
    handles = [plt.Line2D([], [], linestyle="", marker=marks[name], color=colours[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, fontsize=8)
    return figure


def digest(tables: Path) -> str:
    """Return the SHA-256 of the table that figures are drawn from, which they carry."""
    return sha256((tables / "runs.parquet").read_bytes()).hexdigest()


FIGURES = {"ranks": ranks_figure, "agreement": agreement_figure, "fronts": fronts_figure}


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path, nargs="?", default=TABLES, help="folder with runs.parquet")
    parser.add_argument("--out", type=Path, default=Path("docs/images/orderings"), help="folder for the figures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        metadata = {"Description": f"sha256 of runs.parquet: {digest(given.tables)}"}
        draw(runs(given.tables)).savefig(given.out / f"{name}.png", dpi=110, metadata=metadata)
        print(given.out / f"{name}.png")


if __name__ == "__main__":
    main()
