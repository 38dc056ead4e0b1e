"""Rounds of EASTER in time: a crash between its trips, and what its messages carry."""

from __future__ import annotations

from protocols_by_kind import KINDS
from tiny_worlds import events, rounds, run, tiny

from vflsim.codecs.frame import ONLY, frame_bytes


def test_a_client_that_crashes_between_the_trips_gets_the_global_embedding_again() -> None:
    intervals = {"kind": "intervals", "down": [["14 ms", "20 ms"]], "interrupted": "lost"}
    timing = {
        "server": {"compute": "1 ms", "link": {"latency": "1 ms"}},
        "clients": [
            {"select": "all", "compute": "5 ms"},
            {"select": "2", "upload_delay": "4 ms", "availability": intervals},
        ],
    }
    outcome = run(tiny({"it": KINDS["easter-clear"]}, timing=timing, stop={"rounds": 3}))
    first = events(outcome, "transfer.global_embedding")
    first = first[first["round"] == 0]
    assert sorted(first["peer"]) == ["client-1", "client-2", "client-2", "client-3", "client-4"]
    assert len(events(outcome, "compute.embed", "client-2")) == 1 + 3  # it begins the round anew
    assert len(rounds(outcome)) == 3


def test_messages_carry_embeddings_and_predictions() -> None:
    outcome = run(tiny({"it": KINDS["easter-clear"]}, stop={"rounds": 4}))
    sent = events(outcome)
    done = sent[sent["kind"].str.startswith("transfer.") & (sent["outcome"] == "done") & (sent["round"] == 1)]
    embedding, prediction = (frame_bytes((ONLY,)) + 20 * columns * 8 for columns in (6, 10))
    assert dict(zip(done["kind"], done["bytes"], strict=True)) == {
        "transfer.embedding": embedding,
        "transfer.global_embedding": embedding,
        "transfer.prediction": prediction,
        "transfer.gradient": prediction,
    }
