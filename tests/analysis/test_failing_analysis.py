"""An analysis that fails never takes a run with it: the results stand, and the closed form is left out for a reason."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from closed_forms_of import found
from swept import run_sweep
from tiny_worlds import raw, tiny

import vflsim
from vflsim.analysis.findings import ClosedForm
from vflsim.protocols import base
from vflsim.results.store.closed_forms import LeftOut, read_closed_forms, read_left_out
from vflsim.scenario import load
from vflsim.studies.checks import rounds as analysis
from vflsim.studies.runs.progress import Watcher
from vflsim.studies.study import run_study
from vflsim.studies.sweep import SweepWatcher
from vflsim.timing.delays import Exponential
from vflsim.timing.delays.base import OfDelay
from vflsim.timing.laws.law import Law, Point
from vflsim.timing.laws.order import maximum, order_statistic
from vflsim.vocabulary.execution_options import RunOptions

PROTOCOLS = {"wait": {"kind": "synchronous"}, "async": {"kind": "asynchronous"}}
DEFECT = r"its computation failed \(IndexError: index -1 is out of bounds, test_failing_analysis.py:\d+\); "


def world(**changes: Any) -> Any:
    return tiny(PROTOCOLS, **{"stop": {"rounds": 3}, "evaluate": {"every": "3 rounds"}, **changes})


@pytest.fixture(autouse=True)
def _analysed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vflsim.studies.pool.closed_forms", analysis.closed_forms)


def defect(*_: object, **__: object) -> Any:
    raise IndexError("index -1 is out of bounds")


def break_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed forms of ``wait`` cannot be made."""
    monkeypatch.setattr(base, "lockstep_law", defect)


def break_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be made, but their numbers cannot be had."""
    broken = ClosedForm("round duration", "s", (), tuple, Broken())
    monkeypatch.setattr(base, "lockstep_law", lambda *_: (broken,))


def break_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers can be had, but not their curves."""
    curves_of = analysis.curves_of
    monkeypatch.setattr(analysis, "curves_of", lambda name, f: defect() if name == "wait" else curves_of(name, f))


class Broken(Law):
    """A law with no numbers."""

    support = (0.0, 1.0)
    cdf = expectation = defect


class Told(Watcher):
    """What is said about failed analyses."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def failed_analysis(self, left_out: Sequence[LeftOut]) -> None:
        self.said += map(str, left_out)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("broken", [break_laws, break_means, break_curves])
@pytest.mark.parametrize("resume", [False, True], ids=["run", "resume"])
def test_an_analysis_that_fails_leaves_the_results_and_says_why(
    broken: Callable[[pytest.MonkeyPatch], None], resume: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken(monkeypatch)
    told = Told()
    for again in [False, True] if resume else [False]:
        study = run_study(world(), tmp_path, timing_only=True, watcher=told, options=RunOptions.of(resume=again))
        assert study.failures == {}
        assert {run.info.status for run in study.results.runs} == {"finished"}
        assert (tmp_path / "summary.md").is_file()
    table = study.results.closed_forms_left_out
    row = table[table["failed"]].iloc[0]
    assert (row["protocol"], row["quantity"]) == ("wait", "round duration")
    assert re.match(DEFECT, row["reason"])
    assert [text.startswith("wait: round duration: its computation failed") for text in told.said] == [True] * (
        1 + resume
    )


def test_other_closed_forms_stay_beside_one_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    protocols = {**PROTOCOLS, "t": {"kind": "t_synchronous", "t": 2, "cancel": True}}
    timing = {"clients": {"select": "all", "upload_delay": {"kind": "exponential", "mean": "5 ms"}}}
    break_curves(monkeypatch)
    run_study(
        tiny(protocols, timing=timing, stop={"rounds": 3}, evaluate={"every": "3 rounds"}), tmp_path, timing_only=True
    )
    frame = read_closed_forms(tmp_path)
    assert frame is not None
    assert set(frame["protocol"]) == {"async", "t"}
    assert [each.protocol for each in read_left_out(tmp_path)] == ["wait"]


def test_a_sweep_goes_on_where_an_analysis_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_laws(monkeypatch)
    told = Told()

    class Sweeping(SweepWatcher):
        def watching(self, step: object) -> Any:
            return told

    done = run_sweep(
        world().document.raw, "training.batch", [20, 30], out=tmp_path, timing_only=True, watcher=Sweeping()
    )
    assert done.failures == {}
    assert len(done.sweep.results) == 2
    assert len(told.said) == 2


def test_reasons_that_are_no_failures_are_kept_too(tmp_path: Path) -> None:
    told = Told()
    some = tiny({"drop": {"kind": "ignore", "fastest": 2}}, stop={"rounds": 3}, evaluate={"every": "3 rounds"})
    results = run_study(some, tmp_path, timing_only=True, watcher=told).results
    assert told.said == []
    (row,) = results.closed_forms_left_out.to_dict("records")
    assert row["protocol"] == "drop"
    assert "before it joins again" in row["reason"]
    assert not row["failed"]
    assert results.closed_forms is not None
    assert results.closed_forms.empty


def test_run_and_analyze_say_which_closed_form_failed(
    vflsim: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(json.dumps(world().document.raw))
    break_means(monkeypatch)
    ran = vflsim("run", path, "--timing-only", "--out", tmp_path / "out")
    assert ran.status == 0
    assert "warning: left out of the closed forms: wait: round duration: its computation failed (IndexError" in ran.out
    analysed = vflsim("analyze", path)
    assert analysed.status == 0
    assert "round duration: none: its computation failed (IndexError: index -1 is out of bounds" in analysed.out
    assert "async" in analysed.out


# --- the crash that was ---------------------------------------------------------------------------------------------


def test_as_many_constant_uploads_as_a_round_waits_for_are_a_constant() -> None:
    """Three of four clients upload at once, and R = 3."""
    slow = {"select": "4", "upload_delay": {"kind": "exponential", "mean": "1 s"}}
    some = load(
        raw(
            {"it": {"kind": "fedvs", "K": 1}}, timing={"clients": [slow]}, partition__clients=4
        )
    )  # fmt: skip
    assert found(some, "3rd of 4 uploads").law == Point(0.0)
    assert found(some).mean.low > 0


def test_constants_decide_an_order_statistic_whatever_the_others_are() -> None:
    random = OfDelay(Exponential(mean=1.0))
    assert order_statistic([Point(0.0)] * 3 + [random], 3) == Point(0.0)
    assert maximum([Point(0.0), random]).expectation() == pytest.approx(1.0)


def test_vflsim_run_returns_results_whose_analysis_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    break_laws(monkeypatch)
    results = vflsim.run(world(), tmp_path, timing_only=True)
    assert len(results.runs) == 2
