"""Downloads to processes in namespaces, one of which is stopped (SIGSTOP) and reads nothing: what do the others get?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType

from namespaces import SERVER, Star

PORT = 7_100
BUFFER = 16_384
"""Bytes of a receiver's buffer, of which Linux takes twice as many. Without it buffers grow while they are used, and
the kernel would go on to take megabytes for a process that is stopped."""
_RECEIVER = """
import socket, sys, time
with socket.socket() as connection:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(sys.argv[3]))
    connection.connect((sys.argv[1], int(sys.argv[2])))
    while head := connection.recv(8, socket.MSG_WAITALL):
        left = int.from_bytes(head, "big")
        while left:
            left -= len(connection.recv(min(left, 65_536)))
        print(time.monotonic(), flush=True)
"""


class Downloads:
    """A connection from a star's server to a process in each client's namespace. Use it as a context."""

    def __init__(self, star: Star) -> None:
        self._star, self._open = star, ExitStack()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._connections: dict[int, socket.socket] = {}

    def __enter__(self) -> Downloads:
        place = self._star.address(SERVER)
        with ExitStack() as undo:
            undo.push(self._open.pop_all())
            for client in range(1, len(self._star.rates)):
                listening = self._star.parties[SERVER].inside(
                    lambda client=client: socket.create_server((place, PORT + client))
                )
                with listening:
                    words = [sys.executable, "-c", _RECEIVER, place, f"{PORT + client}", f"{BUFFER}"]
                    process = subprocess.Popen(
                        self._star.parties[client].command(*words), stdout=subprocess.PIPE, text=True
                    )
                    undo.callback(process.kill)
                    self._processes[client] = undo.enter_context(process)
                    self._connections[client] = undo.enter_context(listening.accept()[0])
                self._connections[client].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._open.close()

    def at_once(self, clients: Sequence[int], size: int, stopped: int | None = None) -> list[float]:
        """Send ``size`` bytes to each of the clients; return after how many seconds each had them.

        As much goes to a client that is ``stopped`` until the others have got theirs.
        """
        everybody = clients if stopped is None else [stopped, *clients]
        data = size.to_bytes(8, "big") + bytes(size)
        threads = [threading.Thread(target=self._connections[each].sendall, args=(data,)) for each in everybody]
        with self._halted(stopped):
            begin = time.monotonic()
            for thread in threads:
                thread.start()
            ends = [self._end(client) for client in clients]
        if stopped is not None:
            self._end(stopped)
        for thread in threads:
            thread.join()
        return [end - begin for end in ends]

    @contextmanager
    def _halted(self, client: int | None) -> Iterator[None]:
        if client is None:
            yield
            return
        os.kill(self._processes[client].pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._processes[client].pid, signal.SIGCONT)

    def _end(self, client: int) -> float:
        output = self._processes[client].stdout
        assert output is not None, "it is a pipe"
        return float(output.readline())
