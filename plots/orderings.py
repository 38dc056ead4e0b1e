"""Figures of the study of orderings: ranks with intervals, agreement of worlds, verdicts on claims."""

import argparse
from hashlib import sha256
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from orderings_claims import FAILS, HOLDS, OPEN, verdicts
from orderings_estimates import TABLES, agreement, blocks, protocols, rank_intervals, runs, table

SIDES = {HOLDS: "#0072b2", FAILS: "#d55e00", OPEN: "0.85"}


def ranks_figure(frame: pd.DataFrame) -> Figure:
    """Draw a panel per block: each protocol's rank by seconds to the high target, with its 95 % interval."""
    there, names = blocks(frame), protocols(frame)
    figure, axes = plt.subplots(
        1, len(there), figsize=(1.75 * len(there) + 1, 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axis, block in zip(axes[0], there, strict=True):
        found = rank_intervals(table(frame, block, "seconds_high"))
        for place, name in enumerate(names):
            low, rank, high = (found.at[name, key] for key in ("low", "rank", "high"))
            sure = low == 1
            colour = SIDES[HOLDS] if sure else "0.35"
            axis.plot([low, high], [place, place], color=colour, linewidth=2.2, solid_capstyle="round", alpha=0.55)
            axis.plot(rank, place, "o", color=colour, markersize=5)
        axis.set(xlim=(0.3, len(names) + 0.7), title=block[1])
        axis.set_xticks([1, 5, 10, len(names)])
        axis.grid(axis="x", color="0.9")
    axes[0][0].set_yticks(range(len(names)), names)
    axes[0][0].invert_yaxis()
    figure.supxlabel("rank by seconds to the high target, with 95 % intervals (blue: may be the first)", fontsize=10)
    return figure


def agreement_figure(frame: pd.DataFrame) -> Figure:
    """Draw Kendall's τ between blocks, with the noise floors on the diagonal."""
    found = agreement(frame)
    worlds = [name.split("/")[1] if found.index.str.split("/").str[0].nunique() == 1 else name for name in found.index]
    figure, axis = plt.subplots(figsize=(4.9, 3.9), layout="constrained")
    image = axis.imshow(found.to_numpy(), vmin=-1, vmax=1, cmap="PuOr")
    for (row, column), value in np.ndenumerate(found.to_numpy()):
        dark, weight = abs(value) > 0.65, "bold" if row == column else "normal"
        axis.text(
            column, row, f"{value:.2f}", ha="center", va="center", fontsize=9, fontweight=weight,
            color="white" if dark else "black",
        )  # fmt: skip
    axis.set_xticks(range(len(worlds)), worlds, rotation=35, ha="right")
    axis.set_yticks(range(len(worlds)), worlds)
    figure.colorbar(
        image, ax=axis, label="Kendall's τ of seconds to the high target\n(bold: two halves of one's seeds)"
    )
    return figure


def claims_figure(frame: pd.DataFrame) -> Figure:
    """Draw what came of each claim in each block."""
    found, there = verdicts(frame), blocks(frame)
    claims = list(dict.fromkeys(zip(found["number"], found["claim"], strict=True)))
    names = ["/".join(block) for block in there]
    values = np.full((len(claims), len(there)), np.nan)
    for each in found.itertuples():
        place = claims.index((each.number, each.claim)), names.index(f"{each.data}/{each.world}")
        values[place] = [*SIDES].index(each.verdict)
    figure, axis = plt.subplots(figsize=(7.2, 0.3 * len(claims) + 1.5), layout="constrained")
    axis.imshow(np.ma.masked_invalid(values), cmap=ListedColormap([*SIDES.values()]), vmin=0, vmax=2, aspect="auto")
    axis.set_xticks(range(len(there)), [world for _, world in there], rotation=35, ha="right")
    axis.set_yticks(range(len(claims)), [f"{number}  {claim.replace('`', '')}" for number, claim in claims])
    axis.set_xticks(np.arange(len(there) + 1) - 0.5, minor=True)
    axis.set_yticks(np.arange(len(claims) + 1) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)
    handles = [Patch(color=colour, label=side) for side, colour in SIDES.items()]
    figure.legend(handles=handles, loc="outside lower right", ncols=3, frameon=False)
    return figure


def digest(tables: Path) -> str:
    """Return the SHA-256 of the tables that figures are drawn from, which they carry."""
    return sha256(b"".join(each.read_bytes() for each in sorted(tables.glob("*.parquet")))).hexdigest()


FIGURES = {"ranks": ranks_figure, "agreement": agreement_figure, "claims": claims_figure}


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", type=Path, nargs="?", default=TABLES, help="folder with runs-*.parquet")
    parser.add_argument("--out", type=Path, default=Path("docs/images/orderings"), help="folder for the figures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        metadata = {"Description": f"sha256 of the tables: {digest(given.tables)}"}
        draw(runs(given.tables)).savefig(given.out / f"{name}.png", dpi=110, metadata=metadata)
        print(given.out / f"{name}.png")


if __name__ == "__main__":
    main()
