"""The figures of explained clients: what they draw, by hand-made tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tiny_worlds import tiny

from vflsim.explaining import Explanation
from vflsim.explaining.figures import CLEAN, explained_figures

CLIENTS = [
    "protocol",
    "seed",
    "client",
    "weight_norm",
    "share",
    "rank",
    "noisy_features",
    "metric",
    "clean",
    "perturbed",
    "drop",
]
PLANES = ["protocol", "seed", "embedding", "row", "label", "x", "y"]
NORMS = {("a", 0): (1.0, 3.0, 2.0), ("a", 1): (3.0, 5.0, 2.0), ("b", 0): (1.0, 2.0, 4.0), ("b", 1): (1.0, 2.0, 4.0)}
DROPS = {("a", 0): (0.1, 0.3, 0.2), ("a", 1): (0.3, 0.2, 0.1), ("b", 0): (0.0, 0.0, 0.0), ("b", 1): (0.0, 0.0, 0.0)}


def explained(labels: list[str], noisy: bool = True) -> Explanation:
    rows = [
        (
            protocol,
            seed,
            client,
            norm,
            norm / sum(norms),
            1,
            noisy and client == 3,
            "test_accuracy",
            0.9,
            0.9 - drop,
            drop,
        )
        for (protocol, seed), norms in NORMS.items()
        for client, (norm, drop) in enumerate(zip(norms, DROPS[protocol, seed], strict=True), start=1)
    ]
    points = [
        ("a", 0, embedding, row, label, float(row), 1.0)
        for embedding in ("client-2", "client-1", "all clients")
        for row, label in enumerate(labels)
    ]
    clients, planes = pd.DataFrame(rows, columns=CLIENTS), pd.DataFrame(points, columns=PLANES)
    return Explanation(tiny(), clients, planes, 10.0, {})


@pytest.mark.usefixtures("unrendered")
def test_bars_are_means_over_seeds_and_noisy_clients_stand_out() -> None:
    figures = dict(explained_figures(explained(["0", "1"])))
    norms = figures["importance"].numbers["norms"].set_index(["protocol", "client"])
    assert norms.loc[("a", 1), "mean"] == 2
    assert norms.loc[("a", 1), "high"] == pytest.approx(2 + 12.7062 * 2**0.5 / 2**0.5, rel=1e-5)
    axes = figures["importance"].axes
    assert [each.get_title(loc="left") for each in axes] == ["a", "b"]
    assert [bar.get_height() for bar in axes[0].patches] == [2, 4, 2]
    colors = [bar.get_facecolor() for bar in axes[0].patches]
    assert colors[0] == colors[1] != colors[2]
    assert figures["importance"].legends


@pytest.mark.usefixtures("unrendered")
def test_clients_that_lie_close_together_share_a_label() -> None:
    found = explained(["0"])
    clients = found.clients.assign(weight_norm=found.clients["client"].map({1: 1.0, 2: 9.0, 3: 1.01}), drop=0.1)
    figure = dict(explained_figures(replace(found, clients=clients)))["noisy_test"]
    assert {"1, 3", "2"} <= {text.get_text() for text in figure.axes[2].texts}


@pytest.mark.usefixtures("unrendered")
def test_without_noisy_clients_there_is_one_colour_and_no_legend() -> None:
    figure = dict(explained_figures(explained(["0"], noisy=False)))["importance"]
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 1
    assert not figure.legends


@pytest.mark.usefixtures("unrendered")
def test_noise_is_shown_beside_the_clean_metric_and_against_the_norm() -> None:
    figure = dict(explained_figures(explained(["0", "1"])))["noisy_test"]
    rho = figure.numbers["correlation"].set_index(["protocol", "seed"])["rho"]
    assert rho["a", 0] == 1
    assert rho["a", 1] == pytest.approx(0.5)
    assert np.isnan(rho["b", 0])
    above, _, below, _ = figure.axes
    np.testing.assert_allclose([bar.get_height() for bar in above.patches], [0.7, 0.65, 0.75])
    assert [list(line.get_ydata()) for line in above.lines if line.get_color() == CLEAN] == [[0.9, 0.9]]
    (points,) = (line for line in below.lines if line.get_marker() == "o")
    np.testing.assert_allclose(points.get_xydata(), [(2, 0.2), (4, 0.25), (2, 0.15)])
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"1", "2", "3", "Spearman's ρ = 0.75", "no rank correlation"} <= set(texts)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("labels", [["10", "9", "x"], [f"{i / 8:g}" for i in range(25)]], ids=["classes", "values"])
def test_planes_are_coloured_by_class_or_by_value(labels: list[str]) -> None:
    figure = dict(explained_figures(explained(labels)))["tsne"]
    titles = [axes.get_title(loc="left") for axes in figure.axes[:3]]
    assert titles == ["a: client-2", "a: client-1", "a: all clients"]
    classes = len(labels) == 3
    assert sum(len(each.get_offsets()) for each in figure.axes[0].collections) == len(labels)
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == (
        ["9", "10", "x"] if classes else []
    )
    assert len(figure.axes) == (3 if classes else 4)  # with the scale
    assert figure.png()


@pytest.mark.usefixtures("unrendered")
def test_without_planes_there_is_no_figure_of_them() -> None:
    found = explained(["0"])
    empty = replace(found, planes=pd.DataFrame())
    assert [name for name, _ in explained_figures(empty)] == ["importance", "noisy_test"]
