"""Values of handles as plain data; lazy values as their recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vflsim.errors import CheckpointError, NonFiniteError
from vflsim.learning.batches import Batch
from vflsim.learning.batching.stack import Joint, Stack
from vflsim.learning.execution.operations import Handle
from vflsim.learning.learners.inputs import KeptValue, Plain, Rows
from vflsim.learning.states import State
from vflsim.simulation.build import Parties
from vflsim.streams import party_name
from vflsim.vocabulary.on_demand import Tensor, torch
from vflsim.world.node import Node


def stacks_of(parties: Parties) -> list[Stack]:
    """Return the stacks of a run, in the order of their first clients."""
    return list(dict.fromkeys(node.learner.stack for node in parties.clients if node.learner.stack is not None))


def nodes_of(parties: Parties) -> tuple[Node, ...]:
    """Return the nodes of all parties."""
    return (parties.server, *parties.clients)


def client_of(parties: Parties, client: int) -> Node:
    """Return a client's node."""
    return parties.clients[parties.shared.clients.index(client)]


def states_of(parties: Parties) -> dict[str, dict[str, Tensor]]:
    """Return the states of all parties and stacks by name; tensors are not copied (``learning.states``)."""
    return {name: owner.state() for name, owner in _owners(parties).items()}


def load_states(parties: Parties, states: Mapping[str, State]) -> None:
    """Restore the ``states`` of all parties. Stacks come first: their weights rebuild the graphs."""
    for name, owner in _owners(parties).items():
        owner.load(states[name])


def _owners(parties: Parties) -> dict[str, Any]:
    nodes = nodes_of(parties)
    return {
        **{f"stack-{n}": stack for n, stack in enumerate(stacks_of(parties))},
        **{party_name(node.party): node.learner for node in nodes},
        **{f"{party_name(node.party)}'s wire": node.state.wire for node in nodes},
        **({} if parties.shared.views is None else {"views": parties.shared.views}),
    }


# --- tensors ----------------------------------------------------------------------------------------------------------


DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "complex128", "complex64"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
"""The names of the dtypes of tensors that checkpoints can hold."""


class Place(NamedTuple):
    """Layout of a tensor: type of device, storage, and offset and strides in elements."""

    device: str
    storage: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorWriter:
    """Collects tensors and numbers them, each storage once. The same object gets the same number."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.storages: dict[str, Tensor] = {}
        """The bytes of every storage, by its number as text; CPU storages are not copied."""
        self._numbers: dict[int, int] = {}
        self._storage_numbers: dict[int, int] = {}
        self._alive: list[Tensor] = []  # so that ids stay unique

    def add(self, tensor: Tensor) -> int:
        """Return the tensor's number."""
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self.places)
            self._alive.append(tensor)
            self.places.append(
                Place(
                    tensor.device.type,
                    self._storage(tensor),
                    _name(tensor.dtype),
                    int(tensor.storage_offset()),
                    tuple(tensor.shape),
                    tensor.stride(),
                )
            )
        return number

    def _storage(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storage_numbers:
            self._storage_numbers[key] = len(self.storages)
            content = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            self.storages[str(self._storage_numbers[key])] = content.cpu()
        return self._storage_numbers[key]


class TensorReader:
    """Restores the tensors of a ``TensorWriter``: the same number gives the same object.

    They are copies, since the alignment of loaded memory could change last bits. ``borrowed`` returns an uncopied
    tensor, for reading once.
    """

    def __init__(self, places: Sequence[Place], storages: Mapping[str, Tensor]) -> None:
        self._places, self._storages = places, storages
        self._copies: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, Tensor] = {}

    def __getitem__(self, number: int) -> Tensor:
        tensor = self._tensors.get(number)
        if tensor is None:
            place = self._places[number]
            storage = self._copies.get(place.storage)
            if storage is None:
                content = self._storages[str(place.storage)].clone().to(place.device)
                storage = self._copies[place.storage] = content.untyped_storage()
            tensor = self._tensors[number] = _laid_out(place, storage, place.device)
        return tensor

    def borrowed(self, number: int) -> Tensor:
        """Return the loaded tensor on the CPU, without a copy."""
        place = self._places[number]
        return _laid_out(place, self._storages[str(place.storage)].untyped_storage(), "cpu")


def _laid_out(place: Place, storage: torch.UntypedStorage, device: str) -> Tensor:
    tensor = torch.empty(0, dtype=getattr(torch, DTYPES[DTYPES.index(place.dtype)]), device=device)
    return tensor.set_(storage, place.offset, place.shape, place.strides)


def _name(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CheckpointError(f"a tensor of {name} cannot be kept", allowed=", ".join(DTYPES))
    return name


# --- values -----------------------------------------------------------------------------------------------------------


JOINTS = "joints"
_PLAIN: Mapping[type, str] = {float: "number", int: "number", bool: "number", dict: "scores"}
"""The kinds of computed values beside tensors, by type."""


class ValueWriter:
    """Turns values into plain data and tensors; writes common parts of several values once, in ``shared``."""

    def __init__(self, parties: Parties, tensors: TensorWriter) -> None:
        self.shared: dict[str, list[Plain]] = {}
        self._tensors, self._sequence = tensors, parties.shared.sequence
        self._stacks: dict[Stack, int] = {stack: n for n, stack in enumerate(stacks_of(parties))}
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
        kind = "tensor" if type(value) is torch.Tensor else _PLAIN.get(type(value))
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
            records = self.shared.setdefault(what, [])
            self._numbers[thing] = len(records)
            records.append(written)
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
