"""Values of handles as plain data; lazy values as their recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vflsim.errors import CheckpointError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.inputs import KeptValue, Plain, Rows
from vflsim.learning.learners.joint import ClientStack, Joint
from vflsim.simulation.build import Parties
from vflsim.simulation.checkpoints.parties import client_of, stacks_of
from vflsim.simulation.checkpoints.tensors import TensorReader, TensorWriter

JOINTS = "joints"
_PLAIN: Mapping[type, str] = {Tensor: "tensor", float: "number", int: "number", bool: "number", dict: "scores"}
"""The kinds of computed values, by type."""


class ValueWriter:
    """Turns values into plain data and tensors; writes common parts of several values once, in ``shared``."""

    def __init__(self, parties: Parties, tensors: TensorWriter) -> None:
        self.shared: dict[str, list[Plain]] = {}
        self._tensors, self._sequence = tensors, parties.shared.sequence
        self._stacks: dict[ClientStack, int] = {stack: n for n, stack in enumerate(stacks_of(parties))}
        self._numbers: dict[Any, int] = {}

    def handle(self, handle: Handle[Any]) -> Plain:
        """Return the kind of a handle's value, and the value. Computes nothing that affects later results."""
        if handle.joint is not None:
            joint, place = handle.joint
            return ["joint", self._once(JOINTS, joint, self._joint), place]
        try:
            value = handle.value  # at most copies a loss from its device
        except NonFiniteError as error:
            raise CheckpointError(f"the run is about to fail: {error.what}") from error
        if isinstance(value, KeptValue):
            return [value.recipe, value.written(self)]
        if isinstance(value, np.generic):
            value = value.item()
        kind = _PLAIN.get(type(value))
        if kind is None:
            raise CheckpointError(f"a value of type {type(value).__name__} cannot be kept")
        return [kind, self.tensor(value) if kind == "tensor" else value]

    def tensor(self, tensor: Tensor) -> Plain:
        """Keep a tensor; return its number."""
        return self._tensors.add(tensor)

    def batch(self, batch: Batch) -> Plain:
        """Return a batch's number in the common sequence, or the batch itself."""
        if type(batch) is not Batch:
            return [batch.index]
        return [batch.index, batch.origin, self.tensor(batch.tensor())]

    def once(self, value: KeptValue) -> Plain:
        """Keep the recipe of a value that several recipes contain; return its number."""
        return self._once(value.recipe, value, lambda each: each.written(self))

    def _joint(self, joint: Joint) -> Plain:
        weights = None if joint.weights is None else [self.tensor(each) for each in joint.weights]
        return [self._stacks[joint.stack], list(joint.places), self._rows(joint.rows), weights]

    def _rows(self, rows: Rows) -> Plain:
        return rows if isinstance(rows, str) else self.batch(rows)

    def _once(self, what: str, thing: Any, write: Callable[[Any], Plain]) -> int:
        if thing not in self._numbers:
            written = write(thing)  # may keep its own parts first
            kept = self.shared.setdefault(what, [])
            self._numbers[thing] = len(kept)
            kept.append(written)
        return self._numbers[thing]


class ValueReader:
    """Gives the handles of a resumed run the values that a ``ValueWriter`` has written."""

    def __init__(self, parties: Parties, tensors: TensorReader, shared: Mapping[str, Sequence[Plain]]) -> None:
        self._parties, self._tensors, self._shared = parties, tensors, shared
        self._recipes = {kind.recipe: kind for kind in parties.lazy_values}
        self._known: dict[tuple[str, int], Any] = {}

    def give(self, handle: Handle[Any], written: Plain) -> None:
        """Set the value of ``handle``."""
        kind, value = written[0], written[1]
        if kind == "joint":
            handle.share(self._once(JOINTS, value, self._joint), written[2])
        elif kind in self._recipes:
            handle.set(self._recipes[kind].read(self, value))
        else:
            handle.set(self.tensor(value) if kind == "tensor" else value)

    def tensor(self, plain: Plain) -> Tensor:
        """Return a tensor by its number."""
        return self._tensors[plain]

    def batch(self, plain: Plain) -> Any:
        """Return a batch."""
        if len(plain) == 1:
            return self._parties.shared.sequence.batch(plain[0])
        index, origin, ids = plain
        return Batch(index, self.tensor(ids).numpy(), origin)

    def shared(self, kind: type[KeptValue], plain: Plain) -> Any:
        """Return the one value that several recipes contain."""
        return self._once(kind.recipe, plain, lambda written: kind.read(self, written))

    def learner(self, party: int) -> Any:
        """Return the learner of a client."""
        return client_of(self._parties, party).learner

    def _joint(self, written: Plain) -> Joint:
        stack, places, rows, weights = written
        joint = Joint(stacks_of(self._parties)[stack], tuple(places), self._rows(rows))
        if weights is not None:
            joint.weights = [self.tensor(number) for number in weights]
            joint.stack.unsettled.discard(joint)
        return joint

    def _rows(self, written: Plain) -> Any:
        return written if isinstance(written, str) else self.batch(written)

    def _once(self, what: str, number: int, read: Callable[[Plain], Any]) -> Any:
        key = what, number
        if key not in self._known:
            self._known[key] = read(self._shared[what][number])
        return self._known[key]
