"""Explanation of a captured tensor map: ``python -m golden explain``.

It lists the fields, says whether the driver's encoder writes such a map, describes a load, and has
the findings of ``golden.lint``.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

from golden.arch import Arch
from golden.descriptor import CORNER_BITS, Descriptor
from golden.enums import MAX_RANK, MapMode
from golden.errors import TmaError
from golden.fields import raw_bytes, tuple_text
from golden.lint import lint, load_mode
from golden.plan import Plan
from golden.tensor_map import TensorMap

WIDTH = 80
"""Characters of the longest line of an explanation, apart from the text of an error."""


@dataclass(frozen=True)
class Explanation:
    """Explanation of a tensor map; ``str`` is its text.

    Attributes
    ----------
    error : TmaError or None
        The rule that the map breaks; None if the encoder writes such a map.
    parts : tuple of str
        Parts of the text, from top to bottom.
    """

    error: TmaError | None
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.parts)


def explain(data: bytes, arch: Arch = Arch.SM_90A) -> Explanation:
    """Explain the tensor map that ``data`` holds.

    Parameters
    ----------
    data : bytes
        A tensor map of 128 bytes, or at least its first 64. Its fields may be illegal.
    arch : Arch
        Architecture whose features the map may use.

    Raises
    ------
    TmaError
        MAP_BYTES, if ``data`` has fewer than 64 bytes.
    """
    d = Descriptor.from_bytes(data)
    error: TmaError | None = None
    try:
        head = str(TensorMap.decode(data, arch=arch))
    except TmaError as broken:
        error = broken
        head = f"not a map that the encoder writes:\n  {error}"
    facts: list[tuple[str, str]] = []
    try:
        plan = Plan(d, load_mode(d), arch=arch)
    except TmaError:
        pass  # a finding says so
    else:
        facts += _facts(plan)
    facts += [
        (finding.severity.value, f"{finding.message} [{finding.code.name}]")
        for finding in lint(data, arch)
        if error is None or finding.message != error.text
    ]
    width = 17 if d.mode is MapMode.TILE else 20
    lines = [_fact(name, text, width) for name, text in facts]
    return Explanation(error, (head, *lines, "", _words(raw_bytes("data", data), d)))


def _fact(name: str, text: str, width: int) -> str:
    """Return the lines of a name, in a column of ``width`` characters, and of a text beside it."""
    indent = " " * (width + 2)
    return fill(text, WIDTH, initial_indent=f"  {name}".ljust(width + 2), subsequent_indent=indent)


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield name and text of each property of a load."""
    rows = plan.rows()
    yield "one load", f"{plan.bytes()} bytes (complete_tx): {rows} rows of {plan.row_bytes}"
    gap = plan.pitch - plan.row_bytes
    pitch = f"a row every {plan.pitch}" + (f", the last {gap} not written" if gap else "")
    yield "shared memory", f"{plan.footprint} bytes from a multiple of 128, {pitch}"
    align, bits = plan.coord_align, plan.data_type.bits
    values = f"a multiple of {align}: {align * bits // 8} bytes" if align > 1 else "any"
    yield "coords[0]", values
    if plan.swizzle:
        yield "pattern", f"{plan.swizzle.name} repeats every {plan.swizzle.repeat} bytes"


