"""Every public name has an example, and the examples do what they say."""

import ast
import contextlib
import inspect
import io
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import sympy
import torch
from numpy.typing import ArrayLike, NDArray
from ruamel.yaml import YAML
from tiny_worlds import data_of, raw, tiny
from torch.nn import Parameter

import vflsim
from vflsim import plotting, protocol
from vflsim.scenario.resolve import setting

_BLOCK = re.compile(r"^Example[^\n]*(?:\n[^\n]+)*::\n\n((?:    [^\n]*\n|\n)+)", re.MULTILINE)
_INLINE = re.compile(r"Example[^`]*``([^`]+)``", re.DOTALL)
_RESULT = re.compile(r"  # (.+)$")
IMPORTED: dict[str, Any] = {
    each.__name__: each
    for each in (dataclass, replace, Iterable, Iterator, Mapping, Sequence, Any, ClassVar, Literal, Parameter)
}
IMPORTED |= {"ArrayLike": ArrayLike, "NDArray": NDArray, "Tensor": torch.Tensor}
IMPORTED |= {"math": math, "np": np, "sympy": sympy, "torch": torch}
IMPORTED |= {name: getattr(plotting, name) for name in ("Picture", "Results", "picture")}
"""What readers import from elsewhere."""


def documented(name: str) -> str:
    """The docstring of a class or function, or the string below a name that is neither."""
    thing = getattr(protocol, name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        return inspect.getdoc(thing) or ""
    for module in [each for key, each in sys.modules.items() if key.startswith("vflsim.")]:
        path = Path(module.__file__ or "")
        if getattr(module, name, None) is not thing or path.suffix != ".py":
            continue
        lines = ast.parse(path.read_text(encoding="utf-8")).body
        for line, below in pairwise(lines):
            target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
            if isinstance(target, ast.Name) and target.id == name and isinstance(below, ast.Expr):
                return inspect.cleandoc(str(ast.literal_eval(below.value)))
    return ""


def block_of(name: str) -> str:
    found = _BLOCK.search(documented(name) + "\n")
    return dedent(found[1]).strip() if found else ""


NAMES = [name for name in vars(protocol) if not name.startswith("_")]
WITH_BLOCKS = [name for name in NAMES if block_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert block_of(name) or _INLINE.search(documented(name))


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(protocol, name))])
def test_every_public_class_has_an_example_of_code(name: str) -> None:
    assert block_of(name) or name in {"FinishedRun", "OperationCost", "Scored", "Traits"}, "these are what others see"


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_an_example_gives_what_it_says(name: str) -> None:
    scenario, code = tiny(), block_of(name)
    namespace = {each: getattr(protocol, each) for each in NAMES} | IMPORTED
    namespace |= {"__name__": __name__, "setting": setting(scenario, "synchronous", data_of(scenario))}
    lines, said = code.splitlines(), 0
    for statement in ast.parse(code).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        result = _RESULT.search(lines[(statement.end_lineno or 1) - 1])
        if isinstance(statement, ast.Expr) and result:
            found, said = eval(source, namespace), said + 1
            assert repr(found) == result[1]
        else:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(source, namespace)
            assert printed.getvalue() or "print(" not in source
    assert said or "class " in code or "def " in code or "print(" in code


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_examples_of_the_package_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = raw(
        {
            "wait": {"kind": "synchronous"},
            "first": {"kind": "t_synchronous", "t": 2},
            "heads": {"kind": "vimsgd", "models": {"aggregate": "concat", "server": {"kind": "linear", "bias": False}}},
        },
        name="mine",
        record="events",
        stop={"rounds": 4},
        evaluate={"every": "2 rounds"},
        data={"name": "digits", "train_rows": 90, "test_fraction": 0.1, "validation_fraction": 0.1},
    )
    YAML().dump(said, tmp_path / "mine.yaml")
    verbs = [name for name in vflsim.__all__ if inspect.isfunction(getattr(vflsim, name))]
    examples = {name: _INLINE.findall(inspect.getdoc(getattr(vflsim, name)) or "") for name in verbs}
    order = ["load", "analyze", "check", "fit", "run", "open_results", "verify", "plot", "compare", "report", "trace"]
    order += ["evaluate", "explain", "sweep", "read_sweep", "sweep_answers", "tune", "export"]
    assert sorted(order) == sorted(verbs)
    for name in order:
        if name == "export" and find_spec("tensorboard") is None:
            continue
        if name == "compare":
            vflsim.run(vflsim.load("mine.yaml", ["training.batch=30"]), "results/other", progress=False)
        found = eval(examples[name][-1], {"vflsim": vflsim})
        assert name != "verify" or found == []
    assert (tmp_path / "time.png").is_file()
