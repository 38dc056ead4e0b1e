"""The base class of all parts of a scenario."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vflsim.vocabulary.trial import Trial

_EXAMPLES = re.compile(r"^Examples?: (``.*``)$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``(.*?)``", re.DOTALL)


def examples_of(part: type[BaseModel]) -> list[Any]:
    """Read the examples of a part, in YAML, from ``Example: …`` or ``Examples: …`` at the end of its docstring."""
    from ruamel.yaml import YAML  # `vflsim list` does not need it

    match = _EXAMPLES.search(inspect.cleandoc(part.__doc__ or ""))
    return [YAML(typ="safe").load(text) for text in _CODE.findall(match[1])] if match else []


def meanings_of(part: type[BaseModel]) -> dict[str, str]:
    """Read what the keys of a part mean: the string below each field.

    pydantic's ``use_attribute_docstrings`` reads them when a class is made: a third of the start of each process.
    """
    meanings, fields = strings_below(part), part.model_fields
    meanings |= {name: info.description for name, info in fields.items() if info.description is not None}
    return {fields[name].alias or name: meanings[name] for name in fields if meanings.get(name)}


def strings_below(part: type) -> dict[str, str]:
    """Read the string below each field of a class, and of those that it derives from; empty where there is none."""
    meanings: dict[str, str] = {}
    for of in reversed(part.__mro__):
        strings = _strings(of.__module__).get(of.__qualname__, {})
        meanings |= {key: strings.get(key, "") for key in inspect.get_annotations(of)}
    return meanings


@cache
def _strings(module: str) -> dict[str, dict[str, str]]:
    """Read the strings below the fields of the classes of a module, from its source; none where there is no source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    strings: dict[str, dict[str, str]] = {}
    _read(tree, "", strings)
    return strings


def _read(node: ast.AST, scope: str, strings: dict[str, dict[str, str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            _read(child, f"{scope}{child.name}.<locals>.", strings)
        elif isinstance(child, ast.ClassDef):
            _read(child, f"{scope}{child.name}.", strings)
            meanings = strings[f"{scope}{child.name}"] = {}
            for field, below in pairwise(child.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                        meanings[key] = inspect.cleandoc(text)


def _complete(schema: JsonSchemaValue, part: type[BaseModel]) -> None:
    """Complete the JSON Schema of a part by facts that its fields do not contain.

    A file must have ``kind``, which Python may leave to its default. Every key has its meaning and the values of the
    part's examples.
    """
    keys, examples, meanings = schema.get("properties", {}), examples_of(part), meanings_of(part)
    for key in keys.keys() & meanings.keys():
        keys[key]["description"] = meanings[key]
    if "kind" in keys:
        schema["required"] = ["kind", *schema.get("required", [])]
        keys["kind"]["description"] = "Selects this kind."
    for key, of_key in keys.items():
        values = [example[key] for example in examples if key in example]
        if values:
            of_key["examples"] = [value for place, value in enumerate(values) if value not in values[:place]]


def as_in(other: type[BaseModel]) -> Callable[[JsonSchemaValue, type[BaseModel]], None]:
    """Return the ``json_schema_extra`` of a part whose keys mean what they mean in ``other``."""

    def complete(schema: JsonSchemaValue, part: type[BaseModel]) -> None:
        _complete(schema, part)
        meanings = meanings_of(other)
        for key, of_key in schema["properties"].items():
            of_key["description"] = meanings[key]

    return complete


class Part(BaseModel):
    """A part of a scenario: immutable, without unknown keys, with finite numbers only.

    The string below a field documents it, in the source and in the JSON Schema. So do the examples that end a
    docstring, ``Example: …`` with a mapping in YAML between double backticks: each key has an example in one of them.

    Example::

        class Burst(Part):
            length: PositiveSeconds
            rows: Count = 10


        Burst(length="5 ms").length  # 0.005
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, json_schema_extra=_complete)

    def suits_all(self, values: Mapping[str, NDArray[np.float64]]) -> bool:
        """Return whether keys may for certain have each of these values, (n,) each within its own bounds.

        False where only the validation of each would tell.
        """
        known = type(self).__module__.startswith("vflsim.")
        return known and not type(self).__pydantic_decorators__.model_validators and not self.__pydantic_private__

    def _contract(self, trial: Trial) -> None:
        """Ask a part of a user's own class what its base class promises; by default nothing."""

    def changed(self, update: Mapping[str, Any]) -> Self:
        """Return a copy with some values replaced, as they are; what the original has cached stays behind."""
        kind = type(self)
        part, values = kind.__new__(kind), self.__dict__
        object.__setattr__(part, "__dict__", {**{key: values[key] for key in kind.__pydantic_fields__}, **update})
        object.__setattr__(part, "__pydantic_fields_set__", {*self.__pydantic_fields_set__, *update})
        object.__setattr__(part, "__pydantic_extra__", None)
        object.__setattr__(part, "__pydantic_private__", None)
        return part


class Refinable(Part):
    """A part that another one of its kind can refine key by key."""

    def refined(self, by: Self | None) -> Self:
        """Return a copy with the keys that ``by`` sets."""
        return self if by is None else self.model_copy(update={key: getattr(by, key) for key in by.model_fields_set})


@dataclass(frozen=True)
class Shorthand:
    """Annotation of a field: ``expand`` rewrites a short form (``5 ms``, ``fifo``) into the long one before validation.

    ``expand`` returns unknown values unchanged; ``schema`` is the JSON Schema of the short form.
    """

    expand: Callable[[Any], Any]
    schema: JsonSchemaValue

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [self.schema, handler(schema)]}

    def __hash__(self) -> int:
        return hash(self.expand)


def kind_from_text(value: Any) -> Any:
    """Expand ``fifo`` to ``{kind: fifo}``."""
    return {"kind": value} if isinstance(value, str) else value
