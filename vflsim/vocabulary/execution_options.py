"""The options of execution, written once: for ``run``, ``sweep`` and ``tune``, in Python and on the command line."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, TypedDict

DeviceWish: TypeAlias = Literal["auto", "cpu", "cuda"]
EngineName: TypeAlias = Literal["processes", "ray"]


class ExecutionOptions(TypedDict, total=False):
    """Options for executing the runs of a study. Each option may be omitted: see ``DEFAULTS``.

    ``workers``: runs at a time, each in its own process; a script needs ``if __name__ == "__main__":`` around the call.
    ``resume``: refuse a folder with results of another scenario. ``anew``: keep no earlier run; move all of them aside.
    ``checkpoint_every``: wall-clock time between checkpoints, in seconds or such as ``"5 min"``; None or ``"off"`` for
    none. ``eager``: train client by client. ``device``, ``threads``, ``tf32``: where and how PyTorch computes; the last
    digits depend on ``threads``, and ``tf32`` lets a GPU round the factors of float32 products.
    ``engine``: ``"ray"`` executes runs on the Ray cluster at ``address`` (``"auto"``, ``"ray://host:10001"``; None
    starts one here), each with ``num_cpus`` and ``num_gpus`` (None: one with ``device="cuda"``), and again up to
    ``max_retries`` times if its worker dies.

    Example: ``vflsim.run("quickstart", workers=2, checkpoint_every="5 min")``.
    """

    workers: int
    resume: bool
    anew: bool
    checkpoint_every: str | float | None
    eager: bool
    device: DeviceWish
    threads: int
    tf32: bool
    engine: EngineName
    address: str | None
    num_cpus: float
    num_gpus: float | None
    max_retries: int


DEFAULTS: Final[ExecutionOptions] = {
    "workers": 1,
    "resume": False,
    "anew": False,
    "checkpoint_every": "60 s",
    "eager": False,
    "device": "auto",
    "threads": 1,
    "tf32": False,
    "engine": "processes",
    "address": None,
    "num_cpus": 1.0,
    "num_gpus": None,
    "max_retries": 3,
}
"""The values of omitted options."""
