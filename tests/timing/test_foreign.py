"""Timing from files of other tools: what they say, by their own rules written again, and what is refused."""

import json
import os
import pickle
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import TypeAdapter

import vflsim as api
from vflsim.errors import DataError
from vflsim.timing.availability import Intervals
from vflsim.timing.delays import AnyDelay
from vflsim.timing.foreign import FORMATS, Wishes, read_timing

FIRST = {"active": [10, 50], "inactive": [30, 90], "finish_time": 100, "duration": 60, "model": "a"}
ALWAYS = {"active": [0], "inactive": [100], "finish_time": 100, "duration": 100, "model": "b"}
NEVER = {"active": [], "inactive": [], "finish_time": 100, "duration": 0, "model": "c"}
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><zone id="z" routing="Full">
  <host id="S" speed="10Gf"/><host id="A" speed="98.095Mf"/><host id="B" speed="1Gf,500Mf"/>
  <link id="core" bandwidth="1GBps" latency="100us"/>
  <link id="a" bandwidth="34.285625MBps" latency="514.433us"/>
  <link id="b" bandwidth="100Mbps" latency="5ms"/>
  <link id="fat" bandwidth="10MBps" latency="15us" sharing_policy="FATPIPE"/>
  <route src="A" dst="S"><link_ctn id="a"/><link_ctn id="core"/></route>
  <route src="B" dst="S"><link_ctn id="b"/><link_ctn id="fat"/><link_ctn id="core"/></route>
