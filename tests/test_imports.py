"""Imports of the project's packages: no circles, and no import that is hidden in a function."""

import ast
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ["golden", "hw", "sim_tb"]
"""Packages without circles."""

ALLOWED = {
    "golden": {"golden", "open_tma"},
    "hw": {"hw", "open_tma"},
    "sim_tb": {"golden", "hw", "open_tma", "sim_tb"},
    "open_tma": {"golden", "hw", "open_tma", "sim_tb"},
}
"""Packages of the project that each package may import; of ``open_tma`` only ``installation``."""

LATE = {
    "hw.flow.cache": "only new Verilog needs the design",
    "hw.flow.verilog": "a stand-in for the unit is written without the unit",
    "sim_tb.conformance.recordings": "the golden model runs where there is no simulator",
}
"""Modules that may import others of their package inside a function, and the reason."""

STAGES = {
    "layouts": set(),
    "lib": {"layouts"},
    "front": {"layouts", "lib"},
    "setup": {"layouts", "lib"},
    "generate": {"layouts", "lib"},
    "load": {"layouts", "lib"},
    "store": {"layouts", "lib"},
    "barrier": {"layouts", "lib"},
    "reduce": {"layouts", "lib"},
    "axi": {"layouts", "lib", "reduce"},
    "translate": {"layouts", "lib"},
    "host": {"layouts", "lib", "barrier"},
    "context": {"layouts", "lib", "barrier"},
    "monitor": {"layouts", "lib"},
    "cluster": {"layouts", "lib", "barrier", "reduce"},
}
"""Sub-packages of ``hw`` that each stage may import, beside itself and ``hw.params``."""

PROJECT = {"golden", "hw", "open_tma", "sim_tb", "tests"}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def sources(root: Path, package: str) -> dict[str, Path]:
    """Return the file of each module of ``package``, by the module's full name."""
    files = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def statements(tree: ast.AST) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Return every import statement, also under ``if``, and whether a function contains it."""
    found = []

    def visit(node: ast.AST, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                found.append((child, in_function))
            visit(child, in_function or isinstance(child, FUNCTION))

    visit(tree, False)
    return found


def targets(statement: ast.Import | ast.ImportFrom, modules: set[str]) -> set[str]:
    """Return the modules that a statement names; ``from package import name`` may name one."""
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    assert not statement.level, "relative imports are not resolved here"
    origin = statement.module
    full = {f"{origin}.{alias.name}" for alias in statement.names}
    return {name if name in modules else origin for name in full}


@cache
def graph(root: Path, package: str) -> tuple[dict[str, set[str]], list[str]]:
    """Return the imports of each module of ``package``, and those that a function contains.

    ``__main__`` may import late: no module imports it, so a late import breaks no circle there.
    """
    files = sources(root, package)
    imports: dict[str, set[str]] = {}
    hidden = []
    for name, path in files.items():
        imports[name] = set()
        for statement, in_function in statements(ast.parse(path.read_text())):
            named = targets(statement, set(files))
            imports[name] |= named
            own = sorted(target for target in named if target.split(".")[0] == package)
            if in_function and own and not name.endswith(".__main__"):
                hidden.append(f"{name}, line {statement.lineno}: {', '.join(own)}")
    return imports, hidden


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle of imports; none if there is no circle."""
    modules = set(imports)
    inner = {name: named & modules for name, named in imports.items()}
    try:
        TopologicalSorter(inner).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_imports(package):
    imports, _ = graph(ROOT, package)
    assert len(imports) > 20
    assert circle(imports) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_of_the_package_inside_a_function(package):
    _, hidden = graph(ROOT, package)
    assert [text for text in hidden if text.split(",")[0] not in LATE] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_a_main_module(package):
    imports, _ = graph(ROOT, package)
    assert not [name for name, named in imports.items() if f"{package}.__main__" in named]


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_that_a_package_may_import(package):
    imports, _ = graph(ROOT, package)
    roots = {target.split(".")[0] for named in imports.values() for target in named}
    assert roots & PROJECT <= ALLOWED[package]
    shared = {target for named in imports.values() for target in named if target[:8] == "open_tma"}
    assert shared <= {"open_tma.installation"}


def test_what_all_packages_import_imports_none_of_them():
    imports, _ = graph(ROOT, "open_tma")
    roots = {target.split(".")[0] for target in imports["open_tma.installation"]}
    assert not roots & PROJECT


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_imports_only_what_it_may_know(stage):
    imports, _ = graph(ROOT, "hw")
    own = {name: named for name, named in imports.items() if name.startswith(f"hw.{stage}.")}
    known = {
        target.split(".")[1] for named in own.values() for target in named if target[:3] == "hw."
    }
    assert own
    assert known <= STAGES[stage] | {stage, "params"}


@pytest.mark.parametrize("package", ["kernels", "report", "performance", "conformance"])
def test_the_behavioural_sm_does_not_know_its_users(package):
    imports, _ = graph(ROOT, "sim_tb")
    own = {name: named for name, named in imports.items() if name.startswith("sim_tb.sm.")}
    assert own
    users = f"sim_tb.{package}"
    assert not [name for name, named in own.items() if any(t.startswith(users) for t in named)]


def write(root: Path, **modules: str) -> None:
    (root / "p").mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (root / "p" / f"{name}.py").write_text(text)


def test_a_circle_is_found(tmp_path):
    write(tmp_path, a="from p import b\n", b="import p.c\n", c="def f():\n    from p.a import x\n")
    imports, hidden = graph(tmp_path, "p")
    assert set(circle(imports)) == {"p.a", "p.b", "p.c"}
    assert hidden == ["p.c, line 2: p.a"]


def test_a_circle_for_type_checking_is_found(tmp_path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import x\n"
    write(tmp_path, a="from p.b import y\n", b=text)
    imports, hidden = graph(tmp_path, "p")
    assert set(circle(imports)) == {"p.a", "p.b"}
    assert hidden == []


def test_a_name_of_the_package_itself_is_an_import_of_it(tmp_path):
    write(tmp_path, __init__="from p.a import x\n", a="from p import x\n")
    assert set(circle(graph(tmp_path, "p")[0])) == {"p", "p.a"}


def test_a_main_module_may_import_late(tmp_path):
    write(tmp_path, a="", __main__="def f():\n    import p.a\n")
    imports, hidden = graph(tmp_path, "p")
    assert (circle(imports), hidden) == ([], [])


def test_no_folder_of_tests_is_on_the_path() -> None:
    """A process that a test starts would find ``tests/formal/queue.py`` as ``queue``."""
    assert not [path for path in sys.path if Path(path).is_relative_to(ROOT / "tests")]
