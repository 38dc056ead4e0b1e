"""Control messages between processes: no part of the protocol, and recorded apart."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from vflsim.errors import VflsimError

MOST_BYTES = 65_536
"""The largest control message, in bytes of JSON."""
_Split = Literal["train", "validation", "test"]
_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Port = Annotated[int, Field(ge=1, le=65_535)]
_Facts = dict[Annotated[str, Field(max_length=64)], Annotated[float, Field(allow_inf_nan=False)]]
_Text = Annotated[str, Field(max_length=8_192)]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ControlError(VflsimError):
    """Another process sent something that the control channel does not allow."""


class _Control(BaseModel, frozen=True, extra="forbid", strict=True):
    """What all control messages keep: unchanged, without unknown keys, nothing converted."""


class Common(NamedTuple):
    """What all processes of a live run have in common: digests of the scenario's text and of the rows, the version."""

    scenario: str
    rows: str
    version: str


class Hello(_Control):
    """A client's first message: who it is, and what it must have in common with others."""

    kind: Literal["hello"] = "hello"
    party: _Count
    scenario: _Digest
    rows: _Digest
    version: Annotated[str, Field(max_length=64)]
    machine: Annotated[str, Field(max_length=64)]

    @property
    def common(self) -> Common:
        """What the client's process has."""
        return Common(self.scenario, self.rows, self.version)


class Welcome(_Control):
    """The server's answer: the connection is accepted."""

    kind: Literal["welcome"] = "welcome"


class Refused(_Control):
    """The server's other answer: it is not."""

    kind: Literal["refused"] = "refused"
    why: _Text


class Prepare(_Control):
    """The server announces the next run, or (``again``) the one that this client has been in before.

    ``run`` tells it from all other runs, of the same protocol and seed, too. The client numbers its messages from
    ``first`` on.
    """

    kind: Literal["prepare"] = "prepare"
    protocol: _Text
    seed: _Count
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    again: bool = False
    first: _Count = 0


class Voucher(_Control):
    """A client vouches for its public key in this run: signed by its identity, with its certificate (PEM)."""

    kind: Literal["voucher"] = "voucher"
    party: _Count
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{2,512}$")]
    certificate: _Text


class Ready(_Control):
    """A client has made its learner, which blinds its embeddings if there is a ``voucher``.

    ``unreached``: clients to which one that has come back could not connect.
    """

    kind: Literal["ready"] = "ready"
    voucher: Voucher | None = None
    unreached: tuple[_Count, ...] = ()


class Introduced(_Control):
    """A client's facts about its data (``Peering.public_facts``), and the port at which other clients reach it."""

    kind: Literal["introduced"] = "introduced"
    port: _Port
    facts: _Facts


class Peer(_Control):
    """The server passes on what another client has said of itself; ``host`` is where it comes from.

    ``here``: its process is ready; otherwise another one may take its place, and will connect.
    """

    kind: Literal["peer"] = "peer"
    party: _Count
    host: Annotated[str, Field(min_length=1, max_length=256)]
    port: _Port
    facts: _Facts
    here: bool = True


class Joined(_Control):
    """From client to client: what follows belongs to this run."""

    kind: Literal["joined"] = "joined"
    protocol: _Text
    seed: _Count


class Passing(_Control):
    """A client has sent another one a message of so many bytes, which goes to it directly: the server times it."""

    kind: Literal["passing"] = "passing"
    to: _Count
    message: Annotated[str, Field(min_length=1, max_length=16)]
    round: Annotated[int, Field(ge=-(2**53), lt=2**53)]
    size: _Count
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class IsDue(_Control):
    """The ``number``-th message (from 0) of ``sender``, which comes directly, has arrived in emulated time."""

    kind: Literal["due"] = "due"
    sender: _Count
    number: _Count
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Dropped(_Control):
    """The ``number``-th message of ``sender``, which comes directly, was abandoned on its emulated way."""

    kind: Literal["dropped"] = "dropped"
    sender: _Count
    number: _Count


