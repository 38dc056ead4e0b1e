"""Checks of what a protocol from outside defines: signatures of its hooks, and the objects that they return."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from numbers import Real
from types import FunctionType
from typing import Any, NamedTuple

from vflsim.analysis.findings import ClosedForm, NoClosedForm
from vflsim.errors import ProtocolError
from vflsim.learning.batches import Split
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.learners.watch import from_outside
from vflsim.protocols.answering import Answering, Scores
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import Peering, Vectorisable, closed_forms_of
from vflsim.setting import ClientsMade, Learners, Setting
from vflsim.streams import party_name
from vflsim.vocabulary.metrics import REPORTED, Known, is_known


class Mismatch(NamedTuple):
    """A method that vflsim cannot call: what is wrong, what is allowed, and where it is defined."""

    what: str
    allowed: str
    place: str


def mismatches(kind: type[Protocol]) -> Iterator[Mismatch]:
    """Yield the methods of ``kind`` that override a method of ``Protocol`` with another signature.

    Mistakes are too few or too many parameters, a coroutine in place of a function, an attribute that is no method, and
    methods of a capability that ``kind`` does not derive from. Names of parameters do not matter: vflsim calls by
    position.
    """
    for base in (Answering, Vectorisable, Peering, Protocol):
        for name, of_base in vars(base).items():
            field = name in kind.model_fields
            owner = kind if field else next((each for each in kind.__mro__ if name in vars(each)), kind)
            attribute = None if field else vars(owner).get(name, of_base)
            if name.startswith("_") or attribute is of_base or not from_outside(owner):
                continue
            place = _place(attribute, owner)
            if not issubclass(kind, base):
                what = f"{owner.__name__}.{name} is never used: {kind.__name__} does not derive from {base.__name__}"
                yield Mismatch(what, f"class {kind.__name__}({base.__name__}, …)", place)
            elif isinstance(of_base, FunctionType) and (wrong := _wrong(attribute, of_base)):
                says = "async def" if inspect.iscoroutinefunction(of_base) else "def"
                allowed = f"{says} {name}{_bare(inspect.signature(of_base))}"
                yield Mismatch(f"{owner.__name__}.{name} {wrong}", allowed, place)


def _wrong(attribute: Any, of_base: FunctionType) -> str:
    function = attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
    if not callable(function):
        return "is no method"
    if not isinstance(function, FunctionType):  # a callable object, which may take anything
        return ""
    arguments = list(inspect.signature(of_base).parameters)[isinstance(attribute, staticmethod) :]
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments)
    except TypeError:
        return f"takes {_bare(signature)}"
    if inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(of_base):
        return "is a coroutine"
    return ""


def _bare(signature: inspect.Signature) -> str:
    empty = inspect.Parameter.empty
    parameters = [each.replace(annotation=empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


def _place(attribute: Any, owner: type) -> str:
    code = getattr(getattr(attribute, "__func__", attribute), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{owner.__module__}.{owner.__qualname__}"


def learners_of(protocol: Protocol, setting: Setting, seed: int) -> Learners[Any, Any]:
    """Make the learners of a run. Raises ``ProtocolError`` for anything else, and for missing or unknown parties."""
    answer, call = protocol.learners(setting, seed), f"{type(protocol).__name__}.learners(setting, seed)"
    allowed = "Learners(server, {client: learner, …}), with a PartyLearner for each party, in client order"
    if not isinstance(answer, Learners) or not isinstance(answer.clients, Mapping):
        what = type(answer.clients).__name__ + " of clients" if isinstance(answer, Learners) else type(answer).__name__
        raise ProtocolError(f"{call} returned a {what}", allowed=allowed)
    if tuple(answer.clients) != tuple(setting.clients):
        what = f"learners of clients {list(answer.clients)}, and clients {list(setting.clients)} take part"
        raise ProtocolError(f"{call} returned {what}", allowed=allowed)
    few = isinstance(answer.clients, ClientsMade)  # all of one type, of vflsim's own
    for party, learner in {0: answer.server, **({} if few else answer.clients)}.items():
        if not isinstance(learner, PartyLearner):
            what = f"a {type(learner).__name__} as the learner of {party_name(party)}"
            raise ProtocolError(f"{call} returned {what}", allowed=allowed, remedy="derive it from PartyLearner")
        if not hasattr(learner, "held"):
            what = f"the learner {type(learner).__name__} of {party_name(party)} was not set up"
            raise ProtocolError(what, remedy="call super().__init__(held) first in its __init__")
    return answer


def check_answers(protocol: Protocol, setting: Setting) -> None:
    """Call a hook that needs no run, and return its answer. Raises ``ProtocolError`` for answers of another type."""
    _check(
        protocol, "describe(setting)", protocol.describe(setting), (str,), "a text, empty if there is nothing to say"
    )
    try:
        forms = closed_forms_of(protocol, setting)
    except Exception:  # `vflsim analyze` shows the reason
        return
    allowed = "a tuple of ClosedForm and NoClosedForm; or raise Unanalysable"
    _check(protocol, "closed_forms(setting)", forms, (tuple,), allowed)
    for each in forms:
        _check(protocol, "closed_forms(setting)", each, (ClosedForm, NoClosedForm), allowed)


def _check(protocol: Protocol, call: str, answer: Any, kinds: tuple[type, ...], allowed: str) -> None:
    if not isinstance(answer, kinds):
        what = f"{type(protocol).__name__}.{call} returned a value of type {type(answer).__name__}"
        raise ProtocolError(what, allowed=allowed)


def coroutine_of(protocol: Protocol, hook: str, party: int, *arguments: Any) -> Coroutine[Any, Any, Any]:
    """Call a hook that is a coroutine. Raises ``ProtocolError``, with the party, if it is none."""
    where, name = party_name(party), f"{type(protocol).__name__}.{hook}"
    try:
        answer = getattr(protocol, hook)(*arguments)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # its arguments do not fit
            raise ProtocolError(f"{name}: {error}", where, _SIGNATURES[hook]) from error
        raise
    if not inspect.iscoroutine(answer):
        made_of = "an async generator" if inspect.isasyncgen(answer) else f"a value of type {type(answer).__name__}"
        raise ProtocolError(f"{name} returned {made_of}, and no coroutine", where, _SIGNATURES[hook])
    return answer


def checked_scores(protocol: Protocol, value: Any, splits: Sequence[Split]) -> dict[Split, Handle[Scores]]:
    """Return the result of an evaluation. Raises ``ProtocolError`` unless it is a handle of scores for each split."""
    if not isinstance(value, Mapping) or set(value) != set(splits):
        what = f"a mapping of {[*value]}" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"
    elif wrong := [split for split, handle in value.items() if not isinstance(handle, Handle)]:
        what = f"for {wrong[0]} a value of type {type(value[wrong[0]]).__name__}"
    else:
        return dict(value)
    raise ProtocolError(
        f"{type(protocol).__name__}.evaluate returned {what}",
        allowed=f"a handle for each of {', '.join(splits)}: the result of an operation of kind evaluate",
    )


def checked_score(scores: Any, evaluator: str, metrics: Known, before: Collection[str]) -> Scores:
    """Return the scores of a split.

    Raises ``ProtocolError`` unless they are numbers by name, ``loss`` among them, each of them a metric of the task or
    of the scenario's ``metrics``, and the same as ``before`` (empty: none). ``evaluator`` names their class.
    """
    numbers = isinstance(scores, Mapping) and all(isinstance(each, Real) for each in scores.values())
    if not numbers or "loss" not in scores:
        raise ProtocolError(
            f"an evaluation has the scores {scores!r}",
            allowed="loss and the task's metrics, as floats by name: what PartyLearner.scores returns",
        )
    if unknown := [str(name) for name in scores if not is_known(f"test_{name}", metrics)]:
        name = unknown[0]
        raise ProtocolError(
            f"{evaluator}: an evaluation has the score {name!r}, which is no metric",
            allowed=", ".join([*REPORTED, *metrics]),
            remedy=f"declare it in the scenario, `metrics: {{{name}: …}}`: macro_f1, say, or a class of your own, "
            f'{{kind: module, path: "mine:Metric"}}; it need not be returned then. Or leave it out.',
        )
    if before and set(scores) != set(before):
        raise ProtocolError(
            f"{evaluator}: an evaluation has the scores {', '.join(scores)}; an earlier one had {', '.join(before)}",
            allowed="the same scores in every evaluation, nan for what is undefined",
        )
    return dict(scores)


_SIGNATURES = {
    "server": "async def server(self, node), without yield",
    "client": "async def client(self, node), without yield",
    "evaluate": "async def evaluate(self, node, splits, number), which returns {split: handle of scores}",
    "answer_evaluation": "async def answer_evaluation(self, node, splits, number), without yield",
}