def _words(data: bytes, d: Descriptor) -> str:
    """Return the table of the words and their fields."""
    values = struct.unpack_from(f"<{len(data) // 4}I", data)
    rows = [("word", "value", "bits", "holds")]
    for i, fields in sorted(fields_of(d, values).items()):
        names = [(f"w{i}", f"0x{values[i]:08x}"), *[("", "")] * (len(fields) - 1)]
        rows += [(*name, *field) for name, field in zip(names, fields, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(left: str, middle: str, right: str, cells: Iterable[str], pad: str = " ") -> str:
        padded = (
            f"{pad}{cell:{pad}<{width}}{pad}" for cell, width in zip(cells, widths, strict=True)
        )
        return left + middle.join(padded) + right

    empty = [""] * len(widths)
    return "\n".join(
        [
            line("┏", "┳", "┓", empty, "━"),
            line("┃", "┃", "┃", rows[0]),
            line("┡", "╇", "┩", empty, "━"),
            *(line("│", "│", "│", row) for row in rows[1:]),
            line("└", "┴", "┘", empty, "─"),
        ]
    )


Field = tuple[str, str]
"""Bits of a field, such as ``14:13, 20:19``, and its text."""


def bits_of(field: str) -> int:
    """Return the mask of the bits of a field.

    Examples
    --------
    >>> hex(bits_of("14:13, 20:19"))
    '0x186000'
    """
    mask = 0
    for part in field.split(", "):
        high, _, low = part.partition(":")
        mask |= (2 << int(high)) - (1 << int(low or high))
    return mask


def fields_of(d: Descriptor, words: Sequence[int]) -> dict[int, list[Field]]:
    """Return the fields of each word, and the bits that are set in none of them.

    Parameters
    ----------
    d : Descriptor
        The words w0 to w15.
    words : sequence of int
        All words that are known, 16 to 32.

    Returns
    -------
    dict
        The fields by the number of the word. Each bit of a word is in a field, or is 0: bits that
        have no meaning in this map are in a field that says so. A word from w16 on is missing if
        it has the value that the encoder writes.
    """
    fields = dict(enumerate(_fields(d)))
    for i, known in fields.items():
        rest = words[i] & ~sum(bits_of(bits) for bits, _ in known)
        for bits in _runs(rest):
            known.append((bits, f"not used: {(words[i] & bits_of(bits)) >> _low(bits):#x}"))
        if not known:
            known.append(("31:0", "-"))
    expected = d.metadata()
    for i in range(len(fields), len(words)):
        if words[i] != expected.get(i, 0):
            fields[i] = [("31:0", f"{_METADATA.get(i, 'not used')}: not read by the unit")]
    return fields


_METADATA = {16: "metadata, bytes of a box", 18: "metadata, code of the swizzle"}


def _low(bits: str) -> int:
    """Return the lowest bit of a range of bits."""
    return int(bits.rpartition(":")[2])


def _runs(mask: int) -> Iterator[str]:
    """Yield the ranges of the bits that are set, from the lowest."""
    bit = 0
    while mask >> bit:
        if not mask >> bit & 1:
            bit += 1
            continue
        low = bit
        while mask >> bit & 1:
            bit += 1
        yield f"{bit - 1}:{low}" if bit - 1 > low else str(low)


def _fields(d: Descriptor) -> list[list[Field]]:
    """Return the fields of words w0 to w15. Bits without a meaning are in none of them."""
    rank, tile = min(d.rank, MAX_RANK), d.mode is MapMode.TILE

    def entry(field: str, first: int, i: int, count: int, unit: str = "") -> list[Field]:
        if i < count:
            return [("31:0", f"{field}[{i}] = {getattr(d, field)[i]}{unit}")]
        return [] if d.words[first + i] else [("31:0", f"{field}[{i}]: -")]

    def low_bits(count: int, text: str) -> list[Field]:
        return [(f"{count - 1}:0", text)] if count else []

    inner = "box_dim[0]" if tile else "channels_per_pixel"
    steps = f"element_strides = {tuple_text(d.element_strides[:rank])}"
    box = f"box_dim[1:] = {tuple_text(d.box_dim[1:rank])}"
    return [
        [("31:0", f"global_address = {d.global_address:#x}")],
        [("31:0", "global_address, upper half")],
        _setup(d),
        *(entry("global_strides", 3, i, rank - 1, " bytes") for i in range(4)),
        low_bits(4 * (rank - 1), "global_strides, bits 39:36 of each"),
        *(entry("global_dim", 8, i, rank) for i in range(MAX_RANK)),
        [*low_bits(3 * rank, steps), ("31:24", f"{inner} = {d.channels_per_pixel}")],
        low_bits(8 * (rank - 1), box) if tile else _corners(d),
        [] if tile else [("9:0", f"pixels_per_column = {d.pixels_per_column}")],
    ]


def _corners(d: Descriptor) -> list[Field]:
    """Return the fields of w14 of an im2col map."""
    if not d.wide and d.rank not in CORNER_BITS:
        return []
    bits = 16 if d.wide else CORNER_BITS[d.rank] * (d.rank - 2)
    return [
        (f"{bits - 1}:0", f"lower_corner = {tuple_text(d.lower_corner)}"),
        (f"{bits + 15}:16", f"upper_corner = {tuple_text(d.upper_corner)}"),
    ]


def _setup(d: Descriptor) -> list[Field]:
    """Return the fields of w2."""

    def name(item: object, *codes: int) -> str:
        text = ", ".join(map(str, codes))
        return getattr(item, "name", f"code {text} not assigned")

    word = d.words[2]
    kind = f"data_type {name(d.data_type, d.format)}"
    if word >> 16 & 1 and (d.data_type is None or not d.data_type.rounds):
        kind += ", and bit 16, which has a meaning with FLOAT32 only"
    return [
        ("0", f"mode {d.mode.name}"),
        ("3:1", f"version {d.version}"),
        ("6:4", f"rank {d.rank}"),
        ("10:7, 16", kind),
        ("12:11", f"interleave {name(d.interleave, 3)}"),
        ("14:13, 20:19", f"swizzle {name(d.swizzle, word >> 13 & 3, word >> 19 & 3)}"),
        ("15", f"oob_fill {d.oob_fill.name}"),
        ("18:17", f"l2_promotion {d.l2_promotion.name}"),
        ("21", f"oob_128k {d.oob_128k}"),
        ("22", f"wide (im2col::w) {d.wide}"),
    ]
