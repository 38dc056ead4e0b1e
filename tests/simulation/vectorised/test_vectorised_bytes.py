"""The vectorised path writes the very bytes of the event path: rounds and metrics, for whatever it can do."""

import atexit
import shutil
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from both_paths import assert_same_bytes
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from thorough import examples, is_thorough
from tiny_worlds import tiny

from vflsim.scenario.models import Scenario
from vflsim.simulation.vectorised import UndecidedError, obstacles
from vflsim.timing.delays import DELAYS

_FILE = Path(tempfile.mkdtemp()) / "measured.npy"
atexit.register(shutil.rmtree, _FILE.parent)
np.save(_FILE, np.random.default_rng(1).gamma(2.0, 0.002, 40))

# One delay a kind. The table decides which there must be: a kind without an example fails.
EXAMPLES: dict[str, Any] = {
    "constant": {"value": "4 ms"},
    "exponential": {"mean": "5 ms"},
    "shifted_exponential": {"shift": "1 ms", "mean": "3 ms"},
    "uniform": {"low": 0, "high": "9 ms"},
    "normal": {"mean": "4 ms", "sd": "3 ms"},
    "lognormal": {"median": "3 ms", "sigma": 0.8},
    "gamma": {"shape": 2, "mean": "4 ms"},
    "weibull": {"shape": 0.7, "scale": "3 ms"},
    "pareto": {"shape": 1.5, "minimum": "2 ms"},
    "hyper_exponential": {"probabilities": [0.9, 0.1], "means": ["1 ms", "30 ms"]},
    "mixture": {"weights": [3, 1], "parts": ["2 ms", {"kind": "exponential", "mean": "20 ms"}]},
    "sum": {"parts": ["2 ms", {"kind": "exponential", "mean": "3 ms"}]},
    "maximum": {"parts": [{"kind": "exponential", "mean": "3 ms"}, {"kind": "uniform", "low": 0, "high": "5 ms"}]},
    "empirical": {"file": str(_FILE)},
}
KINDS = [kind for kind in DELAYS if not kind.in_time]

PROTOCOLS: dict[str, dict[str, Any]] = {
    "synchronous": {"kind": "synchronous"},
    "exclude": {"kind": "ignore", "exclude": "N"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "deadline": {"kind": "ignore", "deadline": "6 ms"},
    "t-sync, cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "centralised": {"kind": "centralised"},
    "c_vfl": {"kind": "c_vfl", "local_steps": 3},
    "ef_vfl, shared": {"kind": "ef_vfl", "local_steps": 2},
    "ef_vfl, private": {"kind": "ef_vfl", "labels": "private", "local_steps": 3},
    "fedbcd": {"kind": "fedbcd", "local_steps": 3},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3},
    "fedbcd, recomputed": {"kind": "fedbcd", "local_steps": 2, "server_steps": 4, "gradients": "recomputed"},
    "easter": {"kind": "easter"},
    "fedbcd, sequential": {"kind": "fedbcd", "local_steps": 2, "server_steps": 3, "order": "sequential"},
    "local": {"kind": "local"},
    "fedvs, abandoned": {"kind": "fedvs", "K": 1},
    "fedvs, finished": {"kind": "fedvs", "K": 1, "late": "finished"},
    "asynchronous": {"kind": "asynchronous"},
    "t-sync": {"kind": "t_synchronous", "t": 2},
    "vimadmm": {"kind": "vimadmm", "rho": 2, "local_steps": 3},
    "vimadmm_j": {"kind": "vimadmm_j", "rho": 2, "local_steps": 2, "exclude": "N"},
}
WITH_ACTIVATIONS = {
    name for name in PROTOCOLS if name not in {"fastest", "deadline", "t-sync, cancel", "centralised", "local"}
}
"""The protocols whose clients may wait for activations."""
HEADS = {"models__aggregate": "concat", "models__server": {"kind": "linear", "bias": False}}
"""What protocols with a linear head for each client need."""


def example(kind: type) -> dict[str, Any]:
    name = kind.model_fields["kind"].default
    return {"kind": name, **EXAMPLES[name]}


STOPS = st.one_of(
    st.builds(lambda k: {"rounds": k}, st.sampled_from([1, 5, 20, 66])),
    st.builds(lambda s: {"time": s}, st.floats(0.001, 0.2)),
    st.builds(lambda k: {"updates": k}, st.integers(1, 60)),
    st.builds(lambda e: {"epochs": e}, st.sampled_from([0.3, 1.5, 3])),
    st.builds(lambda k, s: {"rounds": k, "time": s}, st.integers(1, 30), st.floats(0.01, 0.2)),
    st.builds(lambda k, n: {"rounds": k, "updates": n}, st.integers(1, 20), st.integers(1, 40)),
    st.builds(lambda e, s, n: {"epochs": e, "time": s, "updates": n}, st.floats(0.1, 3), st.floats(0.01, 0.2),
              st.integers(1, 60)),
)  # fmt: skip
AGGREGATES = st.sampled_from(["mean", "concat"])
ACTIVATIONS = ["immediate", "immediate", {"kind": "poisson", "rate": "150 /s", "busy": "queue"},
               {"kind": "poisson", "rate": "150 /s"}]  # fmt: skip
