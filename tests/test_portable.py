"""vflsim without what Windows lacks: modules and names of Unix are taken away from a process, which then runs a study.

It cannot tell what Windows does otherwise, such as files that are open; it tells that nothing needs Unix to begin with.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_worlds import raw

ROOT = Path(__file__).parents[1]
MODULES = ("fcntl", "resource", "termios", "tty", "pwd", "grp", "syslog", "readline", "_posixshmem")
NAMES = {
    "os": (
        *(
            "fork",
            "forkpty",
            "getuid",
            "geteuid",
            "getgid",
            "sched_getaffinity",
            "sysconf",
            "uname",
            "mkfifo",
            "killpg",
        ),
        *("setsid", "getpgid", "memfd_create", "pread", "pwrite", "statvfs", "wait3", "wait4", "getloadavg", "chown"),
    ),
    "signal": ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGCHLD", "pthread_sigmask", "alarm"),
}
"""What Python does not have on Windows (its library's documentation says "Availability: Unix")."""
PREAMBLE = f"""
import sys
# Libraries look for themselves.
import numpy, torch, joblib.externals.loky, platformdirs.unix, simpy, scipy.special, pyarrow, pandas
for name in {MODULES!r}:
    sys.modules[name] = None
sys.modules["msvcrt"] = type(sys)("msvcrt")  # what locks files on Windows
sys.modules["msvcrt"].LK_NBLCK, sys.modules["msvcrt"].locking = 2, lambda handle, mode, count: None
for module, names in {NAMES!r}.items():
    for name in names:
        vars(__import__(module)).pop(name, None)
from vflsim.cli import main
for command in __import__("json").loads(sys.argv[1]):
    sys.argv = ["vflsim", *command]
    try: main()
    except SystemExit as ended: assert not ended.code, (command, ended.code)
"""


@pytest.mark.slow
def test_a_study_is_checked_run_and_compared_without_what_unix_alone_has(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(json.dumps(raw(name="s", seeds=[0, 1])), encoding="utf-8")
    commands = [["check", "s.yaml"], ["analyze", "s.yaml"], ["run", "s.yaml", "--no-report"], ["compare", "results/s"]]
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE, json.dumps([*commands, ["verify", "results/s"]])],
        cwd=tmp_path,
        capture_output=True,
        encoding="cp1252",
        errors="replace",
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "cp1252:replace"},
    )
    assert done.returncode == 0, done.stderr
    assert "2 runs in results" in done.stdout
    assert not list(tmp_path.rglob(".lock"))


def unix_imports(path: Path) -> list[str]:
    """The modules of Unix that a file imports as it is imported itself, on every system."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:  # not within functions and ``if``
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [name for name in names if name in MODULES]
    return found


@pytest.mark.parametrize("place", ["vflsim", "plots"])
def test_no_module_needs_unix_to_be_imported(place: str) -> None:
    assert {str(path): found for path in (ROOT / place).rglob("*.py") if (found := unix_imports(path))} == {}


def opens_without_encoding(path: Path) -> list[int]:
    """The lines that open a text in the encoding of the system, which is not UTF-8 on Windows."""
    lines = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            positional = {"read_text": 1, "write_text": 2}.get(node.func.attr)
            said = {keyword.arg for keyword in node.keywords}
            if positional is not None and "encoding" not in said and len(node.args) < positional:
                lines.append(node.lineno)
    return lines


def test_texts_are_read_and_written_in_an_encoding_that_is_named() -> None:
    assert {
        str(path): lines for path in (ROOT / "vflsim").rglob("*.py") if (lines := opens_without_encoding(path))
    } == {}
