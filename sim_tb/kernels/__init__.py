"""Kernels for the behavioural SM, each in a file of its own.

A kernel is a class; ``kernels`` returns all classes by name. The package imports ``sim_tb.sm``,
which does not import it.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import FileFinder
from pathlib import Path
from pkgutil import iter_modules

from sim_tb.sm.errors import python_error
from sim_tb.sm.kernel import KERNELS, Kernel


@dataclass(frozen=True)
class Library:
    """Kernels of all files, and what is wrong with files.

    Members
    -------
    kernels : dict of str to type
        Kernels that can be run, by name.
    ambiguous : dict of str to str
        Names that several kernels have, each with a sentence that names their files.
    broken : list of str
        A sentence for each error that keeps files from being imported.
    """

    kernels: Mapping[str, type[Kernel]]
    ambiguous: Mapping[str, str]
    broken: Sequence[str]


def library() -> Library:
    """Import all modules of this package; return the kernels that they register.

    A file that is broken does not keep the others from being imported.
    """
    errors: dict[str, list[str]] = defaultdict(list)
    for finder, name, _ in iter_modules(__path__):
        assert isinstance(finder, FileFinder)
        try:
            import_module(f"{__name__}.{name}")
        except Exception as error:
            file = _shown(Path(finder.path) / f"{name}.py")
            errors[str(python_error("cannot be imported", error, 1))].append(file)
    found, ambiguous = {}, {}
    for name, registered in sorted(KERNELS.items()):
        classes = [cls for cls in registered.values() if cls.__module__ in sys.modules]
        if len(classes) == 1:
            found[name] = classes[0]
        elif classes:
            files = (_shown(Path(str(sys.modules[cls.__module__].__file__))) for cls in classes)
            places = [f"{cls.__name__} in {file}" for cls, file in zip(classes, files, strict=True)]
            ambiguous[name] = (
                f"{name}: {len(classes)} kernels have this name: {', '.join(places)}; rename all "
                "but one"
            )
    broken = [f"{', '.join(files)}: {text}" for text, files in errors.items()]
    return Library(found, ambiguous, broken)


def kernels() -> Mapping[str, type[Kernel]]:
    """Return the kernels of all files, by name.

    Raises
    ------
    ImportError
        If a file cannot be imported, or two kernels have the same name.
    """
    loaded = library()
    if problems := [*loaded.broken, *loaded.ambiguous.values()]:
        raise ImportError("\n".join(problems))
    return loaded.kernels


def _shown(file: Path) -> str:
    """Return a path as messages show it: relative to the current folder if it is inside."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
