"""What is wrong with a tensor map or a request: one code for each rule, and words to go with it.

The codes below 32 are those of the unit's error records. ``docs/errors.md`` is made of this table.
"""

import enum
from dataclasses import dataclass
from typing import ClassVar


class Origin(enum.Enum):
    """Where a rule comes from."""

    SILICON = "silicon"
    PTX = "PTX ISA"
    REPORT = "report"
    CHOICE = "choice"


class ErrorCode(enum.IntEnum):
    """Machine-readable codes.

    Up to 31: of requests, as in the unit's error records, in order: of several, the first is
    reported. From 32: of a tensor map's parameters. From 64: warnings, of what the unit accepts.
    """

    NONE = 0
    MAP_FIELD = 1
    MAP_MODE = 2
    SMEM_ALIGN = 3
    SMEM_RANGE = 4
    COORD_ALIGN = 5
    COORD_NEG = 6
    IM2COL_START = 7
    IM2COL_CORNER = 8
    IM2COL_OFFSET = 9
    RED_TYPE = 10
    BULK_ALIGN = 11
    MASK = 12
    DST_CTA = 13
    MBAR_ALIGN = 14
    MBAR_FAULT = 15
    GMEM_FAULT = 16

    LENGTH = 32
    DATA_TYPE = 33
    INTERLEAVE = 34
    SWIZZLE = 35
    L2_PROMOTION = 36
    OOB_FILL = 37
    RANK = 38
    GLOBAL_ADDRESS = 39
    GLOBAL_DIM = 40
    GLOBAL_STRIDES = 41
    ELEMENT_STRIDES = 42
    BOX_DIM = 43
    INNER_ALIGN = 44
    INNER_SPAN = 45
    BOX_BYTES = 46
    CHANNELS_PER_PIXEL = 47
    PIXELS_PER_COLUMN = 48
    CORNER = 49
    BOUNDING_BOX = 50
    SUB_BYTE = 51
    VERSION = 52
    MAP_BYTES = 53
    REPLACE = 54
    ARRAY = 55
    COORD_RANGE = 56

    SWIZZLE_PATTERN = 64
    ROW_PADDING = 65
    EXPECT_TX = 66


@dataclass(frozen=True)
class Rule:
    """A row of the table: where the rule comes from, and what must hold."""

    code: ErrorCode
    origin: Origin
    meaning: str


def _rules(origins: dict[Origin, dict[str, str]]) -> dict[ErrorCode, Rule]:
    rules = (
        Rule(ErrorCode[name], origin, meaning)
        for origin, meanings in origins.items()
        for name, meaning in meanings.items()
    )
    return {rule.code: rule for rule in sorted(rules, key=lambda rule: rule.code)}


