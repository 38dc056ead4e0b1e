"""What the kernel's TCP does with uploads at once, against the simulation's `network: fair`.

A server and clients, each in a network namespace, joined in a star (`namespaces.py`). Token-bucket filters give every
link its rate: the server's, which all share, and each client's own. Uploads begin at one instant; the simulation gets
the instants at which they really began, and the bytes with all headers. Five worlds:

- `equal`: all links alike, plain TCP and TLS 1.3 with identities of `vflsim keys`, on connections that are kept;
- `slow`: the first client has a slow link of its own, and the others share what it leaves of the server's;
- `far`: as `equal`, with a latency that a process emulates (`packet_delay.py`), since slow start shows only there;
  the simulation has `transport: tcp`, and what went over a connection before;
- `stopped`: downloads to the clients but the first, alone; with the first, too; and with the first stopped (SIGSTOP);
- `parties`: live runs, each party a process of vflsim in its namespace, `--delays none`.

Tables have measured ÷ predicted, as medians and ranges over repeats. Needs Linux, iproute2 and util-linux; without
root it starts itself again in a user namespace (`unshare -rn`), where that is allowed.
Run: python benchmarks/kernel_network.py [--worlds NAME …] [--flows N …] [--sizes BYTES …] [--latencies S …]
[--repeats N] [--out FILE.json] [--from FILE.json …] [--figure FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from kernel_flows import Spans, Uploads, Way, on_wire, predicted, windowed
from kernel_parties import FRAME, played, scenario, simulated_round, transfers
from kernel_stopped import Downloads
from kernel_tables import draw, tables
from namespaces import NotAllowedError, Rates, Star
from packet_delay import Delay

from vflsim.remote.keys import make_identities

FAST, SLOW = Rates(40e6, 40e6), Rates(2e6, 40e6)
LATENCIES = (0.005, 0.03, 0.1)
"""Seconds that a message is under way in the world `far`, one way."""
WARM = 2_000_000
SIZES = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 8_000_000)
FAR_SIZES = (1_000, 4_000, 10_000, 64_000, 256_000, 1_024_000)
FLOWS = (1, 2, 4, 8)
WORLDS: dict[str, dict[str, Way]] = {
    "equal": {"TCP": Way(), "TLS": Way(tls=True)},
    "slow": {"TCP": Way()},
    "far": {
        "new": Way(new=True),
        "in use": Way(warm=WARM),
        "idle for 1 s": Way(warm=WARM, pause=1.0),
        "idle for 3 s": Way(warm=WARM, pause=3.0),
    },
}
PARTIES, STOPPED = "parties", "stopped"
STOPPED_SIZES = (256_000, 1_000_000, 4_000_000)
LARGEST = {"slow": 1_000_000, PARTIES: 1_000_000}
"""The largest messages of worlds that would take too long with larger ones."""
EVERY = [*WORLDS, STOPPED, PARTIES]
ROUNDS = 8
NOT_ALLOWED = "cannot be measured here"
_INSIDE = "VFLSIM_KERNEL_NETWORK_INSIDE"


def measured(world: str, flows: int, sizes: Sequence[int], repeats: int, identities: Path) -> Iterator[dict[str, Any]]:
    """Yield the uploads of a world: what was measured, and what is predicted."""
    rates = [FAST, SLOW if world == "slow" else FAST, *[FAST] * (flows - 1)]
    for name, way in WORLDS[world].items():
        with Star(rates) as star, Uploads(star, way, identities) as uploads:
            uploads.at_once([1_000] * flows)  # addresses are known from here on
            for size in sizes * repeats:
                spans = uploads.at_once([size] * flows)
                wire = on_wire(size, way.tls)
                said = predicted([begin for begin, _ in spans], [wire] * flows, rates)
                found = {"wire": wire, "spaces": star.numbers}
                yield {"world": world, "way": name, "flows": flows, "size": size, **pair(spans, said), **found}


def measured_far(
    flows: int, sizes: Sequence[int], latencies: Sequence[float], repeats: int, identities: Path
) -> Iterator[dict[str, Any]]:
    """Yield uploads over long ways: what was measured, and what is predicted with `transport: tcp`."""
    rates = [FAST] * (flows + 1)
    for latency, (name, way) in product(latencies, WORLDS["far"].items()):
        with Delay(latency / 2) as delay, Star(rates, join=delay.join) as star:
            delay.start()  # frames pass two devices of it: the client's and the server's
            with Uploads(star, way, identities) as uploads:
                uploads.at_once([1_000] * flows)  # addresses are known from here on
                for size in sizes * repeats:
                    spans = uploads.at_once([size] * flows)
                    begins = [begin for begin, _ in spans]
                    said = windowed(begins, size, way, uploads.gap, rates, latency)
                    found = {"latency": latency, "wire": on_wire(size, way.tls), "spaces": star.numbers}
                    yield {"world": "far", "way": name, "flows": flows, "size": size, **pair(spans, said), **found}


def measured_stopped(flows: int, sizes: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """Yield downloads to all clients but the first: alone, with one to the first, and while the first is stopped."""
    rates, others = [FAST] * (flows + 1), range(2, flows + 1)
    with Star(rates) as star, Downloads(star) as downloads:
        downloads.at_once(range(1, flows + 1), 1_000)
        for size in sizes * repeats:
            ways = {
                "without it": downloads.at_once(others, size),
                "with it": downloads.at_once(range(1, flows + 1), size)[1:],
                "it is stopped": downloads.at_once(others, size, stopped=1),
            }
            for way, seconds in ways.items():
                many = flows if way == "with it" else flows - 1
                said = predicted([0.0] * many, [on_wire(size, tls=False)] * many, rates, down=True)
                ends = [end for _, end in said][: flows - 1]
                found = {"measured": seconds, "predicted": ends, "spaces": star.numbers}
                yield {"world": STOPPED, "way": way, "flows": flows, "size": size, **found}


def measured_parties(flows: int, sizes: Sequence[int], identities: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the messages of live runs, and their rounds."""
    rates, said = [FAST] * (flows + 1), scenario(flows, sizes, ROUNDS)
    with Star(rates) as star:
        results = played(star, said, identities, folder / f"{flows}")
    for size, run in zip(sizes, results.runs, strict=True):
        common = {"world": PARTIES, "flows": flows, "size": size}
        for way, spans, weights in transfers(run):
            wires = [on_wire(FRAME + weight, tls=True) for weight in weights]
            told = predicted([begin for begin, _ in spans], wires, rates, down=way == "down")
            yield {**common, "way": way, **pair(spans, told), "wire": wires[0]}
        simulated = simulated_round(said, run.protocol, rates, folder / f"{flows}-{size}")
        lasted = [float(each) for each in run.round_durations()[1:-1]]
        yield {**common, "way": "round", "measured": lasted, "predicted": [simulated] * len(lasted)}


