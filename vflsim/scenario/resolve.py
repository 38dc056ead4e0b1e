"""Resolve a scenario for each party: later entries refine earlier ones."""

import math

from vflsim.learning.data.loaded import LoadedData
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.base import Mechanism, Plan
from vflsim.protocols.base import CheckContext
from vflsim.scenario.depends import course_digest
from vflsim.scenario.models import Scenario, ServerTiming, Timing
from vflsim.scenario.protocol_entry import Models
from vflsim.setting import Setting
from vflsim.timing.availability import Always
from vflsim.timing.capacity import Link
from vflsim.timing.party import PartyTiming
from vflsim.vocabulary.entries import for_each
from vflsim.vocabulary.plain_yaml import Location


def party_timings(scenario: Scenario) -> tuple[PartyTiming, ...]:
    """Resolve the timing of every party: index 0 is the server, index m client m."""
    return scenario.resolved_once(_party_timings)


def _party_timings(timing: Timing, clients: int) -> tuple[PartyTiming, ...]:
    server = timing.server
    timings = [PartyTiming()] * (clients + 1)
    originals: list[PartyTiming] = []
    # Copied, not validated again: pydantic may swallow a Ctrl-C during validation.
    timings[0] = timings[0].model_copy(update={key: getattr(server, key) for key in ServerTiming.model_fields})
    for entry in timing.clients:
        refinements: dict[tuple[int, int], PartyTiming] = {}  # equal timings of many clients stay one object
        links: dict[tuple[int, int], Link] = {}
        for client, refinement in entry:
            before = timings[client]
            key = id(before), id(refinement)
            if key not in refinements:
                refinements[key] = before.refined(refinement, links)
                originals.append(before)  # so that its id stays unique
            timings[client] = refinements[key]
    return tuple(timings)


def setting(scenario: Scenario, name: str, data: LoadedData) -> Setting:
    """Resolve protocol ``name``: apply every override, selection and formula."""
    entry, models, blinding = scenario.protocols[name], scenario.models_of(name), scenario.blinding_of(name)
    return Setting(
        clients=tuple(entry.protocol.participants(scenario.clients, scenario.symbols)),
        timings=party_timings(scenario),
        network=scenario.timing.network,
        transport=scenario.timing.transport,
        models=client_models(scenario, name),
        aggregate=models.aggregate,
        server_model=models.server,
        active_model=active_model(scenario, name),
        predictors=predictors(scenario, name),
        training=scenario.training_of(name),
        codec=scenario.codec_of(name),
        mechanism=_planned(scenario, name, data.rows),
        blinding=blinding,
        context="" if blinding is None else course_digest(scenario, name),
        data=data.having(scenario.metrics, scenario.training_of(name).loss),
        evaluation_takes_time=scenario.evaluate_of(name).costs_time,
    )


def _planned(scenario: Scenario, name: str, rows: int) -> Mechanism | None:
    """Return the mechanism of protocol ``name``, with the plan of its batches."""
    mechanism, training = scenario.protocols[name].mechanism, scenario.training_of(name)
    if mechanism is None:
        return None
    try:
        batches = scenario.protocols[name].protocol.batch_plan().batches(rows, training, 0)
    except ValueError:
        return mechanism  # a check of the data reports mistakes in the batches
    return mechanism.planned(
        Plan(batches.size / rows, batches.per_epoch, planned_rounds(scenario, name, batches.per_epoch))
    )


def planned_rounds(scenario: Scenario, name: str, per_epoch: int = 1) -> int | None:
    """Return how many mini-batches each client releases by the stop rules, ``per_epoch`` being an epoch.

    None where only a run can tell: without such a rule, where steps do not wait for every client, and where a crash can
    repeat a release.
    """
    protocol, stop = scenario.protocols[name].protocol, scenario.stop_of(name)
    availabilities = [timing.availability for timing in party_timings(scenario)]
    crashes = any(not isinstance(each, Always) and each.interrupted == "lost" for each in availabilities)
    most = min((rule.rounds_at_most(per_epoch) for rule in stop.each()), default=math.inf)
    return int(most) if most < math.inf and protocol.traits.waits_for_all and not crashes else None


def check_context(scenario: Scenario, name: str | None = None) -> CheckContext:
    """Return the context for checking protocol ``name``; without a name, for a protocol without overrides."""
    training = scenario.training if name is None else scenario.training_of(name)
    models = scenario.models if name is None else scenario.models_of(name)
    return CheckContext(
        clients=scenario.clients,
        symbols=scenario.symbols,
        batches=training.batches,
        batch=training.batch,
        aggregate=models.aggregate.kind,
        models=_client_models(models, scenario.clients),
        active=models.active if scenario.partition.active else None,
        server=models.server,
        loss=training.loss,
        codec=scenario.codec if name is None else scenario.codec_of(name),
        blinding=None if name is None else scenario.blinding_of(name),
    )


def client_models(scenario: Scenario, name: str) -> tuple[ClientModel, ...]:
    """Return the models of all clients under protocol ``name``, in client order. Raises ValueError if one lacks."""
    return _client_models(scenario.models_of(name), scenario.clients)


def active_model(scenario: Scenario, name: str) -> ClientModel | None:
    """Return the server's embedding model under protocol ``name``; None where the server holds no features."""
    return scenario.models_of(name).active if scenario.partition.active else None


def predictors(scenario: Scenario, name: str) -> tuple[ServerModel, ...]:
    """Return the prediction nets of all clients under protocol ``name``, in client order."""
    split = scenario.models_of(name)
    chosen = {client: model for entry in split.predictor or () for client, model in entry}
    return tuple(chosen.get(client, split.server) for client in range(1, scenario.clients + 1))


def _client_models(split: Models, clients: int) -> tuple[ClientModel, ...]:
    return for_each(split.client, clients, "model")


def location_of(scenario: Scenario, protocol: str, *loc: str) -> Location:
    """Locate the key ``loc`` that applies to a protocol: in its own entry, or the scenario's."""
    value: object = scenario.document.raw.get("protocols", {}).get(protocol)
    for step in loc:
        value = value.get(step) if isinstance(value, dict) else None
    return ("protocols", protocol, *loc) if value is not None else loc
