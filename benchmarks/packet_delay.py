"""Latency between namespaces in user space: Ethernet frames wait in this process, since not every kernel has `netem`.

Run by `kernel_network.py`, which hands it pairs of open TAP devices:
python benchmarks/packet_delay.py SECONDS DEVICE DEVICE [DEVICE DEVICE …]
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from namespaces import Namespace, NotAllowedError

_SET = 0x400454CA  # TUNSETIFF of <linux/if_tun.h>
_TAP, _PLAIN = 0x0002, 0x1000  # IFF_TAP, IFF_NO_PI
_LARGEST = 65_536


class Delay:
    """Joins devices by TAP pairs, whose frames a process of its own holds back for ``seconds`` in each direction.

    ``join`` is for `Star`; ``start`` begins to pass frames on, once all are joined. Use it as a context.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._handles: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def join(self, own: Namespace, device: str, middle: Namespace, port: str) -> None:
        """Make a TAP device in each of two namespaces. Raises ``NotAllowedError``."""
        for space, name in ((own, device), (middle, port)):
            self._handles.append(space.inside(lambda name=name: _tap(name)))

    def start(self) -> None:
        """Pass frames on until the context ends."""
        words = [sys.executable, __file__, str(self.seconds), *map(str, self._handles)]
        self._process = subprocess.Popen(words, pass_fds=self._handles)

    def __enter__(self) -> Delay:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for handle in self._handles:
            os.close(handle)


def _tap(name: str) -> int:
    if not Path("/dev/net/tun").exists():
        raise NotAllowedError("there is no /dev/net/tun")
    try:
        handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(handle, _SET, struct.pack("16sH22x", name.encode("ascii"), _TAP | _PLAIN))
    except OSError as error:
        raise NotAllowedError(f"no TAP device: {error.strerror}") from error
    return handle


def pass_on(seconds: float, handles: list[int]) -> None:
    """Pass frames on between each two devices, ``seconds`` later, until they or the process that made them are gone."""
    other = dict(zip(handles, [handles[place ^ 1] for place in range(len(handles))], strict=True))
    waiting: deque[tuple[float, int, bytes]] = deque()
    with suppress(PermissionError):  # late frames are a longer latency than was asked for
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    parent = os.getppid()
    while os.getppid() == parent:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, to, frame = waiting.popleft()
            with suppress(BlockingIOError):  # as a full queue does, it drops the frame
                os.write(to, frame)
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.2
        for handle in select.select(handles, (), (), left)[0]:
            with suppress(BlockingIOError):
                while True:
                    frame = os.read(handle, _LARGEST)
                    waiting.append((time.monotonic() + seconds, other[handle], frame))


if __name__ == "__main__":
    pass_on(float(sys.argv[1]), [*map(int, sys.argv[2:])])
