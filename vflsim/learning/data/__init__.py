"""Data sets: what a scenario can say about them, and what each party gets to train on."""

from vflsim.learning.data.download import CatalogueRow, data_get, data_list
from vflsim.learning.data.load import PartitionedData, PartyData, Splits, describe, load
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
