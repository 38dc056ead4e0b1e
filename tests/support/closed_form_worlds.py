"""Scenarios whose times mix atoms and densities, for every protocol. Checked by ``closed_form_checks.py``."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from protocols_by_kind import HEADS
from tiny_worlds import raw

from vflsim.protocols import PROTOCOLS
from vflsim.timing.delays import DELAYS

ATOMS = (0, 0.1, 0.2, 0.25, 0.5, 1.0)
"""Few values, so that several clients often have the same ones."""
MEANS = (0.05, 0.2, 1.0)
KINDS = tuple(protocol.model_fields["kind"].default for protocol in PROTOCOLS)
LAWS = tuple(delay.model_fields["kind"].default for delay in DELAYS)
_OBSERVED = {
    "one": [0.3],
    "repeated": [0.1, 0.1, 0.5],
    "from zero": [0.0, 0.0, 0.2, 1.0],
    "a grid": [k / 20 for k in range(20)],
    "spread": np.random.default_rng(0).exponential(0.3, 30).tolist(),
}

Delay = dict[str, Any]


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="vflsim-closed-forms-"))
    for name, values in _OBSERVED.items():
        np.save(folder / f"{name}.npy", np.array(values, dtype=np.float64))
    return folder


def _plain() -> dict[str, st.SearchStrategy[Delay]]:
    """Every kind that is not made of others."""
    atom, mean = st.sampled_from(ATOMS), st.sampled_from(MEANS)

    def of(kind: str, **keys: Any) -> st.SearchStrategy[Delay]:
        return st.fixed_dictionaries({"kind": st.just(kind), **keys})

    shape = st.sampled_from([0.5, 1.0, 3.0])
    return {
        "constant": of("constant", value=atom),
        "exponential": of("exponential", mean=mean),
        "shifted_exponential": of("shifted_exponential", shift=atom, mean=mean),
        "uniform": st.tuples(atom, st.sampled_from([0.1, 0.5])).map(
            lambda pair: {"kind": "uniform", "low": pair[0], "high": pair[0] + pair[1]}
        ),
        "normal": of("normal", mean=atom, sd=st.sampled_from([0.01, 0.3])),
        "lognormal": of("lognormal", sigma=st.sampled_from([0.2, 1.0]), median=mean),
        "gamma": of("gamma", shape=shape, mean=mean),
        "weibull": of("weibull", shape=st.sampled_from([0.7, 3.0]), mean=mean),
        "pareto": of("pareto", shape=st.sampled_from([1.5, 2.5, 6.0]), minimum=mean),
        "hyper_exponential": of("hyper_exponential", probabilities=st.just([0.8, 0.2]), means=st.just([0.05, 1.0])),
        "empirical": of(
            "empirical",
            file=st.sampled_from(list(_OBSERVED)).map(lambda name: str(_folder() / f"{name}.npy")),
            interpolation=st.sampled_from(["none", "linear"]),
        ),
    }


@st.composite
def delays(draw: st.DrawFn, depth: int = 2, kind: str | None = None) -> Delay:
    """A kind of delay, or any but bursts; mixtures, sums and maxima of any."""
    plain = _plain()
    kinds = [*plain, "constant", *(("mixture", "mixture", "mixture", "sum", "maximum") if depth else ())]
    kind = kind or draw(st.sampled_from(kinds))
    if kind in plain:
        return draw(plain[kind])
    if kind == "markov_modulated":
        return _bursts([draw(delays(depth - 1)), draw(delays(depth - 1))])
    parts = draw(st.lists(delays(depth - 1), min_size=1, max_size=3))
    made: Delay = {"kind": kind, "parts": parts}
    if kind == "mixture":
        weight = st.sampled_from([1, 2, 5, 0])
        made["weights"] = draw(st.tuples(*[weight] * len(parts)).filter(any))
    return made


def _bursts(parts: list[Any]) -> Delay:
    return {"kind": "markov_modulated", "states": [{"sojourn": 1, "delay": part} for part in parts]}


@st.composite
def protocols(draw: st.DrawFn, kind: str, clients: int) -> dict[str, Any]:
    """A protocol of a kind, with its options."""
    made: dict[str, Any] = {"kind": kind}
    if kind == "ignore":
        made |= draw(st.sampled_from([{"exclude": "1"}, {"fastest": clients}, {"fastest": 1}, {"deadline": 0.9}]))
        if clients == 1:
            made = {"kind": kind, "deadline": 0.9}
    if kind.startswith(("vim", "fdml")):
        made["models"] = HEADS
    if kind.startswith("vimadmm"):
        made |= {"rho": 1, "local_steps": draw(st.integers(1, 3))}
    if kind == "fedbcd":
        made |= {"local_steps": draw(st.integers(1, 3)), "order": draw(st.sampled_from(["parallel", "sequential"]))}
    if kind == "bs_vfl":
        made |= {"window": draw(st.integers(0, 3)), "local_steps": draw(st.integers(1, 3))}
    if kind == "pubsub_vfl":
        made |= draw(st.sampled_from([{}, {"workers": {"active": 1, "passive": 1}, "capacity": 1}]))
    if kind == "he_lr":
        made["form"] = draw(st.sampled_from(["coordinator", "sshe"]))
    if kind == "celu_vfl":
        made |= {"cache": draw(st.integers(1, 3)), "uses": draw(st.integers(1, 3))}
    if kind == "flex_vfl":
        made["local_steps"] = draw(st.lists(st.integers(1, 3), min_size=clients + 1, max_size=clients + 1))
    if kind == "laser_vfl":
        made |= {"models": {"aggregate": "mean"}, **draw(st.sampled_from([{}, {"fastest": clients}]))}
    if kind in ("easter", "pyvertical"):
        made["models"] = {"aggregate": "mean" if kind == "easter" else "concat"}
    if kind == "easter" and clients == 1:
        made["blinding"] = "off"  # one client has no masks, which is refused
    if kind == "ef_vfl":
        made["labels"] = draw(st.sampled_from(["shared", "private"]))
    if kind in ("c_vfl", "ef_vfl"):
        made["local_steps"] = draw(st.integers(1, 3))
    if kind == "dpzv":
        made["noise"] = {"clip": 1, "delta": 1e-5, "noise_multiplier": 1}
    if kind == "t_synchronous":
        made |= {"t": draw(st.integers(1, clients)), "cancel": draw(st.booleans())}
    if kind == "fedvs":
        most = (clients - 1) // 2 + 1  # of K + T
        segments = draw(st.sampled_from([k for k in (1, 2) if k <= most - 1]))
        made |= {"K": segments, "T": draw(st.integers(1, most - segments))}
        made["late"] = draw(st.sampled_from(["abandoned", "finished"]))
        made["share_delay_factor"] = draw(st.sampled_from([None, 0, 0.5, 1]))
        made |= draw(st.sampled_from([{}, {}, {}, {"sharers": clients}, {"deadline": 50, "too_few": "skip"}]))
        if made["share_delay_factor"] is None:
            del made["share_delay_factor"]
    return made


@st.composite
def worlds(draw: st.DrawFn, kind: str, depth: int = 2) -> dict[str, Any]:
    """A scenario with one protocol ``it`` of a kind, as a mapping; delays of parts, of parts so deep."""
    clients = draw(st.integers(3, 6) if kind == "fedvs" else st.integers(1, 5))
    pool = draw(st.lists(delays(depth), min_size=1, max_size=3))
    any_of = st.sampled_from([0, 0.1, *pool, *pool])
    alike = st.sampled_from([0, 0, 0, 0.1, pool[0]])
    bandwidth = draw(st.sampled_from([{}, {}, {"up": "1 Mbps", "down": "2 Mbps"}]))
    entries: list[dict[str, Any]] = [
        {
            "select": "all",
            "compute": draw(alike),
            "upload_delay": draw(any_of),
            "link": {"latency": draw(alike), **bandwidth},
            "activation": draw(
                st.sampled_from(["immediate", "immediate", "immediate", {"kind": "poisson", "rate": "2 /s"}])
            ),
        }
    ]
    for client in range(1, clients + 1):
        if draw(st.booleans()):
            entries.append({"select": str(client), "upload_delay": draw(any_of)})
        if draw(st.integers(0, 4)) == 4:
            entries.append({"select": str(client), "compute": draw(any_of)})
    if draw(st.integers(0, 19)) == 19:
        entries.append({"select": "1", "upload_delay": _bursts([*pool, 0.1])})
    return raw(
        {"it": draw(protocols(kind, clients))},
        timing={
            "network": draw(st.sampled_from(["dedicated", "dedicated", "fifo", "fair"])),
            "server": {"compute": draw(st.sampled_from([0, 0, 0.1, pool[0], {"kind": "exponential", "mean": 0.2}]))},
            "clients": entries,
        },
        partition={"clients": clients, "by": "columns"},
        training__last_batch=draw(st.sampled_from(["drop", "drop", "keep"])),
        record="rounds",
    )
