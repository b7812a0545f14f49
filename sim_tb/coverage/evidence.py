"""Figures of coverage that are kept with the code, for docs/verification.md."""

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim_tb.coverage.branches import ROOT
from sim_tb.coverage.code_report import CodeReport
from sim_tb.coverage.kinds_report import KindsReport

EVIDENCE = ROOT / "docs" / "coverage.json"


def key_of(file: str) -> str:
    """Return a hash of the statements of a Python file; comments and docstrings do not count."""
    tree = ast.parse((ROOT / file).read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)]  # type: ignore[attr-defined]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def _is_text(node: ast.AST) -> bool:
    is_constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_constant and isinstance(node.value.value, str)  # type: ignore[attr-defined]


def write_keys(path: Path) -> None:
    """Write the hashes of all Python files of the design, when its simulations begin."""
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "hw").rglob("*.py"))
    path.write_text(json.dumps({file: key_of(file) for file in files}, indent=1) + "\n")


def write(
    crosses: Sequence[KindsReport], reports: Mapping[str, CodeReport], keys: Path, path: Path
) -> None:
    """Write the figures of crosses and of each Python file, with the hash that it had.

    ``keys`` is the file of ``write_keys``.
    """
    known = json.loads(keys.read_text())
    files: dict[str, dict[str, Any]] = {}
    for name, report in reports.items():
        for file, numbers in report.files().items():
            files.setdefault(file, {"key": known[file]})[name] = numbers
    figures = {
        "crosses": {
            item.cross.noun: [len(item.possible) - len(item.holes), len(item.possible)]
            for item in crosses
        },
        "files": dict(sorted(files.items())),
    }
    path.write_text(json.dumps(figures, indent=1) + "\n")
