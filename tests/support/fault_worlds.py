"""Random scenarios in which clients go down and come back. Run by ``tests/simulation/test_random_worlds.py``."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from coded_worlds import InTheClear
from protocols_by_kind import HEADS
from tiny_worlds import data_of, raw

from vflsim.errors import DeadlockError, IncompleteRoundError, NoProgressError, VflsimError
from vflsim.learning.execution.operations import Operation
from vflsim.protocols.fedvs.client import CodedClientLearner
from vflsim.protocols.fedvs.learners import CodedServerLearner
from vflsim.protocols.fedvs.plan import SegmentedBatch
from vflsim.results.verify import verify_run
from vflsim.scenario import load
from vflsim.scenario.models import Scenario
from vflsim.simulation import run as runs
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.world import outages

MOST_EVENTS = 300_000
FEW_CRASHES = 300
"""Crashes without a step after which a run shall end here, so that hopeless ones end soon."""
NAMES_WHAT_IS_MISSING = {
    IncompleteRoundError: r"round \d+ cannot be completed: needs "
    r"(\d+ × '\w+'.*, \d+ here, \d+ can still come|client \d+); client \d+ went down for good at [\d.e+-]+ s"
    r"|round \d+ cannot be completed, nor any later one: it needs \d+ of \d+ clients, and client-\d+.* for good",
    DeadlockError: r"deadlock: nothing can happen any more; server waits for ",
    NoProgressError: r"client \d+ has gone down [\d,]+ times, and round \d+ is still not complete; .*waits for "
    r"|[\d,]+ rounds in a row were given up, the latest (after deadline: |without client-\d+)",
}


def duration(pick: random.Random, mean: float) -> Any:
    """A delay of ``mean`` milliseconds on average."""
    if mean == 0:
        return 0
    return pick.choice(
        [
            f"{mean} ms",
            {"kind": "exponential", "mean": f"{mean} ms"},
            {"kind": "uniform", "low": 0, "high": f"{2 * mean} ms"},
        ]
    )


def availability(pick: random.Random, interrupted: str) -> Any:
    """How a client comes and goes: often enough within the some 100 ms that a run takes."""
    kind = pick.choice(["alternating", "alternating", "failure", "intervals", "at once"])
    if kind == "alternating":
        up, down = pick.choice([3, 10, 30, 100]), pick.choice([1, 5, 40])
        said = {"up": duration(pick, up), "down": duration(pick, down), "starts": pick.choice(["up", "down"])}
    elif kind == "failure":
        repair = "never" if pick.random() < 0.4 else duration(pick, pick.choice([2, 30]))
        said = {"at": duration(pick, pick.choice([0, 1, 20, 60])), "repair": repair}
    elif kind == "at once":
        kind, said = "intervals", {"down": [["20 ms", pick.choice(["21 ms", "50 ms", "inf"])]]}
    else:
        times = sorted(pick.uniform(0, 0.1) for _ in range(2 * pick.randint(1, 4)))
        said = {"down": [list(pair) for pair in zip(times[::2], times[1::2], strict=True)]}
        if pick.random() < 0.3:
            said["period"] = 0.12
    return {"kind": kind, **said, "interrupted": interrupted}


def activation(pick: random.Random) -> Any:
    """When a client begins."""
    busy = pick.choice(["skip", "queue"])
    return pick.choice(
        [
            "immediate",
            "immediate",
            {"kind": "poisson", "rate": "200 /s", "busy": busy},
            {"kind": "varying_poisson", "rate": [[0, "400 /s"], ["30 ms", "100 /s"]], "busy": busy},
            {"kind": "schedule", "times": [0, "3 ms", "4 ms", "9 ms"], "period": "10 ms", "busy": busy},
            {"kind": "schedule", "times": [0.001 * k * k for k in range(12)], "busy": busy},
        ]
    )


def protocol(pick: random.Random, clients: int) -> dict[str, Any]:
    """Any of the protocols, with any of its options."""
    kind = pick.choice(["synchronous", "ignore", "ignore", "t_synchronous", "t_synchronous", "asynchronous"])
    said: dict[str, Any] = {"kind": kind}
    if kind == "ignore":
        said |= pick.choice(
            [{"fastest": pick.randint(1, clients)}, {"deadline": pick.choice(["2 ms", "9 ms"])}, {"exclude": "1"}]
            if clients > 1
            else [{"fastest": 1}, {"deadline": "9 ms"}]
        )
    if kind == "t_synchronous":
        said |= {"t": pick.randint(1, clients), "cancel": pick.random() < 0.4}
    if kind in ("t_synchronous", "asynchronous"):
        said["first_fill"] = pick.choice(["zeros", "zeros", "upload"])
        if pick.random() < 0.5:
            said |= {"max_staleness": pick.choice([0, 1, 3]), "bounds": pick.choice(["client_age", "row_age"])}
    return said


def fedvs(pick: random.Random, clients: int) -> dict[str, Any]:
    """FedVS, with any of its options: from one straggler too many to all but one."""
    most = (clients - 1) // 2 + 1  # of K + T
    masks = pick.randint(1, most - 1)
    segments = pick.choice([k for k in (1, 2, 5) if k <= most - masks])
    said: dict[str, Any] = {"kind": "fedvs", "K": segments, "T": masks, "arithmetic": pick.choice(["coded", "decoded"])}
    said["late"] = pick.choice(["abandoned", "abandoned", "finished"])
    said["share_delay_factor"] = pick.choice([0, 0.5, 2])
    if pick.random() < 0.4:
        said["sharers"] = pick.randint(1, clients)
    if pick.random() < 0.4:
        said |= {"deadline": pick.choice(["9 ms", "30 ms", "200 ms"]), "too_few": pick.choice(["skip", "skip", "stop"])}
    return said


def local(pick: random.Random, _: int) -> dict[str, Any]:
    """A protocol of VIM's family, or FedBCD, with any of its options."""
    steps, slow = pick.randint(1, 4), {"kind": "sgd", "lr": 0.02}  # which does not diverge
    said = pick.choice(
        [
            {"kind": "vimsgd", "models": HEADS},
            {"kind": "vimadmm", "rho": 0.2, "local_steps": steps, "models": HEADS},
            {"kind": "vimadmm_j", "rho": 0.2, "local_steps": steps, "models": HEADS},
            {"kind": "fdml", "combine": pick.choice(["sum", "mean"]), "models": HEADS},
            {"kind": "fedbcd", "local_steps": steps},
            {"kind": "fedbcd", "local_steps": steps, "gradients": "recomputed"},
            {"kind": "c_vfl", "local_steps": steps, "codec": {"kind": "scalar_quantiser", "bits": 6}},
            {"kind": "ef_vfl", "local_steps": steps, "labels": "private", "codec": {"kind": "top_k", "fraction": 0.5}},
            {"kind": "fedbcd", "local_steps": steps, "order": "sequential", "server_steps": pick.randint(1, 4)},
        ]
    )
    return {**said, "training": {"client_optimizer": slow, "server_optimizer": slow}}


