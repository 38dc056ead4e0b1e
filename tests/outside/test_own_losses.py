"""A loss is one class, of vflsim or by path: every protocol trains on it, but those whose derivation knows another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kept_runs import assert_interruptions_change_no_byte
from own_mistakes import assert_refused_with_file_line_and_remedy, entry
from tiny_worlds import metrics, run, same_weights, tiny

from vflsim.errors import ScenarioError
from vflsim.learning.tasks import Focal
from vflsim.scenario.resolve import run_text
from vflsim.studies.checks.data import read_and_check

HEADS = {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "wait": {"kind": "synchronous"},
    "async": {"kind": "asynchronous"},
    "alone": {"kind": "centralised"},
    "every": {"kind": "easter"},
    "local": {"kind": "fedbcd", "local_steps": 2},
    "sgd": {"kind": "vimsgd", "models": HEADS},
    "coded": {"kind": "fedvs", "K": 1, "T": 1},
}


def own(path: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "module", "path": f"own_losses:{path}", **keys}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_trains_on_the_loss_that_the_scenario_names(name: str) -> None:
    said = {"models__server": {"kind": "linear"}, "stop": {"rounds": 4}}
    usual = run(tiny({name: PROTOCOLS[name]}, **said), name)
    same = run(tiny({name: PROTOCOLS[name]}, training__loss=own("Entropy"), **said), name)
    other = run(tiny({name: PROTOCOLS[name]}, training__loss=own("Margin"), **said), name)
    assert same_weights(usual, same)
    assert metrics(usual).equals(metrics(same))
    assert not same_weights(usual, other)


def test_the_metric_loss_is_the_one_that_is_trained_on() -> None:
    begin = [
        metrics(run(tiny("synchronous", training__loss=loss, stop={"rounds": 1})))["test_loss"].iloc[0]
        for loss in ("cross_entropy", {"kind": "focal", "gamma": 0}, {"kind": "focal", "gamma": 1}, own("Margin"))
    ]
    assert begin[0] == pytest.approx(begin[1], rel=1e-12)
    assert begin[2] < begin[0]
    assert len({round(value, 6) for value in begin}) == 3


def test_focal_loss_is_the_formula_of_the_paper() -> None:
    draw = torch.Generator().manual_seed(3)
    logits, classes = torch.randn(9, 4, generator=draw, dtype=torch.float64), torch.arange(9) % 4
    p = torch.softmax(logits, 1)[torch.arange(9), classes]
    torch.testing.assert_close(Focal(gamma=2).value(logits, classes), (-((1 - p) ** 2) * p.log()).mean())
    yes, truth = logits[:, :1], (classes % 2)[:, None].double()
    q = torch.where(truth > 0.5, yes.sigmoid(), 1 - yes.sigmoid())
    torch.testing.assert_close(Focal(gamma=3).value(yes, truth), (-((1 - q) ** 3) * q.log()).mean())
    torch.testing.assert_close(Focal(gamma=0).value(logits, classes), F.cross_entropy(logits, classes))


def test_protocols_may_have_losses_of_their_own() -> None:
    protocols = {
        "one": {"kind": "synchronous"},
        "two": {"kind": "synchronous", "training": {"loss": own("Margin", width=2)}},
    }
    scenario = tiny(protocols, stop={"rounds": 2})
    assert not same_weights(run(scenario, "one"), run(scenario, "two"))
    assert "own_losses" in run_text(scenario, "two")
    assert "own_losses" not in run_text(scenario, "one")


def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    scenario = tiny("asynchronous", training__loss=own("Margin"), stop={"rounds": 20})
    assert_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.parametrize("kind", ["vimadmm", "vimadmm_j"])
def test_admm_refuses_losses_whose_minimum_it_does_not_know(kind: str) -> None:
    entry = {"kind": kind, "rho": 1, "local_steps": 2, "models": HEADS}
    tiny({"admm": entry}, training__loss="cross_entropy")
    with pytest.raises(ScenarioError, match=r"training\.loss: the z-step of vimadmm(.|\n)*allowed: auto") as caught:
        tiny({"admm": entry}, training__loss=own("Margin"))
    assert "give this protocol" in str(caught.value)
    tiny({"admm": {**entry, "training": {"loss": "auto"}}}, training__loss=own("Margin"))


def test_a_loss_is_tried_out_on_as_many_rows_as_a_run_has() -> None:
    """That of 20 rows, the scenario's batch, is no number, while those of 24 rows and of one are."""
    read_and_check(tiny("synchronous", training__loss=own("PerRowOf", rows=7)))
    scenario = tiny("synchronous", training__loss=own("PerRowOf", rows=20))
    with pytest.raises(
        ScenarioError, match=r"PerRowOf\.value returned a Tensor of shape \(20,\), torch\.float64 for 20 rows"
    ) as caught:
        read_and_check(scenario)
    assert "a tensor without dimensions: the mean over the rows" in str(caught.value)
    assert "training.loss" in str(caught.value)


WRONG = {
    "Total": (r"Total\.value is .* for random predictions of a multiclass task, and the mean of that of", "value"),
    "PerRow": (r"PerRow\.value returned a Tensor of shape \(24,\)(.|\n)*without dimensions", "value"),
    "Number": (r"Number\.value returned a float(.|\n)*a tensor without dimensions", "value"),
    "Counts": (r"Counts\.value does not depend on the predictions(.|\n)*differentiable", "value"),
    "Below": (r"Below\.value is -\d.* for random predictions(.|\n)*at least 0", "value"),
    "Random": (r"Random\.value draws from PyTorch's global generator(.|\n)*no random numbers", "value"),
    "Writes": (r"Writes\.value changes what it is given(.|\n)*copy it", "value"),
    "Infinite": (r"Infinite\.value is inf(.|\n)*finite", "value"),
    "NoTask": (r"NoTask\.tasks is \('clustering',\)(.|\n)*multiclass, binary, regression", "tasks"),
    "Double": (r"Double\.value has the dtype torch\.float64(.|\n)*float32", "value"),
    "Margin, width: -1": (r"width: -1 is out of range", "width"),
    "Margin, slope: 1": (r"there is no key 'slope'", "width"),
    "torch": (r"is a value of type module but no Loss(.|\n)*derive it from", "Loss"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_loss_is_told_with_file_line_and_remedy(name: str, tmp_path: Path) -> None:
    section = ["training:", "  batch: 20", f"  loss: {entry('own_losses', name)}"]
    assert_refused_with_file_line_and_remedy(tmp_path, section, "training.loss", WRONG[name])


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("huber", r"the loss huber does not fit a multiclass task(.|\n)*auto, cross_entropy, focal"),
        ("hinge", r"there is no kind 'hinge'(.|\n)*auto, cross_entropy"),
        (3, r"training\.loss"),
    ],
)
def test_a_loss_of_another_task_is_refused(loss: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        tiny("synchronous", training__loss=loss)
