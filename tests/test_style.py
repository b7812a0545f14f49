"""Style of the sources: how docstrings begin, and what the blocks of ``hw`` have in common."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPENINGS = {
    "Of",
    "And",
    "What",
    "That",
    "Whether",
    "Which",
    "How",
    "Who",
    "Whose",
    "But",
    "So",
    "Its",
}
"""Words that continue another sentence, or stand for a noun that the docstring should name."""

LONGEST = 80
"""Lines of a method of ``hw``."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of constants and members included."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text


@pytest.mark.parametrize("package", ["hw", "golden", "open_tma", "sim_tb", "tests"])
def test_docstrings_name_their_subject(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text()))
        if text.split() and text.split()[0].strip(".,:") in OPENINGS
    ]
    assert wrong == []


def test_methods_of_hw_are_short_and_annotated():
    wrong = []
    for path in sorted((ROOT / "hw").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            name = f"{path.relative_to(ROOT)}: {node.name}"
            if node.end_lineno - node.lineno >= LONGEST:
                wrong.append(f"{name}: longer than {LONGEST} lines")
            if node.returns is None and node.name != "__init__":
                wrong.append(f"{name}: no annotation of what it returns")
    assert wrong == []


def test_an_opening_is_found():
    text = 'def f():\n    """Of a row."""\n\nX = 1\n"""Bytes of a row."""\n'
    assert list(docstrings(ast.parse(text))) == [(5, "Bytes of a row."), (2, "Of a row.")]
