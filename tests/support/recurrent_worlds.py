"""Random worlds for both paths: every kind of protocol with its keys; delays, links, batches, stop rules."""

import random
from copy import deepcopy
from typing import Any

from both_paths import quick
from worlds_by_name import DELAYS

from vflsim.scenario import load
from vflsim.scenario.models import Scenario

HEADS = {"models__aggregate": "concat", "models__server": {"kind": "linear", "bias": False}}
"""What protocols with a linear head for each client need."""


def _exponential(mean: str) -> dict[str, Any]:
    return {"kind": "exponential", "mean": mean}


def _protocol(pick: random.Random, clients: int, turn: int) -> dict[str, Any]:
    """One protocol of each kind with a recurrence in turn, with any of the keys that it understands."""
    some, steps = pick.randint(1, clients), pick.randint(1, 3)
    fill = pick.choice(["zeros", "upload"])
    blinding = pick.choice(["on", "off"]) if clients > 2 else "off"  # masks need two who take part
    rest: dict[str, Any] = {"exclude": "N"} if clients > 1 else {}
    kinds: list[dict[str, Any]] = [
        {"kind": "synchronous", "blinding": blinding},
        {"kind": "ignore", "fastest": some},
        {"kind": "ignore", "deadline": pick.choice(["3 ms", "9 ms"])},
        {"kind": "ignore", "exclude": "N", "blinding": blinding} if clients > 1 else {"kind": "synchronous"},
        {"kind": "t_synchronous", "t": some, "cancel": True, "first_fill": fill},
        {"kind": "t_synchronous", "t": some, "first_fill": fill},
        {"kind": "asynchronous", "first_fill": fill},
        {"kind": "czofo", "samples": steps, "perturbs": pick.choice(["embeddings", "weights"])},
        {"kind": "dpzv", "first_fill": fill, "noise": {"clip": 1, "delta": 1e-5, "noise_multiplier": 1}},
        {"kind": "centralised"},
        {"kind": "easter", "blinding": blinding},
        {"kind": "local"},
        {"kind": "agg_vfl", "combine": pick.choice(["mean", "sum"])},
        {"kind": "pyvertical"},
        {"kind": "c_vfl", "local_steps": steps},
        {"kind": "flex_vfl", "local_steps": [pick.randint(1, 3), *(pick.randint(1, 3) for _ in range(clients))]},
        {"kind": "laser_vfl", **pick.choice([{}, {"fastest": some}, {"deadline": "9 ms"}])},
        {"kind": "bs_vfl", "window": pick.randint(0, 4), "local_steps": steps, "server_steps": pick.randint(1, 3)},
        {"kind": "pubsub_vfl", "workers": {"active": 1, "passive": 1}, "capacity": 1},
        {"kind": "celu_vfl", "cache": pick.randint(1, 4), "uses": pick.randint(1, 5)},
        {"kind": "ef_vfl", "labels": pick.choice(["shared", "private"]), "local_steps": steps},
        {"kind": "fedbcd", "local_steps": steps, "server_steps": pick.randint(1, 3), "order": "sequential"},
        {"kind": "fedbcd", "local_steps": steps, "gradients": pick.choice(["held", "recomputed"])},
        {"kind": "vimsgd", **rest},
        {"kind": "vimadmm", "rho": 2, "local_steps": steps, **rest},
        {"kind": "vimadmm_j", "rho": 2, "local_steps": steps, **rest},
        {"kind": "fdml"},
        _coded(pick, clients) if clients > 2 else {"kind": "synchronous"},  # no fewer can be decoded
        {"kind": "he_lr", **pick.choice([{}, {"form": "sshe", "host": some}])},
    ]
    return kinds[turn % len(kinds)]


def _coded(pick: random.Random, clients: int) -> dict[str, Any]:
    """FedVS whose rounds need so many answers that clients may be late."""
    most = (clients - 1) // 2 - 1  # of K + T - 2
    segments = 1 + pick.randint(0, most)
    coded: dict[str, Any] = {"kind": "fedvs", "K": segments, "T": 1 + pick.randint(0, most - segments + 1)}
    factor = pick.choice([{}, {"share_delay_factor": pick.choice([0, 0.3, 2])}])
    return {**coded, "late": pick.choice(["abandoned", "finished"]), **factor}


def _party(pick: random.Random, factor: str) -> dict[str, Any]:
    """The times of clients, or (without a ``factor``) of the server."""
    flops: dict[str, Any] = {"kind": "flops", "rate": "1 MFLOPS"}
    jitter = {**flops, "jitter": {"kind": "lognormal", "median": 1, "sigma": 0.3}}
    latency = pick.choice([0, 0, "1 ms", _exponential("1 ms"), {"kind": "uniform", "low": 0, "high": "4 ms"}])
    rates = pick.choice([{}, {"up": "3 Mbps", "down": "5 Mbps"}, {"up": "1 Mbps"}, {"down": "80 kbps"}])
    party = {
        "compute": pick.choice([_exponential("2 ms"), "1 ms", flops, jitter]),
        "link": {"latency": latency, **rates},
    }
    if factor:
        of_a_kind = pick.choice([{"kind": kind, **keys} for kind, keys in DELAYS.items()])
        party["upload_delay"] = pick.choice([0, "3 ms", _exponential(f"(2*{factor}) ms"), of_a_kind, of_a_kind])
    return party


