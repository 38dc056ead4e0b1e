"""``vflsim.check``: the estimates of the command, as a frame."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended
from tiny_worlds import raw

import vflsim
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
