"""A party of a small scenario as a process of a live run makes it, client 2 say, and the files that it keeps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tiny_worlds import data_of, tiny

from vflsim.remote.client_files import StateFiles
from vflsim.remote.party import LiveParty, LocalParty, local_party
from vflsim.remote.private_data import label_splits, private_data
from vflsim.remote.world import LiveWorld
from vflsim.scenario.resolve import setting
from vflsim.world.mailbox import Mailbox
from vflsim.world.transport import Transport

RUN = "0123456789abcdef"
REMEMBERS = {"kind": "c_vfl", "local_steps": 2, "codec": {"kind": "top_k", "fraction": 0.5, "error_feedback": True}}


def client(loop: asyncio.AbstractEventLoop, said: object = REMEMBERS) -> LocalParty:
    return party(loop, said, 2, training__client_optimizer={"kind": "adam", "lr": 0.1})


def party(loop: asyncio.AbstractEventLoop, said: object, number: int, **changes: Any) -> LocalParty:
    scenario = tiny({"only": said}, **changes)
    world = LiveWorld(loop)
    own = private_data(data_of(scenario), number, label_splits(scenario.protocols["only"].protocol, number))
    resolved = setting(scenario, "only", own)
    links = [timing.link for timing in resolved.timings]
    return local_party(
        scenario, "only", 0, resolved, number, world, lambda _: Mailbox(world),
        lambda recorder: Transport(world, resolved.network, links, 0, recorder), lambda _: None, None,
    )  # fmt: skip


def state_of(made: LocalParty) -> LiveParty:
    state = made.node.state
    assert isinstance(state, LiveParty)
    return state


def kept_in(folder: Path, made: LocalParty, run: str = RUN) -> StateFiles:
    return StateFiles(folder, run, state_of(made), made.node.learner)
