"""Attacks on finished runs: on the embeddings that clients upload, on the models that runs left."""

from collections.abc import Sequence
from typing import Any, TypeAlias, get_args, get_origin

from pydantic import ValidationError

from vflsim.attacks.attribution import Attribution
from vflsim.attacks.base import Attack, AttackedRun, Measured
from vflsim.attacks.coded_embeddings import CodedEmbeddings
from vflsim.attacks.equations import EquationSolving
from vflsim.attacks.evaluate import Evaluation, evaluate, evaluation_tables, save
from vflsim.attacks.label_inference import LabelInference
from vflsim.attacks.pgd import Pgd, RoundingBound, Smoothing
from vflsim.attacks.reconstruction import Reconstruction
from vflsim.errors import check_known
from vflsim.protocol import ScenarioError
from vflsim.scenario import Known, problems_of, values_of

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackedRun",
    "Evaluation",
    "Measured",
    "chosen",
    "evaluate",
    "evaluation_tables",
    "save",
]


AttackKind: TypeAlias = (
    Pgd | Smoothing | Attribution | RoundingBound | Reconstruction | EquationSolving | CodedEmbeddings | LabelInference
)


ATTACKS: dict[str, type[Attack]] = {each.model_fields["kind"].default: each for each in get_args(AttackKind)}


_OPTION = "ATTACK.OPTION=VALUE, or VALUE,VALUE,… where an option takes several, as in pgd.omega=1,2"


def chosen(kinds: Sequence[str], options: Sequence[str]) -> list[Attack]:
    """Make the attacks of these kinds, or all of them without any, with options such as ``pgd.omega=1,2``.

    Raises ``ScenarioError`` for an unknown attack or option, for a wrong value, and for an option given twice.
    """
    for kind in kinds:
        check_known(kind, list(ATTACKS), "attack", "vflsim evaluate --attack")
    wanted = [kind for kind in ATTACKS if not kinds or kind in kinds]
    given: dict[str, dict[str, Any]] = {kind: {} for kind in wanted}
    for text in options:
        where = f"--set {text}"
        key, values = values_of(text, "--set")
        kind, dot, name = key.partition(".")
        if not dot:
            raise ScenarioError(f"{key!r} names no option of an attack", where, _OPTION)
        check_known(kind, wanted, "attack", where)
        fields = ATTACKS[kind].model_fields
        check_known(name, [each for each in fields if each != "kind"], f"option of {kind}", where)
        if name in given[kind]:
            raise ScenarioError(f"{key} is given twice", where, "once", f"leave one {key}")
        several = get_origin(fields[name].annotation) is tuple
        if len(values) > 1 and not several:
            raise ScenarioError(f"{key} takes one value, not {len(values)}", where, _OPTION)
        given[kind][name] = values if several else values[0]
    return [_made(ATTACKS[kind], raw) for kind, raw in given.items()]


def _made(attack: type[Attack], raw: dict[str, Any]) -> Attack:
    try:
        return attack(**raw)
    except ValidationError as error:
        kind = attack.model_fields["kind"].default
        first, *_ = problems_of(error, raw, Known(raw, attack.model_json_schema))
        place = f"--set {kind}.{first.key}" if first.loc else f"--set {kind}"
        raise ScenarioError(first.what, place, first.allowed, first.remedy) from None
