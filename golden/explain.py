"""Explanation of a captured tensor map: ``python -m golden explain``.

It lists the fields, says whether the driver's encoder writes such a map, describes a load, and has
the findings of ``golden.lint``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from textwrap import fill

from golden.descriptor import CORNER_BITS, Descriptor
from golden.enums import MAX_RANK, Arch, MapMode
from golden.errors import TmaError
from golden.fields import tuple_text
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
    return Explanation(error, (head, *lines, "", _words(d)))


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


def _words(d: Descriptor) -> str:
    """Return the table of words w0 to w15 and their fields."""
    rows = [("word", "value", "bits", "holds")]
    for i, (word, fields) in enumerate(zip(d.words, _fields(d), strict=True)):
        names = [(f"w{i}", f"0x{word:08x}"), *[("", "")] * (len(fields) - 1)]
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
"""Bits of a field, and its text."""


def _fields(d: Descriptor) -> list[list[Field]]:
    """Return the fields of each word."""
    rank, tile = min(d.rank, MAX_RANK), d.mode is MapMode.TILE

    def name(item: object) -> str:
        return getattr(item, "name", "code not assigned")

    def entry(values: tuple[int, ...], field: str, i: int, count: int, unit: str = "") -> Field:
        used = i < count
        return "31:0", f"{field}[{i}] = {values[i]}{unit}" if used else f"{field}[{i}]: -"

    def whole_word(text: str) -> list[Field]:
        return [("31:0", text)]

    setup = [
        ("0", f"mode {d.mode.name}"),
        ("3:1", f"version {d.version}"),
        ("6:4", f"rank {d.rank}"),
        ("10:7, 16", f"data_type {name(d.data_type)}"),
        ("12:11", f"interleave {name(d.interleave)}"),
        ("14:13, 20:19", f"swizzle {name(d.swizzle)}"),
        ("15", f"oob_fill {d.oob_fill.name}"),
        ("18:17", f"l2_promotion {d.l2_promotion.name}"),
    ]
    if d.wide:
        setup.append(("22", "wide: for im2col::w"))
    inner = "box_dim[0]" if tile else "channels_per_pixel"
    steps = [
        ("14:0", f"element_strides = {tuple_text(d.element_strides[:rank])}"),
        ("31:24", f"{inner} = {d.channels_per_pixel}"),
    ]
    if tile:
        outer: list[Field] = [("31:0", f"box_dim[1:] = {tuple_text(d.box_dim[1:rank])}")]
    elif d.wide or d.rank in CORNER_BITS:
        outer = [
            ("15:0", f"lower_corner = {tuple_text(d.lower_corner)}"),
            ("31:16", f"upper_corner = {tuple_text(d.upper_corner)}"),
        ]
    else:
        outer = [("31:0", f"corners: none with rank {d.rank}")]
    return [
        whole_word(f"global_address = {d.global_address:#x}"),
        whole_word("global_address, upper half"),
        setup,
        *([entry(d.global_strides, "global_strides", i, rank - 1, " bytes")] for i in range(4)),
        [("15:0", "global_strides, bits 39:36 of each")],
        *([entry(d.global_dim, "global_dim", i, rank)] for i in range(MAX_RANK)),
        steps,
        outer,
        [("9:0", "-" if tile else f"pixels_per_column = {d.pixels_per_column}")],
    ]
