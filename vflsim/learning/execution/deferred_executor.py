"""The executor of virtual time: it runs nothing until a value is needed, and then runs like operations as one."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar
from weakref import ref

from vflsim.errors import CheckpointError, RunError
from vflsim.learning.execution.operations import Executor, Handle, Operation, run_operation, run_together
from vflsim.streams import SERVER, party_name

T = TypeVar("T")
_Promises: TypeAlias = tuple[int, int, list[ref[Handle[Any]]]]
"""The number of an operation that has run, the place of the first of these handles, and handles that it promised."""

_OVERHEAD = 4096
"""Bytes that a queued operation costs beside its results: about the size of its Python objects."""
_LOOKED_AFTER = 4096
"""Operations that run between two looks for dead results, beyond twice those that had live results the last time."""


@dataclass(frozen=True, slots=True)
class ExecutorProgress:
    """How far an executor has come: all that another one needs, beside the values, to continue.

    ``ran`` counts the operations of each party that have run. ``journal`` has every value that was forced, in order.
    ``kept`` has the handles that are still held and whose operations have run, by the number of the operation and the
    place among its promises.
    """

    ran: Mapping[int, int]
    journal: Sequence[Any]
    kept: Mapping[tuple[int, int], Handle[Any]] = field(compare=False)


class DeferredExecutor(Executor):
    """Runs nothing until a value is needed; then runs what it depends on, together with ready operations like it.

    Each party has a queue. An operation is ready when it is first in its queue and its inputs are set. The server's
    operations run first. While the server waits, all ready client operations with the same kernel run as one, in client
    order; the kernel whose first operation was submitted first runs first, and operations with ``waits_for_company``
    run last. This maximises the number of operations that run as one.

    Invariants, beside those of every executor: submissions, forced values, their order, and shapes determine what runs
    when, and together with what. Queues whose promised results exceed ``limit_bytes`` (counted from shapes) are run. So
    a repetition is equal to the last bit. So is an executor that ``replay`` has taken through the submissions of
    another one, and that gets the parties' states and the ``kept`` values before ``resume``. Neither ``progress`` nor
    ``replay`` runs anything.
    """

    def __init__(self, limit_bytes: int = 256 * 2**20, overhead: int = _OVERHEAD) -> None:
        self._queues: dict[int, deque[Operation[Any]]] = {}
        self._awaited: dict[Handle[Any], list[Operation[Any]]] = {}
        self._server: Operation[Any] | None = None
        self._ready: dict[object, list[Operation[Any]]] = {}
        self._least: dict[object, int] = {}
        self._turns: list[tuple[bool, int, object]] = []
        self._bytes, self._limit, self._overhead = 0, limit_bytes, overhead
        self._submitted = 0
        self._ran: dict[int, int] = {}
        self._alive: list[_Promises] = []
        self._look_at = _LOOKED_AFTER
        self._journal: list[Any] = []
        self._replay: _Replay | None = None

    def submit(self, operation: Operation[Any]) -> None:
        """Queue a completed operation."""
        operation.number = self._submitted
        self._submitted += 1
        if self._replay is not None and self._replay.has_run(operation):
            return
        queue = self._queues.get(operation.party)
        if queue is None:
            queue = self._queues[operation.party] = deque()
        queue.append(operation)
        if not operation.looks_on:
            self._bytes += operation.nbytes + self._overhead
        if self._replay is not None:
            return
        if len(queue) == 1:
            self._arm(operation)
        if self._bytes > self._limit:
            self.flush()

    def force(self, handle: Handle[T]) -> T:
        """Run what the handle depends on; return its value, and note it in the journal."""
        if self._replay is not None:
            return self._replay.forced(handle)
        if not handle.ready:
            with self.around():
                while not handle.ready and self._run_next():
                    pass
        value = handle.value
        self._journal.append(value)
        return value

    def flush(self) -> None:
        """Run everything queued."""
        if self._replay is None:
            with self.around():
                while self._run_next():
                    pass

    # --- being interrupted ------------------------------------------------------------------------------------------

    def progress(self) -> ExecutorProgress:
        """Return how far the executor has come. Runs nothing."""
        self._look()
        kept = {
            (number, place): handle
            for number, first, promises in self._alive
            for place, promise in enumerate(promises, first)
            if (handle := promise()) is not None
        }
        return ExecutorProgress(dict(self._ran), tuple(self._journal), kept)

    def replay(self, ran: Mapping[int, int], journal: Sequence[Any], kept: Collection[tuple[int, int]]) -> None:
        """Treat the submissions that follow as those that led to some progress: run none, and answer from the journal.

        The arguments are the fields of that ``ExecutorProgress``; of ``kept``, the keys. Raises ``CheckpointError`` as
        soon as the submissions differ.
        """
        self._replay = _Replay(ran, journal, kept)

    @property
    def recalled(self) -> Mapping[tuple[int, int], Handle[Any]]:
        """In a replay, the handles whose values were kept: set them before ``resume``."""
        return {} if self._replay is None else self._replay.recalled

    def resume(self) -> None:
        """End the replay. Raises ``CheckpointError`` if it did not come to the progress that it started from."""
        replay = self._replay
        assert replay is not None, "there was a replay"
        replay.check_complete()
        self._replay = None
        self._ran, self._journal = dict(replay.ran), list(replay.journal)
        self._alive = [(number, place, [ref(handle)]) for (number, place), handle in replay.recalled.items()]
        for queue in self._queues.values():
            if queue:
                self._arm(queue[0])

    # --- running ----------------------------------------------------------------------------------------------------

    def _arm(self, operation: Operation[Any]) -> None:
        """Make the first operation of a queue ready, or have it wait for its inputs."""
        if operation.inputs is None:
            return
        waits_for = 0
        for handle in operation.inputs:
            if not handle.ready:
                self._awaited.setdefault(handle, []).append(operation)
                waits_for += 1
        operation.waits_for = waits_for
        if not waits_for:
            self._make_ready(operation)

    def _make_ready(self, operation: Operation[Any]) -> None:
        if operation.party == SERVER:
            self._server = operation
        else:
            kernel, number = operation.kernel or operation, operation.number
            ready = self._ready.get(kernel)
            if ready is None:
                self._ready[kernel] = [operation]
            else:
                ready.append(operation)
                if self._least[kernel] < number:
                    return
            self._least[kernel] = number
            heappush(self._turns, (operation.waits_for_company, number, kernel))

    def _run_next(self) -> bool:
        """Run the next operation, or the next that are alike; return whether there was one."""
        if self._server is not None:
            operation, self._server = self._server, None
            run_operation(operation)
            self._ended((operation,))
            return True
        if self._ready:
            # Choose by what is ready, never by when it became ready: a resumed executor must choose alike.
            while True:
                _, number, kernel = heappop(self._turns)
                if self._least.get(kernel) == number:
                    break  # another one has run with others, or is not the first any more
            del self._least[kernel]
            operations = self._ready.pop(kernel)
            if kernel is operations[0]:
                run_operation(operations[0])
            else:
                operations.sort(key=_party)
                run_together(operations)
            self._ended(operations)
            return True
        fronts = [queue[0] for queue in self._queues.values() if queue]
        if not fronts:
            return False
        first = min(fronts, key=_number)
        if first.inputs is not None:
            raise RunError(f"{first.kind} reads a value that no operation submitted before it promises", first.where)
        run_operation(first)
        self._ended((first,))
        return True

    def _ended(self, operations: Sequence[Operation[Any]]) -> None:
        queues, ran, alive, awaited = self._queues, self._ran, self._alive, self._awaited
        freed = 0
        for operation in operations:
            party = operation.party
            queue = queues[party]
            queue.popleft()
            ran[party] = ran.get(party, 0) + 1
            if not operation.looks_on:
                freed += operation.nbytes + self._overhead
            if operation.promises:
                alive.append((operation.number, 0, [*map(ref, operation.promises)]))
                for handle in operation.promises if awaited else ():
                    for waiting in awaited.pop(handle, ()):
                        waiting.waits_for -= 1
                        if not waiting.waits_for:
                            self._make_ready(waiting)
            if queue:
                self._arm(queue[0])
        self._bytes -= freed
        if len(alive) > self._look_at:
            self._look()

    def _look(self) -> None:
        """Forget the operations whose results are no longer held."""
        self._alive = [each for each in self._alive if any(promise() is not None for promise in each[2])]
        self._look_at = 2 * len(self._alive) + _LOOKED_AFTER


class _Replay:
    """Answers submissions and forced handles of a replay from what was kept the first time."""

    def __init__(self, ran: Mapping[int, int], journal: Sequence[Any], kept: Collection[tuple[int, int]]) -> None:
        self.ran, self.journal = ran, journal
        self.recalled: dict[tuple[int, int], Handle[Any]] = {}
        self._kept = frozenset(kept)
        self._with_kept = {number for number, _ in self._kept}
        self._seen: dict[int, int] = {}
        self._forced = 0

    def has_run(self, operation: Operation[Any]) -> bool:
        """Return whether this operation had run; note those of its handles that were kept."""
        place = self._seen.get(operation.party, 0)
        self._seen[operation.party] = place + 1
        if place >= self.ran.get(operation.party, 0):
            return False
        if operation.number in self._with_kept:
            for number, handle in enumerate(operation.promises):
                if (operation.number, number) in self._kept:
                    self.recalled[operation.number, number] = handle
        return True

    def forced(self, handle: Handle[T]) -> T:
        """Return the handle's value of the first time."""
        if self._forced == len(self.journal):
            raise CheckpointError("a replay asks for a value that the run had not asked for")
        value: T = self.journal[self._forced]
        self._forced += 1
        if not handle.ready:
            handle.set(value)
        return value

    def check_complete(self) -> None:
        """Raise ``CheckpointError`` unless everything has happened again."""
        if self._forced != len(self.journal):
            raise CheckpointError(f"a replay asked for {self._forced:,} values, and {len(self.journal):,} had been")
        for party, count in self.ran.items():
            if self._seen.get(party, 0) < count:
                raise CheckpointError(
                    f"in a replay {party_name(party)} did {self._seen.get(party, 0):,} operations, fewer than the "
                    f"{count:,} that had run"
                )
        if len(self.recalled) != len(self._kept):
            raise CheckpointError("a replay does not promise all the values that had been kept")


def _party(operation: Operation[Any]) -> int:
    return operation.party


def _number(operation: Operation[Any]) -> int:
    return operation.number