def _halved(protocol: dict[str, Any]) -> dict[str, Any]:
    """A codec of messages to clients, and of those to the server where they are no integers."""
    up = (
        {}
        if protocol.get("blinding") == "on" or protocol["kind"] == "fedvs"
        else {"up": {"kind": "top_k", "fraction": 0.3}}
    )
    return {"kind": "by_direction", "down": {"kind": "float16"}, **up}


OUTAGES: list[dict[str, Any]] = [
    {"kind": "alternating", "up": _exponential("9 ms"), "down": _exponential("3 ms"), "interrupted": "resumed"},
    {"kind": "intervals", "down": [[0, "2 ms"], ["11 ms", "15 ms"]], "period": "20 ms", "interrupted": "resumed"},
    {"kind": "failure", "at": _exponential("9 ms"), "repair": "5 ms", "interrupted": "resumed"},
]
KNOWS_NO_ACTIVATION = {"local", "centralised"}


def world(number: int) -> Scenario:
    """World ``number``: a scenario of one protocol, called ``it``, without any obstacle to the vectorised path."""
    pick = random.Random(number)
    clients = pick.randint(1, 6)
    protocol = _protocol(pick, clients, number)
    kind = protocol["kind"]
    of_all, of_some = _party(pick, "m"), _party(pick, "i")
    own_pace = kind in {"asynchronous", "czofo", "dpzv"} or (kind == "t_synchronous" and "cancel" not in protocol)
    waits_for_all = kind not in {"ignore", "t_synchronous", *KNOWS_NO_ACTIVATION} or "exclude" in protocol
    waits_for_all = waits_for_all and not {"fastest", "deadline"} & set(protocol)
    if own_pace or waits_for_all:
        of_all["activation"] = pick.choice(["immediate", "immediate", {
            "kind": "poisson", "rate": "300 /s", "busy": pick.choice(["skip", "queue"])}])  # fmt: skip
    if own_pace or (waits_for_all and kind != "fedvs" and protocol.get("order") != "sequential"):
        for party in (of_all, of_some):
            party["availability"] = pick.choice(["always", "always", "always", *OUTAGES])
    aggregate = pick.choice(["mean", "sum"]) if protocol.get("blinding") == "on" else pick.choice(["mean", "concat"])
    models: dict[str, Any] = {"models__aggregate": "mean" if kind in {"easter", "fedvs", "laser_vfl"} else aggregate}
    if kind == "pyvertical":
        models["models__aggregate"] = "concat"
    if kind.startswith("vim") or kind == "fdml":
        models = HEADS
    stop: dict[str, Any] = pick.choice([
        {"rounds": 70}, {"rounds": 7}, {"time": "90 ms"}, {"time": "33 ms"}, {"updates": 33}, {"epochs": 1.5},
        {"rounds": 40, "time": "200 ms"}, {"epochs": 3, "updates": 40},
    ])  # fmt: skip
    if kind == "local" and "updates" in stop:
        stop |= {"rounds": 20}
    every = pick.choice(["1 rounds", "7 rounds", "100 rounds", "0.7 ms", "9 ms", "1 updates", "7 updates"])
    return quick(
        protocol,
        timing={"server": _party(pick, ""), "clients": [{"select": "all", **of_all}, {"select": "N", **of_some}]},
        partition={"clients": clients, "by": "columns"},
        models__client={"kind": "linear", "embedding": pick.choice([3, 6])},
        training__batch=pick.choice([7, 20, 40, 80]) // protocol.get("K", 1) * protocol.get("K", 1),
        training__last_batch=pick.choice(["keep", "drop"]),
        training__batches=pick.choice(["own", "shared"]) if own_pace else "shared",
        training__sampling=pick.choice(["shuffled", "shuffled", "uniform"]),
        codec="plain" if kind == "he_lr" else pick.choice(["plain", "plain", _halved(protocol)]),
        stop=stop,
        evaluate={"every": every},
        **models,
    )


ENERGY = {"idle": "2 W", "compute": "6 W", "radio": "1.2 W"}
EACH = {"per_byte": "0.1 uJ", "per_flop": "50 nJ"}


def metered(number: int) -> Scenario:
    """World ``number`` without outages, whose parties say what they draw, some of them nothing."""
    pick, said = random.Random(number), deepcopy(world(number).document.raw)
    timing: dict[str, Any] = said["timing"]
    for entry in timing["clients"]:
        entry.pop("availability", None)
    powers = [{"select": "all", "power": {"idle": 0.1, "compute": "(0.3*m) W"}}, {"select": "N", "power": ENERGY}]
    timing["clients"] += [power for power in powers if pick.random() < 0.8]
    if pick.random() < 0.7:
        timing.setdefault("server", {})["power"] = {"idle": "7 W", "compute": "20 W", "radio": "3 W"}
    for entry in (*timing["clients"][-len(powers) :], timing.get("server", {})):
        if "power" in entry:
            entry["power"] = entry["power"] | pick.choice(
                [{}, EACH, EACH, {"per_byte": "0.3 uJ", "per_flop": "0.3 uJ"}]
            )
    return load(said)