def pair(spans: Spans, said: Spans) -> dict[str, list[float]]:
    """Return how long each transfer took, and how long it takes by the simulation, from the first beginning (s)."""
    first = min(begin for begin, _ in spans)
    return {"measured": [end - first for _, end in spans], "predicted": [end - first for _, end in said]}


def measure(chosen: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure all that is asked for and allowed here; print a line for each star, and what is not allowed."""
    identities, found = folder / "identities", list[dict[str, Any]]()
    make_identities(identities, max(chosen.flows))
    for world in chosen.worlds:
        sizes = [size for size in chosen.sizes or SIZES if size <= LARGEST.get(world, size)]
        for flows in chosen.flows:
            if world in ("slow", STOPPED) and flows == 1:
                continue  # it has nothing to share
            if world == PARTIES:
                rows = measured_parties(flows, sizes, identities, folder)
            elif world == STOPPED:
                rows = measured_stopped(flows, chosen.sizes or STOPPED_SIZES, chosen.repeats)
            elif world == "far":
                rows = measured_far(flows, chosen.sizes or FAR_SIZES, chosen.latencies, chosen.repeats, identities)
            else:
                rows = measured(world, flows, sizes, chosen.repeats, identities)
            try:
                found += [{**row, "load": os.getloadavg()[0]} for row in rows]
            except NotAllowedError as error:
                print(f"{world} {NOT_ALLOWED}: {error}", file=sys.stderr)
                break
            print(f"{world}, {flows} flows; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(found), "utf-8")
    return found


def as_root() -> None:
    """Start this script again as the root of a user namespace, unless it is root; end it where that is not allowed."""
    if os.geteuid() == 0:
        return
    unshare = shutil.which("unshare")
    if unshare is None or _INSIDE in os.environ:
        sys.exit(f"everything {NOT_ALLOWED}: not root, and no unshare that makes a user namespace")
    os.execve(unshare, [unshare, "-rn", sys.executable, *sys.argv], {**os.environ, _INSIDE: "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=EVERY, default=EVERY, metavar="NAME")
    parser.add_argument("--flows", nargs="+", type=int, default=FLOWS, metavar="N")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="BYTES")
    parser.add_argument("--latencies", nargs="+", type=float, default=LATENCIES, metavar="S")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep what was measured in this file")
    parser.add_argument("--from", dest="kept", nargs="+", type=Path, help="measure nothing: take what --out has kept")
    parser.add_argument("--figure", type=Path, help="draw measured ÷ predicted into this file")
    chosen = parser.parse_args()
    if chosen.kept is None:
        as_root()
        with tempfile.TemporaryDirectory() as folder:
            found = measure(chosen, Path(folder))
        if not found:
            sys.exit(1)
    else:
        found = [row for file in chosen.kept for row in json.loads(file.read_text("utf-8"))]
    print("\n".join(tables(found)))
    if chosen.figure is not None:
        draw(found, chosen.figure)


if __name__ == "__main__":
    main()
