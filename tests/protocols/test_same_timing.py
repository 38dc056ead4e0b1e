"""Promise 1: every draw, every initial weight and every mini-batch is the same under every protocol."""

from itertools import combinations

import numpy as np
import pytest
import torch
from protocols_by_kind import HEADS, KINDS
from thorough import in_turn
from tiny_worlds import RANDOM_TIMING, data_of, events, learners, parties, run, same_weights, tiny

from vflsim.protocols import PROTOCOLS
from vflsim.world.record import Recorder

ALL = {
    "wait": {"kind": "synchronous"},
    "exclude": {"kind": "ignore", "exclude": "N"},
    "fastest": {"kind": "ignore", "fastest": 2},
    "deadline": {"kind": "ignore", "deadline": "15 ms"},
    "t-sync": {"kind": "t_synchronous", "t": 2},
    "t-cancel": {"kind": "t_synchronous", "t": 2, "cancel": True},
    "t-filled": {"kind": "t_synchronous", "t": 3, "first_fill": "upload"},
    "async": {"kind": "asynchronous"},
    "async-bounded": {"kind": "asynchronous", "max_staleness": 3},
    "centralised": {"kind": "centralised"},
    "fedvs": {"kind": "fedvs", "K": 1},
    "wait-heads": {"kind": "synchronous", "models": HEADS},
    "vimsgd": {"kind": "vimsgd", "models": HEADS},
    "vimadmm": {"kind": "vimadmm", "rho": 1, "local_steps": 2, "models": HEADS},
    "vimadmm-j": {"kind": "vimadmm_j", "rho": 1, "local_steps": 2, "models": HEADS},
    "fdml": {"kind": "fdml", "models": HEADS},
    "fedbcd": {"kind": "fedbcd", "local_steps": 2},
    "c_vfl": {"kind": "c_vfl", "local_steps": 2},
    "ef_vfl": {"kind": "ef_vfl", "local_steps": 2},
    "ef_vfl-private": {"kind": "ef_vfl", "labels": "private"},
    "fedbcd-sequential": {"kind": "fedbcd", "local_steps": 2, "order": "sequential"},
    "bs_vfl": {"kind": "bs_vfl", "window": 2, "local_steps": 2},
    "celu_vfl": {"kind": "celu_vfl", "cache": 2, "uses": 3, "angle": 80},
    "flex_vfl": {"kind": "flex_vfl", "local_steps": [2, 1, 2, 3, 1]},
    "laser_vfl": {"kind": "laser_vfl", "models": {"aggregate": "mean"}},
    **{name: KINDS[name] for name in ("czofo", "czofo-weights", "dpzv", "pubsub_vfl")},
}
EASTER = {name: KINDS[name] for name in ("easter", "local", "agg_vfl", "pyvertical")}
"""These need servers with features, which others refuse, or a top of their own."""
POISSON = {"kind": "poisson", "rate": "100 /s"}


@pytest.mark.sampled(1)
@in_turn(network=["fifo", "dedicated"], activation={"immediate": None, "poisson": POISSON})
def test_every_pair_of_protocols_sees_the_same_draws(network: str, activation: dict | None) -> None:
    everything = ALL | EASTER | {name: KINDS[name] for name in ("few_shot", "secureboost", "he_lr")}
    assert {said["kind"] for said in everything.values()} == {kind.model_fields["kind"].default for kind in PROTOCOLS}
    timing = {**RANDOM_TIMING, "network": network}
    if activation is not None:
        timing["clients"] = [*timing["clients"], {"select": "all", "activation": activation}]
    scenarios = {name: tiny({name: said}, timing=timing, stop={"rounds": 12}) for name, said in everything.items()}
    drawn = {}
    for name, scenario in scenarios.items():
        frame = events(run(scenario, timing_only=True))
        frame = frame[frame["drawn_s"].notna()].astype({"party": str, "kind": str})
        drawn[name] = dict(
            zip(zip(frame["party"], frame["kind"], frame["index"], strict=True), frame["drawn_s"], strict=True)
        )
        assert len(drawn[name]) == len(frame)
    kinds: set[str] = set()
    for one, other in combinations(everything, 2):
        both = drawn[one].keys() & drawn[other].keys()
        assert both, (one, other)
        assert [drawn[one][key] for key in both] == [drawn[other][key] for key in both], (one, other)
        of_both = {kind for _, kind, _ in both}
        # Two draw their server steps only, and uploads of ciphertexts are others.
        if {"centralised", "local", "secureboost", "he_lr"}.isdisjoint((one, other)):
            embed = set() if "fedvs" in (one, other) else {"compute.embed"}  # whose clients embed on shares
            assert {*embed, "upload"} <= of_both
        kinds |= of_both
    assert {"compute.server_step", "compute.client_step", "latency.client-1→server", "latency.server→client-1"} <= kinds
    assert ("activation" in kinds) is (activation is not None)


