"""What a scenario would do, before it is run: sizes, bytes, memory, and the time of a step."""

from __future__ import annotations

from dataclasses import dataclass

from vflsim.runner.build import LoadedData, learners
from vflsim.runner.run import run_protocol
from vflsim.scenario.models import Scenario
from vflsim.scenario.stop import Stop

TRIAL_STEPS = 200
"""Server steps that ``expectation`` simulates without training to tell how long one takes."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What runs of one protocol would be like.

    ``step_s`` is the mean time of a server step over ``steps`` timing-only steps with the first seed; ``upload_bytes``
    and ``download_bytes`` are the messages of one embedding and one gradient (a full batch, the widest client);
    ``parameters`` counts all parties' weights; ``memory_bytes`` is data, weights with gradients, the server's table.
    """

    protocol: str
    kind: str
    clients: int
    batches_per_epoch: int
    step_s: float
    steps: int
    upload_bytes: int
    download_bytes: int
    parameters: int
    memory_bytes: int


def expectation(scenario: Scenario, name: str, data: LoadedData, steps: int = TRIAL_STEPS) -> Expectation:
    """What protocol ``name`` would be like. Raises what a run would."""
    entry = scenario.protocols[name]
    stop = Stop(rounds=steps, time=scenario.stop_of(name).time)
    trial = scenario.model_copy(update={"record": "summary", "stop": stop, "protocols": {
        **scenario.protocols, name: entry.model_copy(update={"stop": None})
    }})  # fmt: skip
    outcome = run_protocol(trial, name, scenario.seeds[0], data, timing_only=True)
    if outcome.error is not None:
        raise outcome.error
    ends = outcome.tables.metrics.column("time_s").to_pylist()[-1]
    done = outcome.info.counts["rounds"]
    server, clients = learners(scenario, name, scenario.seeds[0], data)
    training = scenario.training_of(name)
    widest = max(learner.width for learner in clients.values())
    rows = min(training.batch, data.rows)
    ids = rows if training.batches == "own" else 0
    message = scenario.codec.size((rows, widest), training.torch_dtype, ids)
    models = [server.model, *(learner.model for learner in clients.values())]
    parameters = sum(parameter.numel() for model in models for parameter in model.parameters())
    item = training.torch_dtype.itemsize
    features = sum(tensor.nbytes for client in clients for tensor in data.features[client - 1].values())
    table = data.rows * sum(server.parts.widths) * item if server.parts.table else 0
    return Expectation(
        protocol=name,
        kind=entry.protocol.kind,
        clients=len(clients),
        batches_per_epoch=-(-data.rows // training.batch)
        if training.last_batch == "keep"
        else data.rows // training.batch,
        step_s=ends / done if done else float("nan"),
        steps=done,
        upload_bytes=message,
        download_bytes=scenario.codec.size((rows, widest), training.torch_dtype),
        parameters=parameters,
        memory_bytes=features + table + 2 * parameters * item,
    )
