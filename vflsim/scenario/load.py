"""Load a scenario from a file, a text or a mapping; write it back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vflsim.errors import DataError, check_known
from vflsim.files import content, machine_memory
from vflsim.learning.data.partition import clients_hint
from vflsim.party_names import names_of, with_names
from vflsim.scenario import document as documents, own_modules
from vflsim.scenario.checks import problems_in
from vflsim.scenario.document import Document, Problem, failure
from vflsim.scenario.models import Scenario
from vflsim.scenario.overrides import Overrides, apply, with_preset
from vflsim.scenario.translation import Known, problems_of
from vflsim.shipped import LONGEST_NAME, scenario_file
from vflsim.vocabulary import plain_yaml
from vflsim.vocabulary.metric import Metric, MetricFacts
from vflsim.vocabulary.metrics import AnyMetric
from vflsim.vocabulary.plain_yaml import Location, with_leaves
from vflsim.vocabulary.quantities import Number, is_symbol

BYTES_A_CLIENT = 4_000
"""What a client of a run without training takes at the least, beside its features (docs/performance.md)."""
_COUNTED = 10**9  # clients that are accepted where the system does not report its memory

_NUMBER: TypeAdapter[float] = TypeAdapter(Number)
_METRIC: TypeAdapter[Metric] = TypeAdapter(AnyMetric)


def load(source: str | Path | Mapping[str, Any], overrides: Overrides = ()) -> Scenario:
    """Load a scenario from a file's path, a YAML text (with a line break in it) or a mapping, and apply overrides.

    Where there is no such file, the path may name a scenario that comes with vflsim: ``quickstart``, ``fedvs/fig4``.
    ``overrides``: ``["training.batch=32", …]`` or ``{"training.batch": 32, …}``, values in YAML, null to remove a key.
    Relative paths, and modules of your own, are relative to the scenario's folder (of texts and mappings: the working
    directory).
    Raises ScenarioError, which lists every problem with file and line, key, value, allowed values and remedy.
    """
    return validate(rooted_document_of(source, overrides))


def as_scenario(source: Scenario | str | Path | Mapping[str, Any], overrides: Overrides = ()) -> Scenario:
    """Return a scenario as it is, or load it; ``overrides`` apply to either. Raises ScenarioError."""
    if isinstance(source, Scenario):
        return source if not overrides else load(source.document.raw, overrides)
    return load(source, overrides)


def rooted_document_of(source: str | Path | Mapping[str, Any], overrides: Overrides = ()) -> Document:
    """Return the document of ``load``'s source, with overrides and absolute paths. Raises ScenarioError."""
    return _rooted(*document_of(source, overrides))


def document_of(source: str | Path | Mapping[str, Any], overrides: Overrides = ()) -> tuple[Document, Path]:
    """Return the document of ``load``'s source, with overrides, and its folder. Raises ScenarioError."""
    if isinstance(source, Mapping):
        document, folder = documents.from_mapping(source), Path()
    elif isinstance(source, str) and "\n" in source:
        document, folder = documents.parse(source), Path()
    else:
        path = scenario_file(source)
        document, folder = documents.read(path), path.parent
    return with_preset(apply(document, overrides), folder), folder


@with_names(lambda document: document.raw)
def validate(document: Document) -> Scenario:
    """Validate a document and return its scenario. Raises ScenarioError with every problem."""
    if misnamed := own_modules.look_in_folder(document.raw):
        raise failure(misnamed, document)
    known = Known(document.raw, schema)
    raw, symbols, problems = _symbols(document.raw)
    try:
        context = {"symbols": symbols, "metrics": _metrics(raw.get("metrics"), symbols)}
        scenario = Scenario.model_validate(raw, context=context)
    except ValidationError as error:
        problems = _merged(problems, problems_of(error, document.raw, known), document.raw)
        blamed = _blamed(problems, symbols, document.raw)
        raise failure([_by_number(problem, document.raw) for problem in blamed], document) from None
    if not problems:
        scenario._document, scenario._symbols = document, symbols
        problems = list(problems_in(scenario))
    if problems:
        raise failure(problems, document)
    return scenario


def narrowed(scenario: Scenario, protocols: Sequence[str]) -> Scenario:
    """Return a scenario with some of its protocols alone, in its order; with none named, as it is.

    Raises ScenarioError for a name that is not among them.
    """
    for name in protocols:
        check_known(name, [*scenario.protocols], "protocol", f"--protocol {name}")
    if not {*scenario.protocols} - {*protocols} or not protocols:
        return scenario
    document = scenario.document
    chosen = {name: entry for name, entry in document.raw["protocols"].items() if name in protocols}
    return validate(replace(document, raw={**document.raw, "protocols": chosen}))


QUICK = "-quick"
"""The end of the names of scenarios for a first look."""


def quickened(scenario: Scenario, wanted: bool = True) -> Scenario:
    """Return the scenario of a first look, if one is ``wanted``: the first seed alone, and a name that ends in -quick.

    So its results have a folder, a title and a scenario file of their own.
    """
    if not wanted:
        return scenario
    return validate(replace(scenario.document, raw={**scenario.document.raw, **quick(scenario)}))


def quick(scenario: Scenario) -> dict[str, Any]:
    """Return the keys of a scenario that a first look replaces."""
    name = scenario.name.removesuffix(QUICK)[: LONGEST_NAME - len(QUICK)] + QUICK
    return {"name": name, "seeds": [scenario.seeds[0]]}


