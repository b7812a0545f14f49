"""Kernels for the behavioural SM, each in a file of its own.

A kernel is a class; ``kernels`` returns all classes by name, and ``kernel_of_file`` one of any
file. The package imports ``sim_tb.sm``, which does not import it.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import FileFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from sim_tb.command_line import suggestion
from sim_tb.simulator import by_value
from sim_tb.sm.errors import KernelError, python_error
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


def kernel_of_file(place: str) -> type[Kernel]:
    """Import a Python file; return its kernel.

    The folder of the file is on ``sys.path`` from then on, so that it can import its neighbours.

    Parameters
    ----------
    place : str
        Path of the file, or path, colon, and the name of the class or of the kernel.

    Raises
    ------
    KernelError
        If there is no such file or kernel, the file cannot be imported, or it has several kernels
        and ``place`` names none. The text says what was looked for, and what was found.
    """
    path, _, wanted = place.partition(":")
    file = Path(path).resolve()
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "no such file"
        raise KernelError(f"{path}: {kind}: must be a Python file with a kernel")
    module = _imported(file)
    classes = {
        cls.__name__: cls
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, Kernel) and cls.__module__ == module.__name__
    }
    found = {name: cls for name, cls in classes.items() if not isabstract(cls)}
    chosen = [cls for name, cls in found.items() if wanted in ("", name, cls.name)]
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        unfinished = "".join(
            f"; {name} has no {' and no '.join(sorted(cls.__abstractmethods__))}"
            for name, cls in classes.items()
        )
        raise KernelError(
            f"{path}: there is no kernel: a kernel is a class of the file that derives from "
            f"sim_tb.sm.kernel.Kernel and has host and roles{unfinished}"
        )
    names = ", ".join(found)
    if not chosen:
        raise KernelError(
            f"{path}: there is no kernel {wanted!r}: the file has {names}"
            f"{suggestion(wanted, found)}"
        )
    example = f"{path}:{chosen[-1].__name__}"
    raise KernelError(f"{path} has {len(chosen)} kernels: {names}; name one, such as {example}")


def _imported(file: Path) -> ModuleType:
    """Return the module of a file, whose name is its path. It is no kernel of the library."""
    name = str(file)
    spec = spec_from_file_location(name, file, loader=SourceFileLoader(name, name))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    by_value.BY_VALUE.add(name)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # at the end: a copy.py there must not hide Python's own
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise python_error(f"{_shown(file)}: cannot be imported", error) from error
    finally:
        for registered in KERNELS.values():
            for cls in [each for each in registered if each.startswith(f"{name}.")]:
                del registered[cls]
    return module


def _shown(file: Path) -> str:
    """Return a path as messages show it: relative to the current folder if it is inside."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
