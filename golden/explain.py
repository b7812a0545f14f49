"""Explanation of a captured tensor map: ``python -m golden explain``.

It lists the fields, says whether the driver's encoder writes such a map, and describes a load.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from golden import walk
from golden.advice import advice
from golden.descriptor import CORNER_BITS, MAP_BYTES, Descriptor
from golden.enums import MAX_RANK, SMEM_BYTES, AccessMode, Arch, MapMode
from golden.errors import TmaError
from golden.plan import Plan
from golden.request import Store
from golden.tensor_map import TensorMap, tuple_text

_FIRST_UNREAD = 16
"""First word that the unit does not read."""


def map_bytes(text: str) -> bytes:
    """Return the bytes that hexadecimal text stands for.

    Blanks, commas, semicolons and braces separate numbers. If all numbers begin with ``0x``, they
    are little-endian words: of 64 bits if one has more than 8 digits, of 32 bits if one has more
    than 2 digits or if there are fewer than 64 numbers, otherwise of 8 bits. Numbers without ``0x``
    are bytes in order.

    Raises
    ------
    ValueError
        If the text has other characters, or an odd number of digits.

    Examples
    --------
    >>> map_bytes("0x00000310, 0x2") == map_bytes("10030000 02000000")
    True
    """
    tokens = re.sub(r"[,;{}]", " ", text.lower()).split()
    numbers = [token.removeprefix("0x").rstrip("ul") for token in tokens]
    for token, number in zip(tokens, numbers, strict=True):
        if not re.fullmatch("[0-9a-f]+", number):
            raise ValueError(f"{token[:40]!r}: must be hexadecimal digits")
    widest = max(map(len, numbers), default=0)
    if widest <= 16 and all(token.startswith("0x") for token in tokens):
        size = 8 if widest > 8 else 4 if widest > 2 or len(numbers) < MAP_BYTES // 2 else 1
        return b"".join(int(number, 16).to_bytes(size, "little") for number in numbers)
    digits = "".join(numbers)
    if len(digits) % 2:
        raise ValueError(f"{len(digits)} hexadecimal digits: must be an even number")
    return bytes.fromhex(digits)


def file_bytes(data: bytes) -> bytes:
    """Return the bytes that a file stands for: of its hexadecimal text, or the file's own.

    Raises
    ------
    ValueError
        If the file is text that `map_bytes` refuses.
    """
    text = "".join(data.decode("latin-1").split())
    return map_bytes(data.decode()) if text.isascii() and text.isprintable() else data


def load_mode(d: Descriptor) -> AccessMode | None:
    """Return the mode of a load with this map; None for the map's own mode."""
    return AccessMode.IM2COL_W if d.wide else None


@dataclass(frozen=True)
class Explanation:
    """Explanation of a tensor map, for printing by ``rich``.

    Attributes
    ----------
    error : TmaError or None
        The rule that the map breaks; None if the encoder writes such a map.
    parts : tuple
        Printed parts, from top to bottom.
    """

    error: TmaError | None
    parts: tuple[RenderableType, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts


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
    plan: Plan | None = None
    notes: list[str] = []
    try:
        tensor_map = TensorMap.decode(data, arch=arch)
    except TmaError as broken:
        error = broken
        head = Text(f"not a map that the encoder writes:\n  {error}", "bold red")
    else:
        head = Text(str(tensor_map))
        notes += _differences(data, tensor_map)
    try:
        plan = Plan(d, load_mode(d), arch=arch)
    except TmaError as refused:
        notes += [] if error else [f"no load: {refused}"]
    else:
        notes += _notes(d, plan)
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, min_width=17 if d.mode is MapMode.TILE else 20)
    for name, fact in _facts(plan) if plan else ():
        facts.add_row(f"  {name}", Text(fact))
    for note in notes:
        facts.add_row(Text("  note", "yellow"), Text(note))
    return Explanation(error, (head, *[facts][: facts.row_count], Text(), _words(d)))


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


def _differences(data: bytes, tensor_map: TensorMap) -> Iterator[str]:
    """Yield a note for each word that differs from the encoder's; the unit ignores those bits."""
    expected = struct.unpack("<32I", tensor_map.encode())
    count = min(len(data), MAP_BYTES) // 4  # a captured map may end early
    for i, (word, encoded) in enumerate(zip(struct.unpack_from(f"<{count}I", data), expected)):  # noqa: B905
        if word != encoded:
            kind = "metadata" if i >= _FIRST_UNREAD else "bits without a meaning"
            note = f"the encoder writes {encoded:#x} ({kind}, not read by the unit)"
            yield f"w{i} = {word:#x}: {note}"


