"""Tries users' own codecs on the shapes of a scenario's tensors; a codec may fail for these shapes alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from vflsim.codecs.trial import try_out
from vflsim.learning.learners.watch import from_outside
from vflsim.protocols import Protocol
from vflsim.protocols.defaults import exchanges_of
from vflsim.scenario.models import Scenario
from vflsim.scenario.problems import Problem
from vflsim.scenario.resolve import location_of
from vflsim.setting import Setting
from vflsim.streams import SERVER
from vflsim.vocabulary.imported import origin, reason

ELEMENTS = 2**18
"""Tensors with more elements are tried with fewer rows: each is encoded some sixty times."""


def own_codec_problems(scenario: Scenario, settings: Mapping[str, Setting]) -> Iterator[Problem]:
    """Try out the codecs from outside on what protocols send in a round, of full and of last batches."""
    for name, resolved in settings.items():
        for receiver in (SERVER, *resolved.clients[:1]):
            codec = resolved.codec.towards(receiver)
            if from_outside(codec):
                shapes = sorted(set(_shapes(scenario.protocols[name].protocol, resolved, receiver)))
                try:
                    try_out(codec, shapes, (resolved.dtype,))
                except Exception as error:  # the user's code may raise anything
                    key, said = location_of(scenario, name, "codec"), reason(error)
                    if isinstance(error, ValueError) and origin(error).partition(":")[0].endswith("trial.py"):
                        yield Problem.of_message(key, str(error))
                    else:
                        yield Problem(key, f"{codec.kind} fails: {said}", remedy=f"mend it; raised in: {origin(error)}")
                    break


def _shapes(protocol: Protocol, resolved: Setting, receiver: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the tensors that go to the server, or to clients."""
    batch, exchanges = resolved.batch, exchanges_of(protocol, resolved)
    for rows in {batch, resolved.data.rows % batch or batch}:
        for client in resolved.clients:
            exchange = exchanges.of(client, rows)
            for shape in (exchange.up if receiver == SERVER else exchange.down).values():
                if shape and 0 not in shape:
                    row = torch.Size(shape[1:]).numel()
                    yield (min(shape[0], max(1, ELEMENTS // row)), *shape[1:])