RULES: dict[ErrorCode, Rule] = _rules(
    {
        Origin.SILICON: {
            "COORD_ALIGN": "Without interleave, `coords[0]` times the element size is a multiple "
            "of 16 bytes.",
            "COORD_NEG": "A store or reduction starts at no negative coordinate.",
            "IM2COL_START": "The spatial start coordinates of im2col lie in the bounding box: from "
            "`lower_corner` to `global_dim - 1 + upper_corner`.",
            "IM2COL_CORNER": "An im2col store or reduction has `lower_corner >= 0` and "
            "`upper_corner <= 0`.",
            "RED_TYPE": "The operation of a reduction exists for the type.",
            "DATA_TYPE": "`data_type` is one that the architecture has.",
            "INTERLEAVE": "`interleave` is 0 to 2.",
            "SWIZZLE": "`swizzle` is one that the architecture has.",
            "L2_PROMOTION": "`l2_promotion` is 0 to 3.",
            "OOB_FILL": "`oob_fill` is 0 or 1, and NaN only with a float type.",
            "RANK": "The rank is 1 to 5, and at least 3 with interleave or im2col.",
            "GLOBAL_ADDRESS": "`global_address` is a multiple of 16; of 32 with 32-byte "
            "interleave.",
            "GLOBAL_DIM": "Each `global_dim` is 1 to 2**32.",
            "GLOBAL_STRIDES": "Each of `global_strides` is below 2**40 and a multiple of 16; of 32 "
            "with 32-byte interleave. Zero, overlap and any order are legal.",
            "ELEMENT_STRIDES": "Each of `element_strides` is 1 to 8.",
            "BOX_DIM": "Each `box_dim` is 1 to 256.",
            "INNER_ALIGN": "`box_dim[0]`, or `channels_per_pixel`, times the element size is a "
            "multiple of 16 bytes.",
            "INNER_SPAN": "Swizzled without interleave, `box_dim[0]`, or `channels_per_pixel`, "
            "times the element size is at most the swizzle's span.",
            "BOX_BYTES": "The box, divided by the element strides and rounded down, has at most "
            "233472 bytes.",
            "CHANNELS_PER_PIXEL": "`channels_per_pixel` is 1 to 256.",
            "PIXELS_PER_COLUMN": "`pixels_per_column` is 1 to 1024.",
            "CORNER": "Corners are -32768 to 32767 (rank 3), -128 to 127 (rank 4) or -16 to 15 "
            "(rank 5).",
            "BOUNDING_BOX": "`int32(global_dim + upper_corner) - lower_corner` is positive in each "
            "spatial dimension.",
        },
        Origin.PTX: {
            "SMEM_ALIGN": "A shared-memory address is a multiple of 128 (tensor) or 16 (bulk).",
            "MBAR_ALIGN": "An mbarrier's address is a multiple of 8.",
            "GMEM_FAULT": "Global memory inside the tensor or the bulk range exists.",
            "COORD_RANGE": "Each coordinate fits in 32 signed bits.",
            "SUB_BYTE": "Sub-byte types keep their own limits on box, coordinates, address, "
            "strides, extents, interleave and swizzle.",
        },
        Origin.REPORT: {
            "MBAR_FAULT": "An mbarrier was initialised, gets no more arrivals than are pending, "
            "keeps its tx-count within 2**20 - 1 of zero, and takes nothing once it is locked.",
        },
        Origin.CHOICE: {
            "MAP_FIELD": "The fields of the tensor map are such that the unit can work with them. "
            "The codes from 32 say which is not.",
            "MAP_MODE": "Rank and mode of the instruction are those of the map.",
            "SMEM_RANGE": "What a request touches of shared memory lies in the CTA's window.",
            "IM2COL_OFFSET": "im2col offsets are at most 65535 (rank 3), 255 (rank 4) or 31 "
            "(rank 5).",
            "BULK_ALIGN": "Size and global address of a bulk request are multiples of 16.",
            "MASK": "`cta_mask` names at least one CTA, and only CTAs of the cluster.",
            "DST_CTA": "A DSMEM request goes to another CTA of the cluster; destination and "
            "mbarrier are in the same CTA; in the unit, each receiver runs.",
            "LENGTH": "A sequence has as many entries as the rank asks for.",
            "VERSION": "The version field is 0.",
            "MAP_BYTES": "A tensor map has 128 bytes, of which 64 count.",
            "REPLACE": "`tensormap.replace` names a field, an index that it has and a value that "
            "fits in its bits.",
            "ARRAY": "An array that a map is made of has contiguous elements in its last "
            "dimension, and a type that has a counterpart.",
            "SWIZZLE_PATTERN": "A swizzled box at an address that is not a multiple of the "
            "pattern's length starts inside the pattern.",
            "ROW_PADDING": "A store whose rows end off a 16-byte boundary overwrites the padding "
            "behind them.",
            "EXPECT_TX": "A barrier expects other bytes than its requests bring, and its phase "
            "cannot end.",
        },
    }
)


