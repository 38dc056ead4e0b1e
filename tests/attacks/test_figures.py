"""Figures of attacks: what they draw is what the tables have."""

from __future__ import annotations

import pandas as pd
import pytest
from attacked_runs import finished

from vflsim.attacks import Evaluation, chosen, evaluate
from vflsim.attacks.evaluate import attack_figures


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    entries = {name: {"kind": name} for name in ("synchronous", "asynchronous")}
    results = finished(entries, tmp_path_factory.mktemp("drawn") / "study", seeds=[0, 1, 2])
    options = ["pgd.omega=1,2", "pgd.step=1", "pgd.steps=2", "smoothing.samples=50", "smoothing.rows=18"]
    return evaluate(results, chosen(["pgd", "smoothing"], options))


def test_there_is_a_figure_for_every_attack_with_its_means(evaluation: Evaluation) -> None:
    made = dict(attack_figures(evaluation))
    assert list(made) == ["pgd", "smoothing"]
    means = made["pgd"].numbers["means"]
    table = evaluation.tables["pgd"]
    own = table.query("protocol == 'asynchronous' and omega == 2 and measure == 'success'")
    drawn = means.query("protocol == 'asynchronous' and omega == 2 and measure == 'success'").iloc[0]
    assert drawn["n"] == 3
    assert drawn["mean"] == pytest.approx(own["value"].mean())
    assert drawn["chance"] == pytest.approx(own["chance"].mean())
    (axes,) = made["pgd"].axes
    heights = sorted(bar.get_height() for bar in axes.patches)
    assert heights == pytest.approx(sorted(means.query("measure == 'success'")["mean"]))
    assert len(made["smoothing"].axes) == 2


def test_equal_evaluations_give_equal_figures(evaluation: Evaluation) -> None:
    first, again = (dict(attack_figures(evaluation)) for _ in range(2))
    assert first["pgd"].png() == again["pgd"].png()
    pd.testing.assert_frame_equal(first["smoothing"].numbers["means"], again["smoothing"].numbers["means"])
