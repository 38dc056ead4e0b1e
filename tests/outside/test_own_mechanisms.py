"""A mechanism by path: noise as the built-in one's of the same size, an ε of its own, and tried out at load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kept_runs import assert_interruptions_change_no_byte
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from tiny_worlds import metrics, raw, run, same_weights, tiny

import vflsim
from vflsim.errors import ScenarioError

KEYS = {"clip": 1, "multiplier": 0.2, "delta": 1e-5}
OWN: dict[str, Any] = {"kind": "module", "path": "own_mechanisms:Normal", **KEYS}
BUILT_IN = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.2, "delta": 1e-5}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["synchronous", "asynchronous", "t_synchronous"])
def test_it_does_what_the_built_in_one_of_the_same_noise_does(kind: str) -> None:
    more = {"t": 2} if kind == "t_synchronous" else {}
    mine, built_in, plain = (
        run(tiny({"it": {"kind": kind, **more, **mechanism}}), "it")
        for mechanism in ({"mechanism": OWN}, {"mechanism": BUILT_IN}, {})
    )
    assert same_weights(mine, built_in)
    assert not same_weights(mine, plain)
    assert metrics(mine).drop(columns="epsilon").equals(metrics(built_in).drop(columns="epsilon"))


def test_run_json_tells_its_guarantee_and_its_class(tmp_path: Path) -> None:
    scenario = vflsim.load(raw({"it": {"kind": "synchronous", "mechanism": OWN}}))
    results = vflsim.run(scenario, out=tmp_path / "out")
    said = json.loads((tmp_path / "out/it/seed-0/run.json").read_text())["privacy"]
    assert said["mechanism"] == "normal"
    assert said["accountant"] == "own_mechanisms:Normal"
    assert said["clip"] is None
    assert said["mu_run"] is None
    assert said["noise_multiplier"] == pytest.approx(0.2)
    assert said["epsilon_run"] == pytest.approx(said["releases"] * said["epsilon_release"])
    assert said["epsilon_run"] == results.metrics["epsilon"].iloc[-1]
    assert "ε = " in (tmp_path / "out/summary.md").read_text()


def test_stop_epsilon_uses_its_epsilon() -> None:
    scenario = tiny({"it": {"kind": "synchronous", "mechanism": OWN}}, stop={"rounds": 50, "epsilon": 100})
    outcome = run(scenario, "it")
    assert outcome.info.stop_reason == "epsilon"
    assert outcome.info.privacy is not None
    assert 0 < outcome.info.privacy.epsilon_run <= 100


def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    scenario = tiny({"asynchronous": {"kind": "asynchronous", "mechanism": OWN}}, stop={"rounds": 20})
    assert_interruptions_change_no_byte(scenario, tmp_path)


def test_protocols_without_uploads_to_protect_refuse_it() -> None:
    with pytest.raises(ScenarioError, match="upload no embeddings that noise could protect"):
        tiny({"it": {"kind": "centralised", "mechanism": OWN}})


WRONG = {
    "Mixing": (r"Mixing\.bounded gives a row other values among other rows(.|\n)*each row by itself", "bounded"),
    "Far": (r"two bounded rows of Far are .* apart, and sensitivity is 2", "bounded"),
    "Other": (r"Other\.bounded returned a Tensor of shape \(16,\), torch\.float64(.|\n)*shape \(16, 5\)", "bounded"),
    "Quiet": (r"draws of Quiet\.noise have the standard deviation 0\.\d+(.|\n)*sigma, 0\.4", "noise"),
    "Drawing": (r"Drawing\.noise draws from PyTorch's global generator for the same bits", "noise"),
    "Flat": (r"Flat\.noise returned a Tensor of shape \(\d+,\), torch\.float64", "noise"),
    "Forgetful": (r"Forgetful\.spent falls to 5 with 2 releases", "spent"),
    "Eager": (r"Eager\.epsilon_after is 1 for no release(.|\n)*0", "epsilon_after"),
    "Silent": (r"Silent\.promise returned ''(.|\n)*in words", "promise"),
    "Unbounded": (r"Unbounded\.sensitivity is inf(.|\n)*above 0", "sensitivity"),
    "Normal, clip: 0": (r"mechanism\.clip: 0 is out of range", "clip"),
    "torch": (r"is a value of type module but no Mechanism(.|\n)*derive it from", "Mechanism"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_mechanism_is_told_with_file_line_and_remedy(name: str, tmp_path: Path) -> None:
    keys = [f"{key}: {value}" for key, value in KEYS.items() if f", {key}: " not in name]
    mechanism = f"    mechanism: {entry('own_mechanisms', name, *keys)}"
    section = ["protocols:", "  it:", "    kind: synchronous", mechanism]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "protocols.it.mechanism", WRONG[name])
