"""Figures of explained clients: norms of their heads, noise on their test features (VIM Fig. 5), t-SNE (Fig. 4, 6)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy.sparse.csgraph import connected_components

from vflsim.explaining import Explanation
from vflsim.explaining.explain import rank_correlation
from vflsim.plotting.looks import Style, kinds_in, protocol_styles, shaded
from vflsim.plotting.style import Numbers, Picture, bars, beside, frame, legend, metric_label, picture, remark
from vflsim.results.statistics.estimates import means_by
from vflsim.vocabulary.metrics import is_share, range_of

CLEAN = "#222222"
_GREY = "#777777"
_LIGHTER = 0.6
"""Share of white in the bars of clients with noisy features, which are hatched, too."""
_HATCH: dict[str, Any] = {"hatch": "////", "edgecolor": "white"}
_PANEL = 3.4
"""Inches of a panel's width."""
_ACROSS = 3
"""Most protocols beside each other."""
_NORM = "norm of the head, ‖W‖"
_NUMBERED = 16
"""Most clients that are all numbered on the axis."""
_LABEL = (0.12, 0.08)
"""Shares of the ranges of x and y that a label takes: closer clients share one."""
_CLASSES = 20
"""Most classes with a colour each; more labels, or values, share a scale."""


def explained_figures(explanation: Explanation) -> Iterator[tuple[str, Picture]]:
    """Yield every figure for which there are data, with its name."""
    yield "importance", importance(explanation)
    yield "noisy_test", noisy_test(explanation)
    if len(explanation.planes):
        yield "tsne", tsne(explanation)


def importance(explanation: Explanation) -> Picture:
    """Plot ‖W_k‖ of every client, a panel for each protocol, with 95 % intervals over seeds.

    ``numbers``: ``norms`` (protocol, client, n, mean, low, high, noisy_features).
    """
    norms, names = _means(explanation.clients, "weight_norm", (0.0, np.inf)), explanation.protocols
    styles = _styles(explanation)
    with _columns(names, 1, 2.7, {"norms": norms}) as (figure, columns):
        for (axes,), name in zip(columns, names, strict=True):
            _bars(axes, norms[norms["protocol"] == name], styles[name])
            axes.set_xlabel("client")
            axes.set_ylabel(_NORM)
            axes.set_title(name, loc="left")
            remark(axes, _seeds(explanation.clients, name))
        if norms["noisy_features"].any():
            handles = [Patch(facecolor=_GREY), _noisy_handle()]
            legend(figure, handles, ["clean features", "noisy features (data.noise)"])
    return figure


def noisy_test(explanation: Explanation) -> Picture:
    """Plot the metric when noise perturbs one client's test features, and what it costs against ‖W_k‖.

    A column for each protocol. ``numbers``: ``perturbed`` (protocol, client, n, mean, low, high, noisy_features),
    ``clean`` (protocol, mean) and ``drops``, the explanation's clients; ``correlation`` has Spearman's ρ of ‖W_k‖ and
    the drop (protocol, seed, rho).
    """
    clients, names = explanation.clients, explanation.protocols
    metric, styles = str(clients["metric"].iloc[0]), _styles(explanation)
    perturbed = _means(clients, "perturbed", range_of(metric))
    clean = clients.groupby("protocol", sort=False)["clean"].mean().rename("mean").reset_index()
    rhos = [(*key, rank_correlation(run)) for key, run in clients.groupby(["protocol", "seed"], sort=False)]
    rho = frame(("protocol", "seed", "rho"), rhos)
    numbers = {"perturbed": perturbed, "clean": clean, "drops": clients, "correlation": rho}
    label = metric_label(metric)
    with _columns(names, 2, 5.2, numbers) as (figure, columns):
        for (above, below), name in zip(columns, names, strict=True):
            _bars(above, perturbed[perturbed["protocol"] == name], styles[name])
            above.axhline(float(clean.loc[clean["protocol"] == name, "mean"].iloc[0]), color=CLEAN, linewidth=1.4)
            above.set_ylabel(label)
            if is_share(metric):
                above.set_ylim(top=1.03)
            above.set_xlabel(f"client with N(0, {explanation.sd:g}²) on its test features")
            above.set_title(name, loc="left")
            remark(above, _seeds(clients, name))
            rows, value = clients[clients["protocol"] == name], rho.loc[rho["protocol"] == name, "rho"]
            _scatter(below, rows.groupby("client")[["weight_norm", "drop"]].mean(), styles[name])
            below.set_xlabel(_NORM)
            below.set_ylabel(f"{label} worse by")
            remark(below, f"Spearman's ρ = {value.mean():.2f}" if value.notna().any() else "no rank correlation")
        handles = [Patch(facecolor=_GREY), Line2D([], [], color=CLEAN, linewidth=1.4)]
        labels = ["one client's test features noisy", "all test features clean"]
        if perturbed["noisy_features"].any():
            handles.append(_noisy_handle())
            labels.append("the same; its features noisy before (data.noise)")
        legend(figure, handles, labels)
    return figure