def test_draws_differ_between_seeds_parties_and_activities() -> None:
    scenario = tiny(timing=RANDOM_TIMING)
    one, other = (events(run(scenario, seed=seed, timing_only=True)) for seed in (0, 1))
    for kind in ("upload", "compute.embed", "compute.server_step"):
        assert set(one[one["kind"] == kind]["drawn_s"]).isdisjoint(other[other["kind"] == kind]["drawn_s"])
    drawn = one[one["drawn_s"].notna()]["drawn_s"]
    assert drawn.is_unique


def test_initial_weights_are_the_same_under_every_protocol_and_differ_between_parties_and_seeds() -> None:
    scenario = tiny(ALL)
    made = {name: learners(scenario, name, 5, data_of(scenario, name)) for name in ALL}
    clients = made["wait"][1]
    for name, (its_server, its_clients) in made.items():
        server = made["wait-heads" if ALL[name].get("models") == HEADS else "wait"][0]
        heads = [learner.head.module.weight for learner in its_clients.values() if hasattr(learner, "head")]
        first = "heads.0." if name == "laser_vfl" else ""  # one of its heads
        state = {"weight": torch.cat(heads, 1)} if heads else its_server.model.state_dict()
        for key, tensor in server.model.state_dict().items():
            assert torch.equal(tensor, state[first + key]), name
        assert set(its_clients) == (set(clients) - {4} if name == "exclude" else set(clients))
        for client, learner in its_clients.items():
            for key, tensor in clients[client].model.state_dict().items():
                assert torch.equal(tensor, learner.model.state_dict()[key]), (name, client)
    weight = next(iter(clients[1].model.parameters()))
    assert not torch.equal(weight, next(iter(clients[2].model.parameters())))
    again = learners(scenario, "wait", 6, data_of(scenario))[1]
    assert not torch.equal(weight, next(iter(again[1].model.parameters())))


@pytest.mark.parametrize("batches", ["shared", "own"])
def test_mini_batches_are_the_same_under_every_protocol(batches: str) -> None:
    free = {name: said for name, said in ALL.items() if said["kind"] in ("t_synchronous", "asynchronous")}
    free = {name: said for name, said in free.items() if not said.get("cancel")}
    chosen = ALL if batches == "shared" else free
    scenario = tiny(chosen, training__batches=batches)
    sequences: dict[int, list[np.ndarray]] = {}
    for name in chosen:
        from tiny_worlds import world

        made = parties(scenario, name, 3, data_of(scenario, name), world("virtual"), Recorder())
        for node in made.clients:
            ids = [node.next_batch().ids for _ in range(12)]
            if batches == "shared":
                assert all(np.array_equal(mine, node.batch(k).ids) for k, mine in enumerate(ids))
            for mine, others in zip(ids, sequences.setdefault(node.party, ids), strict=True):
                assert np.array_equal(mine, others)
    same = all(np.array_equal(a, b) for a, b in zip(sequences[1], sequences[2], strict=True))
    assert same is (batches == "shared")


def test_the_same_run_twice_is_the_same_in_every_bit() -> None:
    scenario = tiny("asynchronous", timing=RANDOM_TIMING)
    one, other = run(scenario), run(scenario)
    assert one.tables == other.tables
    assert same_weights(one, other)
