"""All that packages need which read finished runs: attacks on them, exports, tables of their own.

The names here keep their meaning; the modules that they come from may change. Figures come from ``vflsim.plotting``.

Example: the bytes that each run has sent to the server::

    from vflsim.finished import Results

    results = Results.open("results/mine")
    sent = {(run.protocol, run.seed): run.table("metrics")["bytes_up"][-1].as_py() for run in results.runs}
"""

from vflsim.codecs.round import (
    Round as Round,
    RoundingError as RoundingError,
    rounding_error as rounding_error,
    sampled_rounding_error as sampled_rounding_error,
)
from vflsim.coding.field import PrimeField as PrimeField, eliminated as eliminated
from vflsim.coding.quantise import Quantiser as Quantiser
from vflsim.intervals import CONFIDENCE as CONFIDENCE, t_interval as t_interval
from vflsim.learning.models.shapes import TableShape as TableShape
from vflsim.learning.tasks import PredictionTask as PredictionTask
from vflsim.results.read import NotRecordedError as NotRecordedError, Results as Results, StoredRun as StoredRun
from vflsim.results.statistics import outcomes as outcomes
from vflsim.results.statistics.estimates import means_by as means_by
from vflsim.results.store.manifest import stored_scenario as stored_scenario
from vflsim.results.store.views import PartyView as PartyView, RecordedViews as RecordedViews
from vflsim.results.store.write import frame_table as frame_table, write_file as write_file
from vflsim.results.sweeps import Sweep as Sweep, open_folder as open_folder
from vflsim.results.tables import costs_to_target as costs_to_target
from vflsim.tables import Cell as Cell, DataTable as DataTable
from vflsim.tables.formats import TABLES_FILE as TABLES_FILE, markdown as markdown, packed as packed
from vflsim.trained.models import TrainedModels as TrainedModels, Uploads as Uploads
from vflsim.vocabulary.amounts import Amount as Amount, quantity as quantity
