"""A run that was interrupted, however often and wherever, writes the very bytes of one that was not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import fault_worlds
import pytest
from coded_worlds import coded
from kept_runs import KeptAt, files_of, interrupted, whole
from thorough import is_thorough
from tiny_worlds import NOISY, RANDOM_TIMING, data_of, raw, run, tiny

from vflsim.learning.execution.deferred_executor import DeferredExecutor
from vflsim.scenario import load
from vflsim.simulation.run import Outcome, run_protocol
from vflsim.vocabulary.execution_options import Execution
from vflsim.world.virtual import VirtualWorld

EAGER = Execution(eager=True)
ADAM = {"kind": "adam", "lr": 0.01}
MOMENTUM = {"kind": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
NOISE = {"kind": "gaussian", "clip": 1, "noise_multiplier": 0.1, "delta": 1e-5}
MLP = {"kind": "mlp", "hidden": [5], "embedding": 6}
POLYNOMIAL = {"kind": "polynomial", "degree": 2, "embedding": 6}
MODULE = {"kind": "module", "path": "normed_module:Normed", "embedding": 6}


def optimizers(said: dict[str, Any]) -> dict[str, Any]:
    return {"training__client_optimizer": said, "training__server_optimizer": said}


ASYNCHRONOUS = {"stop": {"rounds": 40}, "evaluate": {"every": "12 rounds"}}
CASES: dict[str, tuple[str | dict[str, Any], dict[str, Any]]] = {
    "synchronous": ("synchronous", {}),
    "centralised": ("centralised", {}),
    "concat, float32": ("synchronous", {"models__aggregate": "concat", "training__dtype": "float32"}),
    "max, polynomials": ("synchronous", {"models__aggregate": "max", "models__client": POLYNOMIAL}),
    "mlp, adam, ragged": (
        "synchronous",
        {"models__client": MLP, "partition": {"clients": 5, "by": "columns"}, **optimizers(ADAM)},
    ),
    "noise, evaluation that takes time": (
        {"kind": "synchronous", "mechanism": NOISE},
        {"evaluate": {"every": "5 rounds", "costs_time": True}},
    ),
    "workers": (
        {"kind": "pubsub_vfl", "workers": {"active": 2, "passive": 3}, "capacity": 5, "average_every": 3},
        {"models__client": MLP, **optimizers(MOMENTUM), **ASYNCHRONOUS},
    ),
    "cnn": (
        "synchronous",
        {"models__client": {"kind": "cnn", "channels": [2], "embedding": 6}, "partition__by": "image_rows"},
    ),
    "batch norm at both ends": (
        "synchronous",
        {
            "models__client": MODULE,
            "models__server": {"kind": "mlp", "hidden": [8], "batch_norm": True},
            "training__last_batch": "drop",
            **optimizers(MOMENTUM),
        },
    ),
    "ignore": ({"kind": "ignore", "fastest": 2}, {}),
    "blinded, noise": ({"kind": "synchronous", "mechanism": NOISE, "blinding": "on"}, {}),
    "easter, blinded": ("easter", {"models__client": MLP, "models__active": MLP}),
    "a codec that rounds": ("synchronous", {"codec": {"kind": "module", "path": "int8_codec:Int8", "step": 0.01}}),
    "a codec with error feedback": (
        "asynchronous",
        {**ASYNCHRONOUS, "codec": {"kind": "module", "path": "int8_codec:Int8Feedback", "step": 0.05}},
    ),
    "t-synchronous, cancelled": ({"kind": "t_synchronous", "t": 2, "cancel": True}, optimizers(MOMENTUM)),
    "t-synchronous, bounded": (
        {"kind": "t_synchronous", "t": 2, "max_staleness": 1, "first_fill": "upload"},
        optimizers(ADAM),
    ),
    "asynchronous": ("asynchronous", {**ASYNCHRONOUS, "training__batches": "own", **optimizers(ADAM)}),
    "asynchronous, kept sums of rows": (
        "asynchronous",
        {**ASYNCHRONOUS, "models__aggregate": "mean", "partition": {"clients": 7, "by": "columns"}},
    ),
    "asynchronous, noise": ({"kind": "asynchronous", "mechanism": NOISE, "max_staleness": 2}, ASYNCHRONOUS),
}


ONE_BY_ONE = ("mlp, adam, ragged", "t-synchronous, cancelled", "asynchronous, noise")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "execution"), [*((case, Execution()) for case in CASES), *((case, EAGER) for case in ONE_BY_ONE)]
)
def test_an_interrupted_run_writes_the_bytes_of_one_that_was_not(
    case: str, execution: Execution, tmp_path: Path
) -> None:
    protocol, said = CASES[case]
    protocols = {"it": {"kind": protocol} if isinstance(protocol, str) else protocol}
    check(raw(protocols, timing=RANDOM_TIMING, **said), tmp_path, case, execution=execution)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arithmetic", ["coded", "decoded"])
def test_so_does_one_on_shares(arithmetic: str, tmp_path: Path) -> None:
    more = {"timing": RANDOM_TIMING, "stop": {"rounds": 6}, **optimizers(MOMENTUM)}
    check(coded(bias=True, arithmetic=arithmetic, more=more), tmp_path, arithmetic)


def test_so_does_one_whose_parties_say_what_they_draw(tmp_path: Path) -> None:
    power = {"idle": "1 W", "compute": "3 W", "radio": "2 W", "per_byte": "1 uJ", "per_flop": "1 nJ"}
    away = {"kind": "alternating", "up": "30 ms", "down": "5 ms", "interrupted": "lost"}
    clients = [*RANDOM_TIMING["clients"], {"select": "all", "power": power}, {"select": 2, "availability": away}]
    said = raw({"it": {"kind": "asynchronous"}}, timing={**RANDOM_TIMING, "clients": clients}, **ASYNCHRONOUS)
    check(said, tmp_path, "energy")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["fair", "fifo", "dedicated"])
def test_so_does_one_whose_connections_have_windows(network: str, tmp_path: Path) -> None:
    timing = {**RANDOM_TIMING, "network": network, "transport": {"kind": "tcp", "initial_window": 1}}
    said = raw("asynchronous", timing=timing, **{**ASYNCHRONOUS, "training__batch": 90})
    fluid, _ = whole(load({**said, "timing": {**timing, "transport": "fluid"}}))
    slower, _ = whole(load(said))
    assert slower.tables.metrics["time_s"][-1].as_py() > 1.05 * fluid.tables.metrics["time_s"][-1].as_py()
    check(said, tmp_path, network)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("network", ["fair", "fifo", "dedicated"])
def test_so_does_one_whose_server_has_slots(network: str, tmp_path: Path) -> None:
    away = {"kind": "alternating", "up": "30 ms", "down": "5 ms", "interrupted": "resumed"}
    slow = {"select": "all", "link": {"up": "1 Mbps", "down": "1 Mbps"}}
    clients = [*RANDOM_TIMING["clients"], slow, {"select": 2, "availability": away}]
    timing = {"network": network, "server": {**RANDOM_TIMING["server"], "concurrency": 2}, "clients": clients}
    check(raw({"it": {"kind": "asynchronous"}}, timing=timing, **ASYNCHRONOUS), tmp_path, network)


def check(said: dict[str, Any], folder: Path, salt: str, **more: Any) -> None:
    """Interrupt anywhere, and just before the end; and without interruptions keep checkpoints."""
    scenario = load(said)
    outcome, last = whole(scenario, **more)
    expected = files_of(outcome, folder / "whole", scenario)
    events = [*sorted(random.Random(salt).sample(range(last), 2 if is_thorough() else 1)), last]
    kept = files_of(run(scenario, keeper=KeptAt(folder / "kept", events), **more), folder / "with", scenario)
    assert kept == expected
    for count in events:
        interrupted(scenario, folder / "checkpoints", [count], **more)
    resumed = run(scenario, keeper=KeptAt(folder / "checkpoints"), **more)
    assert "resumed from" in resumed.note
    assert files_of(resumed, folder / "resumed", scenario) == expected


def test_a_stretch_that_holds_a_target_goes_on_where_an_interruption_cut_it(tmp_path: Path) -> None:
    stop = {"rounds": 120, "target": {"test_accuracy": 0.6, "for": "3 evaluations"}}
    scenario = load(raw("asynchronous", **{**NOISY, "stop": stop}))
    outcome, last = whole(scenario)
    rows = outcome.tables.metrics.num_rows
    assert outcome.info.stop_reason == "target"
    expected = files_of(outcome, tmp_path / "whole", scenario)
    for back in (1, last // rows, last // rows * 2):  # after the second evaluation of the stretch, the first, none
        place = tmp_path / str(back)
        interrupted(scenario, place, [last - back])
        resumed = run(scenario, keeper=KeptAt(place))
        assert files_of(resumed, tmp_path / f"resumed-{back}", scenario) == expected


def test_so_does_one_that_was_interrupted_before_anything_happened(tmp_path: Path) -> None:
    scenario = tiny()
    interrupted(scenario, tmp_path / "checkpoints", [0])
    resumed = run(scenario, keeper=KeptAt(tmp_path / "checkpoints"))
    assert files_of(resumed, tmp_path / "a", scenario) == files_of(run(scenario), tmp_path / "b", scenario)


EVALUATED = {"evaluate": {"every": "2 rounds", "costs_time": True}}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("protocol", "limit", "said"), [("asynchronous", 30_000, ASYNCHRONOUS), ("ignore", 0, EVALUATED)]
)
def test_work_that_ran_early_for_want_of_memory_is_not_done_again(
    protocol: str, limit: int, said: dict[str, Any], tmp_path: Path
) -> None:
    """In the second case sums are asked for that are of weights that have moved on."""
    protocols = {"it": {"kind": protocol, **({"fastest": 2} if protocol == "ignore" else {})}}
    scenario = load(raw(protocols, timing=RANDOM_TIMING, **said))

    def world() -> VirtualWorld:
        return VirtualWorld(DeferredExecutor(limit_bytes=limit))

    expected = files_of(run(scenario, world=world()), tmp_path / "whole", scenario)
    for events in range(100, 400, 60):
        interrupted(scenario, tmp_path / "checkpoints", [events], world=world())
    resumed = run(scenario, world=world(), keeper=KeptAt(tmp_path / "checkpoints"))
    assert files_of(resumed, tmp_path / "resumed", scenario) == expected


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("seed", "kind"), [(seed, kind) for kind in ("", "fedvs", "blinded") for seed in (0, 3)])
def test_runs_whose_clients_go_down_and_come_back_do_so_again(seed: int, kind: str, tmp_path: Path) -> None:
    scenario = fault_worlds.drawn(seed, kind)
    pick = random.Random(seed)

    def go(keeper: KeptAt | None = None) -> Outcome:
        return run_protocol(scenario, "it", seed, data_of(scenario, "it"), world=world, keeper=keeper)

    world = VirtualWorld(DeferredExecutor())
    expected = files_of(go(), tmp_path / "whole", scenario)
    for events in sorted(pick.sample(range(world.events * 9 // 10), 2)):
        world = VirtualWorld(DeferredExecutor())
        with pytest.raises(KeyboardInterrupt):
            go(KeptAt(tmp_path / "checkpoints", [events], stop=True))
    world = VirtualWorld(DeferredExecutor())
    resumed = go(KeptAt(tmp_path / "checkpoints"))
    assert "resumed from" in resumed.note
    assert files_of(resumed, tmp_path / "resumed", scenario) == expected
