"""Live runs of whole studies: processes, connections, results. Each starts a process a client."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import Ended
from live_kinds import LIVE
from protocols_by_kind import KINDS
from safetensors.torch import load_file
from tiny_worlds import RANDOM_TIMING, raw

from vflsim.remote.keys import make_identities

BLINDED = {"kind": "synchronous", "blinding": "on", "models": {"aggregate": "mean"}}
CODED = {"kind": "fedvs", "K": 1}
LOSSY = {"kind": "c_vfl", "local_steps": 2, "codec": {"kind": "scalar_quantiser", "bits": 4}}


def stored(folder: Path, clients: int = 2, **changes: Any) -> Path:
    said = raw({"wait": "synchronous"} | changes.pop("more", {}), **{"timing": RANDOM_TIMING, **changes})
    said["protocols"]["wait"] = {"kind": "synchronous"}
    said["partition"]["clients"] = clients
    said["training"]["dtype"] = "float64"
    said["record"] = "events"
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(said))
    return file


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def first_overtaking(both: pd.DataFrame) -> float:
    """Return when live messages first take turns on a link in another order than simulated ones (simulated s).

    A message that a late machine reads after its turn lets the next one pass, which then ends before it is due.
    """
    sent = both[both["kind"].str.startswith("transfer.")].sort_values("end_s_live", kind="stable")
    later = sent.groupby("party", observed=True)["end_s_simulated"].transform(lambda ends: ends[::-1].cummin()[::-1])
    return (
        float(later[later < sent["end_s_simulated"]].min()) - 1e-9
        if (later < sent["end_s_simulated"]).any()
        else math.inf
    )


@pytest.mark.slow
def test_live_training_equals_eager_simulation_bit_for_bit(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    more = {"lossy": LOSSY, "blinded": BLINDED, "coded": CODED}
    scenario = stored(tmp_path, clients=3, more=more, stop={"rounds": 6})
    live, simulated = tmp_path / "live", tmp_path / "simulated"
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    assert vflsim("verify", live).status == 0
    assert vflsim("compare", live, simulated).status == 0
    for name in ("wait", *more):
        one, other = live / name / "seed-0", simulated / name / "seed-0"
        weights, wanted = load_file(one / "weights.safetensors"), load_file(other / "weights.safetensors")
        assert weights.keys() == wanted.keys()
        assert all(torch.equal(weights[key], wanted[key]) for key in wanted)
        info = json.loads((one / "run.json").read_text())
        assert (info["path"], info["reproducible"], info["counts"]["rounds"]) == ("live", False, 6)
        counts = [table(run, "metrics")[["bytes_up", "bytes_peer"]].iloc[-1] for run in (one, other)]
        assert counts[0].equals(counts[1])
        assert (counts[0]["bytes_peer"] > 0) == (name == "coded")
        keys = ["party", "kind", "peer", "round", "index"]
        done = [table(run, "events").query("outcome == 'done'") for run in (one, other)]
        both = done[0].merge(done[1], on=keys, suffixes=("_live", "_simulated"))
        assert len(both) >= 0.8 * len(done[1])
        drawn = both.dropna(subset="drawn_s_simulated")
        assert (drawn["drawn_s_live"] == drawn["drawn_s_simulated"]).all()
        alike = both[both["end_s_simulated"] <= first_overtaking(both)]
        assert (alike["end_s_live"] >= alike["end_s_simulated"] - 1e-6).all(), "nothing ends before it is due"
    calibrated = vflsim("calibrate", live, "--run", "wait/0", "--alike")
    assert calibrated.status == 0, calibrated.err
    assert "messages down" in calibrated.out
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"vflsim-live-{os.getpid()}-*"))
    assert vflsim("run", scenario, "--out", live, "--no-report", "--eager").status == 0
    assert json.loads((live / "wait" / "seed-0" / "run.json").read_text())["path"] == "event", "no live run is kept"


ACTIVE = frozenset({"easter", "easter-clear", "pyvertical", "agg_vfl", "agg_vfl-sum"})
ORDERED = frozenset(
    kind
    for kind in LIVE
    if kind.startswith(
        (
            "t-synchronous",
            "asynchronous",
            "ignore-",
            "fedvs-partial",
            "bs_vfl",
            "celu_vfl",
            "laser_vfl",
            "czofo",
            "dpzv",
        )
    )
    and kind != "ignore-exclude"
)
"""Kinds that step on what arrives first: live another order can come, and other weights."""
MEASURING = frozenset({"flex_vfl"})
"""Kinds whose steps follow measured times."""
NOISY = frozenset({"synchronous-rounded", "dpzv"})
"""Kinds with noise of the operating system."""
UNORDERED = frozenset({"ignore-deadline", "laser_vfl"})
"""Kinds with a deadline: a timeout is not part of the order, so they cannot be replayed."""
SLOWLY_ANALYSED = frozenset({"fedvs"})
"""Its closed form for four clients with these delays takes minutes; with three, it is compared above."""


@pytest.mark.slow
@pytest.mark.parametrize("active", [True, False], ids=["active party", "passive server"])
def test_every_kind_runs_live_and_those_that_wait_for_all_equal_the_simulation(
    active: bool, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    kinds = [kind for kind in LIVE if (kind in ACTIVE) is active and kind not in SLOWLY_ANALYSED]
    said = raw({kind: KINDS[kind] for kind in kinds}, timing=RANDOM_TIMING, stop={"rounds": 4})
    if not active:
        said["protocols"]["costly"] = {"kind": "synchronous", "evaluate": {"every": "2 rounds", "costs_time": True}}
    scenario, live, simulated = tmp_path / "scenario.yaml", tmp_path / "live", tmp_path / "simulated"
    scenario.write_text(json.dumps(said | {"record": "events"}))
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    for name in said["protocols"]:
        weights, wanted = (load_file(at / name / "seed-0" / "weights.safetensors") for at in (live, simulated))
        assert weights.keys() == wanted.keys(), name
        apart = max(float((weights[key] - wanted[key]).abs().max()) for key in wanted)
        assert name not in NOISY or apart > 0, name
        assert name in ORDERED | MEASURING | NOISY or apart <= (1e-14 if name == "vimadmm" else 0.0), name


@pytest.mark.slow
def test_a_replay_in_the_live_order_ends_with_the_live_weights(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    kinds = sorted(ORDERED - UNORDERED - NOISY)
    said = raw({kind: KINDS[kind] for kind in kinds}, timing=RANDOM_TIMING, stop={"rounds": 20})
    scenario, live = tmp_path / "scenario.yaml", tmp_path / "live"
    scenario.write_text(json.dumps(said | {"record": "events"}))
    assert vflsim("live", scenario, "--out", live, "--no-report").status == 0
    assert vflsim("verify", live).status == 0
    ended = vflsim("replay", live)
    assert ended.status == 0, ended.err
    for kind in kinds:
        one, other = (
            load_file(at / kind / "seed-0" / "weights.safetensors") for at in (live, tmp_path / "live-replay")
        )
        assert all(torch.equal(one[key], other[key]) for key in one), kind


AWAY: dict[str, Any] = {
    **RANDOM_TIMING,
    "clients": [
        *RANDOM_TIMING["clients"],
        {"select": "1", "availability": {"kind": "intervals", "down": [["70 ms", "120 ms"]], "interrupted": "resumed"}},
        {
            "select": "2",
            "availability": {
                "kind": "intervals", "down": [["60 ms", "130 ms"]], "period": "240 ms", "interrupted": "lost",
            },
        },
    ],
}  # fmt: skip
"""A client that pauses once, and one that crashes again and again."""


@pytest.mark.slow
def test_outages_of_the_scenario_happen_live_as_they_are_drawn(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    scenario = stored(tmp_path, timing=AWAY, stop={"time": "700 ms"})
    live, simulated = tmp_path / "live", tmp_path / "simulated"
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert vflsim("verify", live).status == 0
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    runs = [folder / "wait" / "seed-0" for folder in (live, simulated)]
    info = json.loads((runs[0] / "run.json").read_text())
    assert (info["stop_reason"], info["crashing"]) == ("time", [2])
    assert info["counts"]["rounds"] >= 2
    ours, theirs = (table(run, "events") for run in runs)
    keys = ["party", "index", "outcome"]
    outages = [
        each[each["kind"] == "outage"].astype({"party": str, "outcome": str}).sort_values(keys, ignore_index=True)
        for each in (ours, theirs)
    ]
    assert outages[0][keys].equals(outages[1][keys])
    assert outages[0]["party"].tolist() == ["client-1", *["client-2"] * 3]
    assert (outages[0]["start_s"] >= outages[1]["start_s"] - 1e-6).all(), "none begins before it is due"
    both = ours.merge(theirs, on=["party", "kind", "peer", "index"]).dropna(subset="drawn_s_x")
    assert len(both) > 10
    assert (both["drawn_s_x"] == both["drawn_s_y"]).all()
    ended = vflsim("replay", live)
    assert (ended.status, "outages of client-1 are no part of the order" in ended.err) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", ["resumed", "lost"])
def test_every_kind_runs_live_with_clients_that_go_down(
    interrupted: str, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    unfit = SLOWLY_ANALYSED if interrupted == "resumed" else SLOWLY_ANALYSED | NEEDS_PAUSES
    kinds = [kind for kind in LIVE if kind not in unfit]
    spans = {name: {"kind": "uniform", "low": low, "high": high} for name, low, high in SPANS}
    away = {"select": "2", "availability": {"kind": "alternating", **spans, "interrupted": interrupted}}
    timing = {**RANDOM_TIMING, "clients": [*RANDOM_TIMING["clients"], away]}
    for active in (True, False):
        chosen = [kind for kind in kinds if (kind in ACTIVE) is active]
        said = raw({kind: KINDS[kind] for kind in chosen}, timing=timing, stop={"rounds": 8})
        scenario, live, simulated = (tmp_path / f"{name}-{active}" for name in ("scenario.yaml", "live", "simulated"))
        scenario.write_text(json.dumps(said | {"record": "events"}))
        ended = vflsim("live", scenario, "--out", live, "--no-report")
        assert ended.status == 0, ended.err
        assert vflsim("verify", live).status == 0
        assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
        for name in chosen:
            weights, wanted = (load_file(at / name / "seed-0" / "weights.safetensors") for at in (live, simulated))
            assert weights.keys() == wanted.keys(), name
            apart = max(float((weights[key] - wanted[key]).abs().max()) for key in wanted)
            free = interrupted == "lost" or name in ORDERED | MEASURING | NOISY
            assert free or apart <= (1e-14 if name == "vimadmm" else 0.0), name


NEEDS_PAUSES = frozenset({"ef_vfl"})
"""Kinds that no scenario may have with clients that lose their work."""
SPANS = (("up", "60 ms", "160 ms"), ("down", "30 ms", "90 ms"))


@pytest.mark.slow
def test_results_without_orders_cannot_be_replayed(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    assert vflsim("run", stored(tmp_path, stop={"rounds": 2}), "--out", tmp_path / "it", "--no-report").status == 0
    ended = vflsim("replay", tmp_path / "it")
    assert ended.status == 2
    assert "has no order of wait with seed 0" in ended.err


@pytest.mark.slow
def test_a_killed_client_is_named_and_what_was_finished_stays(tmp_path: Path) -> None:
    slow = {"wait": {"kind": "synchronous"}, "slow": {"kind": "synchronous", "stop": {"rounds": 10_000}}}
    scenario = stored(tmp_path, more=slow, stop={"rounds": 2})
    out = tmp_path / "live"
    command = [sys.executable, "-m", "vflsim", "live", str(scenario), "--out", str(out), "--no-report"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        last = time.monotonic() + 240
        while not (out / "wait" / "seed-0" / "run.json").is_file():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < last, "the first run never ended"
            time.sleep(0.1)
        time.sleep(1.0)
        (victim,) = playing(process.pid, "client-2")
        os.kill(victim, signal.SIGKILL)
        said = process.communicate(timeout=120)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, said
    assert "client-2" in said
    assert (out / "wait" / "seed-0" / "run.json").is_file()
    assert (out / "summary.md").is_file()
    assert playing(process.pid, "client-") == []


def playing(study: int, client: str) -> list[int]:
    """The processes of a live study that write the log of a client."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                log = str((entry / "fd" / "1").readlink())
                if f"vflsim-live-{study}-" in log and client in log:
                    found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--party", "3", "--connect", "127.0.0.1:1"], "--party 3"),
        (["--party", "1", "--connect", "nowhere"], "HOST:PORT"),
        (["--party", "1", "--connect", "127.0.0.1:99999"], "HOST:PORT"),
        (["--party", "1", "--connect", "127.0.0.1:1"], "no identity can be read"),
        (["--party", "0", "--connect", "127.0.0.1:1"], "server, or 1 to 2, the clients of the scenario"),
        (["--party", "one", "--connect", "127.0.0.1:1"], "server, or 1 to 2, the clients of the scenario"),
        (["--party", "1"], "--connect HOST:PORT"),
        (["--party", "1", "--connect", "127.0.0.1:1", "--listen", "127.0.0.1:1"], "without --listen and --out"),
        (["--party", "server"], "--listen HOST:PORT, and no --connect"),
        (["--party", "server", "--connect", "127.0.0.1:1"], "--listen HOST:PORT, and no --connect"),
        (["--party", "server", "--listen", "nowhere"], "HOST:PORT"),
    ],
)
def test_a_party_that_cannot_play_is_one_message(
    arguments: list[str], said: str, tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    ended = vflsim("party", stored(tmp_path), *arguments, "--identity", tmp_path)
    assert ended.status == 2 or ended.status == 1
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_noise_of_live_runs_is_private_and_costs_the_epsilon_of_the_simulation(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    noise = {"kind": "gaussian", "clip": 1, "delta": 1e-5, "epsilon": 8, "per": "run"}
    inner = {"kind": "perturbed_local_embedding", "clip": 1, "delta": 1e-5, "mu": 1, "releases": 20}
    more = {
        "noisy": {"kind": "synchronous", "mechanism": noise},
        "inside": {"kind": "fedbcd", "local_steps": 2, "mechanism": inner},
    }
    scenario = stored(tmp_path, more=more, stop={"rounds": 6})
    live, simulated = tmp_path / "live", tmp_path / "simulated"
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    assert vflsim("verify", live).status == 0
    for name in more:
        runs = [folder / name / "seed-0" for folder in (live, simulated)]
        privacy = [json.loads((run / "run.json").read_text())["privacy"] for run in runs]
        assert privacy[0] == privacy[1]
        assert privacy[0]["epsilon_run"] > 0
        spent = [table(run, "metrics")["epsilon"] for run in runs]
        assert spent[0].iloc[0] == spent[1].iloc[0]
        assert spent[0].iloc[-1] == spent[1].iloc[-1] == privacy[0]["epsilon_run"]
        weights, wanted = (load_file(run / "weights.safetensors") for run in runs)
        assert any(not torch.equal(weights[key], wanted[key]) for key in wanted), "noise of its own"
    ended = vflsim("replay", live)
    assert (ended.status, "the noise of a live run is in no file" in ended.err) == (2, True)


@pytest.mark.slow
def test_a_live_run_ends_before_any_client_spends_more_than_it_may(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    noise = {"kind": "gaussian", "clip": 1, "delta": 1e-5, "noise_multiplier": 4}
    kinds = {
        "wait": {"kind": "synchronous"},
        "local": {"kind": "fedbcd", "local_steps": 2},
        "any": {"kind": "asynchronous"},
    }
    said = raw({name: {**kind, "mechanism": noise} for name, kind in kinds.items()}, timing=RANDOM_TIMING)
    said |= {"stop": {"epsilon": 2.5, "rounds": 400}}
    said["partition"]["clients"] = 2
    scenario, live, simulated = tmp_path / "scenario.yaml", tmp_path / "live", tmp_path / "simulated"
    scenario.write_text(json.dumps(said))
    ended = vflsim("live", scenario, "--out", live, "--no-report")
    assert ended.status == 0, ended.err
    assert vflsim("run", scenario, "--out", simulated, "--no-report", "--eager").status == 0
    assert vflsim("verify", live).status == 0
    for name in kinds:
        infos = [json.loads((at / name / "seed-0" / "run.json").read_text()) for at in (live, simulated)]
        assert [info["stop_reason"] for info in infos] == ["epsilon", "epsilon"]
        spent = [info["privacy"]["epsilon_run"] for info in infos]
        assert 2 < spent[0] <= 2.5
        if name != "any":
            assert spent[0] == spent[1]
            assert infos[0]["counts"]["rounds"] == infos[1]["counts"]["rounds"]


def test_a_protocol_that_cannot_run_live_is_refused_before_anything_starts(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    ended = vflsim("live", stored(tmp_path, more={"central": {"kind": "centralised"}}), "--out", tmp_path / "live")
    assert ended.status == 2
    assert "central cannot run live: it is a reference, without parties" in ended.err
    assert not (tmp_path / "live").exists()


def test_keys_init_makes_a_folder_for_each_party(tmp_path: Path, vflsim: Callable[..., Ended]) -> None:
    ended = vflsim("keys", "init", tmp_path / "keys", "--clients", "2")
    assert (ended.status, ended.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "keys").iterdir() if path.is_dir()) == [
        "client-1", "client-2", "server",
    ]  # fmt: skip
    again = vflsim("keys", "init", tmp_path / "keys", "--clients", "2")
    assert again.status != 0
    assert "the folder exists" in again.err


def played_to_the_end(commands: list[list[str]], folders: list[Path] | None = None) -> list[str]:
    """Run the processes of all parties, each in its folder, until they have ended well; return what each has said."""
    processes = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command, folder in zip(commands, folders or [None] * len(commands), strict=True)
    ]
    try:
        said = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), said
    return said


@pytest.mark.slow
@pytest.mark.parametrize("server", [["live"], ["party", "--party", "server"]], ids=["live", "party"])
def test_a_server_waits_for_parties_that_others_start(server: list[str], tmp_path: Path) -> None:
    scenario, out = stored(tmp_path, stop={"rounds": 3}), tmp_path / "live"
    make_identities(tmp_path / "keys", clients=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    vflsim = [sys.executable, "-m", "vflsim"]
    common = ["--parts", str(tmp_path / "parts"), "--timeout", "60"]
    hosting = ["--listen", place, "--identity", str(tmp_path / "keys" / "server"), "--out", str(out)]
    commands = [[*vflsim, *server, str(scenario), *hosting, *common]]
    for party in (1, 2):
        identity = str(tmp_path / "keys" / f"client-{party}")
        own = [*common] if party == 1 else ["--parts", str(tmp_path / "elsewhere"), "--timeout", "60"]
        commands.append(
            [*vflsim, "party", str(scenario), "--party", str(party), "--connect", place, "--identity", identity, *own]
        )
    said = played_to_the_end(commands)
    assert "without the events and weights of client-2" in said[0]
    weights = load_file(out / "wait" / "seed-0" / "weights.safetensors")
    assert {key.partition(".")[0] for key in weights} == {"server", "client-1"}


@pytest.mark.slow
def test_parties_with_stand_ins_for_the_files_of_others_end_with_the_same_weights(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    rng = np.random.default_rng(0)
    features, parts = rng.normal(size=(60, 4)), ["train"] * 40 + ["test"] * 20
    whole = tmp_path / "whole"
    whole.mkdir()
    for name, columns in {"bank.csv": features[:, :2], "shop.csv": features[:, 2:]}.items():
        pd.DataFrame(columns, columns=["u", "v"]).rename_axis("id").to_csv(whole / name)
    labels = pd.DataFrame({"y": (features.sum(axis=1) > 0).astype(int), "part": parts})
    labels.rename_axis("id").to_csv(whole / "labels.csv")
    data = {"parties": ["bank.csv", "shop.csv"], "labels": "labels.csv", "label": "y", "id": "id"}
    said = raw(
        {"wait": {"kind": "synchronous"}},
        data={**data, "split_column": "part"}, partition={"by": "views"}, timing={}, stop={"rounds": 5},
    )  # fmt: skip
    scenario = whole / "scenario.yaml"
    scenario.write_text(json.dumps(said))
    make_identities(tmp_path / "keys", clients=2)
    files = {"server": "labels.csv", "client-1": "bank.csv", "client-2": "shop.csv"}
    for party, own in files.items():
        folder = tmp_path / party
        for name in files.values():
            if name != own:
                assert vflsim("data", "stand-in", scenario, name, "--out", folder).status == 0
        (folder / own).write_bytes((whole / own).read_bytes())
        (folder / "scenario.yaml").write_bytes(scenario.read_bytes())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    common = ["--parts", str(tmp_path / "parts"), "--timeout", "60"]
    roles = {
        "server": ["live", "scenario.yaml", "--listen", place, "--out", str(tmp_path / "live"), "--no-report"],
        "client-1": ["party", "scenario.yaml", "--party", "1", "--connect", place],
        "client-2": ["party", "scenario.yaml", "--party", "2", "--connect", place],
    }
    identities = [["--identity", str(tmp_path / "keys" / party)] for party in roles]
    commands = [
        [sys.executable, "-m", "vflsim", *role, *common, *own]
        for role, own in zip(roles.values(), identities, strict=True)
    ]
    played_to_the_end(commands, [tmp_path / party for party in roles])
    assert vflsim("run", scenario, "--eager", "--out", tmp_path / "simulated", "--no-report").status == 0
    live, simulated = (
        load_file(tmp_path / name / "wait" / "seed-0" / "weights.safetensors") for name in ("live", "simulated")
    )
    assert live.keys() == simulated.keys()
    assert all(torch.equal(live[key], simulated[key]) for key in live)


@pytest.mark.slow
def test_a_failed_live_study_advises_its_own_command_which_has_no_resume(
    tmp_path: Path, vflsim: Callable[..., Ended]
) -> None:
    scenario = stored(tmp_path, more={"masked": {**BLINDED, "blinding": {"fraction": 28}}}, stop={"rounds": 3})
    for command in ("live", "run"):
        ended = vflsim(command, scenario, "--out", tmp_path / command, "--no-report")
        assert ended.status == 1
        assert "the sum over 2 clients could wrap around" in ended.err
        assert "rerun failed runs with: vflsim " in ended.err
        assert ("--resume" in ended.err) is (command == "run")
