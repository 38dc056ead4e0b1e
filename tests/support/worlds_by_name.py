"""Worlds for rounds of any protocol, by name: delays, links, batches, outages, energy, and where a run ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tiny_worlds import RANDOM_TIMING

_FOLDER = Path(tempfile.mkdtemp(prefix="vflsim-worlds-"))
atexit.register(shutil.rmtree, _FOLDER)
np.save(_FOLDER / "measured.npy", np.random.default_rng(1).gamma(2.0, 0.002, 40))
np.savetxt(_FOLDER / "latencies.csv", np.arange(25).reshape(5, 5) / 1000, delimiter=",")


def _exponential(mean: str) -> dict[str, Any]:
    return {"kind": "exponential", "mean": mean}


DELAYS: dict[str, dict[str, Any]] = {
    "constant": {"value": "4 ms"},
    "exponential": {"mean": "(5*m) ms"},
    "shifted_exponential": {"shift": "1 ms", "mean": "3 ms"},
    "uniform": {"low": 0, "high": "9 ms"},
    "normal": {"mean": "4 ms", "sd": "3 ms"},
    "lognormal": {"median": "3 ms", "sigma": 0.8},
    "gamma": {"shape": 2, "mean": "4 ms"},
    "weibull": {"shape": 0.7, "scale": "3 ms"},
    "pareto": {"shape": 1.5, "minimum": "2 ms"},
    "hyper_exponential": {"probabilities": [0.9, 0.1], "means": ["1 ms", "30 ms"]},
    "mixture": {"weights": [3, 1], "parts": ["2 ms", _exponential("20 ms")]},
    "sum": {"parts": ["2 ms", _exponential("3 ms")]},
    "maximum": {"parts": [_exponential("3 ms"), {"kind": "uniform", "low": 0, "high": "5 ms"}]},
    "empirical": {"file": str(_FOLDER / "measured.npy")},
}
"""One of each kind that is drawn by index."""
JITTER = {"kind": "flops", "rate": "1 MFLOPS", "jitter": {"kind": "lognormal", "median": 1, "sigma": 0.3}}
BOTH_WAYS = {"up": "3 Mbps", "down": "5 Mbps"}
ENERGY = {"idle": "2 W", "compute": "6 W", "radio": "1.2 W", "per_byte": "0.1 uJ", "per_flop": "50 nJ"}
SLOW = {"server": {"compute": "1 s"}, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m s"}}
"""Nothing random: whole seconds, and links that take no time."""
WIDTHS = [
    {"select": "all", "kind": "linear", "embedding": 6},
    {"select": "2", "kind": "mlp", "hidden": [4], "embedding": 6},
]


def _timing(
    everybody: dict[str, Any], server: dict[str, Any] | str = "1 ms", *some: dict[str, Any], **more: Any
) -> Any:
    server = {"compute": server} if isinstance(server, str) else server
    return {"server": server, "clients": [{"select": "all", **everybody}, *some], **more}


def _of(kind: str) -> dict[str, Any]:
    """Computation, delay and latency of a kind at all clients, and at some of them something else."""
    law = {"kind": kind, **DELAYS[kind]}
    some = {"select": "2..3", "compute": "2 ms", "upload_delay": _exponential("(2*m) ms")}
    server = {"compute": law if "(" not in str(law) else "1 ms", "link": {"latency": "1 ms"}}
    return {"timing": _timing({"compute": law, "upload_delay": law, "link": {"latency": law}}, server, some)}


SQUARES = {**SLOW, "clients": {"select": "all", "compute": "2 s", "upload_delay": "m*m s"}}
RANDOM = {"timing": RANDOM_TIMING}
TWO_SIZES = _timing(
    {"compute": {"kind": "flops", "rate": "1 MFLOPS"}, "upload_delay": _exponential("3 ms"), "link": {"up": "3 Mbps"}},
    {"compute": {"kind": "flops", "rate": "2 MFLOPS"}, "link": {"down": "9 Mbps"}},
    {"select": "2..3", "compute": JITTER},
)
DRAWN_LINK = {**BOTH_WAYS, "latency": _exponential("1 ms")}
CODEC = {"kind": "by_direction", "up": {"kind": "top_k", "fraction": 0.3}, "down": {"kind": "float16"}}
LATENCIES = {"kind": "dedicated", "latency": {"file": str(_FOLDER / "latencies.csv")}}
PAUSED = {"kind": "alternating", "up": _exponential("60 ms"), "down": _exponential("9 ms"), "interrupted": "resumed"}
DAILY = {"kind": "intervals", "down": [[0, "2 ms"], ["31 ms", "40 ms"]], "period": "90 ms", "interrupted": "resumed"}
ONCE = {"kind": "failure", "at": _exponential("50 ms"), "repair": "20 ms", "interrupted": "resumed"}
DRAWN = {"compute": _exponential("2 ms"), "upload_delay": _exponential("4 ms"), "link": BOTH_WAYS}
METERED = {**DRAWN, "compute": JITTER, "power": ENERGY}
SHARED, ALIKE = {"up": "4 Mbps", "down": "5 Mbps"}, {"up": "2 Mbps", "down": "2 Mbps", "latency": "1 ms"}
OWN = {"up": "(1 + m/2) Mbps", "down": "(9/m) Mbps", "latency": _exponential("1 ms")}
WORLDS: dict[str, dict[str, Any]] = {
    "whole seconds": {"timing": SLOW, "stop": {"rounds": 12}, "evaluate": {"every": "1 s"}},
    **{
        f"an end at {seconds} s": {"timing": SLOW, "stop": {"time": f"{seconds} s"}, "evaluate": {"every": "1 s"}}
        for seconds in (5, 7, 9, 12, 14, 16, 23, 25)
    },
    **{
        f"squares to {seconds} s": {"timing": SQUARES, "stop": {"time": f"{seconds} s"}, "evaluate": {"every": "1 s"}}
        for seconds in (5, 9, 23, 40)
    },
    "two rules at one instant": {"timing": SLOW, "stop": {"rounds": 3, "time": "25 s"}},
    "one rule just before": {"timing": SLOW, "stop": {"rounds": 4, "time": "25 s"}},
    "an update in a round": {"timing": SLOW, "stop": {"updates": 5, "rounds": 9}, "evaluate": {"every": "4 updates"}},
    "ties": {
        "timing": _timing({"compute": "2 s", "upload_delay": "3 s"}, "1 s"),
        "stop": {"rounds": 80},
        "evaluate": {"every": "3 s"},
    },
    "only the server": {"timing": {"server": {"compute": "1 s"}}, "stop": {"epochs": 2}},
    "only the server, in time": {"timing": {"server": {"compute": "1 s"}}, "stop": {"time": "20 s"}},
    "rounds": {**RANDOM, "stop": {"rounds": 12}, "evaluate": {"every": "5 rounds"}},
    "time": {**RANDOM, "stop": {"time": "0.3 s"}, "evaluate": {"every": "20 ms"}},
    "updates": {**RANDOM, "stop": {"updates": 77, "rounds": 90}, "evaluate": {"every": "7 updates"}},
    "epochs": {**RANDOM, "stop": {"epochs": 1.5, "time": "9 s"}, "evaluate": {"every": "0.7 ms"}},
    "precision": {**RANDOM, "stop": {"precision": "9 %", "rounds": 300}},
    "two sizes of batches": {
        "timing": TWO_SIZES,
        "stop": {"rounds": 70},
        "models__client": WIDTHS,
        "training__batch": 40,
    },
    "last batches dropped": {"timing": TWO_SIZES, "training__last_batch": "drop", "stop": {"epochs": 3}},
    "one batch": {"timing": TWO_SIZES, "training__batch": "all", "stop": {"rounds": 9}},
    "rows drawn": {"timing": TWO_SIZES, "training__sampling": "uniform", "stop": {"updates": 40, "rounds": 90}},
    "codecs both ways": {**RANDOM, "codec": CODEC},
    "fixed and by operations": {
        "timing": _timing(
            {"compute": {**JITTER, "fixed": "1 ms"}, "upload_delay": _exponential("3 ms")},
            {"compute": {**JITTER, "fixed": "1 ms"}},
        ),
    },
    "local steps": {
        "timing": _timing({"compute": JITTER, "link": DRAWN_LINK}, {"compute": JITTER, "link": DRAWN_LINK}),
        "models__client": WIDTHS,
        "codec": CODEC,
        "stop": {"updates": 101, "rounds": 90},
        "evaluate": {"every": "7 updates"},
    },
    "latencies of pairs": {"timing": {**RANDOM_TIMING, "network": LATENCIES}, "stop": {"rounds": 70}},
    "queues that nobody waits in": {
        "timing": _timing({"compute": _exponential("2 ms"), "link": {"latency": _exponential("3 ms")}}, network="fifo"),
        "stop": {"rounds": 70},
    },
    "many rounds": {"timing": _timing(DRAWN), "stop": {"rounds": 300}, "evaluate": {"every": "100 rounds"}},
    "few active": {
        "timing": _timing({**DRAWN, "activation": {"kind": "poisson", "rate": "150 /s"}}),
        "stop": {"rounds": 70},
    },
    "activations in a queue": {
        "timing": _timing({**DRAWN, "activation": {"kind": "poisson", "rate": "150 /s", "busy": "queue"}}),
        "stop": {"time": "0.3 s"},
    },
    "activations by a schedule": {
        "timing": _timing({**DRAWN, "activation": {"kind": "schedule", "times": ["3 ms"], "period": "30 ms"}}),
    },
    "pauses": {"timing": _timing({**DRAWN, "availability": PAUSED}), "stop": {"rounds": 70}},
    "a pause a day": {"timing": _timing({**DRAWN, "availability": DAILY}), "stop": {"time": "0.3 s"}},
    "one is repaired": {
        "timing": _timing(DRAWN, "1 ms", {"select": "N", "availability": ONCE}),
        "stop": {"updates": 90, "rounds": 90},
    },
    "energy": {"timing": _timing(METERED, {"compute": JITTER, "power": ENERGY}), "stop": {"rounds": 70}},
    "energy of some": {
        "timing": _timing(DRAWN, "1 ms", {"select": "N", "power": {"idle": 0.1, "compute": "(0.3*m) W"}}),
        "stop": {"time": "0.25 s"},
    },
    "shared links": {
        "timing": _timing({**DRAWN, "link": ALIKE}, {"compute": "1 ms", "link": SHARED}, network="fair"),
        "stop": {"rounds": 70},
    },
    "unlike shared links": {
        "timing": _timing({**DRAWN, "link": OWN}, {"compute": "1 ms", "link": SHARED}, network="fair"),
        "stop": {"time": "0.5 s"},
        "evaluate": {"every": "30 ms"},
    },
    "one after the other on shared links": {
        "timing": _timing({**DRAWN, "link": OWN}, {"compute": "1 ms", "link": SHARED}, network="fifo"),
        "stop": {"time": "0.4 s"},
        "evaluate": {"every": "30 ms"},
    },
    "at one instant on serial shared links": {
        "timing": _timing(
            {"compute": "2 ms", "upload_delay": "1 ms", "link": {"up": "(1/m) Mbps"}},
            {"compute": "1 ms", "link": {"down": "2 Mbps"}},
            {"select": "2..3", "compute": "3 ms", "upload_delay": 0},
            network="fifo",
        ),
        "stop": {"time": "0.2 s"},
        "evaluate": {"every": "1.3 ms"},
    },
    "energy of shared links": {
        "timing": _timing(
            {**METERED, "link": OWN}, {"compute": "1 ms", "link": SHARED, "power": ENERGY}, network="fair"
        ),
        "stop": {"time": "0.4 s"},
    },
    "two sizes on shared links": {
        "timing": _timing({**DRAWN, "link": ALIKE}, {"compute": "1 ms", "link": SHARED}, network="fair"),
        "stop": {"updates": 90, "rounds": 70},
        "models__client": WIDTHS,
        "training__batch": 40,
    },
    **{f"{kind} delays": {**_of(kind), "stop": {"rounds": 30}} for kind in DELAYS},
}
"""What a scenario says besides its protocol: sections of it, or single keys."""
