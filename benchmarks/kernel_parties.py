"""The real parties of a live run inside the namespaces of a star, and what the simulation says of their uploads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from kernel_flows import HEADERS, PACKET, RECORD, SEAL, Spans
from namespaces import SERVER, Rates, Star

import vflsim
from vflsim.cli.live import NO_DELAYS
from vflsim.streams import party_name

Direction = Literal["up", "down"]
BATCH = 64
PORT = 7_000
FRAME = 25
"""Bytes in front of a message of the protocol on its connection (`docs/live.md`)."""
WITHIN_S = 300.0


def scenario(clients: int, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return a scenario whose protocols upload some ``sizes`` bytes from every client in every round."""
    sgd = {"kind": "sgd", "lr": 0.01}
    return {
        "name": "parties",
        "data": {"name": "digits"},
        "partition": {"clients": clients},
        "models": {
            "client": {"kind": "linear", "embedding": 1},
            "aggregate": "mean",
            "server": {"kind": "linear", "bias": False},
        },
        "training": {"batch": BATCH, "client_optimizer": sgd, "server_optimizer": sgd},
        "protocols": {
            f"bytes_{size}": {
                "kind": "synchronous",
                "models": {"client": {"kind": "linear", "embedding": max(1, size // (4 * BATCH))}},
            }
            for size in sizes
        },
        "stop": {"rounds": rounds},
        "evaluate": {"every": "1000000 rounds"},
        "record": "events",
    }


def played(star: Star, said: dict[str, Any], identities: Path, folder: Path) -> Any:
    """Play a scenario live, each party in its namespace, with no delays but the network's; return the results.

    Raises ``subprocess.SubprocessError`` if a party fails, or does not end in time.
    """
    folder.mkdir()
    file, address, parts = folder / "scenario.json", f"{star.address(SERVER)}:{PORT}", folder / "parts"
    file.write_text(json.dumps(said), "utf-8")
    clients = range(1, len(star.rates))
    common = ["--parts", str(parts), "--timeout", "60"]
    server = ["live", str(file), "--listen", address, "--out", str(folder / "run"), "--delays", "none", "--no-report"]
    words = {SERVER: server} | {
        client: ["party", str(file), "--party", str(client), "--connect", address, "--set", NO_DELAYS]
        for client in clients
    }
    with ExitStack() as undo:
        running = {}
        for party, said_words in words.items():
            identity = ["--identity", str(identities / party_name(party))]
            command = star.parties[party].command(sys.executable, "-m", "vflsim", *said_words, *common, *identity)
            output = undo.enter_context((folder / f"{party_name(party)}.txt").open("w"))
            running[party] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
            undo.callback(running[party].wait)
            undo.callback(running[party].kill)
        for party, process in running.items():
            if process.wait(WITHIN_S):
                said_last = (folder / f"{party_name(party)}.txt").read_text("utf-8")[-2_000:]
                raise subprocess.CalledProcessError(process.returncode, process.args, said_last)
    return vflsim.open_results(folder / "run")


def transfers(run: Any) -> Iterator[tuple[Direction, Spans, list[int]]]:
    """Yield the messages of each round but the first and the last: which way, when they began and ended, their bytes.

    An upload is from the end of its client's computation to its arrival at the server, a download from the end of the
    server's computation until its client begins the next one; as `vflsim calibrate` has them. In the order of clients.
    """
    events = run.table("events").to_pandas()
    by_kind = {kind: rows.set_index(["index", "party"]).sort_index() for kind, rows in events.groupby("kind")}
    sizes = by_kind["transfer.embedding"]["bytes"]
    for number in range(1, int(sizes.index.levels[0].max())):

        def column(kind: str, what: str, number: int = number) -> list[float]:
            return [float(each) for each in by_kind[kind].loc[number, what]]

        weights = [int(each) for each in sizes.loc[number]]
        yield (
            "up",
            [*zip(column("compute.embed", "end_s"), column("transfer.embedding", "end_s"), strict=True)],
            weights,
        )
        begins = column("compute.server_step", "end_s") * len(weights)
        yield "down", [*zip(begins, column("compute.client_step", "start_s"), strict=True)], weights


def simulated_round(said: dict[str, Any], name: str, rates: Sequence[Rates], folder: Path) -> float:
    """Return the mean round (s) by `network: fair` with what the rates leave to messages; computations take no time."""
    left = PACKET / (PACKET + HEADERS) * RECORD / (RECORD + SEAL)
    server, *clients = ({"up": left * each.up, "down": left * each.down} for each in rates)
    timing = {
        "network": "fair",
        "server": {"link": server},
        "clients": [{"select": number, "link": link} for number, link in enumerate(clients, 1)],
    }
    loaded = vflsim.load({**said, "timing": timing, "protocols": {name: said["protocols"][name]}, "record": "rounds"})
    (run,) = vflsim.run(loaded, folder, timing_only=True, progress=False).runs
    return float(run.round_durations().mean())