def most_clients() -> int:
    """Return how many clients the memory of this machine holds in a run without training."""
    return int(min(machine_memory() // BYTES_A_CLIENT, _COUNTED))


def dump(scenario: Scenario) -> str:
    """Write the scenario as YAML, with overrides applied and absolute paths. Loads back equal."""
    return plain_yaml.dump(scenario.document.raw)


def placeless(scenario: Scenario) -> str:
    """Write the scenario as YAML like ``dump``, the same on every machine: paths are names of files.

    Files of measured delays and links stand there with their digests, since times follow from them. Raises OSError.
    """

    def named(path: str) -> str:
        return Path(path).name

    def digested(path: str) -> str:
        return f"{named(path)} {sha256(content(path)).hexdigest()}"

    raw = {key: value for key, value in scenario.document.raw.items() if key != "modules"}
    return plain_yaml.dump(_with_paths(raw, named, digested))


@cache
def schema() -> dict[str, Any]:
    """Make the JSON Schema (draft 2020-12) of scenario files, for editors."""
    body = Scenario.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **body, "title": "vflsim scenario"}


def _symbols(raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float], list[Problem]]:
    """Return ``raw`` with evaluated constants, the symbols of formulas, and their problems.

    Symbols are the constants, N, and the clients' names, which are their numbers.
    """
    symbols: dict[str, float] = {}
    problems: list[Problem] = []
    constants = raw.get("constants")
    for name, value in constants.items() if isinstance(constants, dict) else ():
        try:
            symbols[name] = _NUMBER.validate_python(value, context={"symbols": symbols})
        except ValidationError as error:
            problems += [replace(p, loc=("constants", name)) for p in problems_of(error, value, Known(value, dict))]
    if isinstance(constants, dict):
        raw = {**raw, "constants": dict(symbols)}
    try:
        clients = clients_hint(raw.get("data"), raw.get("partition"), symbols)
        if clients > (most := most_clients()):
            allowed = f"at most {most:,}, as many as the memory of this machine holds"
            raise DataError(f"{clients:,} clients are too many", "partition.clients", allowed)
        symbols["N"] = clients
        symbols.update({name: number for number, name in names_of(raw).items() if is_symbol(name)})
    except DataError as error:
        loc = tuple(error.where.split(".")) if error.where in {"partition", "partition.clients"} else ("partition",)
        problems.append(Problem(loc, error.what, error.allowed, error.remedy))
    return raw, symbols, problems


def _metrics(raw: Any, symbols: Mapping[str, float]) -> dict[str, MetricFacts]:
    """Return the facts of the scenario's own metrics, which its targets may name.

    One that is invalid counts as known, since its own mistake is reported: its targets have no other.
    """
    facts: dict[str, MetricFacts] = {}
    for name, value in raw.items() if isinstance(raw, dict) else ():
        try:
            facts[str(name)] = _METRIC.validate_python(value, context={"symbols": symbols}).facts
        except ValidationError:
            facts[str(name)] = MetricFacts(better="higher")
    return facts


def _merged(early: list[Problem], late: list[Problem], raw: dict[str, Any]) -> list[Problem]:
    """Merge the problems found before and during validation, without repetition."""
    there = {problem.loc for problem in late}
    if raw.get("partition") is None:
        early = [problem for problem in early if problem.loc[:1] != ("partition",)]
    elif ("partition", "clients") in {problem.loc for problem in early}:
        late = [problem for problem in late if problem.loc != ("partition",)]
    return late + [problem for problem in early if problem.loc not in there]


def _blamed(problems: list[Problem], symbols: Mapping[str, float], raw: dict[str, Any]) -> list[Problem]:
    """Drop the problems of formulas that fail only because a constant, or the number of clients, is invalid."""
    constants = raw.get("constants")
    unknown = {"N", *(constants if isinstance(constants, dict) else ())} - symbols.keys()
    blamed = [p for p in problems if not any(p.what.startswith(f"the symbol {name!r}") for name in unknown)]
    return blamed or problems


def _by_number(problem: Problem, raw: dict[str, Any]) -> Problem:
    """Add the remedy to a selection of a client whose name no formula can have."""
    value: Any = raw
    for key in problem.loc:
        inside = key in value if isinstance(value, dict) else isinstance(value, list) and isinstance(key, int)
        value = value[key] if inside else None
    wanted = value if isinstance(value, list) else [value]
    for number, name in names_of(raw).items() if "select" in problem.loc else ():
        if name in wanted and not is_symbol(name):
            remedy = f"write {number}: a selection takes names of at most 32 letters A to z, digits and _"
            return replace(problem, remedy=remedy)
    return problem


def _rooted(document: Document, folder: Path) -> Document:
    """Return the document with absolute paths, so that its folder no longer matters."""

    def absolute(path: str) -> str:
        return str((folder / path).absolute())

    if problems := own_modules.ambiguous(document.raw):
        raise failure(problems, document)
    raw = own_modules.rooted(own_modules.by_path(dict(document.raw)), folder)
    return replace(document, raw=_with_paths(raw, absolute, absolute))


def _with_paths(raw: dict[str, Any], of_data: Callable[[str], str], of_timing: Callable[[str], str]) -> dict[str, Any]:
    """Return ``raw`` with other paths: those of ``data``, and every ``file`` in ``timing``."""

    def changed(loc: Location, value: Any) -> Any:
        match loc:
            case ("data", "file" | "labels") | ("data", "parties", int()) if isinstance(value, str) and value:
                return of_data(value)
            case ("timing", *_, "file") if isinstance(value, str) and value:
                return of_timing(value)
        return value

    return {**raw, **{key: with_leaves(raw[key], changed, (key,)) for key in ("data", "timing") if key in raw}}
