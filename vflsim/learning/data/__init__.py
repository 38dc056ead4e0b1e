"""Data sets: the data section of a scenario, and the features and labels of each party."""

from vflsim.learning.data.files import CatalogueRow, data_get, data_list
from vflsim.learning.data.joint import Splits
from vflsim.learning.data.load import PartitionedData, PartyData, describe, load
from vflsim.learning.data.partition import Partition, clients_hint
from vflsim.learning.data.spec import Data

__all__ = [
    "CatalogueRow",
    "Data",
    "Partition",
    "PartitionedData",
    "PartyData",
    "Splits",
    "clients_hint",
    "data_get",
    "data_list",
    "describe",
    "load",
]
