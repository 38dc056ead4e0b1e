"""Imports point one way: the layers, no cycle, no concrete protocol outside ``protocols/``, one user of each loop."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from vflsim.protocols import PROTOCOLS, Protocol

PACKAGE = Path(__file__).parents[1] / "vflsim"

# From the bottom up. A module imports from its own folder and from layers below; folders of one layer never import
# each other.
LAYERS: list[set[str]] = [
    {"party_names"},
    {"errors"},
    {"files", "shipped", "streams", "version", "vocabulary"},
    {"tables"},
    {"codecs", "coding", "learning", "timing"},
    {"books"},
    {"world"},
    {"setting"},
    {"tracing"},
    {"analysis", "intervals", "recurrences"},
    {"protocols", "stopping"},
    {"kinds", "protocol", "scenario"},
    {"results"},
    {"plotting", "simulation", "trained"},
    {"finished", "worlds"},
    {"remote"},
    {"attacks", "explaining", "exporting", "reporting", "studies"},
    {"api"},
    {"exploring"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ENTRY_POINTS = {"__init__", "__main__"}  # above all layers
# The rooms of the largest folders, likewise from the bottom up; names without a folder are single modules.
ROOMS: dict[str, list[set[str]]] = {
    "learning": [
        {"execution", "privacy", "states", "tasks"},
        {"optimizers"},
        {"training"},
        {"batches"},
        {"models"},
        {"learners"},
        {"batching", "data"},
        {"programs"},
    ],
    "protocols": [
        {"answering", "blinded", "in_flight", "solving"},
        {"base"},
        {"capabilities"},
        {"fedbcd", "fedvs", "hook_checks", "synchronous", "vafl"},
        {
            *(
                "bs_vfl",
                "celu_vfl",
                "ef_vfl",
                "few_shot",
                "he_lr",
                "laser_vfl",
                "pubsub_vfl",
                "secureboost",
                "sharing",
                "vim",
            ),
            "zeroth_order",
        },
        {"easter"},
    ],
    "results": [
        {"facts"},
        {"store"},
        {"run_set"},
        {"statistics"},
        {"tables"},
        {"read"},
        {"events", "sweeps"},
        {"link_waits", "observations", "trace", "verify"},
    ],
    "timing": [
        {"floats", "profile"},
        {"laws", "readers"},
        {"delays"},
        {"capacity", "sampler"},
        {"arrivals", "availability", "compute"},
        {"activation", "measured"},
        {"foreign"},
        {"party"},
    ],
    "studies": [
        {"calibrate", "runs"},
        {"checks"},
        {"engines"},
        {"groups"},
        {"pool"},
        {"study"},
        {"plan", "rerun"},
        {"sweep"},
        {"texts", "tune", "units"},
        {"display", "shards"},
    ],
}
# Modules that need each other, counted with imports for types, inside functions, and by a path in a string.
MUTUAL = [
    {"timing.delays", "timing.delays.composite", "timing.delays.modulated"},  # delays that hold delays
    {"scenario.models", "scenario.resolve"},  # a scenario checks protocols that are added to it
]
# The public facades, each for its kind of users; what stands on them needs no other module.
FACADES = ("errors", "finished", "plotting", "protocol", "scenario", "streams", "worlds")
LISTS = ("finished", "protocol", "scenario", "worlds")
"""The facades that are lists of names."""
ON_FACADES = ("attacks", "exporting", "remote")
ONLY_IN = {
    "simpy": {"world/virtual.py"},
    "asyncio": {
        *(f"remote/{name}.py" for name in ("admission", "channel", "client", "client_run", "mesh")),
        *(f"remote/{name}.py" for name in ("server", "server_run", "world")),
        "world/realtime.py",
    },
}

FILES = sorted(PACKAGE.rglob("*.py"))
NAMES = {path: path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".") for path in FILES}
MODULES = {name.removesuffix(".__init__"): path for path, name in NAMES.items()}

FAMILY = {each for protocol in PROTOCOLS for each in protocol.__mro__ if issubclass(each, Protocol)} - {Protocol}
CONCRETE = {".".join(protocol.__module__.split(".")[:3]) for protocol in FAMILY}
CLASSES = {protocol.__name__ for protocol in FAMILY}
KINDS = {protocol.model_fields["kind"].default for protocol in PROTOCOLS}
KIND = re.compile(rf"""["']({"|".join(sorted(KINDS))})["']""")
PATH = re.compile(r"(vflsim[.\w]+):\w+")
NOT_KINDS = {"np.errstate", "self._ray.init", "warnings.simplefilter"}
"""Functions of libraries with arguments such as ``"ignore"``."""


def imports(tree: ast.AST, at_run_time: bool = False) -> Iterator[tuple[str, set[str]]]:
    """Modules with the names imported from them; with ``at_run_time`` those that importing the module imports."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, set()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield node.module or "", {alias.name for alias in node.names}
        elif at_run_time and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif not (at_run_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, at_run_time)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of a block, with handlers and cases; expressions are left out."""
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        yield from getattr(node, field, ())


def nested(node: ast.AST) -> Iterator[ast.AST]:
    """All statements of a block, at any depth."""
    for each in statements(node):
        yield each
        yield from nested(each)


@cache
def imported_by(path: Path, at_run_time: bool = False) -> list[tuple[str, set[str]]]:
    return list(imports(tree(path), at_run_time))


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


TOPS = sorted({name_of(path).split("/")[0] for path in FILES})
"""Folders and modules of the package."""


def files_of(top: str) -> list[Path]:
    return [path for path in FILES if name_of(path).split("/")[0] == top]


@pytest.mark.parametrize("top", [top for top in TOPS if top.removesuffix(".py") not in ENTRY_POINTS])
def test_modules_import_only_from_layers_below_them(top: str) -> None:
    own = top.removesuffix(".py")
    others = [(name_of(path), name, name.split(".")[1])
              for path in files_of(top) for name, _ in imported_by(path) if name.startswith("vflsim.")]  # fmt: skip
    wrong = [f"{path} imports {name}" for path, name, other in others if other != own and LEVEL[other] >= LEVEL[own]]
    assert wrong == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_only_one_module_knows_the_event_loop(library: str) -> None:
    users = {name_of(path) for path in FILES if any(name.split(".")[0] == library for name, _ in imported_by(path))}
    assert users == ONLY_IN[library]


@pytest.mark.parametrize("top", ON_FACADES)
def test_what_stands_on_the_facades_imports_nothing_else(top: str) -> None:
    allowed = tuple(f"vflsim.{each}" for each in FACADES)
    own = f"vflsim.{top}"
    others = [(name_of(path), name) for path in files_of(top) for name, _ in imported_by(path)
              if name.split(".")[0] == "vflsim" and not f"{name}.".startswith(f"{own}.")]  # fmt: skip
    assert [f"{path} imports {name}" for path, name in others if name not in allowed] == []


@pytest.mark.parametrize("top", ON_FACADES)
def test_what_stands_on_the_facades_takes_what_they_list(top: str) -> None:
    lists = {f"vflsim.{name}": set(listed(name)) for name in LISTS}
    taken = [(path, name, names) for path in files_of(top) for name, names in imported_by(path) if name in lists]
    assert {f"{name_of(path)}: {name} lists no {names - lists[name]}" for path, name, names in taken
            if names - lists[name]} == set()  # fmt: skip


def test_the_facades_list_each_name_once() -> None:
    names = [name for each in LISTS for name in listed(each)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("facade", LISTS)
def test_every_name_that_a_facade_lists_says_what_it_is(facade: str) -> None:
    module = import_module(f"vflsim.{facade}")
    things = {name: getattr(module, name) for name in listed(facade)}
    said = {name for name, each in things.items() if inspect.isclass(each) or inspect.isfunction(each)}
    assert {name for name in said if not (things[name].__doc__ or "").strip()} == set()


@pytest.mark.parametrize("facade", ["finished", "worlds"])
def test_the_example_of_a_facade_imports_what_there_is(facade: str) -> None:
    example = inspect.cleandoc((import_module(f"vflsim.{facade}").__doc__ or "").split("::\n", 1)[1])
    lines = [each for each in ast.parse(example).body if isinstance(each, ast.ImportFrom | ast.ClassDef)]
    assert lines
    exec("\n".join(map(ast.unparse, lines)), {})


def listed(facade: str) -> list[str]:
    """The names that a facade imports as themselves, and so gives away."""
    lines = tree(MODULES[f"vflsim.{facade}"]).body
    aliases = [alias for each in lines if isinstance(each, ast.ImportFrom) for alias in each.names]
    assert [alias.name for alias in aliases if alias.asname != alias.name] == []
    return [alias.name for alias in aliases]


def test_every_folder_is_a_package() -> None:
    assert {path.parent for path in FILES} == {path.parent for path in FILES if path.name == "__init__.py"}


def test_every_module_belongs_to_a_layer() -> None:
    tops = {name_of(path).split("/")[0].removesuffix(".py") for path in FILES}
    assert tops == set(LEVEL) | ENTRY_POINTS


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = {
        module: {
            found
            for name, names in imported_by(path, at_run_time=True)
            for found in {f"{name}.{each}" for each in names} & MODULES.keys() or {name} & MODULES.keys()
        }
        for module, path in MODULES.items()
    }
    assert cycles(graph) == []


def test_modules_that_need_each_other_are_named_here() -> None:
    graph = {module: set(needed(path)) for module, path in MODULES.items()}
    found = [{name.removeprefix("vflsim.") for name in cycle} for cycle in cycles(graph)]
    assert sorted(found, key=sorted) == sorted(MUTUAL, key=sorted)


def test_a_path_in_a_string_counts_as_an_import() -> None:
    assert "vflsim.timing.delays" in needed(MODULES["vflsim.kinds"])


@pytest.mark.parametrize("top", ROOMS)
def test_a_room_imports_only_from_rooms_below_it(top: str) -> None:
    level = {name: level for level, names in enumerate(ROOMS[top]) for name in names}
    inside = [path for path in (PACKAGE / top).rglob("*.py") if path != PACKAGE / top / "__init__.py"]
    assert {room(path) for path in inside} == set(level)
    for path in inside:
        for module in needed(path):
            if module.startswith(f"vflsim.{top}."):
                own, other = room(path), room(MODULES[module])
                assert own == other or level[other] < level[own], f"{name_of(path)} imports {module}"


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[1].removesuffix(".py")


def needed(path: Path) -> Iterator[str]:
    """The modules that a module imports anywhere: at the top, for types, inside functions, and by ``module:name``."""
    for name, names in imported_by(path):
        yield from {f"{name}.{each}" for each in names} & MODULES.keys() or {name} & MODULES.keys()
    for node in ast.walk(tree(path)) if PATH.search(text(path)) else ():
        if isinstance(node, ast.Constant) and (path_of := PATH.fullmatch(str(node.value))):
            yield path_of[1]


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes that can reach each other, of more than one node (transitive closure; small graphs)."""
    reach = {node: set(others) for node, others in graph.items()}
    for through in graph:
        for node in graph:
            if through in reach[node]:
                reach[node] |= reach[through]
    found: list[set[str]] = []
    for node in graph:
        if node in reach[node] and not any(node in cycle for cycle in found):
            found.append({other for other in reach[node] if node in reach[other]})
    return found


def test_the_search_for_cycles_finds_them() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}) == [{"b", "c"}, {"d"}]


# vflsim.protocol shows users what they may derive from
@pytest.mark.parametrize("top", [top for top in TOPS if top not in ("protocols", "protocol.py")])
def test_only_protocols_names_a_concrete_protocol(top: str) -> None:
    assert [wrong for path in files_of(top) for wrong in named_in(path)] == []


def named_in(path: Path) -> Iterator[str]:
    """Where a module imports a concrete protocol or names its kind."""
    own, page = name_of(path), tree(path)
    for module, names in imported_by(path):
        if any(module == each or module.startswith(f"{each}.") for each in CONCRETE):
            yield f"{own} imports {module}"
        if module.startswith("vflsim.protocols") and names & CLASSES:
            yield f"{own} imports {names & CLASSES}"
    if not KIND.search(text(path)):
        return
    known = {id(each) for node in ast.walk(page) if isinstance(node, ast.Call) for each in arguments(node)}
    for node in ast.walk(page):
        if isinstance(node, ast.Constant) and node.value in KINDS and id(node) not in known:
            yield f"{own}:{node.lineno} names a kind of protocol"


def arguments(call: ast.Call) -> list[ast.expr]:
    function = ast.unparse(call.func)
    return [*call.args, *(each.value for each in call.keywords)] if function in NOT_KINDS else []


def test_every_class_name_occurs_once_in_the_package() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in nested(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name_of(path))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
