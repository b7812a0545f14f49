"""Pickles of objects whose classes another process cannot import: those go along by value.

Classes and functions of a script, of a notebook, of a file that was loaded by its path, and those
inside of functions have no name under which another process could import them. A pickle of `dumps`
holds their code, and of the module's globals those that the code names. `loads` makes them anew, in
a namespace that all objects of a module share. Everything else is pickled as always.
"""

import dataclasses
import dis
import enum
import io
import linecache
import marshal
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper, cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

BY_VALUE = {"__main__"}
"""Modules that another process cannot import. Whoever loads a file by its path adds its module."""

NAMESPACES: dict[str, dict[str, Any]] = {}
"""Globals of the modules whose functions `loads` has made."""

SENTINELS = {
    id(getattr(dataclasses, name)): name
    for name in ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
}
"""Objects of ``dataclasses`` that are compared by identity."""

LEFT_OUT = {"__dict__", "__weakref__", "_abc_impl", "__module__", "__slotnames__"}
"""Attributes of a class that Python makes."""


class SendError(ValueError):
    """An object cannot be sent to another process. The text names it."""


def dumps(value: Any) -> bytes:
    """Return the pickle of an object, with the folders and the sources that `loads` needs.

    Raises
    ------
    SendError
        If a part of the object cannot be pickled, such as an open file.
    """
    file = io.BytesIO()
    pickler = ByValuePickler(file)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        what = pickler.culprit() or type(value).__name__
        raise SendError(
            f"{what} cannot be sent to the simulator, which is another process: {error}"
        ) from error
    paths = [str(Path(path).resolve()) for path in sys.path]
    return pickle.dumps((paths, pickler.sources, file.getvalue()))


def loads(contents: bytes) -> Any:
    """Return the object of a pickle that `dumps` made."""
    paths, sources, pickled = pickle.loads(contents)
    sys.path += [path for path in paths if path not in sys.path]
    for name, lines in sources.items():
        linecache.cache[name] = sum(map(len, lines)), None, lines, name
    return pickle.loads(pickled)


class ByValuePickler(pickle.Pickler):
    """Pickler of classes and functions by value, where there is no other way.

    Members
    -------
    sources : dict of str to list of str
        Lines of code that is in no file, such as the cells of a notebook.
    parts : list of (str, object)
        Attributes and globals of the classes and functions, each with its name.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.sources: dict[str, list[str]] = {}
        self.parts: list[tuple[str, Any]] = []

    def culprit(self) -> str:
        """Return the name of the first part that cannot be pickled; empty if there is none."""
        for name, value in self.parts:
            try:
                ByValuePickler(io.BytesIO()).dump(value)
            except Exception:
                if not isinstance(value, types.FunctionType | type):
                    return name
        return ""

    def reducer_override(self, value: Any) -> Any:
        """Return how an object is made anew; ``NotImplemented``: as pickle does it."""
        if id(value) in SENTINELS:
            return getattr, (dataclasses, SENTINELS[id(value)])
        match value:
            case types.ModuleType():
                return import_module, (value.__name__,)
            case types.MappingProxyType():
                return _make_proxy, (dict(value),)
            case types.CellType():
                return _make_cell, (), (value.cell_contents,), None, None, _fill_cell
            case cached_property():
                return cached_property, (value.func,)
            case _lru_cache_wrapper() if not _is_importable(value):
                return _make_cached, (value.__wrapped__, value.cache_parameters())
            case property():
                return property, (value.fget, value.fset, value.fdel, value.__doc__)
            case staticmethod() | classmethod():
                return type(value), (value.__func__,)
            case types.FunctionType() if not _is_importable(value):
                return self._function(value)
            case type() if not _is_importable(value):
                return self._class(value)
        return NotImplemented

    def _function(self, function: types.FunctionType) -> tuple[Any, ...]:
        code, module = function.__code__, function.__module__
        if not Path(code.co_filename).exists():
            self.sources[code.co_filename] = linecache.getlines(code.co_filename)
        cells = tuple(function.__closure__ or ())
        made = marshal.dumps(code), module, function.__name__, cells
        named = {
            name: function.__globals__[name]
            for name in sorted(global_names(code))
            if name in function.__globals__
        }
        uses = f"which {function.__qualname__} uses,"
        self.parts += [(f"{name}, {uses}", value) for name, value in named.items()]
        attributes = {
            "__defaults__": function.__defaults__,
            "__kwdefaults__": function.__kwdefaults__,
            "__qualname__": function.__qualname__,
            "__doc__": function.__doc__,
        }
        state = named, attributes, dict(function.__dict__)
        return _make_function, made, state, None, None, _fill_function

    def _class(self, cls: type) -> tuple[Any, ...]:
        attributes = {
            name: value
            for name, value in vars(cls).items()
            if name not in LEFT_OUT and not isinstance(value, _SLOTS)
        }
        self.parts += [(f"{cls.__qualname__}.{name}", value) for name, value in attributes.items()]
        members = None
        if issubclass(cls, enum.Enum):
            members = {name: member.value for name, member in cls.__members__.items()}
            attributes = {
                name: value
                for name, value in attributes.items()
                if isinstance(value, _METHODS) and not name.startswith("_")
            }
        made = type(cls), cls.__name__, cls.__bases__, cls.__module__, cls.__qualname__, members
        return _make_class, made, (attributes,), None, None, _fill_class


_SLOTS = types.GetSetDescriptorType, types.MemberDescriptorType
_METHODS = types.FunctionType, property, staticmethod, classmethod


def global_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names of globals that a code uses, and the functions inside of it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname.endswith(("_GLOBAL", "_NAME")):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from global_names(constant)


def _is_importable(value: Any) -> bool:
    """Return whether another process finds a class or function by its module and its name."""
    module = sys.modules.get(value.__module__)
    if module is None or value.__module__ in BY_VALUE:
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _namespace(module: str) -> dict[str, Any]:
    fresh = {"__name__": module, "__builtins__": __builtins__}
    return NAMESPACES.setdefault(module, fresh)


def _make_function(
    code: bytes, module: str, name: str, cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    return types.FunctionType(marshal.loads(code), _namespace(module), name, None, cells)


def _fill_function(
    function: types.FunctionType, state: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
) -> None:
    named, attributes, own = state
    function.__globals__.update(named)
    for name, value in attributes.items():
        setattr(function, name, value)
    function.__dict__.update(own)


def _make_class(
    kind: Callable[..., type],
    name: str,
    bases: tuple[type, ...],
    module: str,
    qualname: str,
    members: dict[str, Any] | None,
) -> type:
    if members is not None:
        made: type = bases[-1](name, members, module=module)
    else:
        made = kind(name, bases, {"__module__": module})
    made.__qualname__ = qualname
    return made


def _fill_class(cls: type, state: tuple[dict[str, Any]]) -> None:
    for name, value in state[0].items():
        setattr(cls, name, value)
        if hasattr(type(value), "__set_name__"):
            value.__set_name__(cls, name)


def _make_proxy(items: dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    return types.MappingProxyType(items)


def _make_cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


def _make_cell() -> types.CellType:
    return types.CellType()


def _fill_cell(cell: types.CellType, state: tuple[Any]) -> None:
    cell.cell_contents = state[0]
