"""Build hook of the wheel: the project's packages become sub-packages of ``open_tma``.

In a clone, ``golden``, ``hw`` and ``sim_tb`` are top-level packages. In a wheel, such general names
could hide a user's own files. So ``pyproject.toml`` maps the folders into ``open_tma``, and the
hook changes the names of their modules in copies of the Python files.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARENT = "open_tma"
PACKAGES = "golden", "hw", "sim_tb"
"""Packages that become sub-packages of ``PARENT``."""

PACKAGE = rf"(?<![\w./])(?:{'|'.join(PACKAGES)})"
MENTION = re.compile(
    rf"{PACKAGE}\.(?P<name>\w+)|(?<=-m ){PACKAGE}(?![\w.])|(?<=from ){PACKAGE}(?= import)"
)
"""A name in text that may be a module: dotted, in a command, or in the import of an example."""


class WheelHook(BuildHookInterface[Any]):
    """Gives the wheel changed copies of the Python files, which are in a folder of their own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Replace the Python files by copies in which the modules have their names of the wheel.

        Raises
        ------
        ValueError
            If the build is for an editable installation.
        """
        if version == "editable":
            raise ValueError(
                "open-tma cannot be installed as editable, because its packages have other names "
                "in a wheel: use a clone as it is, after `make setup`, or install without -e"
            )
        self.copies = TemporaryDirectory()
        files = list(self.build_config.builder.recurse_selected_project_files())
        names = module_names(file.relative_path for file in files)
        for file in files:
            if file.path.endswith(".py"):
                copy = Path(self.copies.name, file.distribution_path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    copy.write_text(rewritten(Path(file.path).read_text("utf-8"), names), "utf-8")
                except ValueError as error:
                    raise ValueError(f"{file.relative_path}: {error}") from error
                build_data["force_include"][str(copy)] = file.distribution_path

    def finalize(self, *_: object) -> None:
        """Remove the copies."""
        self.copies.cleanup()


def module_names(paths: Iterable[str]) -> set[str]:
    """Return the dotted names of the modules and packages among files."""
    names = set()
    for path in map(Path, paths):
        if path.suffix == ".py":
            parts = path.with_suffix("").parts
            names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def rewritten(source: str, names: set[str]) -> str:
    """Return the text of a Python file with ``PARENT`` in front of the names of moved modules.

    Names change in import statements. They also change in strings: in documentation, in commands,
    and where a module is started by its name.

    Parameters
    ----------
    source : str
        Text of the file.
    names : set of str
        All modules that are moved. Other dotted names in strings are not changed, such as
        ``golden.png``, unless the part behind the dot is that of a class.

    Raises
    ------
    ValueError
        If a statement is ``import golden`` or the like without ``as``, because the uses of that
        name are not found.
    """
    for place in sorted({*places(source, names)}, reverse=True):
        source = f"{source[:place]}{PARENT}.{source[place:]}"
    return source


def places(source: str, names: set[str]) -> Iterator[int]:
    """Yield the place of each name of a moved module, some of them twice."""
    lines = list(StringIO(source))
    starts = list(accumulate(map(len, lines), initial=0))

    def place(line: int | None, byte: int | None) -> int:
        assert line is not None
        return starts[line - 1] + len(lines[line - 1].encode()[:byte].decode())

    def moved(module: str | None) -> bool:
        return str(module).partition(".")[0] in PACKAGES

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(level=0, module=module) if moved(module):
                yield source.index(str(module), place(node.lineno, node.col_offset) + len("from "))
            case ast.Import(names=aliases):
                for alias in aliases:
                    if moved(alias.name) and alias.asname is None:
                        raise ValueError(f"import {alias.name}: must be an import with `as`")
                    if moved(alias.name):
                        yield place(alias.lineno, alias.col_offset)
            case ast.Constant(value=str()) | ast.JoinedStr():
                ends = place(node.end_lineno, node.end_col_offset)
                for found in MENTION.finditer(source, place(node.lineno, node.col_offset), ends):
                    name = found["name"]
                    if name is None or name[0].isupper() or found[0] in names:
                        yield found.start()
