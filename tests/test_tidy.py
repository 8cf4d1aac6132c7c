"""House rules that a machine can check: layers, lengths, names and calls that are not ours to make.

Each problem is one line: where, what, and what to do instead.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from lab.source_tree import ROOT, cycles, dotted, has_logic, imports, libraries, module_name

SOURCES = sorted((ROOT / "ksched").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# Bottom to top. A module imports from its own package and from lines below its own; neighbours on
# one line do not know each other.
LAYERS: list[set[str]] = [
    {
        "ksched.errors",
        "ksched.clock",
        "ksched.metrics",
        "ksched.redaction",
        "ksched.steps",
        "ksched.thread_turns",
        "ksched.transport",
        "ksched.tuning",
    },
    {"ksched.unexpected_errors"},
    {"ksched.api"},
    {"ksched.cel", "ksched.configuration"},
    {"ksched.cache", "ksched.apiserver"},
    {"ksched.devices"},
    {"ksched.framework", "ksched.groups"},
    {"ksched.framework.plugins", "ksched.queue", "ksched.client"},
    {"ksched.framework.runtime", "ksched.election"},
    {"ksched.extenders"},
    {"ksched.scheduling"},
    {"ksched.explain"},
    {"ksched.what_if", "ksched.shadow"},
    {"ksched.journal"},
    {"ksched"},  # the public names
    {"ksched.web"},
    {"ksched.daemon"},
    {"ksched.testing"},
    {"ksched.demo", "ksched.benchmark", "ksched.pytest_plugin"},
    {"ksched.commands"},
    {"ksched.cli"},
    {"ksched.__main__"},
]
LEVELS = {unit: level for level, units in enumerate(LAYERS) for unit in units}

# The other side of the wire must not share what it is there to test.
ALLOWED_BELOW = {
    "ksched.apiserver": {"ksched.api", "ksched.errors", "ksched.clock", "ksched.transport"},
}

# Plugins do not import each other, only what is made for several of them; the registry knows all.
PLUGINS = "ksched.framework.plugins"
SHARED_BY_PLUGINS = {
    "default_selector",
    "group_membership",
    "names",
    "node_demand",
    "node_matching",
}
PLUGIN_REGISTRY = "in_tree"
CACHE = "ksched.cache."
BANNED = {
    "time.time": "Clock.wall()",
    "time.monotonic": "Clock.now()",
    "time.sleep": "await clock.sleep()",
    "datetime.datetime.now": "Clock.wall()",
    "datetime.datetime.utcnow": "Clock.wall()",
    "asyncio.create_task": "a task group",
    "asyncio.ensure_future": "a task group",
    "asyncio.get_event_loop": "asyncio.get_running_loop()",
}
MAY_ASK_FOR_TIME = {"ksched.clock"}
# A task group waits without limit for foreign code that swallows its cancellation.
OWNS_TASKS = {
    "ksched.framework.runtime.permit_calls",
    "ksched.framework.runtime.plugin_tasks",
    "ksched.testing.conformance.cancellation",
}

# Package or module -> the names of the coroutines it may define. The core is atomic with respect
# to the event loop because it cannot wait.
SYNCHRONOUS = {
    "ksched.api": set[str](),
    "ksched.cache": set[str](),
    "ksched.cel": set[str](),
    "ksched.devices": set[str](),
    "ksched.groups": set[str](),
    "ksched.scheduling.event_handlers": set[str](),
    "ksched.queue": {"pop"},
}

# Unit of LAYERS -> the libraries it may import.
THIRD_PARTY = {
    "ksched.metrics": {"prometheus_client"},
    "ksched.api": {"msgspec", "numpy"},
    "ksched.configuration": {"msgspec", "pydantic", "pydantic_core", "yaml"},
    "ksched.cache": {"msgspec", "numpy"},
    "ksched.devices": {"msgspec", "numpy"},
    "ksched.apiserver": {"aiohttp", "msgspec", "yaml"},
    "ksched.framework": {"msgspec", "numpy"},
    "ksched.groups": {"msgspec", "numpy"},
    "ksched.framework.plugins": {"msgspec", "numpy"},
    "ksched.queue": {"msgspec"},
    "ksched.client": {
        *("aiohttp", "anyio", "cryptography", "httptools", "kubernetes_asyncio"),
        *("msgspec", "prometheus_client", "yaml"),
    },
    "ksched.framework.runtime": {"anyio", "msgspec", "numpy"},
    "ksched.election": {"anyio", "msgspec"},
    "ksched.extenders": {"msgspec", "numpy"},
    "ksched.scheduling": {"anyio", "msgspec", "numpy"},
    "ksched.explain": {"msgspec", "numpy", "yaml"},
    "ksched.shadow": {"anyio", "msgspec", "numpy", "prometheus_client"},
    "ksched.what_if": {"msgspec"},
    "ksched.journal": {"msgspec"},
    "ksched.web": {
        *("aiohttp", "anyio", "cryptography"),
        *("msgspec", "prometheus_client", "yaml"),
    },
    "ksched.daemon": {"anyio", "msgspec", "prometheus_client"},
    "ksched.testing": {"anyio", "msgspec", "numpy"},
    "ksched.demo": {"anyio", "msgspec", "rich"},
    "ksched.benchmark": {"msgspec"},
    "ksched.pytest_plugin": {"pytest"},
    "ksched.commands": {"anyio", "msgspec", "rich", "uvloop"},
}

# Module -> why no test file names it.
TESTED_ELSEWHERE: dict[str, str] = {}

GRAB_BAGS = {"utils", "util", "helpers", "common", "types", "misc"}
STDLIB_NAMED_PACKAGES = {"ksched.queue"}  # fixed by the layout


def unit_of(module: str) -> str | None:
    """The entry of ``LAYERS`` that a module belongs to."""
    if module == "ksched":
        return module
    while module not in LEVELS and "." in module:
        module = module.rpartition(".")[0]
    return module if module in LEVELS and module != "ksched" else None


def check_length(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{path}: {lines} lines, at most {MAX_FILE_LINES}: split it by behaviour"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines, "
                    f"at most {MAX_FUNCTION_LINES}"
                )


def check_name(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    module = module_name(path)
    name = module.rpartition(".")[2]
    if name in sys.stdlib_module_names and module not in STDLIB_NAMED_PACKAGES:
        yield f"{path}: shadows the standard library's {name}, choose another name"
    if name in GRAB_BAGS:
        yield f"{path}: {name} says nothing; which noun is missing?"


def check_package_docstring(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    if path.name == "__init__.py" and len(path.parts) > 2:
        assert isinstance(tree, ast.Module)
        if "not belong" not in " ".join((ast.get_docstring(tree) or "").split()):
            yield f"{path}: the package docstring must end with what does not belong there"


def check_layers(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    unit = unit_of(module_name(path))
    if unit is None:
        yield f"{path}: is in no layer, put {module_name(path)} into LAYERS of tests/test_tidy.py"
        return
    for line, imported in imports(tree):
        target = unit_of(imported)
        if target is None:
            yield f"{path}:{line}: imports {imported}, which is in no layer"
        elif target != unit and LEVELS[target] > LEVELS[unit]:
            yield f"{path}:{line}: {unit} imports upwards: {imported}"
        elif target != unit and LEVELS[target] == LEVELS[unit]:
            yield f"{path}:{line}: {unit} imports its neighbour {imported}"
        elif target not in {unit, *ALLOWED_BELOW.get(unit, {target})}:
            allowed = ", ".join(sorted(ALLOWED_BELOW[unit]))
            yield f"{path}:{line}: {unit} imports {imported}, it may only import {allowed}"


def check_plugins_stand_alone(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    prefix = f"{PLUGINS}."
    module = module_name(path)
    own = module.removeprefix(prefix).split(".")[0]
    if not module.startswith(prefix) or own == PLUGIN_REGISTRY:
        return
    for line, imported in imports(tree):
        other = imported.removeprefix(prefix).split(".")[0]
        if imported.startswith(prefix) and other not in {own, *SHARED_BY_PLUGINS}:
            yield (
                f"{path}:{line}: plugin {own} imports plugin {other}; "
                "a module made for several plugins goes into SHARED_BY_PLUGINS"
            )


def check_plugins_leave_the_cache_alone(
    path: PurePosixPath, text: str, tree: ast.AST
) -> Iterator[str]:
    if not module_name(path).startswith(f"{PLUGINS}."):
        return
    for line, imported in imports(tree):
        if f"{imported}.".startswith(CACHE):
            yield f"{path}:{line}: a plugin imports {imported}, but only ksched.framework may"


def check_libraries(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    unit = unit_of(module_name(path)) or ""
    for line, library in libraries(tree):
        if library not in THIRD_PARTY.get(unit, set()):
            yield f"{path}:{line}: {unit} imports {library}, THIRD_PARTY does not allow it"


def check_no_relative_imports(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            yield f"{path}:{node.lineno}: relative import, write it in full"


def check_banned(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origins |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            origins |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        name = dotted(node)
        head, _, rest = name.partition(".")
        full = f"{origins[head]}.{rest}".rstrip(".") if head in origins else ""
        if full in BANNED and module_name(path) not in MAY_ASK_FOR_TIME:
            yield f"{path}:{node.lineno}: {full} is banned, use {BANNED[full]}"
        if (
            name.endswith(("loop.create_task", "loop().create_task"))
            and module_name(path) not in OWNS_TASKS
        ):
            yield f"{path}:{node.lineno}: {name} is banned, use a task group"


def check_synchronous(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    module = module_name(path)
    for unit, allowed in SYNCHRONOUS.items():
        if module != unit and not module.startswith(f"{unit}."):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef) and node.name not in allowed:
                yield f"{path}:{node.lineno}: async def {node.name}, but {unit} never waits"


def check_log_fields(path: PurePosixPath, text: str, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.keyword)
            and node.arg == "extra"
            and isinstance(node.value, ast.Dict)
        ):
            names = {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
            if not names.isdisjoint({"error", "problem", "problems", "exception"}):
                yield f"{path}:{node.value.lineno}: one log field has errors: err"


Check = Callable[[PurePosixPath, str, ast.AST], Iterator[str]]
EVERYWHERE: list[Check] = [check_length, check_no_relative_imports]
IN_KSCHED: list[Check] = [
    *EVERYWHERE,
    check_name,
    check_package_docstring,
    check_layers,
    check_plugins_stand_alone,
    check_plugins_leave_the_cache_alone,
    check_libraries,
    check_banned,
    check_synchronous,
    check_log_fields,
]


def problems(path: str, text: str, checks: list[Check]) -> list[str]:
    tree = ast.parse(text)
    where = PurePosixPath(path)
    return list(dict.fromkeys(problem for check in checks for problem in check(where, text, tree)))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_source_is_tidy(path: Path) -> None:
    found = problems(relative(path), path.read_text(), IN_KSCHED)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_test_is_tidy(path: Path) -> None:
    assert path.name != "__init__.py", f"{relative(path)}: tests have no __init__.py, see pyproject"
    found = problems(relative(path), path.read_text(), EVERYWHERE)
    assert not found, "\n" + "\n".join(found)


TEST_FILES = {path.stem for path in TESTS}
NAMED_BY_TESTS = {
    name
    for path in TESTS
    for text in [path.read_text()]
    for name in [*re.findall(r"ksched(?:\.\w+)+", text), *(n for _, n in imports(ast.parse(text)))]
}
TREES = {module_name(PurePosixPath(relative(p))): ast.parse(p.read_text()) for p in SOURCES}


def test_no_module_imports_itself_through_others() -> None:
    graph = {module: {name for _, name in imports(tree)} for module, tree in TREES.items()}
    assert cycles(graph) == []


def test_exceptions_are_needed() -> None:
    """An entry of an allow-list that allows nothing any more goes."""
    used: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        used.setdefault(unit_of(module) or "", set()).update(name for _, name in libraries(tree))
    unused = [
        f"THIRD_PARTY: {unit} does not import {library}"
        for unit, allowed in THIRD_PARTY.items()
        for library in allowed - used.get(unit, set())
    ]
    unused += [f"TESTED_ELSEWHERE: {module}" for module in TESTED_ELSEWHERE if _is_named(module)]
    assert not unused, "\n" + "\n".join(unused)


def _is_named(module: str) -> bool:
    """Whether a test file has the module's name, imports it or writes its name out."""
    return module in NAMED_BY_TESTS or f"test_{module.rpartition('.')[2]}" in TEST_FILES


