"""A client is killed after a computation, and another process takes its place: the run ends as if undisturbed."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from fault_plans import LONG_S, Played
from safetensors import SafetensorError, safe_open
from tiny_worlds import EAGER, run

from vflsim.results.verify import verify_run
from vflsim.scenario import load

ROUNDS, AFTER = 5, 3
UPLOAD = {"upload_delay": "1.2 s"}
"""How long client 2 waits before an upload: meanwhile it is killed."""


def computed(file: Path) -> int:
    """How often client 2 has embedded a batch, by the files that it keeps."""
    with suppress(OSError, SafetensorError), safe_open(file, "pt") as held:
        draws = json.loads(held.metadata()["counts"])["draws"]
        return sum(int(draws.get(f"compute.{each}", 0)) for each in ("embed", "coded_embed"))
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["synchronous", "synchronous-blinded", "easter", "ef_vfl-private", "fedvs"])
def test_a_client_killed_before_its_upload_leaves_no_trace_in_the_weights(protocol: str, tmp_path: Path) -> None:
    clients = 3 if protocol == "fedvs" else 2
    played = Played(tmp_path / "run", protocol, (2,), slow=UPLOAD, rounds=ROUNDS, clients=clients)
    file = played.file.parent / "parts" / "it" / "seed-0" / "client-2.kept.safetensors"

    def strike() -> None:
        until = time.monotonic() + LONG_S
        while computed(file) < AFTER and time.monotonic() < until:
            time.sleep(0.01)
        played.send(2, signal.SIGKILL)
        played.start(2)

    striking = threading.Thread(target=strike)
    try:
        outcome = played.run(lambda _: True, striking.start)
        striking.join()
        assert outcome.error is None, f"{outcome.error}\n{played.said(2)}"
        assert outcome.info.counts["rounds"] == ROUNDS
        assert verify_run(outcome.tables, outcome.info) == []
        played.end()
        assert played.statuses(2) == [-signal.SIGKILL, 0], played.said(2)
        wanted = run(load(json.loads(played.file.read_text())), execution=EAGER).weights
        assert outcome.weights.keys() == wanted.keys()
        assert all(torch.equal(outcome.weights[key], wanted[key]) for key in wanted)
    finally:
        played.kill()
