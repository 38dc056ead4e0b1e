"""The data of charts: enough to be read off, however long the runs are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vflsim.reporting import figures
from vflsim.results import Results


@pytest.fixture
def results(toy_folder: Path) -> Results:
    return Results.open(toy_folder)


def test_a_timeline_has_the_first_activities_of_every_protocol_and_says_until_when(results: Results) -> None:
    whole, short = figures.timeline(results), figures.timeline(results, share=0.01)
    assert whole is not None
    assert short is not None
    most = int(0.01 * figures.SPANS) // len(short["panels"])
    for full, cut in zip(whole["panels"], short["panels"], strict=True):
        assert len(cut["start"]) == min(most, len(full["start"]))
        assert cut["start"] == full["start"][: len(cut["start"])]
        if len(cut["start"]) < len(full["start"]):
            assert cut["until"] == pytest.approx(full["start"][len(cut["start"])])
        assert all(step <= cut["until"] for step in cut["steps"])
        assert max(cut["party"]) < len(cut["parties"])
    assert whole["panels"][0]["until"] == whole["panels"][0]["end"]


@pytest.mark.usefixtures("unrendered")
def test_curves_keep_their_values_where_points_are_left_out(results: Results) -> None:
    whole, short = figures.curves(results, {}), figures.curves(results, {}, share=0.0)
    assert whole is not None
    assert short is not None
    assert (whole["metric"], whole["targets"]) == ("test accuracy", [0.9])
    for name, axis in whole["axes"].items():
        fewer = short["axes"][name]
        assert len(fewer["x"]) <= 20
        assert {*fewer["x"]} <= {*axis["x"]}
        places = np.searchsorted(axis["x"], fewer["x"])
        for protocol, own in fewer["series"].items():
            assert own["mean"] == [axis["series"][protocol]["mean"][place] for place in places]


def test_texts_in_data_cannot_end_their_script_element() -> None:
    text = "</script><!--\u2028"
    written = figures.embedded({"name": text})
    assert "<" not in written
    assert json.loads(written) == {"name": text}