def _notes(d: Descriptor, plan: Plan) -> Iterator[str]:
    """Yield notes about properties of the map that may surprise its user."""
    if d.mode is MapMode.TILE:
        yield from _edges(d)
    elif not d.wide and (min(d.lower_corner) < 0 or max(d.upper_corner) > 0):
        yield "the corners reach outside the tensor: stores and reductions are refused"
    if not plan.interleaved:
        extent, row = d.global_dim[0], d.global_dim[0] * plan.data_type.bits // 8
        last = (extent - 1) // plan.row_elements * plan.row_elements
        for warning in advice(Store(d, (last,) + (0,) * (d.rank - 1)), plan):
            yield str(warning)
        if d.rank > 1 and d.global_dim[1] > 1 and d.global_strides[0] < row:
            stride = d.global_strides[0]
            yield f"global_strides[0] = {stride} is less than a row of {row} bytes: rows overlap"
        if d.element_strides[0] > 1:
            yield f"element_strides[0] = {d.element_strides[0]} has an effect with interleave only"
    if plan.footprint > SMEM_BYTES:
        yield f"{plan.footprint} bytes are more than a CTA's shared memory, {SMEM_BYTES}"


def _edges(d: Descriptor) -> Iterator[str]:
    """Yield a note for each dimension whose extent is not a multiple of the box."""
    counts, strides = walk.steps_of(d), walk.strides_of(d)
    for i in range(d.rank):
        box, extent = d.box_dim[i], d.global_dim[i]
        slices = d.interleave and i == d.rank - 2
        rest = extent % box
        beyond = (counts[i] - 1) * strides[i] + 1 - rest
        if not slices and rest and beyond > 0:
            box_text = (
                f"box_dim[{i}] = {box} is more than global_dim[{i}] = {extent}: a box at 0"
                if box > extent
                else f"global_dim[{i}] = {extent} is not a multiple of {box}: the last box"
            )
            end = f"{beyond} elements past the end"
            yield f"{box_text} reaches {end}: loads fill them, stores drop them"


def _words(d: Descriptor) -> Table:
    """Return the table of words w0 to w15 and their fields."""
    table = Table("word", "value", "bits", "holds")
    for i, (word, fields) in enumerate(zip(d.words, _fields(d), strict=True)):
        bits = "\n".join(field[0] for field in fields)
        style = "" if fields[0][2] else "dim"
        holds = Text("\n".join(field[1] for field in fields), style)
        table.add_row(Text(f"w{i}", style), Text(f"0x{word:08x}", style), Text(bits, style), holds)
    return table


Field = tuple[str, str, bool]
"""Bits of a field, its text, and whether the map uses it."""


def _fields(d: Descriptor) -> list[list[Field]]:
    """Return the fields of each word."""
    rank, tile = min(d.rank, MAX_RANK), d.mode is MapMode.TILE

    def name(item: object) -> str:
        return getattr(item, "name", "code not assigned")

    def entry(values: tuple[int, ...], field: str, i: int, count: int, unit: str = "") -> Field:
        used = i < count
        return "31:0", f"{field}[{i}] = {values[i]}{unit}" if used else f"{field}[{i}]: -", used

    def whole_word(text: str) -> list[Field]:
        return [("31:0", text, True)]

    setup = [
        ("0", f"mode {d.mode.name}", True),
        ("3:1", f"version {d.version}", True),
        ("6:4", f"rank {d.rank}", True),
        ("10:7, 16", f"data_type {name(d.data_type)}", True),
        ("12:11", f"interleave {name(d.interleave)}", True),
        ("14:13, 20:19", f"swizzle {name(d.swizzle)}", True),
        ("15", f"oob_fill {d.oob_fill.name}", True),
        ("18:17", f"l2_promotion {d.l2_promotion.name}", True),
    ]
    if d.wide:
        setup.append(("22", "wide: for im2col::w", True))
    inner = "box_dim[0]" if tile else "channels_per_pixel"
    steps = [
        ("14:0", f"element_strides = {tuple_text(d.element_strides[:rank])}", True),
        ("31:24", f"{inner} = {d.channels_per_pixel}", True),
    ]
    if tile:
        outer: list[Field] = [("31:0", f"box_dim[1:] = {tuple_text(d.box_dim[1:rank])}", rank > 1)]
    elif d.wide or d.rank in CORNER_BITS:
        outer = [
            ("15:0", f"lower_corner = {tuple_text(d.lower_corner)}", True),
            ("31:16", f"upper_corner = {tuple_text(d.upper_corner)}", True),
        ]
    else:
        outer = [("31:0", f"corners: none with rank {d.rank}", False)]
    return [
        whole_word(f"global_address = {d.global_address:#x}"),
        whole_word("global_address, upper half"),
        setup,
        *([entry(d.global_strides, "global_strides", i, rank - 1, " bytes")] for i in range(4)),
        [("15:0", "global_strides, bits 39:36 of each", rank > 1)],
        *([entry(d.global_dim, "global_dim", i, rank)] for i in range(MAX_RANK)),
        steps,
        outer,
        [("9:0", "-" if tile else f"pixels_per_column = {d.pixels_per_column}", not tile)],
    ]
