"""Translation of pydantic's errors into problems of a scenario: the keys that are known, the values allowed."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from vflsim.errors import nearest
from vflsim.learning.data.partition import parts_of
from vflsim.scenario.document import Problem, shown
from vflsim.vocabulary.entries import FOR_CLIENT
from vflsim.vocabulary.imported import OWN_FIELDS, own_kind
from vflsim.vocabulary.plain_yaml import Location

_EXAMPLE = re.compile(r"Examples?: ``(.+?)``", re.DOTALL)
"""The first example in the description of a part."""
_Schema: TypeAlias = Mapping[str, Any]


class Known:
    """Looks up allowed keys and words at a location of ``raw``; makes the schema on first use."""

    def __init__(self, raw: Any, schema: Callable[[], _Schema]) -> None:
        self._raw = raw
        self._make = schema

    def keys(self, loc: Location) -> list[str]:
        """Return the keys that the mapping at ``loc`` may have, given its ``kind``."""
        return list(dict.fromkeys(key for node in self._at(loc) for key in node.get("properties", {})))

    def words(self, loc: Location) -> list[str]:
        """Return the words allowed at ``loc``: the kinds of a part, the values of a choice."""
        kinds = loc[-1:] == ("kind",)
        parents = self._at(loc[:-1], any_kind=True) if kinds else []
        schemas = [node.get("properties", {}).get("kind", {}) for node in parents] if kinds else list(self._at(loc))
        words = [word for node in schemas for word in [*node.get("enum", []), node.get("const")] if word is not None]
        return list(dict.fromkeys(map(str, words)))

    def example(self, loc: Location, value: Any = None) -> str:
        """Return an example of what may stand at ``loc``, of the kind that ``value`` names if it is one; or nothing."""
        nodes = self._at(loc, any_kind=True)
        named = [node for node in nodes if isinstance(value, str) and _kind(node) == value]
        matches = (_EXAMPLE.search(node.get("description", "")) for node in named or nodes)
        return next((" ".join(match[1].split()) for match in matches if match), "")

    @cached_property
    def _schema(self) -> _Schema:
        return self._make()

    def _at(self, loc: Location, *, any_kind: bool = False) -> list[_Schema]:
        nodes, value = [self._schema], self._raw
        for step in loc:
            nodes = [child for node in self._leaves(nodes, value) for child in _children(node, step)]
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                value = None
        return self._leaves(nodes, None if any_kind else value)

    def _leaves(self, nodes: list[_Schema], value: Any) -> list[_Schema]:
        """Resolve references and alternatives; of several kinds keep only the one that ``value`` names."""
        leaves = [leaf for node in nodes for leaf in self._resolved(node)]
        kind = value.get("kind") if isinstance(value, Mapping) else None
        chosen = [leaf for leaf in leaves if _kind(leaf) == kind]
        return chosen if kind is not None and chosen else leaves

    def _resolved(self, node: _Schema) -> Iterator[_Schema]:
        reference = node.get("$ref")
        if reference:
            yield from self._resolved(self._schema["$defs"][reference.rpartition("/")[2]])
        for alternatives in ("anyOf", "oneOf", "allOf"):
            for alternative in node.get(alternatives, []):
                yield from self._resolved(alternative)
        if not reference:
            yield node


def _children(node: _Schema, step: str | int) -> Iterator[_Schema]:
    if isinstance(step, int):
        child = node.get("items")
    else:
        child = node.get("properties", {}).get(step, node.get("additionalProperties"))
    if isinstance(child, Mapping):
        yield child


def _kind(leaf: _Schema) -> Any:
    kind = leaf.get("properties", {}).get("kind", {})
    return kind.get("const", kind.get("default"))


_SAME_FOR_ALL = {"missing", "extra_forbidden", "union_tag_not_found", "union_tag_invalid"}
_NEEDED = {  # by the beginning of pydantic's error type
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a mapping of keys to values",
    "model": "a mapping of keys to values",
    "mapping": "a mapping of keys to values",
    "none": "null",
}
_SECTIONS = {  # example of a missing section of a scenario
    "name": "study",
    "data": "{name: digits}",
    "partition": "{clients: 4}",
    "models": "{client: {kind: linear, embedding: 8}, aggregate: mean, server: {kind: linear}}",
    "training": "{batch: 64, client_optimizer: {kind: sgd, lr: 0.1}, server_optimizer: {kind: sgd, lr: 0.1}}",
    "protocols": "{wait: {kind: synchronous}}",
    "stop": "{time: 60 s}",
}
_SIGNS = {"greater_than": ">", "greater_than_equal": "≥", "less_than": "<", "less_than_equal": "≤"}


def problems_of(error: ValidationError, raw: Any, known: Known) -> list[Problem]:
    """Return the problems behind a pydantic error about ``raw``, each once."""
    groups: dict[Location, list[Problem]] = {}
    for detail in error.errors(include_url=False):
        inner = _inner(detail)
        if inner["type"] == OWN_FIELDS:
            for problem in _own_fields(inner, spoken(detail["loc"], raw), raw):
                groups.setdefault(problem.loc, []).append(problem)
            continue
        problem = _problem(detail, raw, known)
        if inner["type"] == "too_short" and len(_value_at(problem.loc, raw)) >= inner["ctx"]["min_length"]:
            continue  # pydantic counts only the entries without problems
        groups.setdefault(problem.loc, []).append(problem)
    problems = [problem for group in groups.values() for problem in _alternatives_joined(group)]
    return [problem for problem in problems if not _misspelt(problem, problems, raw)]


def _own_fields(detail: ErrorDetails, loc: Location, raw: Any) -> list[Problem]:
    """Return the problems of a user-defined part, whose schema is not part of the scenario's."""
    part, value = detail["ctx"]["part"], _value_at(loc, raw)
    problems = problems_of(detail["ctx"]["error"], value, Known(value, part.model_json_schema))
    return [replace(problem, loc=(*loc, *problem.loc)) for problem in problems]