def blinded(pick: random.Random, clients: int) -> dict[str, Any]:
    """A protocol whose clients blind their embeddings, with any rule for missing ones."""
    missing = pick.choice(["wait", "skip", "stop"])
    few = {"fastest": pick.randint(1, clients) if missing == "wait" else clients}
    said = pick.choice(
        [
            {"kind": "synchronous"},
            {"kind": "easter"},
            {"kind": "ignore", **pick.choice([{"deadline": pick.choice(["9 ms", "30 ms"])}, few])},
        ]
    )
    return {**said, "blinding": {"missing": missing, "bits": pick.choice([32, 64])}}


def easter(pick: random.Random, _: int) -> dict[str, Any]:
    """EASTER, most often, or one of the protocols that it is compared with."""
    baseline = {"kind": "agg_vfl", "combine": pick.choice(["sum", "mean"])}
    others = [{"kind": "pyvertical", "models": {"aggregate": "concat"}}, {**baseline, "models": {"aggregate": "mean"}}]
    slow = {"kind": "sgd", "lr": 0.02}
    said = pick.choice([*[{"kind": "easter", "models": {"aggregate": "mean"}}] * 3, *others])
    return {**said, "training": {"client_optimizer": slow, "server_optimizer": slow}}


def overlapping(pick: random.Random, clients: int) -> dict[str, Any]:
    """A protocol whose parties work while they wait, or that steps without those who are late."""
    steps, slow = pick.randint(1, 4), {"kind": "sgd", "lr": 0.02}
    said = pick.choice(
        [
            {"kind": "bs_vfl", "window": pick.randint(0, 4), "local_steps": steps},
            {"kind": "celu_vfl", "cache": pick.randint(1, 4), "uses": steps, "angle": pick.choice([30, 60, 90])},
            {"kind": "flex_vfl", "local_time": pick.choice(["1 ms", "10 ms", "40 ms"]), "scale_rate": True},
            {"kind": "flex_vfl", "local_steps": [pick.randint(1, 4) for _ in range(clients + 1)]},
            {"kind": "laser_vfl", "models": {"aggregate": "mean"}, **pick.choice([{}, {"deadline": "9 ms"}])},
        ]
    )
    return {**said, "training": {"client_optimizer": slow, "server_optimizer": slow}}


