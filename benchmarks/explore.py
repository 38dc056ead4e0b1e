"""How soon the page of ``vflsim explore`` answers: ten moves of a slider in headless Chromium, with 28 clients.

For each move: milliseconds from the slider's event until the figures are drawn, and until the best t and K are marked,
and those of processor time that the server took for either. Run: python benchmarks/explore.py [FOLDER_OF_SCREENSHOTS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from browser import Browser, browser

from vflsim.exploring import server as its_server
from vflsim.exploring.exploration import Exploration

CLIENTS, STRAGGLERS, T, K = 28, 7, 20, 4
MOVES = range(200, 350, 15)
"""Places of the slider of the delay's mean, from 0.24 s to 10 s."""
PICTURES = {"light": (1280, False), "dark": (1280, True), "narrow": (400, False)}
_SET = """(async () => {{ const one = document.querySelector('[data-knob="{knob}"] input[type={sort}]');
  one.value = {value};
  const began = performance.now(); one.dispatchEvent(new Event('input', {{ bubbles: true }}));
  while (!exploring.answered()) await new Promise((ok) => setTimeout(ok, 2));
  const drawn = performance.now() - began, many = exploring.marked().length;
  while ({marked} && exploring.marked().length === many) await new Promise((ok) => setTimeout(ok, 2));
  return [drawn, performance.now() - began]; }})()"""
_WAIT = "(async () => {{ while (!({})) await new Promise((ok) => setTimeout(ok, 20)); return true; }})()"


class TimedExploration(Exploration):
    """Notes the processor time of each answer."""

    taken: dict[str, float] = {}  # noqa: RUF012  by question; of the process, as its clock is

    def answer(self, path: str, body: Any) -> Mapping[str, Any] | None:
        """Answer as usual."""
        began = time.process_time()
        answer = super().answer(path, body)
        self.taken[path] = 1e3 * (time.process_time() - began)
        return answer


def begin(tab: Browser, address: str, width: int = 1280, dark: bool = False) -> None:
    tab.open(address, width=width, dark=dark)
    tab.value(_WAIT.format("exploring.marked().length"))
    for knob, value in {"clients": CLIENTS, "stragglers": STRAGGLERS, "t": T, "K": K}.items():
        tab.value(_SET.format(knob=knob, sort="number", value=value, marked="true"))


def moves(tab: Browser, address: str) -> None:
    begin(tab, address)
    tab.value(_WAIT.format("exploring.idle()"))
    print("| move | mean delay | until drawn | until marked | processor time of the figures | of the choices |")
    print("|---|---|---|---|---|---|")
    for number, place in enumerate(MOVES, start=1):
        drawn, marked = tab.value(_SET.format(knob="delay.mean", sort="range", value=place, marked="true"))
        mean = tab.value("document.getElementById('knob-delay-mean').value")
        figures, choices = (TimedExploration.taken[path] for path in ("/figures", "/choices"))
        print(f"| {number} | {mean} s | {drawn:.0f} ms | {marked:.0f} ms | {figures:.0f} ms | {choices:.0f} ms |")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; complaints: {tab.complaints}")


def pictures(tab: Browser, address: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (width, dark) in PICTURES.items():
        begin(tab, address, width, dark)
        tab.value(_WAIT.format("exploring.idle()"))
        tab.picture(folder / f"explore-{name}.png")


def main(folder: Path | None = None) -> None:
    its_server.Exploration = TimedExploration
    place = Path(tempfile.mkdtemp())
    with its_server.served(None, 0, place) as (server, address), browser(place / "profile") as tab:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        moves(tab, address)
        if folder is not None:
            pictures(tab, address, folder)
        server.shutdown()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
