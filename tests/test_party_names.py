"""What people read names the parties as the scenario does; files keep their numbers."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.text
import pyarrow.parquet as pq
import pytest
from command_line import Ended
from hypothesis import given, strategies as st

import vflsim as api
from vflsim.errors import RunError, ScenarioError
from vflsim.party_names import has_meaning, names_of, naming, titled
from vflsim.tables import DataTable

NAMES = ["bank", "shop", "tele com"]
TIMING: dict[str, Any] = {
    "server": {"compute": "1 ms", "link": {"up": "1 Mbps", "down": "1 Mbps"}},
    "clients": [{"select": "all", "compute": "10 ms"}, {"select": "shop", "compute": "1 s"}],
}
SGD = {"kind": "sgd", "lr": 0.1}
SCENARIO: dict[str, Any] = {
    "name": "named",
    "data": {"name": "digits"},
    "partition": {"clients": 3, "by": "columns", "names": NAMES},
    "models": {"client": {"kind": "linear", "embedding": 2}, "aggregate": "sum", "server": {"kind": "linear"}},
    "training": {"batch": 1000, "client_optimizer": SGD, "server_optimizer": SGD},
    "timing": TIMING,
    "protocols": {"wait": {"kind": "synchronous"}},
    "stop": {"rounds": 3},
    "evaluate": {"every": 3},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the scenario."""
    results = api.run(SCENARIO, out=tmp_path_factory.mktemp("named") / "results")
    api.report(results)
    return results.folder


@pytest.fixture
def shop() -> Iterator[None]:
    """Clients with names."""
    with naming(SCENARIO):
        yield


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("client-2 went down", "shop went down"),
        ("client 3: too slow", "tele com: too slow"),
        ("waits for client 2.", "waits for shop."),
        ("client 4 of none", "client 4 of none"),
        ("client 22", "client 22"),
        ("test_accuracy.client-2", "test_accuracy.client-2"),
        ("client-2.log, keys/client-2", "client-2.log, keys/client-2"),
        ("vflsim live party --party client-2", "vflsim live party --party client-2"),
        ("clients 1, 2 and 3", "clients 1, 2 and 3"),
    ],
)
def test_mentions_of_clients_are_named_and_nothing_else(text: str, wanted: str) -> None:
    assert titled(text) == wanted


@given(st.text())
def test_naming_twice_is_naming_once(text: str) -> None:
    with naming(SCENARIO):
        assert titled(titled(text)) == titled(text)


def test_names_hold_inside_alone_and_those_inside_count() -> None:
    with naming(SCENARIO):
        with naming({"partition": {"names": ["a", "b"]}}):
            assert titled("client 2") == "b"
        assert titled("client 2") == "shop"
    assert titled("client 2") == "client 2"


def test_an_active_server_has_the_first_name() -> None:
    assert names_of({"partition": {"names": ["head", "bank", "shop"], "active": True}}) == {1: "bank", 2: "shop"}


@pytest.mark.parametrize("raw", [{}, {"partition": None}, {"partition": {"names": None}}, {"partition": {"names": 3}}])
def test_scenarios_without_names_have_none(raw: dict[str, Any]) -> None:
    assert names_of(raw) == {}


def test_errors_and_tables_keep_the_names_of_where_they_were_made() -> None:
    with naming(SCENARIO):
        error = RunError("client 2 went down", "client-1, round 3")
        table = DataTable(("party", "s"), [("client-2", 1)], "of client 1", ["client 3 waits"])
    assert str(pickle.loads(pickle.dumps(error))) == "bank, round 3: shop went down"
    assert table.rows == [("shop", "1")]
    assert (table.title, *table.notes) == ("of bank", "tele com waits")


def test_a_selection_takes_names() -> None:
    clients = {"select": ["shop", "bank"], "compute": "i s"}
    timing = {**TIMING, "clients": [{"select": "all", "compute": "10 ms"}, clients]}
    entry = api.load({**SCENARIO, "timing": timing}).timing.clients[1]
    assert entry.clients == (2, 1)


@pytest.mark.parametrize(
    "name", ["client-1", "Client 7", "server", "the server", "all", "2", "N", "1..N/2", "-1", " ", "north of client 1"]
)
def test_names_with_a_meaning_are_refused(name: str) -> None:
    partition = {"clients": 3, "by": "columns", "names": ["bank", "shop", name]}
    with pytest.raises(ScenarioError, match=re.escape(f"{name!r}, which has a meaning")):
        api.load({**SCENARIO, "partition": partition})


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a\nb", "c", "d"], r"'a\nb' holds a line break"),
        (["a\x1b[31m", "c", "d"], r"'a\x1b[31m' holds a line break or a control character"),
        (["bank", "bank", "d"], "a name twice: 'bank' and 'bank'"),
        (["bank", "bank ", "d"], "a name twice: 'bank' and 'bank '"),
        (["caf\u00e9", "cafe\u0301", "d"], "a name twice"),
        (["a", "b"], "names has 2 names\n  allowed: 3 names, or no clients"),
    ],
)
def test_names_that_people_could_not_tell_apart_are_refused(names: list[str], said: str) -> None:
    timing = {**TIMING, "clients": {"compute": "10 ms"}}
    with pytest.raises(ScenarioError, match=re.escape(said)):
        api.load({**SCENARIO, "timing": timing, "partition": {"clients": 3, "by": "columns", "names": names}})


