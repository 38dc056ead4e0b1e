"""The protocols. Each has a file of its own, which follows the algorithm box of its paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from vflsim.protocols.base import CheckContext, Protocol, Traits
from vflsim.protocols.bs_vfl import BsVfl
from vflsim.protocols.celu_vfl import CeluVfl
from vflsim.protocols.easter import AggVfl, Easter, Local, PyVertical
from vflsim.protocols.ef_vfl import EfVfl
from vflsim.protocols.fedbcd import FedBcd
from vflsim.protocols.fedvs import FedVS
from vflsim.protocols.few_shot import FewShot
from vflsim.protocols.he_lr import HeLr
from vflsim.protocols.laser_vfl import LaserVfl
from vflsim.protocols.pubsub_vfl import PubSubVfl
from vflsim.protocols.secureboost import SecureBoost
from vflsim.protocols.sharing import CVfl, FlexVfl
from vflsim.protocols.synchronous import Centralised, Ignore, Synchronous
from vflsim.protocols.vafl import Asynchronous, TSynchronous
from vflsim.protocols.vim import Fdml, VimAdmm, VimAdmmJ, VimSgd
from vflsim.protocols.zeroth_order import Czofo, Dpzv
from vflsim.vocabulary.imported import OrModule

ProtocolKind: TypeAlias = (
    Synchronous
    | Ignore
    | TSynchronous
    | Asynchronous
    | Centralised
    | FedVS
    | VimSgd
    | VimAdmm
    | VimAdmmJ
    | Fdml
    | FedBcd
    | Easter
    | Local
    | PyVertical
    | AggVfl
    | CVfl
    | EfVfl
    | BsVfl
    | CeluVfl
    | FlexVfl
    | LaserVfl
    | Czofo
    | Dpzv
    | SecureBoost
    | FewShot
    | PubSubVfl
    | HeLr
)
PROTOCOLS: tuple[type[Protocol], ...] = get_args(ProtocolKind)
AnyProtocol = Annotated[ProtocolKind, Field(discriminator="kind"), OrModule(Protocol)]

__all__ = ["PROTOCOLS", "AnyProtocol", "CheckContext", "Protocol", "Traits", "kinds_with"]


def kinds_with(condition: Callable[[type[Protocol]], object]) -> str:
    """Return the built-in kinds that meet a condition, for messages: ``synchronous, ignore``."""
    return ", ".join(each.model_fields["kind"].default for each in PROTOCOLS if condition(each))
