"""Compressors in whole runs: batched = eager, interrupted = whole, bytes as written, and more bits learn better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kept_runs import assert_interruptions_change_no_byte
from thorough import in_turn
from tiny_worlds import EAGER, RANDOM_TIMING, apart, events, metrics, raw, run, same_times, same_weights

from vflsim.codecs import CODECS
from vflsim.codecs.frame import ONLY, Spec
from vflsim.scenario import load
from vflsim.scenario.models import Scenario

COMPRESSORS: dict[str, dict[str, Any]] = {
    "scalar": {"kind": "scalar_quantiser", "bits": 5},
    "stochastic": {"kind": "scalar_quantiser", "bits": 5, "dither": "non_subtractive", "error_feedback": True},
    "vector": {"kind": "vector_quantiser", "bits": 4},
    "top_k": {"kind": "top_k", "fraction": 0.5},
    "by_direction": {
        "kind": "by_direction",
        "up": {"kind": "scalar_quantiser", "bits": 3, "error_feedback": True},
        "down": {"kind": "vector_quantiser", "bits": 5},
    },
    "round": {"kind": "round"},
    "round, saturating": {"kind": "round", "gradients": True, "noise": {"epsilon": 0.02}},
    "binarise": {"kind": "binarise"},
    "float16": {"kind": "float16"},
    "bfloat16": {"kind": "bfloat16"},
    "feedback": {"kind": "top_k", "fraction": 0.5, "error_feedback": True},
}
every = pytest.mark.parametrize("codec", COMPRESSORS.values(), ids=COMPRESSORS)
PROTOCOLS = {"synchronous": {"kind": "synchronous"}, "asynchronous": {"kind": "asynchronous"}}


def scenario_of(protocol: str, codec: dict[str, Any] | str, **more: Any) -> Scenario:
    said = {"timing": RANDOM_TIMING, "stop": {"rounds": 7}, "evaluate": {"every": "3 rounds"}, **more}
    return load(raw({"it": PROTOCOLS[protocol]}, codec=codec, **said))


def test_every_compressor_is_tried() -> None:
    change_nothing = {"plain", "paillier", "ckks"}
    assert {said["kind"] for said in COMPRESSORS.values()} | change_nothing == {
        codec.model_fields["kind"].default for codec in CODECS
    }


@pytest.mark.sampled(2)
@in_turn(codec=COMPRESSORS, protocol=[*PROTOCOLS])
def test_clients_computed_together_learn_what_they_learn_one_by_one(protocol: str, codec: dict[str, Any]) -> None:
    scenario = scenario_of(protocol, codec)
    batched, eager = run(scenario), run(scenario, execution=EAGER)
    assert same_times(batched, eager)
    assert apart(batched, eager) <= 1e-9
    assert batched.info.codec == eager.info.codec


@pytest.mark.sampled(2)
@every
def test_interrupted_runs_write_the_bytes_of_whole_ones(codec: dict[str, Any], tmp_path: Path) -> None:
    scenario = scenario_of("synchronous", codec)
    assert_interruptions_change_no_byte(scenario, tmp_path)


@pytest.mark.sampled(5)
@every
def test_messages_weigh_what_the_codec_writes(codec: dict[str, Any]) -> None:
    scenario = scenario_of("synchronous", codec, training__batch=20)
    found = events(run(scenario), "transfer.embedding")
    spec = {ONLY: Spec((20, 6), scenario.training.torch_dtype)}
    assert found["bytes"].max() == scenario.codec.size_of(spec) < load(raw(PROTOCOLS)).codec.size_of(spec)


def test_how_often_a_run_is_evaluated_changes_no_dither() -> None:
    often, seldom = (
        run(scenario_of("synchronous", COMPRESSORS["scalar"], evaluate={"every": every}))
        for every in ("1 rounds", "7 rounds")
    )
    assert same_weights(often, seldom)


def test_finer_quantisers_learn_what_plain_messages_do() -> None:
    plain = run(scenario_of("synchronous", "plain"))
    far = [
        apart(plain, run(scenario_of("synchronous", {"kind": "scalar_quantiser", "bits": bits}))) for bits in (2, 8, 16)
    ]
    assert far[0] > 4 * far[1] > 4 * far[2] > 0
    assert metrics(plain)["train_loss"].iloc[-1] < metrics(plain)["train_loss"].iloc[1]


def test_each_direction_has_its_own_codec() -> None:
    """Bytes up are those of one codec, bytes down those of the other; the vectorised path counts the same."""
    up, down = COMPRESSORS["scalar"], COMPRESSORS["top_k"]
    found = {}
    for name, codec in {"up": up, "down": down, "both": {"kind": "by_direction", "up": up, "down": down}}.items():
        outcome = run(scenario_of("synchronous", codec, evaluate={"every": "7 rounds"}))
        found[name] = metrics(outcome)[["bytes_up", "bytes_down"]].iloc[-1]
    assert found["both"]["bytes_up"] == found["up"]["bytes_up"] != found["down"]["bytes_up"]
    assert found["both"]["bytes_down"] == found["down"]["bytes_down"] != found["up"]["bytes_down"]


def test_one_direction_can_be_left_exact() -> None:
    """Embeddings and gradients: both change training, each alone less."""
    codec = {"kind": "scalar_quantiser", "bits": 2, "dither": "none"}
    plain, both = (run(scenario_of("synchronous", each)) for each in ("plain", codec))
    for direction in ("up", "down"):
        alone = run(scenario_of("synchronous", {"kind": "by_direction", direction: codec}))
        assert apart(plain, alone) > 1e-4
        assert apart(both, alone) > 1e-4
