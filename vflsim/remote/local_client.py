"""A client that a live study starts on its own machine: forked from a process that has imported all it needs."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from vflsim.errors import VflsimError
from vflsim.remote.client import LiveClient
from vflsim.remote.private_data import PrivateData
from vflsim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class LocalClient:
    """Who a client is, and where it finds the server."""

    party: int
    host: str
    port: int
    identity: Path
    parts: Path
    timeout: float
    log: Path


def play(who: LocalClient, payload: bytes) -> None:
    """Play a client until the server says goodbye. ``payload``: its pickled scenario and data, of the parent process.

    All that it prints goes to ``who.log``; it ends with status 1 after an error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent to the whole process group: the server decides when it ends
    with who.log.open("wb") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
        faulthandler.enable()
        try:
            scenario, data = _read(payload)
            place = who.host, who.port, who.identity, who.parts, who.timeout
            LiveClient(scenario, who.party, *place, data, never_returns=True).play()
        except VflsimError as error:
            print(f"error: {error}", file=sys.stderr)
        except Exception:
            traceback.print_exc()
        else:
            os._exit(0)  # a regular interpreter shutdown with PyTorch takes seconds
        sys.stderr.flush()
        os._exit(1)


def _read(payload: bytes) -> tuple[Scenario, PrivateData]:
    scenario, data = pickle.loads(payload)  # trusted: the parent process sent it over its own pipe
    return scenario, data
