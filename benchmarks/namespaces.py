"""Network namespaces of Linux: a server and clients, each in its own, joined in a star whose links have rates.

Namespaces have no names, and live no longer than the process that has made them and those that it has started inside.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of <linux/sched.h>
_LIBC = ctypes.CDLL(None, use_errno=True)
TOOLS = ("ip", "tc", "nsenter")
SERVER = 0


class NotAllowedError(Exception):
    """This machine, or this user, cannot make network namespaces with rates."""


@dataclass(frozen=True)
class Rates:
    """The rates of a party's link in bit/s: into the network, and out of it."""

    up: float
    down: float


@dataclass(frozen=True)
class Shaper:
    """The parameters of the token-bucket filter on every link.

    ``burst`` bytes, two frames, pass at once after a pause; a queue is so long that its last byte waits ``latency``
    seconds.
    """

    burst: int = 3_028
    latency: float = 0.05

    def command(self, device: str, rate: float) -> str:
        """Return the line for ``tc -batch``."""
        queue = f"burst {self.burst}b latency {self.latency * 1e3:g}ms"
        return f"qdisc replace dev {device} root tbf rate {rate:.0f}bit {queue}"


class Namespace:
    """A network namespace that lives while this object does. Raises ``NotAllowedError``."""

    def __init__(self) -> None:
        self.handle = _in_thread(_made)

    def inside(self, work: Callable[[], T]) -> T:
        """Do ``work`` in a thread that is in this namespace. Sockets that it makes stay in it."""

        def entered() -> T:
            _check(_LIBC.setns(self.handle, _NEW_NETWORK), "setns")
            return work()

        return _in_thread(entered)

    @property
    def path(self) -> str:
        """A file that names this namespace, for programs."""
        return f"/proc/{os.getpid()}/fd/{self.handle}"

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs a program in this namespace."""
        return [_tool("nsenter"), f"--net={self.path}", *words]

    def batch(self, tool: str, lines: Sequence[str]) -> None:
        """Have ``ip`` or ``tc`` carry out lines. Raises ``NotAllowedError`` with what it says."""
        words, text = self.command(_tool(tool), "-batch", "-"), "\n".join(lines)
        done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
        if done.returncode:
            raise NotAllowedError(f"{tool} refuses: {done.stderr.strip()}")

    def setting(self, name: str, value: str) -> None:
        """Set a parameter of the kernel in this namespace. Example: ``setting("net/ipv4/ip_forward", "1")``."""
        try:
            self.inside(lambda: Path("/proc/sys", name).write_text(value, "ascii"))
        except OSError as error:
            raise NotAllowedError(f"{name} cannot be set: {error.strerror}") from error

    def close(self) -> None:
        """Let the namespace go: it ends with the last process and socket in it."""
        os.close(self.handle)


class Star:
    """A server and clients, each in a namespace, whose links meet in a bridge; every link has a rate in each direction.

    ``rates`` are those of the server and of each client. The server is at ``address(0)``, client m at ``address(m)``.
    ``join`` connects a device in a party's namespace with a port of the bridge's: by default a pair of ``veth``.

    Use it as a context; all that has been made ends with it. Raises ``NotAllowedError``.
    """

    def __init__(
        self,
        rates: Sequence[Rates],
        shaper: Shaper | None = None,
        congestion: str = "cubic",
        join: Callable[[Namespace, str, Namespace, str], None] | None = None,
    ) -> None:
        self.rates, self.shaper, self.congestion = rates, shaper or Shaper(), congestion
        self._join, self._open = join or _veth, ExitStack()
        self.parties: list[Namespace] = []

    def __enter__(self) -> Star:
        with ExitStack() as undo:
            undo.push(self._open.pop_all())
            self._middle = self._new(undo)
            self._middle.batch("ip", ["link add star type bridge", "link set star up"])
            for party, rates in enumerate(self.rates):
                self.parties.append(self._new(undo))
                self._connect(party, rates)
            self._open = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def numbers(self) -> list[int]:
        """What the kernel calls the namespaces: the links in ``/proc/PID/ns/net``."""
        return [os.fstat(each.handle).st_ino for each in (self._middle, *self.parties)]

    @staticmethod
    def address(party: int) -> str:
        """The address of a party."""
        return f"10.77.0.{party + 1}"

    def _new(self, undo: ExitStack) -> Namespace:
        made = Namespace()
        undo.callback(made.close)
        if Path("/proc/sys/net/ipv6").is_dir():
            made.setting("net/ipv6/conf/default/disable_ipv6", "1")
        made.batch("ip", ["link set lo up"])
        return made

    def _connect(self, party: int, rates: Rates) -> None:
        own, device, port = self.parties[party], f"party{party}", f"port{party}"
        self._join(own, device, self._middle, port)
        self._middle.batch("ip", [f"link set {port} master star", f"link set {port} up"])
        own.batch("ip", [f"address add {self.address(party)}/24 dev {device}", f"link set {device} up"])
        for space, name in ((own, device), (self._middle, port)):
            space.batch("ip", [f"link set {name} gso_max_segs 1"])  # a filter sees packets, not bundles of them
        own.batch("tc", [self.shaper.command(device, rates.up)])
        self._middle.batch("tc", [self.shaper.command(port, rates.down)])
        own.batch("ip", [f"route replace 10.77.0.0/24 dev {device} congctl {self.congestion}"])
        own.setting("net/ipv4/tcp_no_metrics_save", "1")  # a new connection knows nothing of former ones


def _veth(own: Namespace, device: str, middle: Namespace, port: str) -> None:
    own.batch("ip", [f"link add {device} type veth peer name {port} netns {middle.path}"])


def _made() -> int:
    _check(_LIBC.unshare(_NEW_NETWORK), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _check(status: int, call: str) -> None:
    if status:
        raise NotAllowedError(f"{call}: {os.strerror(ctypes.get_errno())}")


def _tool(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))
    if found is None:
        raise NotAllowedError(f"there is no program {name}: install iproute2 and util-linux")
    return found


def _in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread of its own, whose namespace may change, and return what it returns."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome.result()