def spoken(loc: Location, raw: Any, *, missing: bool = False) -> Location:
    """Remove pydantic's own steps (tags of unions, expanded short forms) from a location."""
    path: list[str | int] = []
    for position, step in enumerate(loc):
        inside = step in raw if isinstance(raw, dict) else isinstance(raw, list) and step in range(len(raw))
        if inside:
            path.append(step)
            raw = raw[step]
        elif missing and position == len(loc) - 1:
            path.append(step)
    return tuple(path)


def _misspelt(missing: Problem, problems: list[Problem], raw: Any) -> bool:
    """Return whether a key is missing only because it is misspelt, as another problem reports."""
    if not missing.loc or spoken(missing.loc, raw) == missing.loc:
        return False
    siblings = [each for each in problems if each.loc[:-1] == missing.loc[:-1] and each is not missing]
    return any(f"'{missing.loc[-1]}'" in each.remedy for each in siblings)


def _alternatives_joined(problems: list[Problem]) -> list[Problem]:
    """Join the problems of alternative types of one value: text *or* a whole number is needed."""
    needs = {problem.allowed: problem for problem in problems if " is needed here, not " in problem.what}
    if len(needs) < 2:
        return list(dict.fromkeys(problems))
    allowed, last = " or ".join(needs), next(reversed(needs.values()))
    joined = replace(last, what=last.what.replace(last.allowed, allowed, 1), allowed=allowed)
    return [joined, *dict.fromkeys(problem for problem in problems if problem not in needs.values())]