def tsne(explanation: Explanation) -> Picture:
    """Plot embeddings of test rows in the plane by t-SNE, coloured by label: a row of panels for each protocol.

    Those of the client with the largest and of the one with the smallest ‖W_k‖, and of all clients side by side.
    ``numbers``: ``planes``, those of the explanation.
    """
    planes = explanation.planes
    rows = [(str(name), plane) for name, plane in planes.groupby("protocol", sort=False)]
    columns = max(plane["embedding"].nunique() for _, plane in rows)
    labels = sorted(planes["label"].unique(), key=_natural)
    with picture(2.7 * columns, 2.7 * len(rows) + 0.4, {"planes": planes}) as figure:
        panels = figure.subplots(len(rows), columns, squeeze=False)
        for line, (name, plane) in zip(panels, rows, strict=True):
            shown = list(plane.groupby("embedding", sort=False))
            for place, axes in enumerate(line):
                axes.set_axis_off()
                if place < len(shown):
                    title, points = shown[place]
                    handles = _points(axes, points, labels)
                    axes.set_title(f"{name}: {title}", loc="left")
                    what = f"seed {points['seed'].iloc[0]}, {len(points)} test rows"
                    remark(axes, ("most important", "least important", what)[place] if len(shown) > 1 else what)
        if len(labels) <= _CLASSES:
            legend(figure, handles, labels, columns=10)
        else:
            figure.colorbar(handles[0], ax=panels, label="label", shrink=0.6)
    return figure


@contextmanager
def _columns(names: list[str], panels: int, height: float, numbers: Numbers) -> Iterator[tuple[Picture, list[Any]]]:
    """Make a figure with a column of ``panels`` axes for each protocol, ``height`` inches high."""
    across = min(_ACROSS, len(names))
    down = -(-len(names) // across)
    with picture(_PANEL * across, height * down, numbers) as figure:
        axes = figure.subplots(panels * down, across, squeeze=False)
        columns = [axes[panels * row : panels * (row + 1), column] for row in range(down) for column in range(across)]
        for empty in columns[len(names) :]:
            for each in empty:
                each.set_axis_off()
        yield figure, columns[: len(names)]


def _styles(explanation: Explanation) -> dict[str, Style]:
    kinds = kinds_in(explanation.scenario)
    return protocol_styles(kinds | {name: name for name in explanation.protocols if name not in kinds})


def _noisy_handle() -> Patch:
    return Patch(facecolor=shaded(_GREY, _LIGHTER), **_HATCH)


def _means(clients: pd.DataFrame, column: str, ends: tuple[float, float]) -> pd.DataFrame:
    """Return the mean of a column over seeds, with its 95 % interval, for every protocol and client.

    Intervals end at the least and the greatest value that there can be (``ends``).
    """
    keys = ["protocol", "client"]
    means = means_by(clients, keys, column)
    means[["low", "high"]] = means[["low", "high"]].clip(*ends)
    return means.assign(noisy_features=clients.groupby(keys, sort=False)["noisy_features"].all().to_numpy())


def _bars(axes: Axes, means: pd.DataFrame, style: Style) -> None:
    """Draw a bar for each client; those with noisy features stand out."""
    for bar, noisy in zip(bars(axes, means["client"], means, style.color), means["noisy_features"], strict=True):
        if noisy:
            bar.set(facecolor=shaded(style.color, _LIGHTER), **_HATCH)
    axes.set_ylim(bottom=0)
    if len(means) <= _NUMBERED:
        axes.set_xticks(means["client"])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _scatter(axes: Axes, means: pd.DataFrame, style: Style) -> None:
    """Draw what noise costs against ‖W_k‖, with the numbers of clients."""
    axes.plot(means["weight_norm"], means["drop"], "o", markersize=3.5, color=style.color)
    points = means.to_numpy()
    near = (abs(points[:, None] - points) <= np.ptp(points, axis=0) * _LABEL).all(axis=2)
    for _, group in means.groupby(connected_components(near)[1]):
        names, place = ", ".join(map(str, group.index)), (group["weight_norm"].max(), group["drop"].max())
        beside(axes, names, place, (3, 2))
    axes.margins(0.12)
    axes.set_title(" ", loc="left")


def _points(axes: Axes, points: pd.DataFrame, labels: list[str]) -> list[Any]:
    """Draw points coloured by label; return a handle for each label, or one for the scale of all."""
    look: dict[str, Any] = {"s": 4, "linewidths": 0}
    if len(labels) > _CLASSES:
        return [axes.scatter(points["x"], points["y"], c=points["label"].astype(float), **look)]
    colors = mpl.colormaps["tab10" if len(labels) <= 10 else "tab20"].colors  # type: ignore[attr-defined]
    handles = []
    for label, color in zip(labels, colors, strict=False):
        group = points[points["label"] == label]
        axes.scatter(group["x"], group["y"], color=color, **look)
        handles.append(Line2D([], [], linestyle="none", marker="o", markersize=4, color=color))
    return handles


def _natural(label: str) -> tuple[bool, float, str]:
    """Sort numbers by value, and before other labels."""
    try:
        return False, float(label), label
    except ValueError:
        return True, 0.0, label


def _seeds(clients: pd.DataFrame, name: str) -> str:
    seeds = clients.loc[clients["protocol"] == name, "seed"].unique()
    return f"mean and 95 % interval, {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
