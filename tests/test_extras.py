"""Libraries that only some commands need: without one, the command names the extra that brings it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Ended

from vflsim.errors import MissingLibraryError
from vflsim.learning.data import files
from vflsim.learning.data.catalogue import CATALOGUE
from vflsim.learning.privacy.accounting import epsilon_of, noise_multiplier_for, sampled_epsilon_of
from vflsim.learning.privacy.blinding import KEY_BYTES, chacha20, derived_key, public_key

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LIBRARIES = {"attacks": "captum", "privacy": "dp_accounting cryptography", "live": "cryptography", "download": "pooch"}


def named(requirement: str) -> str:
    return re.split(r"[<>=!\[; ]", requirement)[0].replace("-", "_")


@pytest.mark.parametrize("extra", LIBRARIES)
def test_an_extra_brings_its_libraries_which_nothing_else_needs(extra: str) -> None:
    libraries = LIBRARIES[extra].split()
    assert [named(each) for each in EXTRAS[extra]] == libraries
    assert not {*libraries} & {named(each) for each in PROJECT["dependencies"]}
    assert f"vflsim[{','.join(LIBRARIES)}]" in EXTRAS["all"]
    assert "vflsim[all]" in EXTRAS["test"], "what the tests need"


@pytest.mark.slow
def test_no_module_but_those_of_its_commands_imports_such_a_library() -> None:
    libraries = {library for each in LIBRARIES.values() for library in each.split()}
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({sorted(libraries)!r}))\n"
        "from importlib import import_module\n"
        "from pathlib import Path\n"
        "for path in sorted(Path('vflsim').rglob('*.py')):\n"
        "    name = '.'.join(path.with_suffix('').parts).removesuffix('.__init__')\n"
        "    if path.name not in ('__main__.py', 'preload.py', 'forkserver.py', 'ray.py', 'ray_task.py'):\n"
        "        import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a library as if it were not installed."""

    def block(library: str) -> None:
        for name in [each for each in sys.modules if each.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)

    return block


@pytest.mark.parametrize(
    ("library", "extra", "need"),
    [
        ("dp_accounting", "privacy", lambda: epsilon_of(1.25, 1e-5)),
        ("dp_accounting", "privacy", lambda: noise_multiplier_for(1.25, 1e-5)),
        ("cryptography", "privacy", lambda: public_key(bytes(KEY_BYTES))),
        ("cryptography", "privacy", lambda: derived_key(b"secret", b"info")),
        ("cryptography", "privacy", lambda: chacha20(bytes(32), bytes(12), 5)),
    ],
)
def test_what_needs_a_library_names_its_extra(
    library: str, extra: str, need: Callable[[], object], without: Callable[[str], None]
) -> None:
    without(library)
    epsilon_of.cache_clear()
    noise_multiplier_for.cache_clear()
    sampled_epsilon_of.cache_clear()
    with pytest.raises(MissingLibraryError) as caught:
        need()
    assert caught.value.remedy == f"pip install 'vflsim[{extra}]'"
    assert f"needs {library.replace('_', '-')}, which is not installed" in caught.value.what
    assert caught.value.exit_code == 2


def test_a_command_ends_with_that_message(
    vflsim: Callable[..., Ended], without: Callable[[str], None], tmp_path: Path
) -> None:
    without("cryptography")
    ended = vflsim("keys", "init", str(tmp_path / "identities"), "--clients", "2")
    assert ended.status == 2
    assert "a live run needs cryptography, which is not installed\n  remedy: pip install 'vflsim[live]'" in ended.err


def test_a_download_names_its_extra_and_a_file_that_is_there_needs_none(
    without: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("pooch")
    entry = next(each for each in CATALOGUE.values() if each.files)
    file = entry.files[0]
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    (tmp_path / entry.folder).mkdir()
    (tmp_path / entry.folder / file.name).write_bytes(b"there")
    assert files.locate(entry, file) == tmp_path / entry.folder / file.name
    with pytest.raises(MissingLibraryError, match="a download needs pooch"):
        files._retrieve("https://example.org/x", file, tmp_path, progress=False)