def _problem(detail: ErrorDetails, raw: Any, known: Known) -> Problem:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == FOR_CLIENT:
        problem = _problem(_inner(detail), raw, known)
        client = "" if _inner(detail)["type"] in _SAME_FOR_ALL else context["client"]
        return replace(problem, what=problem.what + client)
    loc = spoken(detail["loc"], raw, missing=kind == "missing")
    if kind == "missing":
        name = str(loc[-1]) if loc else "key"
        words = ", ".join(known.words(loc))
        return Problem(loc, f"the key {name!r} is missing", words, f"add `{name}: {_example(loc, raw, known)}`")
    value = _value_at(loc, raw)
    if "[key]" in detail["loc"]:
        value = None  # the key itself is invalid, and the message names it
    if kind == "extra_forbidden":
        keys = [key for key in known.keys(loc[:-1]) if key != loc[-1]]
        remedy = nearest(str(loc[-1]), keys) or "remove it, or use one of the allowed keys"
        return Problem(loc, f"there is no key {str(loc[-1])!r} here (value {shown(value)})", ", ".join(keys), remedy)
    if kind == "union_tag_not_found":
        words = ", ".join(known.words((*loc, "kind"))) or ", ".join(_words(context.get("expected_tags")))
        return Problem(loc, f"the kind is missing (value {shown(value)})", words, "add `kind: …`")
    if kind == "union_tag_invalid":
        names = _words(context.get("expected_tags"))
        tag = str(context.get("tag"))
        place = (*loc, "kind") if isinstance(value, Mapping) and "kind" in value else loc
        remedy = own_kind(tag) or nearest(tag, names) or "use one of the allowed kinds"
        return Problem(place, f"there is no kind {tag!r} here", ", ".join(names), remedy)
    problem = _about_value(loc, kind, context, detail["msg"], value)
    if problem.remedy or isinstance(value, Mapping | list):
        return problem
    unsaid = problem.allowed == _NEEDED["dict"] or value in known.words((*loc, "kind"))
    example = known.example(loc, value) if unsaid else ""
    return replace(problem, remedy=f"write it as in `{example}`" if example else "")


def _example(loc: Location, raw: Any, known: Known) -> str:
    """Return a value for a missing section of a scenario, and dots for any other key."""
    if len(loc) != 1 or "protocols" not in known.keys(()):  # a key of a part
        return "…"
    if loc == ("partition",) and parts_of(raw.get("data")) > 1:
        return "{by: views}"
    return _SECTIONS.get(str(loc[0]), "…")


def _inner(detail: ErrorDetails) -> ErrorDetails:
    """Return the error itself, without its client."""
    if detail["type"] != FOR_CLIENT:
        return detail
    return cast("ErrorDetails", {**detail["ctx"]["detail"], "loc": detail["loc"]})


def _value_at(loc: Location, raw: Any) -> Any:
    for step in loc:
        raw = raw[step]
    return raw


def _about_value(loc: Location, kind: str, context: Mapping[str, Any], message: str, value: Any) -> Problem:
    """Translate an error about one value."""
    if kind in {"value_error", "assertion_error"}:
        return Problem.of_message(loc, str(context.get("error") or message.partition(", ")[2]).rstrip("."), value)
    if kind in _SIGNS:
        allowed = f"{_SIGNS[kind]} {next(iter(context.values()))}"
        return Problem(loc, f"the value {shown(value)} is out of range", allowed)
    if kind in {"literal_error", "enum"}:
        words = _words(context.get("expected"))
        remedy = nearest(str(value), words) or "use one of the allowed words"
        return Problem(loc, f"{shown(value)} is not one of the allowed words", ", ".join(words), remedy)
    if kind.endswith(("too_short", "too_long")):
        few, unit = kind.endswith("too_short"), "characters" if kind.startswith("string") else "entries"
        limit = f"at least {context.get('min_length')}" if few else f"at most {context.get('max_length')}"
        return Problem(loc, f"too {'few' if few else 'many'} {unit} ({shown(value)})", limit)
    for start, needed in _NEEDED.items():
        if kind.startswith(start):
            return Problem(loc, f"{needed} is needed here, not {shown(value)}", needed)
    return Problem(loc, f"the value {shown(value)} cannot be used here")


def _words(listed: object) -> list[str]:
    """Return the words in pydantic's ``'a', 'b' or 'c'``, and the numbers in its ``1 or 2``."""
    return [word or number for word, number in re.findall(r"'([^']*)'|(\d+)", str(listed or ""))]
