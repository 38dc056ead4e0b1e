"""The protocols, one file each: each reads like its paper's algorithm box."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vflsim.protocols.asynchronous import Asynchronous
from vflsim.protocols.base import CheckContext, Protocol
from vflsim.protocols.centralised import Centralised
from vflsim.protocols.ignore import Ignore
from vflsim.protocols.synchronous import Synchronous
from vflsim.protocols.t_synchronous import TSynchronous

PROTOCOLS: tuple[type[Protocol], ...] = (Synchronous, Ignore, TSynchronous, Asynchronous, Centralised)

AnyProtocol = Annotated[
    Synchronous | Ignore | TSynchronous | Asynchronous | Centralised,
    Field(discriminator="kind"),
]

__all__ = ["PROTOCOLS", "AnyProtocol", "CheckContext", "Protocol"]
