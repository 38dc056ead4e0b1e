"""A protocol's lead at equal virtual times: ``plots/fedvs_leads.py``."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from vflsim.errors import ResultsError
from vflsim.results import Results

leads = runpy.run_path(str(Path(__file__).parents[2] / "plots" / "fedvs_leads.py"))["leads"]


def last_values(results: Results, protocol: str, time: float) -> np.ndarray:
    frame = results.metrics.query("protocol == @protocol and time_s <= @time").dropna(subset="test_accuracy")
    return frame.groupby("seed")["test_accuracy"].last().to_numpy()


def test_a_lead_is_the_paired_difference_of_the_last_values_at_that_time(results: Results):
    (lead,) = [each for each in leads(results, "async", times=[7.5, 12.0]) if each.baseline == "wait"]
    assert lead.seeds == (0, 1, 2)
    for point, time in enumerate((7.5, 12.0)):
        gaps = last_values(results, "async", time) - last_values(results, "wait", time)
        low, high = stats.t.interval(0.95, len(gaps) - 1, gaps.mean(), stats.sem(gaps))
        assert lead.mean[point] == pytest.approx(gaps.mean())
        assert (lead.low[point], lead.high[point]) == (pytest.approx(low), pytest.approx(high))


def test_every_other_protocol_is_a_baseline_and_leads_have_opposite_signs(results: Results):
    found = leads(results, "async", times=[10.0])
    assert [lead.baseline for lead in found] == [name for name in results.protocols if name != "async"]
    for lead in found:
        (back,) = [each for each in leads(results, lead.baseline, times=[10.0]) if each.baseline == "async"]
        assert back.mean == pytest.approx(-lead.mean)
        assert (back.low, back.high) == (pytest.approx(-lead.high), pytest.approx(-lead.low))
        assert lead.share(1) == back.share(-1)


def test_without_times_it_is_all_evaluations_until_the_first_run_ends(results: Results):
    ends = results.metrics.groupby(["protocol", "seed"])["time_s"].max()
    for lead in leads(results, "async"):
        assert lead.time_s[-1] <= min(ends["async"].min(), ends[lead.baseline].min())
        assert np.all(np.diff(lead.time_s) > 0)
        assert set(lead.time_s) <= set(results.metrics.query("protocol == 'async'")["time_s"])


def test_an_unknown_protocol_or_metric_is_an_error(results: Results):
    with pytest.raises(ResultsError, match="'fedvs' has no finished run"):
        leads(results, "fedvs")
    with pytest.raises(ResultsError, match="'test_auc' was not evaluated"):
        leads(results, "async", "test_auc")