@pytest.mark.parametrize("module", [name for name, tree in TREES.items() if has_logic(tree)])
def test_module_has_tests(module: str) -> None:
    assert module in TESTED_ELSEWHERE or _is_named(module), (
        f"no test file is named after {module}, imports it or says in its docstring that it "
        "covers it"
    )


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        pytest.param("ksched/api/a.py", "x = 1\n" * 501, "501 lines", id="long file"),
        pytest.param("ksched/api/a.py", LONG_FUNCTION, "f has 71 lines", id="long function"),
        pytest.param("ksched/api/signal.py", "", "shadows the standard library", id="stdlib name"),
        pytest.param("ksched/api/utils.py", "", "which noun is missing", id="grab bag"),
        pytest.param("ksched/new/__init__.py", '"""x"""', "does not belong there", id="docstring"),
        pytest.param("ksched/new.py", "", "is in no layer", id="unknown module"),
        pytest.param(
            "ksched/api/a.py", "from ksched.cache import snapshot", "imports upwards", id="upwards"
        ),
        pytest.param(
            "ksched/api/a.py",
            "if TYPE_CHECKING:\n    import ksched.scheduling.scheduler",
            "imports upwards",
            id="upwards for types only",
        ),
        pytest.param(
            "ksched/framework/status.py",
            "from ksched.framework.runtime import registry",
            "imports upwards",
            id="contract imports runtime",
        ),
        pytest.param(
            "ksched/queue/a.py", "import ksched.client.rest", "its neighbour", id="neighbour"
        ),
        pytest.param(
            "ksched/scheduling/a.py",
            "from ksched import Scheduler",
            "imports upwards",
            id="public names",
        ),
        pytest.param(
            "ksched/apiserver/a.py",
            "from ksched.configuration import model",
            "may only import",
            id="API server imports the scheduler's side",
        ),
        pytest.param(
            "ksched/framework/plugins/node_name.py",
            "from ksched.framework.plugins.node_ports import X",
            "imports plugin node_ports",
            id="plugin imports plugin",
        ),
        pytest.param(
            "ksched/framework/plugins/node_name.py",
            "from ksched.cache.snapshot import Snapshot",
            "only ksched.framework may",
            id="plugin imports the cache",
        ),
        pytest.param(
            "ksched/queue/a.py", 'log.info("x", extra={"error": e})', "errors: err", id="log field"
        ),
        pytest.param("ksched/queue/a.py", "import numpy as np", "imports numpy", id="library"),
        pytest.param("ksched/api/a.py", "from . import b", "relative import", id="relative"),
        pytest.param(
            "ksched/api/a.py", "import time\ntime.time()", "use Clock.wall()", id="wall clock"
        ),
        pytest.param(
            "ksched/api/a.py", "from time import sleep as nap\nnap(1)", "time.sleep", id="alias"
        ),
        pytest.param(
            "ksched/api/a.py",
            "import asyncio\nasyncio.get_running_loop().create_task(f())",
            "use a task group",
            id="task of the loop",
        ),
        pytest.param(
            "ksched/scheduling/binding_cycle.py",
            "import asyncio\nasyncio.create_task(f())",
            "a task group",
            id="task",
        ),
        pytest.param(
            "ksched/api/a.py", "async def f(): ...", "never waits", id="async in the core"
        ),
        pytest.param("ksched/queue/a.py", "async def g(): ...", "never waits", id="async in queue"),
    ],
)
def test_complains(path: str, text: str, complaint: str) -> None:
    found = problems(path, text, IN_KSCHED)
    assert [problem for problem in found if complaint in problem], found


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        pytest.param({"a": {"b"}, "b": {"c"}, "c": set()}, [], id="a line"),
        pytest.param({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]], id="a pair"),
        pytest.param(
            {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"e"}, "e": {"d"}},
            [["a", "b", "c"], ["d", "e"]],
            id="through a third",
        ),
    ],
)
def test_finds_cycles(graph: dict[str, set[str]], found: list[list[str]]) -> None:
    assert cycles(graph) == found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("ksched/queue/a.py", "async def pop(): ...", id="pop waits"),
        pytest.param("ksched/queue/__init__.py", '"""X. Does not belong here: y."""', id="queue"),
        pytest.param("ksched/clock.py", "import time\ntime.time()", id="the clock asks for time"),
        pytest.param("ksched/scheduling/a.py", "group.create_task(f())", id="task of a group"),
        pytest.param("ksched/client/a.py", "from ksched import __version__", id="version"),
        pytest.param(
            "ksched/testing/a.py", "import ksched.web.web_server", id="testing imports web"
        ),
        pytest.param(
            "ksched/framework/plugins/in_tree.py",
            "from ksched.framework.plugins.node_ports import X",
            id="the registry imports plugins",
        ),
        pytest.param(
            "ksched/framework/plugins/node_name.py",
            "from ksched.framework.plugins import names\nimport ksched.framework",
            id="plugin imports the contract",
        ),
    ],
)
def test_accepts(path: str, text: str) -> None:
    assert problems(path, text, IN_KSCHED) == []
