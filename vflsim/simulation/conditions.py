"""Find what a protocol trains with beside its timing."""

from __future__ import annotations

from collections.abc import Iterable

from vflsim.learning.learners.party import PartyLearner
from vflsim.learning.optimizers import Optimizer
from vflsim.protocols.base import Protocol
from vflsim.protocols.capabilities import LabelSharing
from vflsim.protocols.defaults import local_steps_of
from vflsim.results.facts import Conditions
from vflsim.setting import Setting
from vflsim.streams import SERVER


def conditions_of(
    protocol: Protocol, setting: Setting, server: PartyLearner, clients: Iterable[PartyLearner]
) -> Conditions:
    """Return the features, labels, optimisers and local steps of a protocol with these learners of its parties."""
    columns = setting.data.columns
    joined = sum(
        columns[0].start if party == SERVER else columns[party - 1].stop - columns[party - 1].start
        for party in setting.joined
    )
    return Conditions(
        features=joined,
        features_in_data=setting.data.joint["train"].shape[1],
        labels="server and clients" if isinstance(protocol, LabelSharing) and protocol.labels_at_clients else "server",
        client_optimizers=_rules(clients),
        server_optimizers=_rules([server]),
        local_steps=local_steps_of(protocol, setting),
    )


def _rules(learners: Iterable[PartyLearner]) -> tuple[str, ...]:
    """Return the different update rules of the learners' weights in words, in the order in which they appear."""
    rules = (model.rule for learner in learners for model in learner.models.values() if model.parameters)
    return tuple(dict.fromkeys(map(_in_words, rules)))


def _in_words(rule: Optimizer) -> str:
    """Write an update rule: its kind, its learning rate, and what else was set: ``sgd 0.1, momentum 0.9``."""
    rest = rule.model_dump(mode="json", exclude_defaults=True, exclude={"kind", "lr"})
    return ", ".join([f"{rule.kind} {rule.lr:g}", *(f"{key} {value}" for key, value in rest.items())])
