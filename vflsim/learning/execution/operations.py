"""Operations of the learning plane, the handles they promise, and executors, which decide when work is done."""

from __future__ import annotations

import math
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeVar

from vflsim.errors import NonFiniteError, RunError, VflsimError
from vflsim.streams import party_name
from vflsim.vocabulary.on_demand import Tensor, dtype as dtype_named, torch

T = TypeVar("T")


class ValueNotHereError(RunError, AttributeError, TypeError):
    """A protocol treats a handle, which is a promise, as if it were the tensor that is promised."""

    def __init__(self, asked: str) -> None:
        caller = traceback.extract_stack(limit=3)[0]
        super().__init__(
            f"there is no {asked} of a handle ({caller.filename}:{caller.lineno}): it is a promise with a shape and a "
            "dtype, whose value operations of learners alone see",
            remedy="change the value in an operation of a learner: derive one from ClientLearner or ServerLearner, and "
            "make it in the protocol's `learners` (docs/adding-a-protocol.md, Clip a gradient)",
        )


class Handle(Generic[T]):
    """A value that will exist: shape and dtype are known now, the value once its operation has run.

    Invariant: the value is set once, by the operation that promised it, and never changes. The operation may leave
    the last of the work to the first reader (``defer``), so that unread values are never computed.

    Example::

        promised = Handle((2, 3))
        promised.nbytes, promised.ready  # (24, False)
        promised.set(torch.ones(2, 3))
        float(promised.value.sum())  # 6.0
    """

    __slots__ = ("__weakref__", "_compute", "_value", "dtype", "joint", "ready", "shape")

    def __init__(self, shape: tuple[int, ...] = (), dtype: torch.dtype | None = None) -> None:
        self.shape, self.ready = shape, False
        self.dtype: torch.dtype = dtype or dtype_named("float32")
        self.joint: Any = None
        """The computation that it shares with handles of other parties, if any, and its place there."""
        self._value: T | None = None
        self._compute: Callable[[], T] | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Handle[torch.Tensor]:
        """Return a handle whose value is there.

        Example: ``Handle.of(torch.ones(2, 3)).ready  # True``
        """
        handle: Handle[torch.Tensor] = Handle(tuple(tensor.shape), tensor.dtype)
        handle.set(tensor)
        return handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python and its libraries look for these
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ValueNotHereError(repr(name))

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise ValueNotHereError(f"torch.{getattr(function, '__name__', 'function')}")

    def _no_number(self, *_: object) -> NoReturn:
        raise ValueNotHereError("arithmetic")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _no_number
    __matmul__ = __rmatmul__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _no_number
    __float__ = __int__ = _no_number

    @property
    def value(self) -> T:
        """The value. Raises ``RunError`` if the operation has not run: ask an executor to force it."""
        if not self.ready:
            raise RunError("a deferred value was read before its operation ran", remedy="executor.force(handle)")
        if self._compute is not None:
            self._value, self._compute = self._compute(), None
        elif self.joint is not None and self._value is None:
            joint, place = self.joint
            self._value = joint.of(place)
        return self._value  # type: ignore[return-value]

    def set(self, value: T) -> None:
        """Fulfil the promise."""
        self._value, self.ready = value, True

    def share(self, joint: Any, place: int) -> None:
        """Fulfil the promise by a part of a computation for several parties (``learners.joint.Joint``)."""
        self.joint, self.ready = (joint, place), True

    def defer(self, compute: Callable[[], T]) -> None:
        """Fulfil the promise by a function of values that are final; it is called when first read."""
        self._compute, self.ready = compute, True

    @property
    def computed(self) -> bool:
        """Whether the value is there, and not only a function that computes it."""
        return self.ready and self._compute is None and (self.joint is None or self._value is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor promised, from its shape."""
        return self.dtype.itemsize * math.prod(self.shape)


def check_kept(handle: Handle[Any], kind: str) -> None:
    """Raise ``RunError`` for a promise of an operation of ``kind`` that ``run`` has not kept: others count on it."""
    if not handle.ready:
        raise RunError(f"{kind} did not set a value that it promised", remedy="set every handle of its result in run()")
    shape = handle.value.shape if handle.computed and isinstance(handle.value, torch.Tensor) else handle.shape
    if tuple(shape) != tuple(handle.shape):
        what = f"{kind} promised a tensor of shape {tuple(handle.shape)}, and its value has the shape {tuple(shape)}"
        raise RunError(what, remedy="promise the shape of the value: the bytes of a message follow from it")


RECEIVED, LOCAL = "the gradient received", "the gradient of the local objective"


def finite_loss(loss: Tensor, where: str = "") -> float:
    """Return the loss as a number. Raises ``NonFiniteError`` if it is none.

    Example::

        finite_loss(torch.tensor(0.5))  # 0.5
    """
    value = float(loss)
    if not math.isfinite(value):
        raise NonFiniteError(f"the training loss became {value}", where)
    return value


def set_loss(handle: Handle[float], loss: Tensor, where: str = "") -> None:
    """Fulfil the promise of a step's loss, a tensor () without a graph.

    On the CPU, raises ``NonFiniteError`` if it is not finite. On a GPU nobody waits for it: whoever reads the handle
    gets the error.

    Example::

        promised: Handle[float] = Handle()
        set_loss(promised, torch.tensor(0.5))
        promised.value  # 0.5
    """
    if loss.device.type == "cpu":
        handle.set(finite_loss(loss, where))
    else:
        handle.defer(partial(finite_loss, loss, where))


def check_loss(loss: Tensor) -> None:
    """Raise ``NonFiniteError`` for a loss on the CPU that is not finite. On a GPU the next loss read shows it."""
    if loss.device.type == "cpu":
        finite_loss(loss)


def check_finite(gradient: Tensor, what: str = RECEIVED) -> None:
    """Raise ``NonFiniteError`` for a gradient on the CPU that is not finite. On a GPU the next loss shows it."""
    if gradient.device.type == "cpu" and not torch.isfinite(gradient).all():
        raise NonFiniteError(f"{what} is not finite")


class Kernel(Protocol):
    """Runs operations of several parties as one. Operations are alike if their kernel is the same object."""

    def run(self, operations: Sequence[Operation[Any]]) -> None:
        """Do the work of ``operations``, one a party, in party order, and keep all their promises."""


def nothing() -> None:
    """Do nothing."""


class _WeaklyReferable:
    """Has the slot of weak references: a generic data class loses its own in CPython 3.12.3 (``weakref_slot``)."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True, eq=False)
class Operation(_WeaklyReferable, Generic[T]):
    """Work of one party: its cost is known at once, its results only after ``run``.

    ``result`` is what ``node.compute`` hands to the protocol. ``inputs`` are the handles that ``run`` reads, beside its
    party's own state (None: unknown, so that it waits for everything submitted before it); ``promises`` those that it
    fulfils, in an order that follows from its arguments. A ``kernel`` takes the place of ``run``, and runs like
    operations together; ``work`` is its input. ``cost`` (FLOPs, given kind and ``rows``) and ``units``
    (the work in mini-batches, which scales a sampled compute time) are for the timing plane. ``begin`` is called when
    the party begins to perform the operation, and ``commit`` when the operation completes in virtual time: they do
    bookkeeping on indices, never on values. ``counts`` says what completing it counts as.

    An operation that is made but never performed changes nothing.

    Example::

        def count_rows(learner: PartyLearner, batch: Batch) -> Operation[Handle[Tensor]]:
            rows = learner.promise()
            return learner.operation("count", lambda: rows.set(torch.tensor(float(len(batch)))), rows, rows=len(batch))
    """

    kind: str
    party: int
    run: Callable[[], None]
    result: T
    round: int = -1
    nbytes: int = 0
    units: float = 1.0
    rows: int = 0
    cost: Callable[[str, int], float] | None = None
    seconds: float | None = None
    """What it takes by a table, such as that of a cipher, whatever its party's compute model says."""
    begin: Callable[[], None] = nothing
    commit: Callable[[], Any] | None = None
    counts: Literal["round", "update"] | None = None
    inputs: Sequence[Handle[Any]] | None = None
    promises: Sequence[Handle[Any]] = ()
    kernel: Kernel | None = None
    work: Any = None
    waits_for_company: bool = False
    """Whether it runs only when nothing else can, so that many parties' operations run together."""
    looks_on: bool = False
    """Whether it only copies what others have computed: it counts for no memory, so that it moves no other work."""
    at: tuple[int, float] | None = None
    """Server steps done before, and virtual seconds at its end: the place of an error found late."""
    number: int = -1
    """Its place among the operations submitted, from 0."""
    waits_for: int = 0
    """The number of its inputs that are not set yet, as the executor counts."""

    def flops(self) -> float:
        """Count the FLOPs: only when asked, because most compute models never ask."""
        return 0.0 if self.cost is None else self.cost(self.kind, self.rows)

    @property
    def where(self) -> str:
        """Party, kind, round and virtual time, in words."""
        if self.at is None:
            return ""
        return f"{party_name(self.party)}, {self.kind}, round {self.at[0]} at {self.at[1]:.6g} s"


@contextmanager
def placed(operation: Operation[Any], others: int = 0) -> Iterator[None]:
    """Have an error that is found late name the party, the round and the virtual time of its ``operation``."""
    try:
        yield
    except VflsimError as error:
        if error.where or not operation.where:
            raise
        raise type(error)(error.what, operation.where, error.allowed, error.remedy) from error
    except Exception as error:  # a model of the user's may raise anything
        together = f" (with {others} others)" if others else ""
        raise RunError(f"{operation.kind}{together} failed: {error}", operation.where) from error


def run_operation(operation: Operation[Any]) -> None:
    """Run ``operation``."""
    with placed(operation):
        operation.run()


def run_together(operations: Sequence[Operation[Any]]) -> None:
    """Run like operations by their kernel; an error without a place gets that of the first."""
    kernel = operations[0].kernel
    assert kernel is not None, "only operations with a kernel are alike"
    with placed(operations[0], len(operations) - 1):
        kernel.run(operations)


class Executor(ABC):
    """Takes operations in the order in which they complete in virtual time.

    Invariants: each party's operations run in the order submitted; an operation runs at most once; work that is
    abandoned is never submitted, and never runs.
    """

    values = True
    """Whether handles ever hold values (``False``: timing only)."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """What is around operations that run one after the other, with nothing of the timing plane in between."""

    @abstractmethod
    def submit(self, operation: Operation[Any]) -> None:
        """Queue a completed operation."""

    @abstractmethod
    def force(self, handle: Handle[T]) -> T:
        """Run what the handle depends on, and return its value."""

    def flush(self) -> None:
        """Run everything queued (nothing, where nothing ever waits)."""
        return None

    def observe(self) -> None:
        """Note that a row of metrics describes the present state; only of interest where there are no values."""
        return None


class ImmediateExecutor(Executor):
    """Runs an operation when it is submitted: for real time, and for stepping through a protocol."""

    def submit(self, operation: Operation[Any]) -> None:
        """Run the operation now."""
        with self.around():
            run_operation(operation)

    def force(self, handle: Handle[T]) -> T:
        """Return the handle's value, which was set when its operation was submitted."""
        return handle.value


class TimingOnlyExecutor(Executor):
    """Runs nothing, ever: the timing plane alone."""

    values = False

    def submit(self, operation: Operation[Any]) -> None:
        """Forget the operation."""

    def force(self, handle: Handle[T]) -> T:
        """Refuse: there are no values. Raises ``RunError``."""
        raise RunError("a timing-only run has no values", remedy="leave out --timing-only")
