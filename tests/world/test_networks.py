"""What a scenario can say about links and the network."""

import math
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from vflsim.timing.capacity import Link
from vflsim.timing.delays import Constant, Exponential
from vflsim.world.networks import NETWORKS, AnyNetwork, Dedicated, Fair, Fifo, NetworkKind


def test_the_table_and_the_field_list_the_same_kinds():
    assert get_args(NetworkKind) == NETWORKS


def test_a_link_costs_nothing_unless_said():
    assert Link() == Link(up="unlimited", down=math.inf, latency=0)


def test_a_link_with_units():
    link = Link.model_validate({"up": "300 Mbps", "down": "1 GB/s", "latency": "5 ms"})
    assert (link.up, link.down, link.latency) == (3e8, 8e9, Constant(value=0.005))
    assert Link.model_validate({"latency": {"kind": "exponential", "mean": 1}}).latency == Exponential(mean=1)


@pytest.mark.parametrize("link", [Link(), Link(up="1 Mbps", latency="1 ms")])
def test_a_link_survives_json(link):
    assert Link.model_validate_json(link.model_dump_json()) == link


@pytest.mark.parametrize(
    "bad", [{"up": 0}, {"up": -1}, {"up": "5 ms"}, {"latency": -1}, {"bandwidth": 1}, {"up": None}]
)
def test_bad_links_are_refused(bad):
    with pytest.raises(ValidationError):
        Link.model_validate(bad)


@pytest.mark.parametrize(("text", "network"), [("fifo", Fifo()), ("dedicated", Dedicated())])
def test_a_network_may_be_its_kind_alone(text, network):
    adapter = TypeAdapter(AnyNetwork)
    assert adapter.validate_python(text) == adapter.validate_python({"kind": text}) == network


def test_an_unknown_network_is_refused():
    with pytest.raises(ValidationError, match=r"'wifi'.*'fair', 'fifo', 'dedicated'"):
        TypeAdapter(AnyNetwork).validate_python("wifi")


@pytest.mark.parametrize(
    ("network", "free", "limited", "crowd"),
    [(Fifo(), False, True, 1), (Dedicated(), False, False, 1), (Fair(), False, True, 5)],
)
def test_a_network_tells_whether_messages_delay_each_other_and_how_many_share_a_link(network, free, limited, crowd):
    assert network.delays([Link(), Link()]) is free
    assert network.delays([Link(), Link(up="1 Mbps")]) is limited
    assert network.crowd(5) == crowd
