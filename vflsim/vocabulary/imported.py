"""Users' own classes, named by Python import path: ``{kind: module, path: "mine:Class", …}``."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from vflsim.errors import RunError
from vflsim.vocabulary.base import Part
from vflsim.vocabulary.trial import ContractError, Trial

Own = TypeVar("Own", bound=Part)
OWN_FIELDS = "vflsim_own_fields"
"""The type of a pydantic error that wraps those of a user's class; its context has ``error`` and ``part``."""


def _import_path(text: str) -> str:
    module, _, names = text.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), *names.split("."))):
        raise ValueError(f"{text!r} is not a Python import path; allowed: package.module:Class")
    return text


ImportPath = Annotated[str, AfterValidator(_import_path)]


def imported(path: str) -> Any:
    """Import the object that ``package.module:name`` names. Raises ValueError with the reason if that fails."""
    module_name, _, names = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} does not import: no module named {error.name}; put it into the scenario's folder, name its folder "
            "by the key `modules`, or put that on PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:  # importing runs the user's code, which may raise anything
        raise ValueError(f"{path} does not import: {reason(error)}") from error
    try:
        return reduce(getattr, names.split("."), module)
    except AttributeError as error:
        raise ValueError(f"{path} does not exist: {error}") from error


def own_kind(name: str) -> str:
    """Say how to name an imported class of the user's own with this kind or name; return an empty text for none."""
    for part in _derived(Part):
        kind = part.model_fields.get("kind")
        path = f"{part.__module__}:{part.__qualname__}"
        known = name in (part.__name__, None if kind is None else kind.default)
        if known and not part.__module__.startswith("vflsim.") and "<locals>" not in path:
            return f'a class of your own is named by its path: `{{kind: module, path: "{path}"}}`'
    return ""


def built_in_kinds() -> frozenset[str]:
    """Return the names of all kinds of vflsim whose modules have been imported."""
    fields = (part.model_fields.get("kind") for part in _derived(Part) if part.__module__.startswith("vflsim."))
    return frozenset(field.default for field in fields if field is not None and isinstance(field.default, str))


def _derived(part: type[Part]) -> Iterator[type[Part]]:
    for each in part.__subclasses__():
        yield each
        yield from _derived(each)


def class_of(path: str, *bases: type[Part]) -> type[Part]:
    """Import a class of the user's own. Raises ValueError unless it is derived from one of ``bases`` and complete."""
    target = imported(path)
    if not (isinstance(target, type) and issubclass(target, bases)):
        what = "a class" if isinstance(target, type) else f"a value of type {type(target).__name__}"
        names = " or ".join(base.__name__ for base in bases)
        raise ValueError(f"{path} is {what} but no {names}; derive it from vflsim.protocol.{bases[0].__name__}")
    if "kind" not in target.model_fields or not isinstance(target.model_fields["kind"].default, str):
        raise ValueError(f'{path} has no kind; add `kind: Literal["{target.__name__.lower()}"] = …` to the class')
    if missing := sorted(getattr(target, "__abstractmethods__", ())):
        raise ValueError(f"{path} lacks the methods {', '.join(missing)}; define them")
    return target


def reason(error: BaseException) -> str:
    """Describe an exception of the user's code in one line."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def origin(error: BaseException) -> str:
    """Return the place in the user's code that raised an exception: the innermost frame outside installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    return f"{places[-1].filename}:{places[-1].lineno}, {places[-1].name}" if places else type(error).__name__


def tried_out(part: Own, contract: Callable[[Trial], None] | None = None) -> Own:
    """Try out a part of a user's own class by a ``contract``, by default its own, and return it.

    Raises ValueError with the mistake and its place.
    """
    trial = Trial(part)
    try:
        (contract or part._contract)(trial)
        trial.end()
    except ContractError as error:
        raise ValueError(f"{error} in {_file_of(type(part))}") from error
    except Exception as error:  # the user's code may raise anything
        raise _broken(type(part), error) from error
    return part


@contextmanager
def blaming(what: str, case: str = "") -> Iterator[None]:
    """Raise ``RunError``, with the place in the user's code, for what goes wrong inside."""
    try:
        yield
    except Exception as error:  # the user's code may raise anything
        raise RunError(f"{what} fails{case}: {reason(error)}", remedy=f"mend it; raised in {origin(error)}") from error


def _broken(part: type[Part], error: Exception) -> ValueError:
    return ValueError(f"{part.__name__} fails: {reason(error)}; remedy: mend it; raised in {origin(error)}")


def _file_of(part: type[Part]) -> str:
    return str(getattr(sys.modules.get(part.__module__), "__file__", part.__module__))


@dataclass(frozen=True)
class OrModule:
    """Annotation of a union of kinds that adds users' own classes: ``{kind: module, path: "mine:Class", …}``.

    The class must be derived from ``base``, or from ``also``, and have a ``kind`` of its own; the other keys are its
    fields, validated like those of a built-in kind. Importing runs the Python module that the path names: name only
    code that you trust.

    A part of a user's own class is tried out by its ``_contract`` when it is made.
    """

    base: type[Part]
    also: type[Part] | None = None

    @property
    def _bases(self) -> tuple[type[Part], ...]:
        return (self.base,) if self.also is None else (self.base, self.also)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_wrap_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        module = {
            "type": "object",
            "description": f"a class of your own, derived from {self._names}; other keys are its fields",
            "properties": {
                "kind": {
                    "const": "module",
                    "type": "string",
                    "description": "Selects a class of your own.",
                    "examples": ["module"],
                },
                "path": {"type": "string", "description": "package.module:Class", "examples": ["mine:Class"]},
            },
            "required": ["kind", "path"],
        }
        known = handler(schema)
        return {"anyOf": [*(known["anyOf"] if list(known) == ["anyOf"] else [known]), module]}

    def _validate(self, value: Any, inner: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if isinstance(value, self._bases):
            if not type(value).__module__.startswith("vflsim."):
                tried_out(value)
            return value
        if not isinstance(value, Mapping) or value.get("kind") != "module":
            return inner(value)
        if "path" not in value:
            raise ValueError("the key 'path' is missing; allowed: package.module:Class; add `path: \"mine:Class\"`")
        path = value["path"]
        if not isinstance(path, str):
            raise ValueError(f"path: {path!r} is no text; allowed: package.module:Class")
        part = class_of(_import_path(path), *self._bases)
        fields = {key: item for key, item in value.items() if key not in ("kind", "path")}
        try:
            instance = part.model_validate(fields, context=info.context)
        except ValidationError as error:
            context = {"error": error, "part": part}
            raise PydanticCustomError(OWN_FIELDS, "the fields of a class of your own", context) from None
        except Exception as error:  # the user's code may raise anything
            raise _broken(part, error) from error
        return tried_out(instance)

    @property
    def _names(self) -> str:
        return " or ".join(base.__name__ for base in self._bases)
