"""A client's run: what is told of releases goes over the connection in the thread of its loop alone."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from vflsim.remote.client_run import ClientRun
from vflsim.remote.control import Control, Counted


def test_what_another_thread_tells_is_sent_by_the_thread_of_the_loop_and_in_order() -> None:
    loop = asyncio.new_event_loop()
    sent: list[tuple[Control, threading.Thread]] = []
    channel = SimpleNamespace(control=lambda message: sent.append((message, threading.current_thread())))
    run: Any = SimpleNamespace(_client=SimpleNamespace(loop=loop, channel=channel), _thread=threading.current_thread())
    ClientRun._tell(run, Counted(updates=1))
    assert len(sent) == 1, "at once, in the loop's own thread"

    def compute() -> None:
        for updates in (2, 3):
            ClientRun._tell(run, Counted(updates=updates))
        loop.call_soon_threadsafe(loop.stop)

    working = threading.Thread(target=compute)
    working.start()
    working.join()
    assert len(sent) == 1
    loop.run_forever()
    loop.close()
    assert sent == [(Counted(updates=updates), threading.current_thread()) for updates in (1, 2, 3)]