class Start(_Control):
    """The run begins ``in_s`` from now; ``at`` is that time by the monotonic clock of the server's ``machine``.

    ``since_s``: it began so long ago (s), for a client that has come back.
    """

    kind: Literal["start"] = "start"
    in_s: Annotated[float, Field(ge=0, lt=3_600)]
    at: float
    machine: Annotated[str, Field(max_length=64)]
    since_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class Counted(_Control):
    """A client has taken so many more steps: few enough that no number of messages overflows the results."""

    kind: Literal["counted"] = "counted"
    updates: Annotated[int, Field(ge=0, lt=2**20)]


class NoiseAdded(_Control):
    """A client has released embeddings of a mini-batch under noise: its origin and index; of all rows where None."""

    kind: Literal["noise_added"] = "noise_added"
    batch: tuple[Annotated[int, Field(ge=-1, lt=2**31)], Annotated[int, Field(ge=0, lt=2**31)]] | None


class Spent(_Control):
    """A client would release more than ``stop.epsilon`` allows, and does not: the run ends at this instant."""

    kind: Literal["spent"] = "spent"
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Withdrawn(_Control):
    """A client abandons its ``number``-th message (from 0) if it is still under way."""

    kind: Literal["withdrawn"] = "withdrawn"
    number: _Count


class WentDown(_Control):
    """A client has crashed, in an outage of the scenario: what it sends from now on is of its next life."""

    kind: Literal["down"] = "down"


class CameUp(_Control):
    """The ``number``-th outage (from 1) of a client ends at the instant ``at``: it begins anew in this round."""

    kind: Literal["up"] = "up"
    number: _Count
    round: _Count
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Away(_Control):
    """The process of another client is gone since the instant ``at``; another one may take its place."""

    kind: Literal["away"] = "away"
    party: _Count
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Back(_Control):
    """Another client has a process again since the instant ``at``."""

    kind: Literal["back"] = "back"
    party: _Count
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EvaluateNow(_Control):
    """The client answers evaluation ``number`` on ``splits``; ``free``: at no emulated cost."""

    kind: Literal["evaluate"] = "evaluate"
    number: _Count
    splits: tuple[_Split, ...]
    free: bool
    wired: bool


class Stopped(_Control):
    """The run has ended; evaluations are still answered."""

    kind: Literal["stop"] = "stop"
    reason: _Text


class Done(_Control):
    """No more evaluations of this run come: the client writes its part, and answers ``Written``."""

    kind: Literal["done"] = "done"


class Written(_Control):
    """The client has written its part of the results."""

    kind: Literal["written"] = "written"


class Failed(_Control):
    """A client's run has failed."""

    kind: Literal["failed"] = "failed"
    what: _Text
    where: _Text = ""


class Beat(_Control):
    """Sent every second: the process is alive."""

    kind: Literal["beat"] = "beat"


class Bye(_Control):
    """The study is over."""

    kind: Literal["bye"] = "bye"


Control: TypeAlias = (
    Hello | Welcome | Refused | Prepare | Introduced | Peer | Joined | Voucher | Ready | Start | Counted | NoiseAdded
    | Spent | Passing | IsDue | Dropped | Withdrawn | WentDown | CameUp | Away | Back | EvaluateNow | Stopped | Done
    | Written | Failed | Beat | Bye
)  # fmt: skip
_ANY: TypeAdapter[Control] = TypeAdapter(Annotated[Control, Field(discriminator="kind")])


def packed(message: Control) -> bytes:
    """Return a control message as bytes."""
    return message.model_dump_json().encode()


def unpacked(data: bytes) -> Control:
    """Invert ``packed``. Raises ``ControlError`` for anything else."""
    if len(data) > MOST_BYTES:
        raise ControlError(f"a control message of {len(data)} bytes", allowed=f"at most {MOST_BYTES}")
    try:
        return _ANY.validate_json(data)
    except ValidationError as error:
        raise ControlError(f"a control message that cannot be read: {error.errors()[0]['msg']}") from None
