"""A lossy codec of the user's own in whole runs: batched = eager, killed = never killed, bytes as written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_worlds import raw

import vflsim

INT8 = {"kind": "module", "path": "int8_codec:Int8", "step": 0.01}
FEEDBACK = {"kind": "module", "path": "int8_codec:Int8Feedback", "step": 0.01}
PROTOCOLS = {
    "synchronous": {"kind": "synchronous"},
    "t_synchronous": {"kind": "t_synchronous", "t": 2},
    "asynchronous": {"kind": "asynchronous"},
}


@pytest.mark.slow
def test_a_lossy_codec_quarters_the_payload_and_changes_what_is_learnt(tmp_path: Path) -> None:
    plain, lossy = (
        vflsim.run(raw(PROTOCOLS, stop={"rounds": 5}, **more), out=tmp_path / name)
        for name, more in (("plain", {}), ("lossy", {"codec": INT8}))
    )
    for protocol in PROTOCOLS:
        one, other = (results.run(protocol, 0).table("metrics").to_pandas() for results in (plain, lossy))
        assert other["bytes_up"].iloc[-1] < one["bytes_up"].iloc[-1]
        assert other["train_loss"].iloc[-1] != one["train_loss"].iloc[-1]
        assert other["train_loss"].iloc[-1] == pytest.approx(one["train_loss"].iloc[-1], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [INT8, FEEDBACK], ids=["int8", "feedback"])
def test_clients_computed_together_learn_what_they_learn_one_by_one_through_a_lossy_codec(
    codec: dict[str, object], tmp_path: Path
) -> None:
    scenario = raw(PROTOCOLS, stop={"rounds": 6}, codec=codec, training__dtype="float64")
    batched, eager = (vflsim.run(scenario, out=tmp_path / str(how), eager=how) for how in (False, True))
    for protocol in PROTOCOLS:
        one, other = (results.run(protocol, 0).table("metrics").to_pandas() for results in (batched, eager))
        assert one["train_loss"].to_numpy() == pytest.approx(other["train_loss"].to_numpy(), abs=1e-9, nan_ok=True)
        assert one["bytes_up"].tolist() == other["bytes_up"].tolist()
