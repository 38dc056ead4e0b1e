"""Coded answers to queries: every client waits for the shares of all, and any R replies decode the sum of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_worlds import metrics, raw, run, tiny

from vflsim.codecs import Plain
from vflsim.codecs.frame import ONLY, Envelope
from vflsim.errors import ScenarioError
from vflsim.scenario import load

DELAYS = [0.0, 0.010, 0.030, 0.080]
ROWS, COLUMNS, WIDTH, BATCH, CLIENTS = 60, 17, 6, 20, 4
"""Three queries of 60 rows; 16 pixels and a constant at each client."""
LINK = {"up": "8 Mbps", "down": "8 Mbps", "latency": "1 ms"}
CODED = {"kind": "fedvs", "share_delay_factor": 0.5}


def timing(**of_client_2: object) -> dict:
    said = [{"select": str(m), "upload_delay": delay} for m, delay in enumerate(DELAYS, 1) if delay]
    everybody = {"select": "all", "compute": "2 ms", "link": LINK}
    return {"network": "dedicated", "server": {"link": LINK}, "clients": [everybody, *said, *(
        [{"select": "2", **of_client_2}] if of_client_2 else []
    )]}  # fmt: skip


def passes(*shape: int) -> float:
    """Seconds on the way of a message with elements of the field of 31 bits: a microsecond for a byte, and latency."""
    tensors = {ONLY: torch.zeros(shape, dtype=torch.int32)} if shape else {}
    return 0.002 + 1e-6 * len(Plain().encode(Envelope("it", 0, 0), tensors))


def by_hand() -> list[float]:
    """When each reply is there: question, share, the last share of the others, coded embedding, delay, reply."""
    full = BATCH * COLUMNS * WIDTH  # an ordinary embedding of a batch takes 2 ms
    sharing = 0.002 * ROWS * COLUMNS * CLIENTS * np.log2(CLIENTS) ** 2 / full
    embedding = 0.002 * ROWS * WIDTH * CLIENTS * COLUMNS / full
    shared = [passes() + sharing + 0.5 * delay for delay in DELAYS]
    complete = [
        max([shared[n], *(shared[m] + passes(ROWS, COLUMNS) for m in range(CLIENTS) if m != n)]) for n in range(CLIENTS)
    ]
    return [complete[n] + embedding + DELAYS[n] + passes(ROWS, WIDTH) for n in range(CLIENTS)]


def test_replies_wait_for_every_share_and_answers_for_the_third_reply() -> None:
    third = sorted(by_hand())[2]
    deadlines = [third - 1e-6, third + 1e-6]
    scenario = tiny({"it": {**CODED, "K": 1}}, timing=timing(), evaluate={"deadline": deadlines, "query_rows": ROWS})
    outcome = run(scenario)
    arrivals, found = (outcome.extra[name].to_pandas() for name in ("arrivals", "answers"))
    np.testing.assert_allclose(arrivals["arrival_s"], by_hand() * 3, rtol=1e-9)
    np.testing.assert_allclose(found["answer_s_max"], [deadlines[0], third, third], rtol=1e-9)
    assert found["replies_mean"].tolist() == [2, 3, 4]
    assert found["embeddings_mean"].tolist() == [0, 4, 4]
    assert found["complete"].tolist() == [0, 1, 1]
    last = metrics(outcome).iloc[-1]
    assert found["test_loss"].tolist()[1:] == pytest.approx([last["test_loss"]] * 2, rel=1e-12)


def test_no_coded_reply_comes_once_a_client_is_down_for_good() -> None:
    """Client 2 pauses for ever in the second query."""
    away = {"availability": {"kind": "intervals", "down": [[0.17, "inf"]], "interrupted": "resumed"}}
    evaluate = {"deadline": "1 s", "query_rows": ROWS}
    outcome = run(tiny({"it": {**CODED, "K": 1}}, timing=timing(**away), evaluate=evaluate, stop={"rounds": 1}))
    arrivals = outcome.extra["arrivals"].to_pandas().pivot(index="query", columns="client", values="arrival_s")
    assert max(by_hand()) < 0.17 < 2 * min(by_hand())
    assert arrivals.notna().all(axis=1).tolist() == [True, False, False]
    assert arrivals.loc[2].isna().all()


def test_a_client_that_loses_its_work_is_refused() -> None:
    away = {"availability": {"kind": "intervals", "down": [[1, 2]], "interrupted": "lost"}}
    said = raw({"it": {**CODED, "K": 1}}, timing=timing(**away), evaluate={"deadline": "1 s"})
    with pytest.raises(ScenarioError, match="protocol 'it' cannot answer while client 2 loses its work") as caught:
        load(said)
    assert "evaluate.deadline" in str(caught.value)
    assert "its peers compute on shares of the query's rows from every client" in str(caught.value)
