"""Fields of public classes: values of any type become ``int``, ``tuple`` or a member, or an error.

Integers of any type, such as NumPy's, are accepted; ``bool`` and ``float`` are not. Enumerations
may be given by member, number or name.
"""

import operator
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from golden.arch import Arch, any_of
from golden.enums import Named
from golden.errors import ErrorCode, TmaError, require

EnumT = TypeVar("EnumT", bound=Named)

_INT = {int}
_SHOWN = 60
"""Most characters of a value of a wrong type in a message."""


def index(value: object) -> int | None:
    """Return an integer of any type as ``int``; None for all else, also for ``bool``."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def short(text: str) -> str:
    """Return a text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def shown(value: object) -> str:
    """Return a value of any type as one short line, for messages."""
    return short(repr(value))


def power_text(value: int) -> str:
    """Return a limit as text; a large one as a power of two, ``2**32``, or ``2**40 - 1``."""
    if value < 1 << 32:
        return str(value)
    bits = value.bit_length()
    return f"2**{bits - 1}" if value == 1 << (bits - 1) else f"2**{bits} - 1"


def are_ints(values: tuple[object, ...]) -> bool:
    """Return whether all values are of the type ``int``."""
    return _INT.issuperset(map(type, values))


def any_integer(code: ErrorCode, name: str, value: object, *, dim: int = 0) -> int:
    """Return ``value`` as an ``int``, or raise ``code``."""
    number = index(value)
    if number is None:
        raise TmaError(code, name, 0, "must be an integer", shown=shown(value), dim=dim)
    return number


def any_integers(code: ErrorCode, name: str, values: object) -> tuple[int, ...]:
    """Return ``values``, any number of integers, as a tuple, or raise LENGTH or ``code``."""
    return tuple(
        any_integer(code, f"{name}[{i}]", item, dim=i)
        for i, item in enumerate(sequence(name, values))
    )


def integer(
    code: ErrorCode,
    name: str,
    value: object,
    least: int,
    most: int,
    *,
    condition: str = "",
    dim: int = 0,
) -> int:
    """Return ``value`` as an ``int`` from ``least`` to ``most``.

    Raises
    ------
    TmaError
        ``code``, if ``value`` is no integer or outside these limits.
    """
    limits = str(most) if least == most else f"from {least} to {power_text(most)}"
    number = index(value)
    if number is None:
        limit = f"must be an integer, {limits}{condition}"
        raise TmaError(code, name, 0, limit, shown=shown(value), dim=dim)
    text = hex(number) if code is ErrorCode.GLOBAL_ADDRESS else ""
    holds = least <= number <= most
    require(holds, code, name, number, f"must be {limits}{condition}", shown=text, dim=dim)
    return number


def sequence(name: str, values: object) -> tuple[Any, ...]:
    """Return a list, a tuple or an array as a tuple, or raise LENGTH."""
    if isinstance(values, np.ndarray) and values.ndim:
        return tuple(values)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return tuple(values)
    limit = "must be a sequence of integers"
    raise TmaError(ErrorCode.LENGTH, name, 0, limit, shown=shown(values))


def integers(
    code: ErrorCode,
    name: str,
    values: object,
    length: int,
    least: int,
    most: int,
    *,
    condition: str = "",
    first_dim: int = 0,
) -> tuple[int, ...]:
    """Return ``values``, ``length`` integers from ``least`` to ``most``, as a tuple.

    ``first_dim`` is the tensor's dimension that entry 0 belongs to.

    Raises
    ------
    TmaError
        LENGTH for a wrong number of entries, ``code`` for a wrong entry.
    """
    items = sequence(name, values)
    limit = f"must be {length}{condition}"
    require(len(items) == length, ErrorCode.LENGTH, f"len({name})", len(items), limit)
    return tuple(
        integer(code, f"{name}[{i}]", item, least, most, condition=condition, dim=first_dim + i)
        for i, item in enumerate(items)
    )


def member(kind: type[EnumT], code: ErrorCode, name: str, value: object) -> EnumT:
    """Return the member of an enumeration by member, number or name, or raise ``code``."""
    number = index(value)
    try:
        if isinstance(value, str):
            return kind.member(value)
        if number is not None:
            return kind(number)
    except ValueError:
        pass
    last = int(max(kind))
    limit = f"must be from 0 to {last}, or one of {', '.join(item.name for item in kind)}"
    raise TmaError(code, name, number or 0, limit, shown=short(str(value)) or repr(value))


def require_arch(arch: object) -> None:
    """Refuse an object that is no `Arch`, such as its number."""
    if not isinstance(arch, Arch):
        limit = f"must be {any_of(map(repr, Arch.members()))}"
        raise TmaError(ErrorCode.ARCH, "arch", 0, limit, shown=shown(arch))


def tuple_text(values: Sequence[int]) -> str:
    """Return ``(1, 2)``; of one value ``(1)``, without Python's comma."""
    return f"({', '.join(map(str, values))})"


def raw_bytes(name: str, data: object) -> bytes:
    """Return the bytes of a buffer: ``bytes``, ``bytearray``, a ``memoryview`` or an array.

    Raises
    ------
    TmaError
        MAP_BYTES, if ``data`` is no buffer.
    """
    if isinstance(data, bytes):
        return data
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]
    except TypeError:
        limit = "must be bytes: bytes.fromhex turns hexadecimal text into bytes"
        raise TmaError(ErrorCode.MAP_BYTES, name, 0, limit, shown=shown(data)) from None
