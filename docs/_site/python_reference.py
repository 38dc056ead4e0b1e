"""The pages of the Python API: which names each one shows. mkdocstrings writes them from their docstrings."""

from __future__ import annotations

_PROTOCOL = (
    "Protocol",
    "Node",
    "Message",
    "Embedding",
    "Gradient",
    "EvaluationRequest",
    "EvaluationAnswer",
    "PartyLearner",
    "ClientLearner",
    "ServerLearner",
    "Operation",
    "Handle",
    "Received",
    "finite_loss",
    "Batch",
    "BatchSequence",
    "Staleness",
    "Scores",
    "Setting",
    "Learners",
    "split_learners",
    "ServerPrediction",
    "split_prediction",
    "client_parts",
    "server_parts",
    "ClosedForm",
    "NoClosedForm",
    "Formula",
    "Range",
    "CheckContext",
    "UnsuitableError",
    "Unanalysable",
    "Choices",
    "Traits",
    "ROUNDS",
    "TABLE",
    "REFERENCE",
    "Vectorisable",
    "ActsByHand",
    "Answering",
    "Peering",
    "BatchPlan",
    "Synchronous",
    "generator",
    "torch_seed",
    "party_name",
)
_PARTS = (
    *("Delay", "Law", "Sampler", "Metric", "Scored", "Loss", "Optimizer", "ComputeModel", "OperationCost"),
    *("Availability", "Profile", "StepProfile", "Activation", "ActivationProcess", "Capacity"),
    *("Mechanism", "Released", "StopRule", "Measure", "FinishedRun", "Figure"),
    *("Codec", "Envelope", "Spec", "Aggregate", "Part"),
)
_SCENARIO = (
    *("Scenario", "dump", "schema", "setting", "client_models", "party_timings", "PartyTiming", "ScenarioData"),
    *("LoadedData", "values_of", "Problem", "Known", "problems_of", "flow", "placeless"),
)
_FINISHED = (
    *("open_folder", "outcomes", "costs_to_target", "NotRecordedError", "RecordedViews", "PartyView"),
    *("stored_scenario", "TableShape", "PredictionTask", "Uploads"),
    *("Round", "RoundingError", "rounding_error", "sampled_rounding_error", "PrimeField", "Quantiser", "eliminated"),
    *("DataTable", "Amount", "quantity", "markdown", "packed", "write_file", "t_interval"),
)
_WORLDS = (
    *("World", "RealTimeWorld", "Task", "Timer", "Party", "RunContext", "Draws", "Mailbox", "Transport", "Transfer"),
    *("Wires", "Outages", "Presence", "Recorder", "Events", "Meter", "InputOrder", "Executor", "ImmediateExecutor"),
    *("Conductor", "EventRun", "RunPlan", "Parties", "Outcome", "Progress", "Execution", "RunTables", "Conditions"),
    *("Releases", "Training", "Content", "Energy"),
)
PAGES = {
    "index": (
        "Python",
        "The verbs of `import vflsim`.",
        (
            *("load", "analyze", "check", "fit", "run", "sweep", "tune", "open_results", "read_sweep", "sweep_answers"),
            *("compare", "plot", "report", "verify", "trace", "evaluate", "explain", "export"),
        ),
    ),
    "results": (
        "Results and figures",
        "What the verbs return. [Columns](../columns.md) explains their tables.",
        (
            "finished.Results",
            "results.run_set.RunSet",
            "finished.StoredRun",
            "results.read.JoinedResults",
            "trained.StudyResults",
            "finished.TrainedModels",
            "finished.Sweep",
            "results.sweeps.table.SweepResults",
            "results.sweeps.tuning.Tuning",
            "results.sweeps.table.TuningResults",
            "api.scenarios.Analyses",
            "api.scenarios.Check",
            "api.fits.Fits",
            "plotting.style.Picture",
        ),
    ),
    "scenario": (
        "Scenarios",
        "What `vflsim.load` returns. Its attributes are the [keys of a scenario file](../scenario/index.md).",
        tuple(f"scenario.{name}" for name in _SCENARIO),
    ),
    "protocol": (
        "Classes of your own",
        "`vflsim.protocol` has all that [protocols](../../adding-a-protocol.md) and other classes of your own need. A "
        "protocol derives from `Protocol`; its coroutines see a `Node`, which sends a `Message` and computes an "
        "`Operation` of a learner.",
        tuple(f"protocol.{name}" for name in _PROTOCOL),
    ),
    "parts": (
        "Delays, metrics and other parts",
        "What [other parts of your own](../../own-parts.md) derive from, all in `vflsim.protocol`.",
        tuple(f"protocol.{name}" for name in _PARTS),
    ),
    "finished": (
        "Packages that read finished runs",
        "`vflsim.finished` has all that attacks, exports and tables of your own need, some of it on the pages before.",
        tuple(f"finished.{name}" for name in _FINISHED),
    ),
    "worlds": (
        "Worlds of your own",
        "`vflsim.worlds` has all that runs parties in another world; live runs stand on it.",
        tuple(f"worlds.{name}" for name in _WORLDS),
    ),
    "errors": (
        "Errors",
        "What the verbs raise.",
        tuple(f"errors.{name}Error" for name in ("Vflsim", "Scenario", "Data", "Results", "Checkpoint", "Run")),
    ),
}
"""The title, the first sentence and the names of each page."""


def python_pages() -> dict[str, str]:
    """Write the pages, by name."""
    return {
        name: "\n\n".join([f"# {title}", first, *map(_shown, names)]) for name, (title, first, names) in PAGES.items()
    }


def _shown(name: str) -> str:
    """Show a name; of a node also the verbs that its base class has, those that take no time."""
    return f"::: vflsim.{name}" + "\n    options: {inherited_members: true}" * (name == "protocol.Node")