@pytest.mark.parametrize("name", ["Nim", "mi", "site 2", "3M", "B\u00e4nk", "x" * 64])
def test_names_with_letters_are_names(name: str) -> None:
    assert not has_meaning(name)


@pytest.mark.parametrize("name", ["tele com", "B\u00e4nk", "x" * 64])
def test_a_name_that_no_selection_takes_is_answered_with_its_number(name: str) -> None:
    partition = {**SCENARIO["partition"], "names": ["bank", "shop", name]}
    for select in (name, ["shop", name]):
        timing = {**TIMING, "clients": [TIMING["clients"][0], {"select": select, "compute": "1 s"}]}
        with pytest.raises(ScenarioError, match="remedy: write 3: a selection takes names of at most 32"):
            api.load({**SCENARIO, "partition": partition, "timing": timing})


def test_a_name_that_a_constant_has_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"'shop' is a constant, too \(3\)"):
        api.load({**SCENARIO, "constants": {"shop": 3}})


def test_mistakes_in_a_scenario_name_the_party() -> None:
    models = {**SCENARIO["models"], "client": [{"select": "bank", "kind": "linear", "embedding": 2}]}
    with pytest.raises(ScenarioError, match="shop has no"):
        api.load({**SCENARIO, "models": models})


@pytest.mark.usefixtures("unrendered")
def test_events_of_results_are_named_and_their_file_is_not(folder: Path) -> None:
    named = api.open_results(folder).events
    assert set(named["party"].unique()) == {"server", *NAMES}
    assert set(named["peer"].dropna().unique()) == {"server", *NAMES}
    stored = pq.read_table(folder / "wait" / "seed-0" / "events.parquet")["party"].unique().to_pylist()
    assert sorted(stored) == ["client-1", "client-2", "client-3", "server"]


@pytest.mark.parametrize("kind", ["timeline", "waited"])
def test_pictures_name_the_parties(folder: Path, kind: str) -> None:
    figure = api.plot(api.open_results(folder), kind)
    words = {text.get_text() for text in figure.findobj(matplotlib.text.Text) if hasattr(text, "get_text")}
    assert set(NAMES) <= words


@pytest.mark.slow
def test_a_dollar_sign_in_a_name_begins_no_formula(tmp_path: Path) -> None:
    names = ["$\\frac{$", "$x_1$", "50 $"]
    timing = {**TIMING, "clients": {"compute": "10 ms"}}
    scenario = {**SCENARIO, "partition": {**SCENARIO["partition"], "names": names}, "timing": timing}
    results = api.run(scenario, out=tmp_path / "results")
    api.report(results)
    for kind in ("timeline", "waited"):
        figure = api.plot(results, kind)
        assert figure.rendered(".svg")
        drawn = "".join(text.get_text() for text in figure.findobj(matplotlib.text.Text)).replace("\n", "")
        assert all(name.replace("$", r"\$") in drawn for name in names)


def test_the_report_and_the_trace_name_the_parties(folder: Path, vflsim: Callable[..., Ended], tmp_path: Path) -> None:
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "waits for shop in" in report
    assert "client 2" not in report
    assert vflsim("trace", folder, "--out", tmp_path / "trace.json").status == 0
    entries = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {f"{name} compute" for name in NAMES} <= {
        entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"
    }


@pytest.mark.usefixtures("unrendered")
def test_markup_in_a_name_stays_text(tmp_path: Path) -> None:
    partition = {"clients": 3, "by": "columns", "names": ["bank", "<b onclick=x>", "shop"]}
    slow = {**TIMING, "clients": [{"select": "all", "compute": "10 ms"}, {"select": 2, "compute": "1 s"}]}
    scenario = {**SCENARIO, "partition": partition, "timing": slow}
    report = api.report(api.run(scenario, out=tmp_path / "results")).read_text(encoding="utf-8")
    assert "&lt;b onclick=x&gt;" in report
    assert "<b onclick=x>" not in report


def test_commands_name_the_parties_of_their_own_scenario(vflsim: Callable[..., Ended], tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    file.write_text(json.dumps(SCENARIO), encoding="utf-8")
    other = tmp_path / "plain.yaml"
    plain = {"partition": {"clients": 3, "by": "columns"}, "timing": {**TIMING, "clients": {"compute": "10 ms"}}}
    other.write_text(json.dumps({**SCENARIO, **plain}), encoding="utf-8")
    named, numbered = vflsim("check", "--quick", file), vflsim("check", "--quick", other)
    assert any(f"and {name}" in named.out or f"for {name}" in named.out for name in NAMES)
    assert "for client " in numbered.out