FAMILIES = {
    "fedvs": fedvs,
    "local": local,
    "blinded": blinded,
    "easter": easter,
    "overlapping": overlapping,
    "": protocol,
}


def drawn(seed: int, kind: str = "") -> Scenario:
    """A scenario with faults that mixes what a scenario can say; of the protocols ``kind``."""
    pick = random.Random(seed)
    clients = pick.randint(3, 7) if kind == "fedvs" else pick.randint(1, 5)
    said = FAMILIES[kind](pick, clients)
    if clients == 1 and kind in ("blinded", "easter"):
        said["blinding"] = "off"  # one client has no masks, which is refused
    table = said["kind"] in ("t_synchronous", "asynchronous")
    own = table and not said.get("cancel") and pick.random() < 0.4
    link: dict[str, Any] = {"latency": pick.choice([0, "1 ms", {"kind": "exponential", "mean": "1 ms"}])}
    server: dict[str, Any] = {"latency": pick.choice([0, "1 ms"])}
    if pick.random() < 0.6:
        link |= {"up": pick.choice(["3 Mbps", "30 Mbps"]), "down": "5 Mbps"}
    if kind == "fedvs" and link.get("down"):
        link |= {"up": "60 Mbps", "down": "100 Mbps"}  # shares weigh more, and everybody sends them to everybody
    if pick.random() < 0.3:
        server |= {"up": [[0, "5 Mbps"], ["15 ms", 0], ["25 ms", "5 Mbps"]], "down": "50 Mbps"}
    interrupted = pick.choice([["lost"], ["resumed"], ["lost", "resumed"]])
    everybody = {
        "select": "all",
        "compute": duration(pick, pick.choice([0.5, 2])),
        "upload_delay": duration(pick, pick.choice([0, 3])),
        "link": link,
        "activation": activation(pick),
    }
    some = [client for client in range(1, clients + 1) if pick.random() < 0.7] or [clients]
    same = pick.random() < 0.2 and availability(pick, interrupted[0])
    down = [
        {"select": str(client), "availability": same or availability(pick, pick.choice(interrupted))} for client in some
    ]
    return load(
        raw(
            {"it": said},
            timing={
                "network": pick.choice(["fifo", "dedicated", "fair"]),
                "transport": {"kind": "tcp", "initial_window": 1} if seed % 3 == 0 else "fluid",
                "server": {"compute": duration(pick, 1), "link": server},
                "clients": [everybody, *down],
            },
            partition={"clients": clients, "by": "columns"},
            training__batches="own" if own else "shared",
            training__batch=pick.choice([20, 90]),
            models__aggregate="mean" if kind in ("fedvs", "blinded") else pick.choice(["mean", "max", "concat"]),
            stop={"time": "20 s", **pick.choice([{"rounds": 12}, {"time": "200 ms"}, {"updates": 25}])},
            evaluate={
                "every": pick.choice(["3 rounds", "5 ms"]),
                "costs_time": interrupted == ["resumed"] and pick.random() < 0.3,
            },
        )
    )