</zone></platform>
"""
CLUSTER = """<platform version="4"><cluster id="c" prefix="n-" radical="0-2,7" suffix=".org" speed="1Gf" bw="125MBps"
lat="50us" bb_bw="2.25GBps" bb_lat="500us"/></platform>"""
PING = "\n".join(f"64 bytes from 10.0.0.1: icmp_seq={n} ttl=64 time={20 + n % 3} ms" for n in range(30))


DOUBLED: list[Any] = [1]
"""A list of lists that are one and the same: small in a pickle, endless as text."""
for _ in range(60):
    DOUBLED = [DOUBLED, DOUBLED]


def written(folder: Path, name: str, content: object) -> Path:
    """Write a text, bytes, or JSON."""
    path = folder / name
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def iperf(rate: float, **test: Any) -> dict[str, Any]:
    """What `iperf3 --json` writes of a finished test, in short."""
    return {
        "start": {"connected": [{}], "test_start": {"protocol": "TCP", "reverse": 0, **test}},
        "end": {"sum_sent": {"bits_per_second": 2 * rate}, "sum_received": {"bits_per_second": rate}},
    }


def entries(path: Path, **wishes: Any) -> list[dict[str, Any]]:
    """Read a file's entries of clients."""
    return read_timing([path], wishes=Wishes(**wishes)).preset["timing"]["clients"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("packed", [json.dumps, lambda value: pickle.dumps(value, 4)], ids=["json", "pickle"])
def test_fedscale_clients_are_away_between_their_activities(tmp_path: Path, packed: Any) -> None:
    content = packed({"1": FIRST, "2": NEVER, "3": ALWAYS})
    path = written(tmp_path, "trace", content if isinstance(content, bytes) else content.encode())
    read = read_timing([path])
    assert read.names == ("1", "3")
    assert read.notes == ("1 devices are never there, and are left out.",)
    (entry,) = read.preset["timing"]["clients"]
    assert entry["select"] == 1
    assert entry["availability"] == {
        "kind": "intervals",
        "down": [[0.0, 10.0], [30.0, 50.0], [90.0, 100.0]],
        "period": 100.0,
        "interrupted": "resumed",
    }


def is_active(trace: dict[str, Any], now: float) -> bool:
    """FedScale's rule: from ``active`` to ``inactive``, in the time of a trace that repeats."""
    at = now % trace["finish_time"]
    return any(start <= at < end for start, end in zip(trace["active"], trace["inactive"], strict=True))


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 60), min_size=2, max_size=12), st.integers(0, 20))
def test_fedscale_profiles_follow_its_own_rule(
    tmp_path_factory: pytest.TempPathFactory, ends: set[int], more: int
) -> None:
    ordered = sorted(ends)[: len(ends) // 2 * 2]
    trace = {"active": ordered[::2], "inactive": ordered[1::2], "finish_time": ordered[-1] + more}
    path = written(tmp_path_factory.mktemp("trace"), "trace.json", {"1": trace})
    found = entries(path)
    if not found:
        assert all(is_active(trace, now + 0.5) for now in range(200))
        return
    profile = Intervals(**found[0]["availability"]).profile(0, 1)
    for now in (each + 0.5 for each in range(200)):
        assert (profile.value(now) > 0) == is_active(trace, now), now


def test_flash_devices_are_ready_while_locked_charging_and_on_wifi(tmp_path: Path) -> None:
    begin = datetime(2020, 1, 31, 20, 0, 0)
    states = ["wifi", "battery_charged_on", "screen_lock", "80%", "screen_on", "screen_unlock", "screen_lock", "4g"]
    lines = [f"{begin + timedelta(seconds=10 * n)}\t{state}" for n, state in enumerate(states)]
    later = [f"{begin + timedelta(seconds=25 + 10 * n)}\t{state.upper()}" for n, state in enumerate(states)]
    path = written(tmp_path, "states.json", {"u": {"messages": "\n".join(lines)}, "v": {"messages": "\n".join(later)}})
    first, second = entries(path)
    assert first["availability"]["period"] == 70
    assert first["availability"]["down"] == [[0, 20], [50, 60]]
    assert second["availability"]["down"] == [[5, 15], [25, 45]]  # 25 s later: ready from 45 to 75 and from 85 to 95


def test_fedscale_speeds_are_in_proportion_to_the_median(tmp_path: Path) -> None:
    devices = {str(n): {"computation": 50.0 * n, "communication": 1000.0 * n} for n in (1, 2, 3)}
    read = read_timing([written(tmp_path, "capacity.json", devices)], wishes=Wishes(median_ms=4))
    assert read.preset["constants"] == {"median": 4}
    assert read.preset["timing"]["clients"][2] == {
        "select": 3,
        "compute": "1.5*median ms",
        "link": {"up": "3000 kbps", "down": "3000 kbps"},
    }


def test_links_that_all_routes_share_are_the_server_s(tmp_path: Path) -> None:
    timing = read_timing([written(tmp_path, "p.xml", PLATFORM)], wishes=Wishes(server="S")).preset["timing"]
    assert timing["server"] == {
        "compute": {"kind": "flops", "rate": "10000 MFLOPS"},
        "link": {"down": "8000 Mbps", "up": "8000 Mbps"},
    }
    first, second = timing["clients"]
    assert first["link"] == {"up": "274.285 Mbps", "down": "274.285 Mbps", "latency": "614.433 us"}
    assert second["link"] == {"up": "80 Mbps", "down": "80 Mbps", "latency": "5115 us"}
    assert second["compute"]["rate"] == "1000 MFLOPS"


def test_links_that_some_clients_share_are_named(tmp_path: Path) -> None:
    third = '<host id="C" speed="1Gf"/><route src="C" dst="S"><link_ctn id="b"/><link_ctn id="core"/></route></zone>'
    path = written(tmp_path, "p.xml", PLATFORM.replace("</zone>", third))
    assert "Link 'b' of the platform is shared by B, C; here each has it for itself." in read_timing([path]).notes
    alone = read_timing([path], wishes=Wishes(clients=["C", "A"]))
    assert alone.names == ("C", "A")
    assert not any("shared" in note for note in alone.notes)


def test_ways_back_may_differ(tmp_path: Path) -> None:
    back = '<route src="S" dst="A" symmetrical="NO"><link_ctn id="b"/><link_ctn id="core"/></route></zone>'
    read = read_timing([written(tmp_path, "p.xml", PLATFORM.replace("</zone>", back))], wishes=Wishes(clients=["A"]))
    link = read.preset["timing"]["clients"][0]["link"]
    assert (link["up"], link["down"]) == ("274.285 Mbps", "100 Mbps")
    assert "The latency of A is that of its way to the server; the way back takes 0.0051 s." in read.notes


def test_nodes_of_a_cluster_share_its_backbone(tmp_path: Path) -> None:
    read = read_timing([written(tmp_path, "c.xml", CLUSTER)], wishes=Wishes(server="n-7.org"))
    assert read.names == ("n-0.org", "n-1.org", "n-2.org")
    assert read.preset["timing"]["server"]["link"] == {"down": "1000 Mbps", "up": "1000 Mbps"}
    assert read.preset["timing"]["clients"][0]["link"] == {"up": "1000 Mbps", "down": "1000 Mbps", "latency": "600 us"}


def test_measured_links_have_rates_of_iperf3_and_half_of_ping_s_round_trips(tmp_path: Path) -> None:
    bank = tmp_path / "bank"
    bank.mkdir()
    written(bank, "up.json", iperf(20e6))
    written(bank, "down.json", iperf(90e6, reverse=1))
    written(bank, "ping.txt", PING)
    both = {**iperf(5e6), "end": {**iperf(5e6)["end"], "sum_received_bidir_reverse": {"bits_per_second": 7e6}}}
    read = read_timing([bank, written(tmp_path, "shop.json", both)])
    assert read.names == ("bank", "shop")
    first, second = (entry["link"] for entry in read.preset["timing"]["clients"])
    assert (first["up"], first["down"]) == ("20 Mbps", "90 Mbps")
    assert second == {"up": "5 Mbps", "down": "7 Mbps"}
    latency = TypeAdapter(AnyDelay).validate_python(first["latency"])
    assert latency.expectation() == pytest.approx(10.5e-3, rel=0.05)


def models(clients: int) -> dict[str, Any]:
    """The rest of a scenario."""
    sgd = {"kind": "sgd", "lr": 0.1}
    return {
        "partition": {"clients": clients, "by": "columns"},
        "models": {"client": {"kind": "linear", "embedding": 2}, "aggregate": "sum", "server": {"kind": "linear"}},
        "training": {"batch": 100, "client_optimizer": sgd, "server_optimizer": sgd},
        "protocols": {"wait": {"kind": "synchronous"}},
        "stop": {"rounds": 3},
        "evaluate": {"every": 3},
    }


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_and_runs(tmp_path: Path, name: str) -> None:
    content: dict[str, object] = {
        "fedscale-availability": {"1": FIRST, "2": ALWAYS},
        "fedscale-capacity": {str(n): {"computation": 5 + n, "communication": 900.0} for n in (1, 2)},
        "flash-states": {day: {"messages": states_of(day)} for day in ("01", "02")},
        "simgrid": PLATFORM,
        "links": iperf(1e6),
    }
    path = written(tmp_path, "file", content[name])
    paths = [path, written(tmp_path, "other", content[name])] if name == "links" else [path]
    assert [each for each in FORMATS if FORMATS[each].recognises(path)] == [name]
    read = read_timing(paths)
    scenario = {"name": "a", "data": {"name": "digits"}, **models(2), "timing": read.preset["timing"]}
    scenario["constants"] = read.preset.get("constants", {})
    results = api.run(scenario, out=tmp_path / "out", timing_only=True)
    assert len(results.rounds) == 3


def states_of(day: str) -> str:
    """A trace of FLASH of five hours, in one of which the device is ready."""
    states = ("wifi", "battery_charged_on", "screen_lock", "screen_unlock", "90%")
    return "\n".join(f"2020-02-{day} 0{hour}:00:00\t{state}" for hour, state in enumerate(states))


class Evil:
    """A pickle that would create a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


def test_pickles_run_nothing(tmp_path: Path) -> None:
    evil = {"1": {**FIRST, "model": Evil(tmp_path / "made")}}
    path = written(tmp_path, "trace.pkl", pickle.dumps(evil, 4))
    with pytest.raises(DataError, match="names classes or functions, which would run code"):
        read_timing([path])
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.pkl", pickle.dumps({"1": FIRST}, 4)[:-20], "cannot be read"),
        ("a.json", {"1": {**FIRST, "inactive": [5, 90]}}, "device 1: active and inactive are no pairs"),
        ("a.json", {"1": {**FIRST, "active": ["x", 3]}}, "must be seconds"),
        ("a.json", {"1": {**FIRST, "active": 3}}, "must be seconds"),
        ("c.json", {"1": {"computation": 0, "communication": 1}}, "computation is 0"),
        ("f.json", {"u": {"messages": "2020-01-31\twifi"}}, "device u, line 1: '2020-01-31' is no time"),
        ("f.json", {"u": {"messages": "2020-01-31 20:00:00\tflying"}}, "'flying' is no state"),
        ("p.xml", PLATFORM.replace("<platform", "<!ENTITY a 'b'><platform"), "declares entities"),
        ("p.xml", PLATFORM.replace('id="a"/>', 'id="x"/>', 1), "goes over link 'x', which is not there"),
        ("p.xml", PLATFORM.replace("98.095Mf", "fast"), "<host id='A'>: speed is 'fast'"),
        ("p.xml", PLATFORM.replace('version="4.1"', 'version="2"'), "is <platform version='2'>"),
        ("p.xml", PLATFORM.replace('src="A" dst="S"', 'src="A" dst="B"'), "has no route from 'A' to 'S'"),
        ("p.xml", PLATFORM.replace('routing="Full"', 'routing="Dijkstra"'), "whose routes are computed"),
        ("p.xml", PLATFORM.replace("</zone>", '<peer id="x"/></zone>'), "<peer>, which is not read"),
        ("p.xml", PLATFORM[:-20], "is no XML"),
        ("i.json", {**iperf(1e6), "error": "unable to connect"}, "iperf3 failed: unable to connect"),
        ("i.json", iperf(1e6, protocol="UDP"), "protocol is UDP"),
        ("i.json", iperf(0.0), "bits_per_second is 0.0"),
        ("none.txt", "nothing", "is in no format that is known"),
        ("a.json", {"1": {**FIRST, "finish_time": True}}, "must be seconds"),
        ("a.pkl", pickle.dumps({"1": {**FIRST, "finish_time": 10**400}}, 4), "must be seconds"),
        ("a.json", {"1": {**FIRST, "finish_time": float("inf")}}, "must be seconds"),
        ("a.json", {"1": NEVER}, "holds no client"),
        ("a.pkl", pickle.dumps({1: FIRST, "1": FIRST}, 4), "device 1: stands twice"),
        ("a.pkl", pickle.dumps({None: FIRST}, 4), "a device is called None"),
        ("c.json", {"1": {"computation": True, "communication": 1}}, "computation is True"),
        ("c.pkl", pickle.dumps({1: {"computation": DOUBLED, "communication": 1}}, 4), "computation is a list"),
        ("c.json", {"1": {"computation": 1e-320, "communication": 1}}, "computation is 1e-320"),
        ("f.pkl", pickle.dumps({1: {"messages": DOUBLED}}, 4), "device 1: messages is a list"),
        ("p.xml", PLATFORM.replace('version="4.1"', 'version="four"'), "is <platform version='four'>"),
        ("p.xml", PLATFORM.replace('"98.095Mf"', '"0f"'), "<host id='A'>: speed is '0f'"),
        ("p.xml", PLATFORM.replace('"100us"', '"1e999s"'), "<link id='core'>: latency is '1e999s'"),
        ("p.xml", PLATFORM.replace('id="B"', 'id="A"'), "<host id='A'>: stands twice"),
        ("p.xml", f"<platform version='4'>{'<zone>' * 1500}{'</zone>' * 1500}</platform>", "zones more than 100 deep"),
        ("p.xml", CLUSTER.replace("0-2,7", "0-999999999999"), "more than 1,000,000 hosts"),
        ("p.xml", CLUSTER.replace("0-2,7", "9" * 5000), "radical is '9999"),
        ("i.json", {**iperf(1e6), "start": {"test_start": [], "connected": []}}, "test_start is a list"),
        ("i.json", {**iperf(1e6), "end": None}, "end is None"),
        ("i.json", iperf(True), "bits_per_second is True"),
        ("i.json", iperf(float("inf")), "bits_per_second is inf"),
        ("ping.txt", f"icmp_seq=1 time={'9' * 400} ms", "a round trip of inf ms"),
    ],
)
def test_what_is_not_as_it_should_be_is_refused_with_its_place(
    tmp_path: Path, name: str, content: object, message: str
) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(DataError) as refused:
        read_timing([path], wishes=Wishes())
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_pickles_cannot_hold_keys_that_take_for_ever_to_hash(tmp_path: Path) -> None:
    memo = b"\x80\x02}(" + b")q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01u."
    with pytest.raises(DataError, match="holds tuples or sets"):
        read_timing([written(tmp_path, "trace.pkl", memo)], "fedscale-availability")


def test_clients_are_the_first_or_drawn_or_named(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.json", {str(n): FIRST for n in range(20)})
    assert read_timing([path], wishes=Wishes(clients=3)).names == ("0", "1", "2")
    drawn = read_timing([path], wishes=Wishes(clients=3, seed=1)).names
    assert drawn == read_timing([path], wishes=Wishes(clients=3, seed=1)).names != ("0", "1", "2")
    for wrong, said in ((["99"], "has no client '99'"), (21, "has 20 clients, and 21 are wanted")):
        with pytest.raises(DataError, match=said):
            read_timing([path], wishes=Wishes(clients=wrong))


def test_a_server_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no host 'T'"):
        read_timing([written(tmp_path, "p.xml", PLATFORM)], wishes=Wishes(server="T"))
    with pytest.raises(DataError, match="which has hosts"):
        read_timing([written(tmp_path, "t.json", {"1": FIRST})], wishes=Wishes(server="T"))


def test_what_is_no_file_of_a_client_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    written(tmp_path / "mixed", "up.json", iperf(1e6))
    other = written(tmp_path / "mixed", "notes.txt", "none")
    with pytest.raises(DataError, match=f"{tmp_path / 'empty'}: holds no file"):
        read_timing([tmp_path / "empty"], "links")
    with pytest.raises(DataError, match=f"{other}: holds no round trip"):
        read_timing([written(tmp_path, "a.txt", PING), tmp_path / "mixed"])
    with pytest.raises(DataError, match="is in no format that is known"):
        read_timing([Path("x" * 300)])
    with pytest.raises(DataError, match="no file"):
        read_timing([], "links")
