"""Captured tensor maps, in the forms that debuggers and dump tools print.

* bytes: the memory of one or more maps; or an array of NumPy, ``.npy``
* numbers: hexadecimal bytes, also of ``xxd -p``; words that begin with ``0x``; initializers of C,
  also of ``xxd -i``
* ``p`` and ``p/x`` of gdb, which print ``{opaque = {...}}``
* rows that begin with an address or offset: ``x/16wx``, ``x/32wx``, ``x/8gx``, ``x/64xb`` and
  ``x/32xh`` of gdb, ``memory read`` of lldb, ``hexdump``, ``hexdump -C``, ``xxd`` and ``od``

A map has 128 bytes. Its first 64, which the unit reads, suffice.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from golden.archive import NPY, VectorError, array_of
from golden.descriptor import MAP_BYTES, READ_BYTES

MAX_BYTES = 1 << 20
"""Most bytes of a captured file."""

SIZES = f"{READ_BYTES} bytes, or a multiple of {MAP_BYTES} bytes"

_PROMPT = re.compile(r"\s*(\(\S*(gdb|lldb)\)|\$ )")
_ADDRESS = re.compile(r"(?P<at>(?:0x)?[0-9a-f]+)(?:[ \t]+<.*>)?:[ \t]*(?P<rest>.*)")
_OFFSET = re.compile(r"(?P<at>[0-9a-f]{6,8})(?P<rest>(?:[ \t].*)?)")
_BESIDE = re.compile(r"[ \t]+(?:\|.*\||>.*<)$")
_UNITS = {2: (1, 16), 3: (1, 8), 4: (2, 16), 6: (2, 8), 8: (4, 16), 11: (4, 8), 16: (8, 16)}
"""Bytes and base of a number, by its digits, as ``od`` and ``hexdump`` print it."""


class CaptureError(ValueError):
    """A text or a file does not hold whole tensor maps."""


def maps_of(data: bytes) -> list[bytes]:
    """Return the maps that the contents of a file stand for, each with 64 or 128 bytes.

    Raises
    ------
    CaptureError
        If the contents have none of the forms above, or if their size is not that of whole maps.
    """
    if len(data) > MAX_BYTES:
        raise CaptureError(f"more than {MAX_BYTES} bytes: must be tensor maps")
    if data.startswith(NPY):
        return _divided([_array_bytes(data)])
    text = data.removeprefix(codecs.BOM_UTF8)
    if text.isascii() and b"".join(text.split()).decode("ascii").isprintable():
        return text_maps(text.decode("ascii"))
    return _divided([data])


def text_maps(text: str) -> list[bytes]:
    """Return the maps that a text stands for, each with 64 or 128 bytes.

    Raises
    ------
    CaptureError
        If the text has none of the forms above, or if its size is not that of whole maps.
    """
    return _divided(text_parts(text))


def text_parts(text: str) -> list[bytes]:
    """Return the pieces of memory that a text shows, in order; rows that follow each other are one.

    Raises
    ------
    CaptureError
        If the text has none of the forms of the module.
    """
    lines = [line.strip().lower() for line in text.splitlines() if not _PROMPT.match(line)]
    lines = [line for line in lines if line]
    if not lines:
        raise CaptureError(f"empty: must be a tensor map of {SIZES}")
    if _ADDRESS.fullmatch(lines[0]):
        return _address_rows(lines)
    return _offset_rows(lines) or _numbers(" ".join(lines))


def _divided(parts: Sequence[bytes]) -> list[bytes]:
    """Return the maps in pieces of memory."""
    maps: list[bytes] = []
    for part in parts:
        if len(part) != READ_BYTES and (not part or len(part) % MAP_BYTES):
            where = f"part {len(maps) + 1} has " if len(parts) > 1 else ""
            raise CaptureError(f"{where}{len(part)} bytes: must be {SIZES}")
        maps += [part[at : at + MAP_BYTES] for at in range(0, len(part), MAP_BYTES)]
    return maps


def _array_bytes(data: bytes) -> bytes:
    """Return the bytes of the integers of a ``.npy`` file.

    64-bit integers that are all below 2**32 are words of 32 bits: NumPy makes 64-bit integers of
    Python's.
    """
    try:
        array = array_of(data)
    except VectorError as error:
        raise CaptureError(f"the array {error}") from error
    if array.dtype.kind in "SV":
        return array.tobytes()
    if array.dtype.kind not in "iu":
        raise CaptureError(f"the array holds {array.dtype}: must hold integers")
    size = array.itemsize
    if size == 8 and array.size and array.min() >= 0 and array.max() < 1 << 32:
        size = 4
    return array.astype(f"<u{size}").tobytes()


@dataclass(frozen=True)
class _Row:
    """A row of a dump: its line, its address as text, and its bytes; None for ``*``."""

    line: int
    at: str
    data: bytes


def _address_rows(lines: Sequence[str]) -> list[bytes]:
    """Return the memory of rows that begin with an address and a colon: gdb, lldb, xxd."""
    rows: list[_Row | None] = []
    for number, line in enumerate(lines, 1):
        if line == "*":
            rows.append(None)
            continue
        found = _ADDRESS.fullmatch(line)
        if not found:
            raise CaptureError(
                f"line {number}: {line[:40]!r}: must begin with an address and a colon"
            )
        # Text beside the bytes follows two blanks.
        groups, _, beside = found["rest"].partition("  ")
        rows.append(_Row(number, found["at"], _row_bytes(number, groups.split(), beside.strip())))
    return _joined(rows, 16)


def _row_bytes(line: int, groups: Sequence[str], beside: str) -> bytes:
    """Return the bytes of a row of gdb, lldb or xxd.

    Numbers with ``0x`` are little-endian. Those without are in the order of memory, unless the text
    ``beside`` them says otherwise (``xxd -e``).
    """
    is_word = bool(groups) and groups[0].startswith("0x")
    for group in groups:
        digits = group.removeprefix("0x") if is_word else group
        if not re.fullmatch("([0-9a-f]{2}){1,16}", digits) or is_word != group.startswith("0x"):
            limit = "must be hexadecimal numbers with all their digits, as x/16wx prints them"
            raise CaptureError(f"line {line}: {group[:40]!r}: {limit}")
    little = b"".join(bytes.fromhex(group.removeprefix("0x"))[::-1] for group in groups)
    if is_word:
        return little
    data = bytes.fromhex("".join(groups))
    shown = ["".join(map(_printed, some)) for some in (data, little)]
    return little if beside in shown[1:] and beside != shown[0] else data


def _printed(byte: int) -> str:
    """Return a byte as dump tools print it beside the numbers, in lower case."""
    return chr(byte).lower() if 0x20 <= byte < 0x7F else "."


def _offset_rows(lines: Sequence[str]) -> list[bytes] | None:
    """Return the memory of rows that begin with an offset: hexdump, od. None: these are no rows.

    Offsets are hexadecimal, octal or decimal: in the right base, rows follow each other.
    """
    rows: list[_Row | None] = []
    widths = set()
    for number, line in enumerate(lines, 1):
        found = _OFFSET.fullmatch(line)
        if line != "*" and not found:
            return None
        groups = _BESIDE.sub("", found["rest"]).split() if found else []
        data = _words(groups)
        if data is None:
            return None
        rows.append(_Row(number, found["at"], data) if found else None)
        widths |= {(len(found["at"]), len(group)) for group in groups if found}
    if len(rows) < 2:
        return None
    joined = []
    failure: CaptureError | None = None
    for base in (16, 8, 10):
        try:
            joined.append(_joined(rows, base))
        except CaptureError as error:
            failure = failure or error
    if all(offset != group for offset, group in widths):
        if not joined and failure:
            raise failure
        return min(joined, key=len)
    # Offsets look like the numbers behind them: these are offsets only if all rows are in order.
    return next((parts for parts in joined if len(parts) == 1), None)


def _words(groups: Sequence[str]) -> bytes | None:
    """Return the bytes of words of equal length, little-endian; None if they are no such words."""
    widths = {len(group) for group in groups}
    if not groups:
        return b""
    if len(widths) > 1 or not widths <= set(_UNITS):
        return None
    size, base = _UNITS[widths.pop()]
    try:
        return b"".join(int(group, base).to_bytes(size, "little") for group in groups)
    except (ValueError, OverflowError):
        return None


def _joined(rows: Sequence[_Row | None], base: int) -> list[bytes]:
    """Return the pieces of memory of rows; a row that does not follow the one before begins one.

    ``*`` repeats the row before up to the next address.

    Raises
    ------
    CaptureError
        If there is nothing to repeat, or no address up to which to repeat it; or if an address is
        no number.
    """
    parts: list[bytearray] = []
    end, last, repeats = 0, b"", False
    for row in rows:
        if row is None:
            repeats = True
            continue
        try:
            at = int(row.at, base)
        except ValueError:
            raise CaptureError(f"line {row.line}: {row.at} is no number of base {base}") from None
        if repeats:
            count, rest = divmod(at - end, len(last) or 1)
            if not parts or rest or not 0 <= count <= MAX_BYTES // (len(last) or 1):
                raise CaptureError(
                    f"line {row.line}: {row.at} does not end the rows that * repeats"
                )
            parts[-1] += last * count
        elif not parts or at != end:
            parts.append(bytearray())
        parts[-1] += row.data
        end, last, repeats = at + len(row.data), row.data, False
    if repeats:
        raise CaptureError("the last line is *: the offset that ends the dump is missing")
    return [bytes(part) for part in parts if part]


def _numbers(text: str) -> list[bytes]:
    """Return the memory that numbers show: those in braces, if there are braces."""
    inner = re.findall(r"\{([^{}]*)\}", text)
    if "opaque" in text and inner:
        return [b"".join(_opaque_words(numbers)) for numbers in inner]
    return [number_bytes(" ".join(inner) if inner else text)]


def _opaque_words(text: str) -> Iterator[bytes]:
    """Yield the 64-bit words of a ``CUtensorMap`` as gdb prints its member ``opaque``."""
    for item in text.split(","):
        found = re.fullmatch(
            r"\s*(0x[0-9a-f]{1,16}|0|[1-9]\d{,19})(?: <repeats (\d{1,9}) times>)?\s*", item
        )
        if not found or int(found[2] or 1) > MAX_BYTES // 8 or int(found[1], 0) >= 1 << 64:
            raise CaptureError(f"{item.strip()[:40]!r}: must be a number of 64 bits")
        yield int(found[1], 0).to_bytes(8, "little") * int(found[2] or 1)


def number_bytes(text: str) -> bytes:
    """Return the bytes that hexadecimal numbers stand for.

    Blanks, commas, semicolons and braces separate numbers. If all numbers begin with ``0x``, they
    are little-endian words: of 64 bits if one has more than 8 digits, of 32 bits if one has more
    than 2 digits or if there are fewer than 64 numbers, otherwise of 8 bits. Numbers without ``0x``
    are bytes in order.

    Raises
    ------
    CaptureError
        If the text has other characters, or an odd number of digits.

    Examples
    --------
    >>> number_bytes("0x00000310, 0x2") == number_bytes("10030000 02000000")
    True
    """
    tokens = re.sub(r"[,;{}]", " ", text.lower()).split()
    numbers = [token.removeprefix("0x").rstrip("ul") for token in tokens]
    for token, number in zip(tokens, numbers, strict=True):
        if not re.fullmatch("[0-9a-f]+", number):
            raise CaptureError(f"{token[:40]!r}: must be hexadecimal digits")
    widest = max(map(len, numbers), default=0)
    if widest <= 16 and all(token.startswith("0x") for token in tokens):
        size = 8 if widest > 8 else 4 if widest > 2 or len(numbers) < READ_BYTES else 1
        return b"".join(int(number, 16).to_bytes(size, "little") for number in numbers)
    digits = "".join(numbers)
    if len(digits) % 2:
        raise CaptureError(f"{len(digits)} hexadecimal digits: must be an even number")
    return bytes.fromhex(digits)
