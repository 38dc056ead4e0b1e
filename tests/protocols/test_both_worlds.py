"""Every protocol, unchanged, in virtual and in real time: the same behaviour, if not the same numbers."""

import pytest
from protocols_by_kind import KINDS as ALL, SOME
from tiny_worlds import EAGER, WORLDS, apart, events, metrics, rounds, run, same_weights, tiny

from vflsim.protocols import PROTOCOLS
from vflsim.vocabulary.expressions import others

USED = {"synchronous": 4, "centralised": 4, "local": 0, "ignore-exclude": 3, "ignore-fastest": 2, "asynchronous": 1}
USED |= {
    name: 4 - name.endswith("exclude")
    for name in ALL
    if name.startswith(("vim", "fdml", "fedbcd", "c_vfl", "ef_vfl", "easter", "pyv", "agg"))
}
USED |= {name: 3 for name in ALL if name.startswith("fedvs")}
USED |= {name: 2 for name in ALL if name.startswith("t-synchronous")} | {"asynchronous-bounded": 1}

both = pytest.mark.parametrize("world", WORLDS)


def test_every_protocol_is_among_those_tested() -> None:
    assert {said["kind"] for said in ALL.values()} == {protocol.model_fields["kind"].default for protocol in PROTOCOLS}
    assert {ALL[name]["kind"] for name in SOME} == {said["kind"] for said in ALL.values()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "world"), [*((name, "virtual") for name in ALL), *((name, "real") for name in SOME)])
def test_trains_records_and_keeps_every_invariant(name: str, world: str) -> None:
    scenario = tiny({name: ALL[name]}, stop={"rounds": 20}, evaluate={"every": "10 rounds"})
    outcome = run(scenario, kind=world)  # which verifies the run
    steps, table, own = rounds(outcome), metrics(outcome), events(outcome)
    assert outcome.info.stop_reason == "rounds"
    assert len(steps) == 20
    assert outcome.info.reproducible is (world == "virtual")

    participants = set() if name == "local" else set(others(ALL.get(name, {}).get("exclude"), {"N": 4}))
    if name == "he_lr-shares":
        participants = {1}
    assert set(outcome.info.participants) == participants
    sizes = {len(used) for used in steps["used"]}
    assert sizes == {USED[name]} if name in USED else min(sizes) >= 1
    for used, missing in steps[["used", "missing"]].to_numpy():
        assert {*used, *missing} == participants

    assert table[["time_s", "round"]].iloc[0].tolist() == [0, 0]
    assert table["round"].iloc[-1] == 20
    assert table["test_loss"].notna().all()
    if world == "virtual" or "deadline" not in ALL[name]:  # on a busy machine all miss it
        assert table["train_loss"].iloc[1] > table["train_loss"].iloc[2]
    if name in ("centralised", "local"):
        assert set(own["kind"]) == {"compute.server_step"}
        assert table["bytes_up"].iloc[-1] == 0
    else:
        sent = own[own["kind"].str.startswith("transfer.") & (own["party"] != "server")]
        up, peer = (sent[(sent["peer"] == "server") == there]["bytes"].sum() for there in (True, False))
        assert table["bytes_up"].iloc[-1] == up > 0
        assert table["bytes_peer"].iloc[-1] == peer
        assert bool(peer) == name.startswith("fedvs")
        embed = "compute.coded_embed" if name.startswith("fedvs") else "compute.embed"
        first = {embed, "upload"}
        if name.startswith("secureboost"):
            first = {"compute.histogram", "upload.histogram"}
        elif name.startswith("he_lr"):
            first = {"compute.encrypt_scores", "upload.enc_scores"}
        assert {*first, "compute.client_step", "compute.server_step"} <= set(own["kind"])
    if "bounded" in name:
        assert own["kind"].eq("transfer.query").any()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["synchronous", "centralised", "ignore-exclude", "t-of-all"])
def test_rounds_that_wait_for_everybody_end_with_identical_weights_in_both_worlds(name: str) -> None:
    said = {"kind": "t_synchronous", "t": 4} if name == "t-of-all" else ALL[name]
    scenario = tiny({name: said}, stop={"rounds": 15}, models__client={"kind": "mlp", "hidden": [9], "embedding": 6})
    one, other = run(scenario, kind="virtual", execution=EAGER), run(scenario, kind="real")
    assert same_weights(one, other)
    assert apart(run(scenario, kind="virtual"), other) <= 1e-12
    losses = [metrics(outcome).groupby("round")["train_loss"].first().to_numpy()[1:] for outcome in (one, other)]
    assert [len(each) for each in losses] == [4, 4]


@both
def test_own_batches_travel_with_their_sample_ids(world: str) -> None:
    scenario = tiny("asynchronous", training={**OWN}, stop={"rounds": 20})
    shared = tiny("asynchronous", stop={"rounds": 20})
    mine, theirs = (events(run(each, kind=world), "transfer.embedding") for each in (scenario, shared))
    sizes = [set(each[each["outcome"] == "done"]["bytes"]) for each in (mine, theirs)]
    assert max(sizes[0]) - max(sizes[1]) == 8 * 20


OWN = {
    "batch": 20,
    "batches": "own",
    "client_optimizer": {"kind": "sgd", "lr": 0.1},
    "server_optimizer": {"kind": "sgd", "lr": 0.1},
    "dtype": "float64",
}


@both
def test_a_run_may_end_by_time(world: str) -> None:
    outcome = run(tiny("asynchronous", stop={"time": "80 ms"}), kind=world)
    assert outcome.info.stop_reason == "time"
    end = metrics(outcome)["time_s"].iloc[-1]
    assert end == 0.08 if world == "virtual" else end >= 0.08
    if world == "virtual":  # in real time all parties may stand between two activities
        assert (events(outcome)["outcome"] == "unfinished").any()


def test_speed_lets_real_time_pass_faster() -> None:
    scenario = tiny("asynchronous", timing={"clients": {"select": "all", "compute": "20 s"}}, stop={"rounds": 8})
    outcome = run(scenario, kind="real", speed=2000)
    assert metrics(outcome)["time_s"].iloc[-1] >= 60
