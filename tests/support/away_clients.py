"""A client that is away again and again: what every protocol that waits for all must show."""

from __future__ import annotations

from typing import Any

from tiny_worlds import RANDOM_TIMING, events, metrics, raw, rounds, run

from vflsim.scenario import load
from vflsim.simulation.run import Outcome


def assert_outages_delay_rounds_and_training_continues(
    protocol: dict[str, Any], interrupt: str, period: str = "60 ms", **changes: Any
) -> Outcome:
    """Return the run of 40 rounds in which client 2 is away for 10 ms in every ``period``; ``run`` verifies it."""
    intervals = {"kind": "intervals", "down": [["3 ms", "13 ms"]], "period": period, "interrupted": interrupt}
    clients = [*RANDOM_TIMING["clients"], {"select": "2", "availability": intervals}]
    said = raw({"it": protocol}, stop={"rounds": 40}, evaluate={"every": "20 rounds"}, **changes)
    plain = run(load({**said, "timing": RANDOM_TIMING}))
    outcome = run(load({**said, "timing": {**RANDOM_TIMING, "clients": clients}}))
    assert len(rounds(outcome)) == 40
    assert rounds(outcome)["end_s"].iloc[-1] > rounds(plain)["end_s"].iloc[-1]
    losses = metrics(outcome)["train_loss"]
    assert losses.iloc[2] < losses.iloc[1]
    assert bool((events(outcome, party="client-2")["outcome"] == "lost").any()) is (interrupt == "lost")
    return outcome
