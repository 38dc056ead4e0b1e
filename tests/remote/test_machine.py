"""What processes of a live run know of each other: the largest frame that another may send."""

import torch
from protocols_by_kind import KINDS
from tiny_worlds import data_of, tiny

from vflsim.learning.execution.operations import Handle
from vflsim.protocols.fedvs.messages import DataShare
from vflsim.remote.private_data import PrivateData, largest_between_clients
from vflsim.scenario.data import ScenarioData
from vflsim.world.wire import specs_of


def test_the_largest_message_between_clients_fits_and_a_much_larger_one_does_not() -> None:
    scenario = tiny({"coded": {"kind": "fedvs", "K": 1, "prime": "2^61-1"}, "wait": KINDS["synchronous"]})
    most = largest_between_clients(scenario, PrivateData.cut(ScenarioData(scenario), scenario, 1), 1)
    data = data_of(scenario, "coded")
    columns = max(part.stop - part.start for part in data.columns) + 1
    largest = DataShare(value=Handle((data.rows, columns), torch.int64))
    size = scenario.codec_of("coded").size_of(specs_of(largest), 0)
    assert size < most < size + 2 * 2**20
