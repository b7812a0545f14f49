"""Imports of the behavioural SM, the kernels and the reports go one way."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = "sm", "kernels", "report"
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (ROOT / "sim_tb" / package).rglob("*.py")
}


def imports_of(path):
    """Modules of these packages that a file imports, at any place in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in SOURCES)
        elif isinstance(node, ast.ImportFrom) and node.module in SOURCES:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in SOURCES else node.module


def test_there_is_no_circle():
    graph = {name: set(imports_of(path)) for name, path in SOURCES.items()}
    assert sum(map(len, graph.values())) > len(PACKAGES)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_behavioural_sm_knows_neither_kernels_nor_reports():
    imported = {
        (name, module)
        for name, path in SOURCES.items()
        if name.startswith("sim_tb.sm.")
        for module in imports_of(path)
        if module.startswith(("sim_tb.kernels", "sim_tb.report"))
    }
    assert not imported
