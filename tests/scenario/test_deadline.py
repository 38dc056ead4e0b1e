"""``evaluate.deadline``: what it may be, and who is told at load time that it cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from tiny_worlds import raw, tiny

from vflsim.errors import ScenarioError
from vflsim.protocol import Learners, ServerPrediction, Synchronous, split_prediction
from vflsim.protocols import PROTOCOLS
from vflsim.protocols.capabilities import answering_of
from vflsim.scenario import dump, load
from vflsim.scenario.resolve import run_text

TWO = {"reference": {"kind": "centralised"}, "wait": {"kind": "synchronous"}}
NOISE = {"kind": "gaussian", "clip": 1, "delta": 1e-5, "noise_multiplier": 1}


class Doubled(Synchronous):
    """Predicts in a way of its own."""

    kind: Literal["doubled"] = "doubled"  # type: ignore[assignment]

    def prediction(self, learners: Learners[Any, Any]) -> ServerPrediction:
        plain = split_prediction(learners)
        return ServerPrediction(lambda embeddings: 2 * plain.predict(embeddings), plain.own, plain.modules)


def refusal(folder: Path, protocols: Any, **evaluate: Any) -> str:
    """What is said about a scenario file, whose name becomes ``it``."""
    file = folder / "it.yaml"
    file.write_text(json.dumps(raw(protocols, evaluate=evaluate), indent=1))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    said = str(caught.value).replace(str(file), "it")
    line = int(said.split(":")[1])
    key = said.split(":")[2].split(".")[-1].strip()
    around = file.read_text().splitlines()[line - 1]
    assert key.isdigit() or f'"{key}"' in around, (said, around)
    return said


def test_a_deadline_is_a_duration_or_several_in_ascending_order() -> None:
    one, many = (tiny(evaluate={"deadline": each}) for each in ("50 ms", ["1 s", "10 ms", 0.2]))
    assert one.evaluate.deadline == (0.05,)
    assert many.evaluate.deadline == (0.01, 0.2, 1.0)
    assert (one.evaluate.missing, one.evaluate.query_rows) == ("absent", None)
    assert load(dump(many)) == many


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        ({"deadline": []}, "evaluate.deadline: too few entries"),
        ({"deadline": "-5 ms"}, "evaluate.deadline: '-5 ms' = -0.005 is out of range"),
        ({"deadline": ["5 ms", "5 parsecs"]}, "evaluate.deadline.1: the unit 'parsecs'"),
        ({"deadline": ["5 ms", 0.005]}, "evaluate.deadline: a deadline is given twice"),
        ({"deadline": "5 ms", "missing": "median"}, "evaluate.missing: 'median' is not one of the allowed words"),
        ({"deadline": "5 ms", "query_rows": 0}, "evaluate.query_rows: 0 is out of range"),
        ({"missing": "zeros"}, "evaluate.missing: missing says how queries are answered, and there is no deadline"),
        ({"query_rows": 8}, "evaluate.query_rows: query_rows says how queries are answered"),
    ],
)
def test_nonsense_is_refused_at_its_line(tmp_path: Path, evaluate: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, "synchronous", **evaluate)


def test_protocols_that_cannot_answer_are_refused_with_the_reason(tmp_path: Path) -> None:
    said = refusal(tmp_path, TWO, deadline="50 ms")
    assert "protocol 'reference' cannot answer under a deadline: all features are at the server" in said
    assert "remedy: give 'reference' its own `evaluate: {deadline: null}`" in said
    spared = {**TWO, "reference": {"kind": "centralised", "evaluate": {"deadline": None}}}
    scenario = tiny(spared, evaluate={"deadline": "50 ms", "missing": "mean"})
    assert [scenario.evaluate_of(name).deadline for name in spared] == [None, (0.05,)]


def test_only_protocols_without_uploads_cannot_answer() -> None:
    cannot = set()
    for each in PROTOCOLS:
        try:
            answering_of(each.model_construct())
        except ValueError:
            cannot.add(each.model_fields["kind"].default)
    assert cannot == {"centralised", "he_lr", "local", "secureboost"}


def test_mean_embeddings_of_training_rows_do_not_pass_a_mechanism_by(tmp_path: Path) -> None:
    private = {"it": {"kind": "synchronous", "mechanism": NOISE}}
    said = refusal(tmp_path, private, deadline="50 ms", missing="mean")
    assert "evaluate.missing: mean embeddings of training rows would leave the clients of 'it'" in said
    assert tiny(private, evaluate={"deadline": "50 ms", "missing": "zeros"}).evaluate.missing == "zeros"


def test_a_protocol_with_a_prediction_of_its_own_says_how_it_answers() -> None:
    with pytest.raises(ValueError, match="does not say how from some of the embeddings; allowed: protocols derived"):
        answering_of(Doubled())


def test_runs_depend_on_deadlines_of_their_own_alone() -> None:
    plain, asked = tiny(TWO), tiny({**TWO, "wait": {"kind": "synchronous", "evaluate": {"deadline": "50 ms"}}})
    assert run_text(plain, "reference") == run_text(asked, "reference")
    assert run_text(plain, "wait") != run_text(asked, "wait")