def checked(seed: int, timing_only: bool = True, kind: str = "") -> Outcome:
    """Run a random scenario: it ends in a sound result, or in an error that says who and what is missing.

    Where it is of the protocol ``fedvs``, and trained, every sum that is decoded is checked, too.
    """
    scenario = drawn(seed, kind)
    with watched_sums(scenario, "it"):
        return _checked(scenario, seed, timing_only)


def _checked(scenario: Scenario, seed: int, timing_only: bool) -> Outcome:
    outcome = run_protocol(scenario, "it", seed, data_of(scenario, "it"), timing_only=timing_only)
    assert outcome.tables.events is not None
    assert outcome.tables.events.num_rows < MOST_EVENTS
    if outcome.error is None:
        assert verify_run(outcome.tables, outcome.info) == []
        assert outcome.info.stalled == ()
    else:
        explained(outcome.error, scenario)
    return outcome


def explained(error: VflsimError, scenario: Scenario) -> None:
    """Assert that the error says what is missing, and that only what must end in such an error does."""
    assert re.search(NAMES_WHAT_IS_MISSING[type(error)], str(error)), str(error)
    if isinstance(error, DeadlockError):
        assert "there are no more" in str(error), str(error)


@contextmanager
def watched_sums(scenario: Scenario, name: str) -> Iterator[list[tuple[int, ...]]]:
    """Assert of every sum that a run of ``scenario`` decodes that it is the plain one, and yield over whom they went.

    The plain one is of the rounded data and of the weights that the clients have at that moment: nobody who has shared
    steps before the gradient, so these are the very weights that were shared.
    """
    over: list[tuple[int, ...]] = []
    made: dict[str, runs.Parties] = {}
    decode, parties = CodedServerLearner.decode, runs.parties

    def kept(*said: Any) -> runs.Parties:
        made["it"] = parties(*said)
        return made["it"]

    def watched(
        learner: CodedServerLearner, batch: SegmentedBatch, embeddings: Sequence[Any], sharers: Sequence[int]
    ) -> Operation[Any]:
        operation = decode(learner, batch, embeddings, sharers)
        work, clear = operation.run, InTheClear(scenario, learner.plan)
        clients: dict[int, CodedClientLearner] = {node.party: node.learner for node in made["it"].clients}

        def run() -> None:
            work()
            weights = {n: clients[n]._weights().numpy() for n in sharers}
            total = clear.total(batch, weights, round_=embeddings[0].round)
            expected = clear.mean(total, len(sharers)).to(operation.result.dtype)
            assert torch.equal(operation.result.value, expected), f"round {embeddings[0].round}, S = {sharers}"
            over.append(tuple(sharers))

        operation.run = run
        return operation

    with patch.object(CodedServerLearner, "decode", watched), patch.object(runs, "parties", kept):
        yield over


def main() -> None:
    """``python tests/support/fault_worlds.py [FIRST] [END] [KIND]``: scenarios FIRST (0) to END (1000), counts of ends.

    ``fedvs``: of that protocol alone; ``local``: of VIM's family and FedBCD; ``blinded``: with blinded embeddings;
    ``easter``: of EASTER and its baselines.
    """
    import sys
    from collections import Counter

    outages.CRASHES_WITHOUT_A_STEP = FEW_CRASHES
    first, end = (int(argument) for argument in (sys.argv[1:3] if len(sys.argv) > 2 else (0, 1000)))
    kind = "".join(sys.argv[3:4])
    ends: Counter[str] = Counter()
    for seed in range(first, end):
        try:
            outcome = checked(seed, timing_only=seed % 5 != 0, kind=kind)
            ends[type(outcome.error).__name__ if outcome.error else str(outcome.info.stop_reason)] += 1
        except Exception as error:
            print(f"scenario {seed}: {type(error).__name__}: {error}", flush=True)
            ends["wrong"] += 1
        if seed % 100 == 99:
            print(f"… {seed + 1}", flush=True)
    print(dict(ends))


if __name__ == "__main__":
    main()