class TmaError(ValueError):
    """A tensor map cannot be built, or a request is refused; nothing has happened.

    Attributes
    ----------
    code : ErrorCode
        The rule. A request's is the code in the unit's error record.
    parameter : str
        What breaks it, such as ``coords[0]``.
    dim : int
        The dimension, or 0: as in the error record.
    value : int
        The offending value: as in the error record.
    limit : str
        What must hold of the value.
    origin : Origin
        Of the rule.
    detail : ErrorCode
        With MAP_FIELD, the rule of the tensor map; otherwise ``code``.

    Examples
    --------
    >>> from golden import DataType, TensorMap
    >>> TensorMap.tiled(DataType.BFLOAT16, 0, [64], [], [12])
    Traceback (most recent call last):
        ...
    golden.errors.TmaError: box_dim[0]*2 = 24 bytes: must be a multiple of 16 [INNER_ALIGN, silicon]
    """

    def __init__(
        self,
        code: ErrorCode,
        parameter: str,
        value: int,
        limit: str,
        *,
        shown: str = "",
        dim: int = 0,
        detail: ErrorCode | None = None,
    ) -> None:
        self.code = code
        self.parameter = parameter
        self.dim = dim
        self.value = value
        self.limit = limit
        self.detail = detail or code
        self.origin = RULES[self.detail].origin
        self._shown = shown or str(value)
        names = code.name if self.detail is code else f"{code.name}: {self.detail.name}"
        super().__init__(f"{parameter} = {self._shown}: {limit} [{names}, {self.origin.value}]")

    def as_map_field(self, word: int) -> "TmaError":
        """The refusal of a request whose map breaks this rule; its record holds word w2."""
        return TmaError(
            ErrorCode.MAP_FIELD,
            self.parameter,
            word,
            self.limit,
            shown=self._shown,
            detail=self.code,
        )


def require(
    holds: bool,
    code: ErrorCode,
    parameter: str,
    value: int,
    limit: str,
    *,
    shown: str = "",
    dim: int = 0,
) -> None:
    """Raise a `TmaError` unless ``holds``."""
    if not holds:
        raise TmaError(code, parameter, value, limit, shown=shown, dim=dim)


class TmaWarning(UserWarning):
    """Something that the unit accepts and its user may regret.

    Attributes
    ----------
    code : ErrorCode
        64 and above.
    """

    code: ClassVar[ErrorCode]

    def __init__(self, message: str) -> None:
        super().__init__(f"{message} [{self.code.name}]")


class SwizzlePatternWarning(TmaWarning):
    """A swizzled box starts inside the pattern: readers must use absolute addresses."""

    code = ErrorCode.SWIZZLE_PATTERN


class RowPaddingWarning(TmaWarning):
    """A store or reduction overwrites up to 15 bytes behind each row."""

    code = ErrorCode.ROW_PADDING


class ExpectTxWarning(TmaWarning):
    """A barrier waits for bytes that nothing brings, or got more than it expects."""

    code = ErrorCode.EXPECT_TX


def errors_table() -> str:
    """``docs/errors.md``: every code, its rule and its origin, in Markdown."""

    def rows(first: int, last: int) -> list[str]:
        return [
            f"| {rule.code.value} | `{rule.code.name}` | {rule.meaning} | {rule.origin.value} |"
            for rule in RULES.values()
            if first <= rule.code <= last
        ]

    head = ["", "| code | name | what must hold | origin |", "|---|---|---|---|"]
    return "\n".join(
        [
            "# Errors and warnings",
            "",
            "Made by `python -m golden errors docs/errors.md`; a test fails when it is stale.",
            "",
            "An error is a `golden.TmaError`, or an error record of the unit, which carries the",
            "same code with the dimension and the offending value. A refused request has no",
            "effect. Origin: *silicon* is measured on a real unit, *PTX ISA* is NVIDIA's",
            "document, *report* a third party's, *choice* this project's.",
            "",
            "## Requests",
            "",
            "Of several, the first is reported. `MAP_FIELD` names one of the rules of tensor maps.",
            *head,
            *rows(1, 31),
            "",
            "## Tensor maps",
            "",
            "Where the driver's encoder answers `CUDA_ERROR_INVALID_VALUE`, and what stands before",
            "and behind it here.",
            *head,
            *rows(32, 63),
            "",
            "## Warnings",
            "",
            "Python warnings of the class `golden.TmaWarning`: the unit does as it is told.",
            *head,
            *rows(64, 95),
            "",
        ]
    )
