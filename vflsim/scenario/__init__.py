"""All that packages need which read, change and resolve scenarios, and the options that people write."""

from vflsim.learning.data.loaded_data import LoadedData as LoadedData
from vflsim.scenario.document import Problem as Problem
from vflsim.scenario.load import dump as dump, load as load, placeless as placeless, schema as schema
from vflsim.scenario.models import Scenario as Scenario
from vflsim.scenario.overrides import values_of as values_of
from vflsim.scenario.resolve import (
    ScenarioData as ScenarioData,
    client_models as client_models,
    party_timings as party_timings,
    setting as setting,
)
from vflsim.scenario.translation import Known as Known, problems_of as problems_of
from vflsim.timing.party import PartyTiming as PartyTiming
from vflsim.vocabulary.plain_yaml import flow as flow
