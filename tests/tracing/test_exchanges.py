"""What messages carry, as a trace of a few rounds and of an evaluation tells it; what clients exchange in a round."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from protocols_by_kind import KEYS, KINDS
from tiny_worlds import data_of, tiny

from vflsim.protocol import Peering, Protocol, Synchronous
from vflsim.protocols.capabilities import evaluates_wired, exchanges_of, local_steps_of, table_bytes_of, view_bytes_of
from vflsim.protocols.fedvs import FedVS
from vflsim.scenario.resolve import setting
from vflsim.setting import Setting
from vflsim.tracing.exchanges import Contents, Exchange, Exchanges

ROWS = 20
Shapes: TypeAlias = dict[str, tuple[int, ...]]
Plain: TypeAlias = dict[str, list[tuple[Shapes, int, tuple[str, ...]]]]
H, G, NONE, WHOLE = {"": (ROWS, 6)}, {"": (ROWS, 10)}, dict[str, tuple[int, ...]](), {"": (180, 6)}
KEY, KEYS_OF_ALL = {"": (32,)}, {"": (4, 32)}
CLIENTS = ("client-1", "client-2", "client-3", "client-4")
SHARED = {"model": (146,), **dict.fromkeys(CLIENTS, (ROWS, 6))}
DOWN: dict[str, Plain] = {
    "synchronous": {"gradient": [(H, 0, ())], "evaluate": [(NONE, 0, ())]},
    "ignore-fastest": {"gradient": [(H, 0, ()), (NONE, 0, ())], "evaluate": [(NONE, 0, ())]},  # a client may be late
    "asynchronous-bounded": {"gradient": [(H, 0, ())], "evaluate": [(NONE, 0, ())], "query": [(NONE, 0, ())]},
    "easter": {
        "public_keys": [(KEYS_OF_ALL, 0, ())],
        "global_embedding": [(H, 0, ())],
        "gradient": [(G, 0, ())],
        "evaluate": [(NONE, 0, ()), (WHOLE, 0, ())],
    },
    "c_vfl": {"shared_values": [(SHARED, 0, CLIENTS)], "evaluate": [(NONE, 0, ())]},
}
UP: dict[str, Plain] = {
    "bs_vfl": {"embedding": [(H, 0, ())], "evaluation": [(WHOLE, 0, ())]},  # which it uploads beside its work
    "synchronous": {"embedding": [(H, 0, ())], "evaluation": [(WHOLE, 0, ())]},
    "asynchronous-own": {"embedding": [(H, ROWS, ())], "evaluation": [(WHOLE, 0, ())]},  # which names its rows
    "asynchronous-bounded": {"embedding": [(H, 0, ())], "evaluation": [(WHOLE, 0, ())], "answer": [(H, 0, ())]},
    "easter": {
        "public_key": [(KEY, 0, ())],
        "embedding": [(H, 0, ())],
        "prediction": [(G, 0, ())],
        "evaluation": [(WHOLE, 0, ()), ({"": (180, 10)}, 0, ())],
    },
}


def of_kind(name: str, **changes: Any) -> tuple[Exchanges, Setting]:
    scenario = tiny({"it": {**KINDS, **KEYS}[name]}, **changes)
    its = setting(scenario, "it", data_of(scenario))
    return exchanges_of(scenario.protocols["it"].protocol, its), its


def plain(contents: Contents) -> Plain:
    return {
        kind: [({name: spec.shape for name, spec in each.tensors.items()}, each.ids, each.passed_on) for each in some]
        for kind, some in contents.items()
    }


@pytest.mark.parametrize("name", DOWN)
def test_what_the_server_may_send_a_client(name: str) -> None:
    assert plain(of_kind(name)[0].contents(0, 2, ROWS)) == DOWN[name]


@pytest.mark.parametrize("name", UP)
def test_what_a_client_may_send_the_server(name: str) -> None:
    assert plain(of_kind(name)[0].contents(2, 0, ROWS)) == UP[name]


def test_clients_send_each_other_nothing_where_all_messages_pass_the_server() -> None:
    assert of_kind("synchronous")[0].contents(2, 3, ROWS) == {}


@pytest.mark.parametrize(
    ("name", "up", "down", "steps", "passed_on"),
    [
        ("synchronous", H, H, 1, ()),
        ("synchronous-blinded", H, H, 1, ()),  # keys precede the first round
        ("easter", H, G, 1, ()),  # two trips: its first message, and the last before its step
        ("fedbcd-sequential", H, H, 2, ()),  # an answer follows its steps
        ("c_vfl", H, SHARED, 2, CLIENTS),
    ],
)
def test_what_a_client_exchanges_and_steps_on_in_a_round(
    name: str, up: Shapes, down: Shapes, steps: int, passed_on: tuple[str, ...]
) -> None:
    found = of_kind(name)[0].of(2, ROWS)
    assert (found.up, found.down, len(found.steps), found.passed_on) == (up, down, steps, passed_on)


def test_each_number_of_rows_has_its_own_exchange() -> None:
    exchanges, _ = of_kind("synchronous")
    assert [exchanges.of(2, rows).up for rows in (7, ROWS)] == [{"": (7, 6)}, H]


class Neighbours(Peering, Synchronous):
    """Rounds whose clients send each other messages."""


@pytest.mark.parametrize("protocol", [Neighbours(), FedVS(K=1)], ids=["synchronous", "fedvs"])
def test_rounds_whose_clients_send_each_other_messages_are_not_traced(protocol: Protocol) -> None:
    _, its = of_kind("synchronous")
    assert exchanges_of(protocol, its).of(1, ROWS) == Exchange()


# --- what follows from it ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "steps"), [("centralised", 1), ("fedbcd", 2), ("fedvs", 1), ("local", 0)])
def test_local_steps(name: str, steps: int) -> None:
    _, its = of_kind(name)
    scenario = tiny({"it": KINDS[name]})
    assert local_steps_of(scenario.protocols["it"].protocol, its) == steps


def test_bytes_of_views_are_those_of_both_ways() -> None:
    scenario = tiny({"it": KINDS["synchronous"]})
    its = setting(scenario, "it", data_of(scenario))
    assert view_bytes_of(scenario.protocols["it"].protocol, its, ROWS) == 4 * 2 * ROWS * 6 * 8


def test_a_table_keeps_rows_and_their_sums() -> None:
    _, its = of_kind("asynchronous", models__aggregate="mean")
    assert table_bytes_of(its) == 90 * (4 * 6 * 8 + 6 * 8 + 4)


@pytest.mark.parametrize(("name", "wired"), [("synchronous", True), ("synchronous-blinded", False), ("ef_vfl", False)])
def test_evaluations_pass_the_codec_unless_it_is_for_training_alone(name: str, wired: bool) -> None:
    scenario = tiny({"it": KINDS[name]})
    its = setting(scenario, "it", data_of(scenario))
    assert evaluates_wired(scenario.protocols["it"].protocol, its) == wired
