"""Resolve a scenario for each party: later entries refine earlier ones."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

from vflsim.learning.data.loaded_data import LoadedData
from vflsim.learning.data.shelf import SharedData, Shelf
from vflsim.learning.models.client import ClientModel
from vflsim.learning.models.server import ServerModel
from vflsim.learning.privacy.base import Mechanism, Plan
from vflsim.learning.training import Training
from vflsim.protocols.base import CheckContext
from vflsim.scenario.models import Scenario, ServerTiming, Timing
from vflsim.scenario.sections import Models
from vflsim.setting import Setting
from vflsim.timing.availability import Always
from vflsim.timing.capacity import Link
from vflsim.timing.party import PartyTiming
from vflsim.vocabulary.entries import for_each
from vflsim.vocabulary.plain_yaml import Location, dump, flow, walked, with_leaves


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


# --- data -------------------------------------------------------------------------------------------------------------


class ScenarioData:
    """The tensors of a scenario's data, loaded once for each dtype that its protocols train with.

    Scenarios with the same data load them once if they have a ``shelf`` in common. ``held`` are data that another
    process has loaded, by dtype.
    """

    def __init__(
        self, scenario: Scenario, shelf: Shelf | None = None, held: Mapping[str, LoadedData] | None = None
    ) -> None:
        self.shelf = Shelf() if shelf is None else shelf
        self._scenario, self._held = scenario, dict(held or {})
        self._keys: dict[str, str] = {}  # by dtype, of the files as they were at first

    def of(self, training: Training) -> LoadedData:
        """Return the data in the dtype of ``training``. Raises ``DataError``."""
        if training.dtype in self._held:
            return self._held[training.dtype]
        scenario = self._scenario
        return self.shelf.of(self._key(training), scenario.data, scenario.partition, training, scenario.symbols)

    def shared(self, protocols: Iterable[str]) -> dict[str, SharedData]:
        """Return the data of protocols in files that other processes can map, by dtype.

        Raises ``DataError``, and ``OSError`` if there is no room for the files.
        """
        scenario = self._scenario
        trainings = {training.dtype: training for training in map(scenario.training_of, protocols)}
        return {
            dtype: self.shelf.shared(self._key(training), scenario.data, scenario.partition, training, scenario.symbols)
            for dtype, training in trainings.items()
        }

    def _key(self, training: Training) -> str:
        scenario = self._scenario
        if training.dtype not in self._keys:
            self._keys[training.dtype] = Shelf.key(scenario.data, scenario.partition, training, scenario.symbols)
        return self._keys[training.dtype]


# --- what a run depends on --------------------------------------------------------------------------------------------


_OF_THE_STUDY = {"name", "protocols", "seeds", "target", "budget"}
"""Keys without effect on a run: ``target`` and ``budget`` are for tables and figures (``stop.target`` ends runs)."""
_REFINED = ("models", "training", "stop", "evaluate")
"""Sections that a protocol's entry refines key by key; null stands for "not set", or removes a criterion."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def run_text(scenario: Scenario, protocol: str) -> str:
    """Return the part of a scenario that a run of ``protocol`` depends on, as YAML.

    Two scenarios with equal texts give byte-identical runs with the same seed, if the files that they name, and the
    modules of the user, have the same content. The text leaves out the study's name, seeds, targets and budgets, other
    protocols, the protocol's own name, and constants that no formula of this run uses. The overrides of the protocol's
    entry are merged. Texts may differ without effect (``20 ms`` and ``0.02 s``).
    """
    return dump(run_part(scenario, protocol))


def run_part(scenario: Scenario, protocol: str) -> dict[str, Any]:
    """Return the content of ``run_text``."""
    return part_of(scenario.document.raw, protocol, owns_code(scenario, protocol))


def course_part(scenario: Scenario, protocol: str) -> dict[str, Any]:
    """Return the run's part of the scenario without stop rules, unless its noise follows from them."""
    mechanism = scenario.protocols[protocol].mechanism
    if mechanism is not None and mechanism.needs_plan:
        return run_part(scenario, protocol)
    return part_of(scenario.document.raw, protocol, owns_code(scenario, protocol), ("stop",))


def course_digest(scenario: Scenario, protocol: str) -> str:
    """Return the digest of ``course_part``, 32 hexadecimal digits, wherever the files that it names lie."""

    def named(_: Location, value: Any) -> Any:
        return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value

    part = with_leaves(course_part(scenario, protocol), named)
    return blake2b(dump(part).encode(), digest_size=16).hexdigest()


def owns_code(scenario: Scenario, protocol: str) -> bool:
    """Whether the protocol is a class of the user's own."""
    return not type(scenario.protocols[protocol].protocol).__module__.startswith("vflsim.")


def part_of(raw: Mapping[str, Any], protocol: str, code: bool = False, without: Collection[str] = ()) -> dict[str, Any]:
    """Restrict a scenario's plain values to those that a run of ``protocol`` depends on, and leave out sections.

    ``code``: the protocol is code of the user's, which may read any constant.
    """
    entry = raw["protocols"][protocol]
    entry = dict(entry) if isinstance(entry, Mapping) else {"kind": entry}
    part = {key: value for key, value in raw.items() if key not in _OF_THE_STUDY and value is not None}
    for section in _REFINED:
        part[section] = _refined(part.get(section) or {}, entry.pop(section, None) or {}, section)
    if (codec := entry.pop("codec", None)) is not None:
        part["codec"] = codec
    part["protocol"] = entry
    part = {key: value for key, value in part.items() if key not in without}
    owned = any(isinstance(value, Mapping) and value.get("kind") == "module" for _, value in walked(part))
    if not code and not owned:  # a user's class may read any symbol
        part.pop("modules", None)
        part |= _used_constants(part, part.pop("constants", None) or {})
    return {key: part[key] for key in sorted(part) if part[key] != {}}


def _refined(section: Mapping[str, Any], by: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Merge a protocol's override as the loader does: null leaves a key as it is, or removes it where it may."""
    removes = {"models": {"active"}, "training": set[str]()}.get(name, set(by))
    merged = {**section, **{key: value for key, value in by.items() if value is not None or key in removes}}
    return {key: merged[key] for key in sorted(merged) if merged[key] is not None}


def _used_constants(part: Mapping[str, Any], constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants that the formulas of ``part`` use, directly or through others, as a section if any."""
    if not constants:
        return {}
    words = set(_WORD.findall(flow(dict(part))))
    used: dict[str, Any] = {}
    for name in reversed(list(constants)):  # each may use those before it
        if name in words:
            used[name] = constants[name]
            words |= set(_WORD.findall(str(constants[name])))
    return {"constants": dict(reversed(used.items()))} if used else {}
