"""Ctrl-C while modules are imported ends a command, also where Python or a module swallows its exception."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_worlds import raw

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")

INTERRUPTED = """\
import os, signal, weakref

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):  # handlers run between two instructions
        pass

class Gone:
    pass
"""
SWALLOWED = {
    "a callback of a weak reference": "gone = Gone()\nkept = weakref.ref(gone, interrupt)\ndel gone\n",
    "a destructor": "Gone.__del__ = interrupt\nGone()\n",
    "an except clause": "try:\n    interrupt()\nexcept BaseException:\n    pass\n",
}
TOP = """
import torch

class Top(torch.nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("where", SWALLOWED)
def test_ctrl_c_in_a_module_of_a_users_own_ends_the_run_before_it_begins(where: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(INTERRUPTED + SWALLOWED[where] + TOP)
    said = raw("synchronous", models__server={"kind": "module", "path": "mine:Top"})
    (tmp_path / "own.yaml").write_text(json.dumps(said))
    command = [sys.executable, "-m", "vflsim", "run", "own.yaml", "--out", "results"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "ignored" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("results/*/seed-*"))


def test_ctrl_c_while_the_commands_are_imported_ends_the_process() -> None:
    code = INTERRUPTED + (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vflsim.cli':\n"
        "            gone = Gone()\n"
        "            self.kept = weakref.ref(gone, interrupt)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['vflsim', '--version']\n"
        "from vflsim.__main__ import script\n"
        "script()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
