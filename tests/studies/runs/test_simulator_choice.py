"""Which path a run takes: chosen by itself, insisted on, or refused with the key that stands in the way."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from both_paths import quick
from tiny_worlds import tiny
from typer.testing import CliRunner

import vflsim
from vflsim.cli import app
from vflsim.errors import ScenarioError
from vflsim.simulation.run import Outcome
from vflsim.simulation.vectorised import UndecidedError, eligibility, obstacles
from vflsim.studies.runs import simulator_choice
from vflsim.studies.runs.progress import StudyRun, Watcher
from vflsim.studies.runs.simulator_choice import Choice, choices
from vflsim.studies.study import run_study
from vflsim.timing.delays import DELAYS

SYNCHRONOUS = {"kind": "synchronous"}
BURSTS = {
    "kind": "markov_modulated",
    "states": [{"sojourn": "1 s", "delay": "1 ms"}, {"sojourn": "1 s", "delay": "9 ms"}],
}


def clients(**said: Any) -> dict[str, Any]:
    return {"timing": {"server": {"compute": "1 ms"}, "clients": {"select": "2", **said}}}


def test_more_clients_than_memory_holds_are_refused_event_by_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator_choice, "machine_memory", lambda: 3.0 * simulator_choice.BYTES_A_PARTY)
    with pytest.raises(ScenarioError, match=r"a run of 'it' with 4 clients needs about 80 kB event by event") as raised:
        choices(tiny({"it": SYNCHRONOUS}), "event", True)
    assert "at most 3 clients event by event" in str(raised.value)
    assert "partition" in str(raised.value)
    assert choices(tiny({"it": {"kind": "ignore", "exclude": "N"}}), "event", True)["it"].path == "event"
    by_arrays = tiny({"it": SYNCHRONOUS}, record="rounds", timing__network="dedicated")
    assert choices(by_arrays, "vectorised", True)["it"].path == "vectorised"


def test_many_clients_that_send_each_other_messages_of_drawn_latencies_go_to_the_event_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eligibility, "MOST_PEERS", 3)
    drawn = clients(link={"latency": {"kind": "exponential", "mean": "1 ms"}})
    (problem,) = obstacles(tiny({"it": {"kind": "fedvs", "K": 1}}, record="rounds", **drawn), "it")
    assert problem.what == "messages between 4 clients have a latency a pair, which fill the memory as arrays"
    assert obstacles(tiny({"it": {"kind": "fedvs", "K": 1}}, record="rounds", **clients()), "it") == []
    assert obstacles(tiny({"it": SYNCHRONOUS}, record="rounds", **drawn), "it") == []


REFUSALS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({"kind": "fedvs", "K": 1, "sharers": 3}, {}, "protocols.it.sharers", "over those who share first"),
    (
        {"kind": "fedvs", "K": 1, "deadline": "1 s", "too_few": "skip"},
        {},
        "protocols.it.deadline",
        "that miss their deadline are given up",
    ),
    ({"kind": "asynchronous", "max_staleness": 3}, {}, "protocols.it.max_staleness", "older than 3 steps"),
    ({"kind": "t_synchronous", "t": 2, "cancel": True, "max_staleness": 3}, {}, "protocols.it.max_staleness", "3"),
    ({"kind": "asynchronous"}, {"record": "events"}, "record", "rounds that wait for all clients, and not of these"),
    (
        {"kind": "bs_vfl", "window": 1},
        clients(link={"up": "1 Mbps"}) | {"network": "fifo"},
        "timing.network",
        "may have to wait for others, here also for those of other rounds",
    ),
    (
        {"kind": "t_synchronous", "t": 2, "cancel": True},
        clients(link={"up": "1 Mbps"}) | {"network": "fair"},
        "timing.network",
        "with fair links",
    ),
    (SYNCHRONOUS, clients() | {"transport": "tcp"}, "timing.transport", "those before it have let its connection grow"),
    (SYNCHRONOUS, clients(upload_delay=BURSTS), "timing.clients.upload_delay", "client 2's upload_delay depends on"),
    (SYNCHRONOUS, clients(compute=BURSTS), "timing.clients.compute", "client 2's compute depends on"),
    (SYNCHRONOUS, clients(link={"latency": BURSTS}), "timing.clients.link.latency", "client 2's link.latency depends"),
    ({"kind": "centralised"}, {"timing": {"server": {"compute": BURSTS}}}, "timing.server.compute", "the server's"),
    (
        {"kind": "ignore", "fastest": 2},
        clients(activation={"kind": "poisson", "rate": "9 /s"}),
        "timing.clients.activation",
        "(poisson)",
    ),
    (
        SYNCHRONOUS,
        clients(link={"up": {"kind": "steps", "steps": [[0, "1 Mbps"], ["1 s", "2 Mbps"]]}}),
        "timing.clients.link.up",
        "changes its rate in time",
    ),
    (
        SYNCHRONOUS,
        clients(availability={"kind": "alternating", "up": "1 s", "down": "1 s", "interrupted": "lost"}),
        "timing.clients.availability",
        "client 2 loses its work in outages, and begins anew (alternating)",
    ),
    (
        {"kind": "ignore", "fastest": 2},
        clients(availability={"kind": "alternating", "up": "1 s", "down": "1 s", "interrupted": "resumed"}),
        "timing.clients.availability",
        "client 2 pauses, and others need not wait for it (alternating)",
    ),
    (SYNCHRONOUS, {"stop": {"wall_clock": "1 s"}}, "stop.wall_clock", "not support 1.0"),
    (SYNCHRONOUS, {"evaluate": {"costs_time": True}}, "evaluate.costs_time", "not support true"),
]


@pytest.mark.parametrize(("protocol", "changes", "key", "what"), REFUSALS, ids=[refusal[2] for refusal in REFUSALS])
def test_what_keeps_a_run_from_the_vectorised_path_is_said(
    protocol: dict[str, Any], changes: dict[str, Any], key: str, what: str, tmp_path: Path
) -> None:
    changes = dict(changes)
    for part in {"network", "transport"} & changes.keys():
        changes["timing"] = {**changes["timing"], part: changes.pop(part)}
    scenario = quick(protocol, **changes)
    (problem,) = obstacles(scenario, "it")
    assert problem.key == key
    assert what in problem.what
    assert problem.allowed
    with pytest.raises(ScenarioError, match=key.replace(".", r"\.")):
        run_study(scenario, tmp_path / "out", timing_only=True, path="vectorised")
    assert not (tmp_path / "out").exists()
    assert choices(scenario, "auto", True)["it"] == Choice("event", f"{key}: {problem.what}")


def test_every_kind_of_delay_that_depends_on_the_instant_is_refused() -> None:
    assert {kind.model_fields["kind"].default for kind in DELAYS if kind.in_time} == {"markov_modulated"}


def test_the_reference_does_not_mind_what_its_clients_could_not_do_alone() -> None:
    changes = clients(upload_delay=BURSTS, activation={"kind": "poisson", "rate": "9 /s"})
    assert obstacles(quick({"kind": "centralised"}, **changes), "it") == []


def test_excluded_clients_stand_in_nobodys_way() -> None:
    assert obstacles(quick({"kind": "ignore", "exclude": "2"}, **clients(upload_delay=BURSTS)), "it") == []


class Listening(Watcher):
    """Remembers which paths were chosen, and the outcomes."""

    def __init__(self) -> None:
        self.paths: Mapping[str, Choice] = {}
        self.outcomes: dict[str, Outcome] = {}

    def chosen(self, paths: Mapping[str, Choice]) -> None:
        self.paths = paths

    def ended(self, stage: StudyRun, outcome: Outcome) -> None:
        self.outcomes[stage.protocol] = outcome


PROTOCOLS = {
    "wait": SYNCHRONOUS,
    "first": {"kind": "ignore", "fastest": 2},
    "async": {"kind": "asynchronous", "max_staleness": 2},
}
EXPONENTIAL = {
    "network": "dedicated",
    "server": {"compute": "1 ms"},
    "clients": {"select": "all", "upload_delay": {"kind": "exponential", "mean": "5 ms"}},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("record", ["rounds", "summary"])
def test_the_quick_path_is_chosen_where_it_is_open_and_all_files_are_the_same(record: str, tmp_path: Path) -> None:
    scenario = tiny(PROTOCOLS, timing=EXPONENTIAL, record=record, seeds=[0, 1])
    told = Listening()
    for path in ("auto", "event"):
        run_study(scenario, tmp_path / path, timing_only=True, path=path, watcher=told if path == "auto" else None)
    assert {name: choice.path for name, choice in told.paths.items()} == {
        "wait": "vectorised",
        "first": "vectorised",
        "async": "event",
    }
    files = {
        path: {file.relative_to(tmp_path / path): file.read_bytes() for file in (tmp_path / path).rglob("*.parquet")}
        for path in ("auto", "event")
    }
    assert files["auto"] == files["event"]
    for name in PROTOCOLS:
        page = json.loads((tmp_path / "auto" / name / "seed-1" / "run.json").read_text())
        assert page["path"] == told.paths[name].path
        assert json.loads((tmp_path / "event" / name / "seed-1" / "run.json").read_text())["path"] == "event"


def test_events_of_clients_at_their_own_pace_are_timed_event_by_event() -> None:
    by_arrays = tiny(SYNCHRONOUS["kind"], timing=EXPONENTIAL, record="rounds")
    assert choices(by_arrays, "auto", False) == {"synchronous": Choice("vectorised", program=True)}
    assert choices(by_arrays, "event", False) == {"synchronous": Choice("event")}
    scenario = tiny("asynchronous", timing=EXPONENTIAL)
    choice = choices(scenario, "auto", False)["asynchronous"]
    assert (choice.path, choice.program) == ("event", True)
    with pytest.raises(ScenarioError, match="set `record: rounds`"):
        choices(scenario, "vectorised", False)


class TestUndecided:
    """Where the vectorised path meets a tie that it cannot resolve."""

    STOP: ClassVar = {"rounds": 5}

    def test_the_event_path_takes_over_and_says_why(self, tmp_path: Path) -> None:
        told = Listening()
        done = run_study(quick(SYNCHRONOUS, stop=self.STOP), tmp_path, timing_only=True, watcher=told)
        assert done.failures == {}
        assert told.paths["it"].path == "vectorised"
        assert told.outcomes["it"].info.path == "event"
        assert told.outcomes["it"].note.startswith("event by event: in round 0 at 0 s a round takes no time")

    def test_it_is_an_error_of_the_run_if_no_other_path_will_do(self, tmp_path: Path) -> None:
        scenario = quick(SYNCHRONOUS, stop=self.STOP)
        done = run_study(scenario, tmp_path, timing_only=True, path="vectorised")
        assert isinstance(done.failures["it", 0], UndecidedError)
        (stored,) = done.results.runs
        assert (stored.info.status, stored.info.path) == ("failed", "vectorised")
        assert len(stored.frame("rounds")) == 0


def test_python_takes_the_path_by_name(tmp_path: Path) -> None:
    scenario = tiny({"it": SYNCHRONOUS}, timing=EXPONENTIAL, record="rounds", stop={"rounds": 3})
    for path in ("auto", "event", "vectorised"):
        results = vflsim.run(scenario, tmp_path / path, timing_only=True, path=path)
        assert results.runs[0].info.path == ("event" if path == "event" else "vectorised")


@pytest.mark.slow
def test_the_command_says_which_path_each_protocol_takes(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    scenario = tiny(PROTOCOLS, timing=EXPONENTIAL, record="rounds", stop={"rounds": 3})
    from vflsim.scenario.load import dump

    file.write_text(dump(scenario))
    call = ["run", str(file), "--out", str(tmp_path / "out"), "--timing-only"]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 0, shown.output
    assert "vectorised: wait, first" in shown.output
    assert "event by event: async (protocols.async.max_staleness: clients answer queries for" in shown.output
    shown = CliRunner().invoke(app, [*call, "--path", "event"])
    assert "event by event: wait, first, async" in shown.output
    shown = CliRunner().invoke(app, [*call, "--path", "vectorised"])
    assert isinstance(shown.exception, ScenarioError)
