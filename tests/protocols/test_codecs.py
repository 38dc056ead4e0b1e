"""Every protocol through codecs of whole numbers and of half precision; where one cannot apply, it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_paths import assert_same_bytes
from closed_forms_of import found
from protocols_by_kind import KINDS, SOME
from thorough import in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, apart, data_of, metrics, raw, rounds, run, same_times, tiny

import vflsim
from vflsim.errors import ScenarioError
from vflsim.results.tables import comparison_table
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.scenario.sections import Recording
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.simulation.vectorised import obstacles

SILENT = {"centralised", "local"}
"""They send nothing."""
INTEGERS = {name for name, said in KINDS.items() if said["kind"] in ("fedvs", "he_lr", "secureboost")}
"""Their uploads are elements of a field, or the bytes of ciphertexts."""
BLINDED = {"synchronous-blinded", "ignore-blinded"}
"""Blinded embeddings are all that goes up."""
NOISY = {"kind": "round", "noise": {"epsilon": 0.02}}


def scenario_of(name: str, codec: Any, **changes: Any) -> Scenario:
    said: dict[str, Any] = {"timing": RANDOM_TIMING, "stop": {"rounds": 7}, "evaluate": {"every": "7 rounds"}}
    return load(raw({"it": {**KINDS[name], "codec": codec}}, **{**said, **changes}))


def counted(outcome: Outcome) -> int:
    return 0 if outcome.info.codec is None else outcome.info.codec.elements


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in SOME if name not in INTEGERS | BLINDED])
def test_whole_numbers_train_every_protocol_batched_as_eager(name: str) -> None:
    scenario = scenario_of(name, "round")
    batched, eager = run(scenario), run(scenario, execution=EAGER)
    assert same_times(batched, eager)
    assert apart(batched, eager) <= 1e-9
    assert batched.info.codec == eager.info.codec
    assert bool(counted(batched)) == (name not in SILENT)
    if name not in SILENT:
        assert apart(batched, run(scenario_of(name, "plain"))) > 1e-6


@pytest.mark.sampled(2)
@in_turn(
    name=["fedbcd-sequential", "ef_vfl", "vimadmm", "fdml", "easter", "pyvertical"],
    codec=["binarise", "float16", "bfloat16"],
)
def test_so_do_signs_and_half_precision(name: str, codec: str) -> None:
    outcome = run(scenario_of(name, codec))
    plain = run(scenario_of(name, "plain"))
    assert apart(outcome, plain) > 1e-6
    one, other = (metrics(each)[["bytes_up", "bytes_down"]].iloc[-1] for each in (outcome, plain))
    assert one["bytes_up"] < other["bytes_up"]
    passed_on = name == "ef_vfl"  # others' differences come down as they went up
    assert (one["bytes_down"] < other["bytes_down"]) == (codec != "binarise" or passed_on)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("codec", ["round", "binarise", "float16", {"kind": "scalar_quantiser", "bits": 4}])
@pytest.mark.parametrize("name", sorted(INTEGERS))
def test_elements_of_a_field_refuse_every_codec_of_uploads(name: str, codec: Any) -> None:
    with pytest.raises(
        ScenarioError, match=r"(?s)codec.*upload (elements of a field|ciphertexts).*allowed: plain.*'it' `codec: plain`"
    ):
        scenario_of(name, codec)


@pytest.mark.parametrize("name", sorted(BLINDED))
def test_blinded_embeddings_refuse_a_codec_for_uploads_alone(name: str) -> None:
    with pytest.raises(ScenarioError, match=r"(?s)round is for what goes up.*integers.*allowed: plain"):
        scenario_of(name, "round")
    assert counted(run(scenario_of(name, {"kind": "round", "gradients": True}))) > 0


def test_a_codec_of_the_scenario_leaves_out_the_entries_that_are_plain() -> None:
    protocols = {"wait": {"kind": "synchronous"}, "coded": KINDS["fedvs"], "reference": {"kind": "centralised"}}
    with pytest.raises(ScenarioError, match="give 'coded' `codec: plain`"):
        tiny(protocols, codec="round")
    scenario = tiny({**protocols, "coded": {**KINDS["fedvs"], "codec": "plain"}}, codec="round")
    assert (scenario.codec_of("coded").kind, scenario.codec_of("wait").kind) == ("plain", "round")
    with pytest.raises(ValueError, match="elements of a field"):
        scenario.with_protocols({"more": scenario.protocols["coded"].protocol})
    down = scenario_of("fedvs", {"kind": "by_direction", "down": "float16"})
    assert counted(run(down)) > 0
    assert apart(run(down), run(scenario_of("fedvs", "plain"))) > 1e-9


def test_blinded_runs_are_evaluated_as_they_train_without_the_codec() -> None:
    """The codec changes the gradients. Where nothing has been trained yet, it changes nothing."""
    one, other = (
        metrics(run(scenario_of("synchronous-blinded", codec)))["test_loss"]
        for codec in ("plain", {"kind": "scalar_quantiser", "bits": 1})
    )
    assert one.iloc[0] == other.iloc[0]
    assert one.iloc[-1] != other.iloc[-1]


# --- results --------------------------------------------------------------------------------------------------------


def test_results_say_how_much_saturated_and_what_noise_guarantees(tmp_path: Path) -> None:
    protocols = {
        "wait": {"kind": "synchronous"},
        "round": {"kind": "synchronous", "codec": "round"},
        "noisy": {"kind": "synchronous", "codec": NOISY},
    }
    results = vflsim.run(raw(protocols, stop={"rounds": 9}, training__batch=20), tmp_path / "results", workers=1)
    files = {name: tmp_path / "results" / name / "seed-0" / "run.json" for name in protocols}
    found = {name: json.loads(file.read_text())["codec"] for name, file in files.items()}
    assert found["wait"] is None
    sent = metrics_of(results, "round")
    assert found["round"] == {"kind": "round", "elements": sent, "saturated": 0, "parties": {}, "promise": ""}
    noisy = found["noisy"]
    assert noisy["elements"] == sent
    assert sum(noisy["parties"].values()) == noisy["saturated"]
    expected = np.exp(-0.02 * 127.5)  # the noise is large beside the embeddings
    assert noisy["saturated"] / sent == pytest.approx(expected, abs=4 * np.sqrt(expected / sent))
    assert "leaves 1.0 % of whole numbers" in noisy["promise"]
    assert "in 6 elements" in noisy["promise"]
    mine = ("noisy: latent", "noisy, seed")
    promise, share = (note for note in comparison_table(results).notes if note.startswith(mine))
    assert promise == f"noisy: {noisy['promise']}."
    said = f"{noisy['saturated']:,} of {sent:,} elements saturated (round): client-1 {noisy['parties']['client-1']}"
    assert share.startswith(f"noisy, seed 0: {said}")


def metrics_of(results: Any, name: str) -> int:
    """The elements uploaded in a run through int8: its bytes without the headers."""
    table = results.run(name, 0).table("events").to_pandas()
    up = table[(table["kind"] == "transfer.embedding") & (table["peer"] == "server")]
    return int((up["bytes"] - 60).sum())


# --- what is known without a run ------------------------------------------------------------------------------------

SLOW = {"up": "0.5 Mbps", "down": "0.4 Mbps"}
TIMED: dict[str, Any] = {
    "network": "dedicated",
    "server": {"compute": "1 ms", "link": {}},
    "clients": {"select": "all", "compute": "2 ms", "link": SLOW},
}
"""Nothing random, and links so slow that the bytes decide."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("synchronous", "round"),
        ("synchronous", {"kind": "round", "gradients": True}),
        ("easter-clear", "binarise"),
        ("c_vfl", "round"),
        ("fdml", "float16"),
        ("fedvs", {"kind": "by_direction", "down": "float16"}),
    ],
)
def test_closed_forms_and_the_vectorised_path_charge_each_direction_its_bytes(name: str, codec: Any) -> None:
    scenario = scenario_of(name, codec, timing=TIMED, training__last_batch="drop", stop={"rounds": 6})
    steps = rounds(run_protocol(scenario, "it", 0, data_of(scenario), timing_only=True))
    lasted = float((steps["end_s"] - steps["start_s"]).iloc[-1])
    mean = found(scenario).mean
    assert mean.low * (1 - 1e-9) <= lasted <= mean.high * (1 + 1e-9)
    if found(scenario).exactness == "exact":
        assert mean.low == pytest.approx(lasted)
    plain = found(scenario_of(name, "plain", timing=TIMED, training__last_batch="drop", stop={"rounds": 6})).mean
    assert mean.low < plain.low
    kept = scenario.model_copy(update={"record": Recording(tables="rounds")})
    if not obstacles(kept, "it"):
        assert_same_bytes(kept)