EVALUATIONS = st.sampled_from(["1 rounds", "3 rounds", "0.7 ms", "9 ms", "1 updates", "7 updates", "100 s"])


@st.composite
def scenarios(draw: st.DrawFn, protocol: dict[str, Any], law: dict[str, Any]) -> Scenario:
    """A scenario for ``protocol`` in which ``law`` and other things delay some of the clients."""
    clients = draw(st.integers(3 if protocol["kind"] == "fedvs" else 2, 4))
    delay = st.sampled_from([law, law, 0, "3 ms", {"kind": "exponential", "mean": "(2*m) ms"}])
    latency = st.sampled_from([law, 0, "1 ms", {"kind": "uniform", "low": 0, "high": "4 ms"}])
    rates = draw(st.sampled_from([{}, {"up": "3 Mbps", "down": "5 Mbps"}]))
    entries = [
        {
            "select": select,
            "compute": draw(delay),
            "upload_delay": law if select == "all" else draw(delay),
            "link": {"latency": draw(latency), **rates},
        }
        for select in ("all", "2..N")
    ]
    if protocol in [PROTOCOLS[name] for name in WITH_ACTIVATIONS]:
        entries[0]["activation"] = draw(st.sampled_from(ACTIVATIONS))
    heads: dict[str, Any] = HEADS if protocol["kind"].startswith("vim") else {}
    network: Any = "dedicated" if rates else draw(st.sampled_from(["dedicated", "fifo"]))
    server = {"compute": draw(st.sampled_from(["1 ms", law])), "link": {"latency": draw(latency)}}
    return tiny(
        {"it": protocol},
        timing={"network": network, "server": server, "clients": entries},
        partition={"clients": clients, "by": "columns"},
        models__client={"kind": "linear", "embedding": draw(st.sampled_from([3, 6]))},
        **({"models__aggregate": "mean" if protocol["kind"] in {"easter", "fedvs"} else draw(AGGREGATES)} | heads),
        training__batch=draw(st.sampled_from([7, 20, 80])),
        training__last_batch=draw(st.sampled_from(["keep", "drop"])),
        stop=draw(STOPS) | ({"rounds": 20} if protocol["kind"] == "local" else {}),
        evaluate={"every": draw(EVALUATIONS)},
        record="rounds",
    )


def decided(scenario: Scenario, seed: int) -> None:
    """The bytes are the same, unless things coincide in a way that only the event path can tell apart."""
    try:
        assert_same_bytes(scenario, seed)
    except UndecidedError:
        assume(False)


CALM = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


def test_every_kind_of_delay_that_is_drawn_by_index_has_an_example() -> None:
    assert {kind.model_fields["kind"].default for kind in KINDS} == set(EXAMPLES)


@pytest.mark.sampled(40)
@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        pytest.param(kind, protocol, id=f"{kind.__name__}-{protocol}")
        for (k, kind), (p, protocol) in product(enumerate(KINDS), enumerate(PROTOCOLS))
        if is_thorough() or (k + p) % 2 == 0
    ],
)
def test_every_protocol_with_every_delay_writes_the_same_bytes(kind: type, protocol: str) -> None:
    @settings(CALM, max_examples=examples(2))
    @given(scenarios(PROTOCOLS[protocol], example(kind)), st.integers(0, 1000))
    def check(scenario: Scenario, seed: int) -> None:
        decided(scenario, seed)

    check()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_scenarios_write_the_same_bytes(protocol: str) -> None:
    @settings(CALM, max_examples=examples(12))
    @given(
        st.sampled_from(["exponential", "gamma", "mixture", "constant"]).flatmap(
            lambda name: scenarios(PROTOCOLS[protocol], {"kind": name, **EXAMPLES[name]})
        ),
        st.integers(0, 1000),
    )
    def check(scenario: Scenario, seed: int) -> None:
        decided(scenario, seed)

    check()


def test_affine_compute_models_write_the_same_bytes_and_laws_by_operation_are_left_to_the_event_path() -> None:
    affine = {
        "kind": "flops",
        "fixed": "1 ms",
        "rate": "1 MFLOPS",
        "jitter": {"kind": "lognormal", "mean": 1, "sigma": 0.3},
    }
    protocols = {"it": {"kind": "synchronous"}}
    clients = {"select": "all", "compute": affine, "upload_delay": {"kind": "exponential", "mean": "3 ms"}}
    decided(
        tiny(
            protocols,
            timing={"network": "dedicated", "server": {"compute": affine}, "clients": [clients]},
            record="rounds",
        ),
        0,
    )
    mixed = {"kind": "by_operation", "operations": {"embed": "2 ms"}, "others": affine}
    timing = {"network": "dedicated", "clients": [{"select": "all", "compute": mixed}]}
    [problem] = obstacles(tiny(protocols, timing=timing, record="rounds"), "it")
    assert "by_operation" in problem.what
    assert problem.remedy == "leave out --path vectorised"
