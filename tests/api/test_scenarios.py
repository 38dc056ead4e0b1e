"""``vflsim.check`` and ``vflsim.analyze``: the answers of the commands, as frames."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from command_line import Ended
from tiny_worlds import raw

import vflsim
from vflsim.analysis.findings import ClosedForm, Simulated
from vflsim.errors import DataError, ScenarioError

SAID = raw(
    {"wait": {"kind": "synchronous"}, "first": {"kind": "t_synchronous", "t": 2}}, seeds=[0, 1, 2], stop={"rounds": 12}
)


def test_a_quick_check_has_sizes_and_virtual_times() -> None:
    found = vflsim.check(SAID, quick=True)
    assert found.runs == 6
    frame = found.frame.set_index("protocol")
    assert frame.loc["wait", "rounds"] == 12
    assert frame.loc["wait", "step_s"] > frame.loc["first", "step_s"] > 0
    assert frame.loc["wait", "kind"] == "synchronous"
    assert math.isnan(frame.loc["wait", "run_s"])
    assert "<table" in found._repr_html_()


def test_it_says_what_the_command_says(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    import vflsim as package

    (tmp_path / "it.yaml").write_text(json.dumps(SAID))
    printed = vflsim("check", tmp_path / "it.yaml", "--quick", "--protocol", "first")
    assert printed.status == 0
    found = package.check(tmp_path / "it.yaml", protocols=["first"], quick=True)
    assert found.frame["protocol"].tolist() == ["first"]
    assert f"{found.frame['parameters'][0]:,}" in printed.out
    assert all(note.split(":")[0] in printed.out for note in found.table.notes)


@pytest.mark.slow
def test_a_full_check_predicts_real_time() -> None:
    found = vflsim.check(SAID)
    assert found.speeds is not None
    assert (found.frame["run_s"] > 0).all()


def test_mistakes_are_those_of_a_run() -> None:
    with pytest.raises(ScenarioError, match="batch"):
        vflsim.check(SAID, ["training.batch=-1"])
    with pytest.raises(DataError):
        vflsim.check({**SAID, "data": {"file": "nowhere.csv", "label": "y"}})


EXPONENTIAL: dict[str, Any] = {"clients": [{"select": "all", "upload_delay": {"kind": "exponential", "mean": "3 s"}}]}
"""Nothing but an upload takes time: a round of three clients is the largest of three exponential times."""


def said(timing: dict[str, Any] = EXPONENTIAL, **protocols: Any) -> dict[str, Any]:
    return raw(protocols or {"wait": {"kind": "synchronous"}}, timing=timing, partition={"clients": 3, "by": "columns"})


def test_a_law_is_an_object_with_numbers_and_a_formula() -> None:
    form = vflsim.analyze(said())["wait"].round
    assert isinstance(form, ClosedForm)
    assert form.mean.low == pytest.approx(3 * (1 + 1 / 2 + 1 / 3))
    assert form.law is not None
    x = np.array([0.5, 2.0, 9.0])
    np.testing.assert_allclose(form.law.cdf(x), (1 - np.exp(-x / 3)) ** 3, atol=1e-12)
    assert form.quantile(0.5) is not None
    assert all(isinstance(formula.right, sympy.Basic) for formula in form.formulas())


def test_the_frame_has_the_numbers_of_the_command(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    import vflsim as package

    scenario = said(wait={"kind": "synchronous"}, first={"kind": "t_synchronous", "t": 2})
    (tmp_path / "it.yaml").write_text(json.dumps(scenario))
    printed = vflsim("analyze", tmp_path / "it.yaml")
    assert printed.status == 0
    found = package.analyze(scenario)
    assert [*found] == ["wait", "first"]
    for row in found.frame.itertuples():
        for number in filter(np.isfinite, (row.mean, row.p50) if row.known == "exact" else ()):
            assert f"{number:.5g}" in printed.out
    assert np.isfinite(found.frame["p50"]).sum() >= 2
    assert found.latex == vflsim("analyze", tmp_path / "it.yaml", "--latex").out.rstrip("\n")


def test_some_protocols_are_analysed_alone_and_others_are_named() -> None:
    scenario = said(wait={"kind": "synchronous"}, first={"kind": "t_synchronous", "t": 2})
    assert [*vflsim.analyze(scenario, protocols=["first"])] == ["first"]
    with pytest.raises(ScenarioError, match="there is no protocol 'frist'") as caught:
        vflsim.analyze(scenario, protocols=["frist"])
    assert "first" in caught.value.remedy


def test_overrides_apply_to_loaded_scenarios_too() -> None:
    slower = ['timing.clients=[{"select": "all", "upload_delay": {"kind": "exponential", "mean": "6 s"}}]']
    one = vflsim.analyze(vflsim.load(said()), slower)["wait"].round
    assert isinstance(one, ClosedForm)
    assert one.mean.low == pytest.approx(11.0)


def test_what_has_no_closed_form_says_why() -> None:
    outages = {"kind": "alternating", "up": "5 s", "down": "1 s", "interrupted": "lost"}
    timing = {"clients": [{**EXPONENTIAL["clients"][0], "availability": outages}]}
    found = vflsim.analyze(said(timing))
    none = found["wait"].round
    assert isinstance(none, Simulated)
    assert "not always available" in none.reason
    assert found.frame["reason"].tolist() == [none.reason]
    assert "<table" in found._repr_html_()
    with pytest.raises(ScenarioError, match="no protocol's round has a distribution"):
        found.figure()


def test_the_figure_draws_laws_and_names_those_without() -> None:
    protocols = {"wait": {"kind": "synchronous"}, "free": {"kind": "asynchronous"}}
    unlike = {"select": "all", "upload_delay": {"kind": "exponential", "mean": "(3*m) s"}}
    figure = vflsim.analyze(said({"server": {"compute": "1 ms"}, "clients": [unlike]}, **protocols)).figure()
    drawn = figure.numbers["closed_form"]
    assert set(drawn["protocol"]) == {"wait"}
    upload = np.maximum(drawn["seconds"].to_numpy() - 0.001, 0)
    over = np.prod([1 - np.exp(-upload / (3 * m)) for m in (1, 2, 3)], 0)
    np.testing.assert_allclose(drawn["lower"], over, atol=1e-9)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("no distribution: free" in text for text in texts), texts


def test_choices_are_those_of_the_protocol() -> None:
    found = vflsim.analyze(said(coded={"kind": "fedvs", "K": 1}, wait={"kind": "synchronous"}))
    assert "K" in [table.key for table in found.choices("coded")]
    assert found.choices("wait") == ()
