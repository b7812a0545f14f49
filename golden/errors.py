"""Errors and warnings: one code for each rule, with its text and its origin.

Codes below 32 are those of the unit's error records. ``docs/errors.md`` is generated from `RULES`.
"""

import enum
from dataclasses import dataclass
from typing import ClassVar

from golden.arch import Arch, Feature


class Origin(enum.Enum):
    """Source of a rule."""

    SILICON = "silicon"
    PTX = "PTX ISA"
    CHOICE = "choice"


class ErrorCode(enum.IntEnum):
    """Machine-readable codes of errors and warnings.

    Codes 1 to 31 are errors of requests, as in the unit's error records; if several apply, the unit
    reports the lowest. WRONG_TAG is an error of memory, which only the unit reports. Codes from 32
    are errors of a tensor map's parameters. Codes from 64 are warnings about requests that the unit
    accepts.
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
    WRONG_TAG = 17

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
    ARCH = 57
    OVERRIDE = 58
    REPORT = 59
    FEATURE = 60

    SWIZZLE_PATTERN = 64
    ROW_PADDING = 65
    EXPECT_TX = 66
    BULK_SIZE = 67


@dataclass(frozen=True)
class Rule:
    """A row of the error table: code, source and text of a rule.

    ``silicon`` says what a real unit does if a request breaks the rule, with the recording; empty
    for rules that are not of requests.
    """

    code: ErrorCode
    origin: Origin
    meaning: str
    silicon: str = ""


SILICON = {
    "MAP_FIELD": "Illegal instruction: `map_format11`, `map_interleave1_r2` and others in "
    "`clusters_odd.npz`.",
    "MAP_MODE": "Illegal instruction, nothing is moved: `tile2_map_tile1`, "
    "`tilestore3_map_tile4`, `imprefetch3_map_im4` and others in `clusters_odd.npz`.",
    "SMEM_ALIGN": "Misaligned address: `tile_dst+64`, `bulkst_src+8`, `dcopy_dst+4` and others in "
    "`clusters_odd.npz`.",
    "SMEM_RANGE": "Illegal address: `bulk_dst_tail`, `bulk_mbar_out` in `clusters_odd.npz`; in "
    "another CTA a launch failure: `dcopy_dst_edge`.",
    "COORD_ALIGN": "Illegal instruction: `load_mis` in `transfers.npz`, `tilepf_mis` in "
    "`clusters_odd.npz`.",
    "COORD_NEG": "Illegal instruction: `store_neg` in `transfers.npz`.",
    "IM2COL_START": "Illegal instruction: `im_start_below`, `imstore_start_above` and others in "
    "`clusters_odd.npz`.",
    "IM2COL_CORNER": "Illegal instruction; not in the recordings.",
    "IM2COL_OFFSET": "The operand cannot hold it.",
    "RED_TYPE": "Illegal instruction: `red_legality` in `transfers.npz`. Illegal bulk pairs do not "
    "assemble.",
    "BULK_ALIGN": "Misaligned address: `bulk_src+8`, `bulkred_dst+8` in `clusters_odd.npz`. Other "
    "bits of the size: `bulk_size24`, `bulk_size1048640`.",
    "MASK": "Launch failure: `bulk_mask10of4`, `tile_mask2of1` and others in "
    "`clusters_odd.npz`. Mask 0: `zero_mask`.",
    "DST_CTA": "Launch failure: `dcopy_rank3of2`, `remote_rank3of2` in `clusters_odd.npz`. CTA "
    "bits of the mbarrier: `dcopy4_mbar_third`, `tile_dst1_mbar0`.",
    "MBAR_ALIGN": "Misaligned address: `tile_mbar+4`, `stas_mbar+4` in `clusters_odd.npz`.",
    "MBAR_FAULT": "Launch failure: `barriers.npz`. Of an operation of another CTA, and of the "
    "bytes of a request, only the lock remains, and the next local operation fails: "
    "`rf_arrive_over_arrive`, `bulk_tx_min` in `clusters_odd.npz`.",
    "GMEM_FAULT": "Illegal address; a prefetch is ignored. Not in the recordings.",
    "WRONG_TAG": "Cannot be caused from outside.",
}
"""Answer of the silicon if a request breaks a rule, by the name of its code."""


def _rules(origins: dict[Origin, dict[str, str]]) -> dict[ErrorCode, Rule]:
    rules = (
        Rule(ErrorCode[name], origin, meaning, SILICON.get(name, ""))
        for origin, meanings in origins.items()
        for name, meaning in meanings.items()
    )
    return {rule.code: rule for rule in sorted(rules, key=lambda rule: rule.code)}


RULES: dict[ErrorCode, Rule] = _rules(
    {
        Origin.SILICON: {
            "MAP_MODE": "The mode of the instruction and the number of its coordinates match the "
            "map, also for stores and prefetches.",
            "SMEM_ALIGN": "A shared-memory address is a multiple of 128 (tensor) or 16 (bulk).",
            "SMEM_RANGE": "All bytes of shared memory that a request may access are in the CTA's "
            "window, and so is the mbarrier.",
            "BULK_ALIGN": "The global address of a bulk request is a multiple of 16. Of the size, "
            "bits 19:4 count, and others have no effect.",
            "MASK": "`cta_mask` names only CTAs of the cluster. With no CTA, the request does "
            "nothing.",
            "DST_CTA": "The destination is a CTA of the cluster, and in the unit, it is running. "
            "The mbarrier is in the destination, whatever CTA its address names; with `cta_group` "
            "2 it is in the destination's pair.",
            "MBAR_ALIGN": "An mbarrier's address is a multiple of 8.",
            "MBAR_FAULT": "An mbarrier is not locked, gets no more arrivals than are pending and "
            "counts below 2**20, and has a tx-count from -(2**20 - 1) to 2**20. A fault locks it.",
            "COORD_ALIGN": "Without interleave, `coords[0]` times the element size is a multiple "
            "of 16 bytes.",
            "COORD_NEG": "The start coordinates of a store or reduction are not negative.",
            "IM2COL_START": "The spatial start coordinates of im2col are in the bounding box: from "
            "`lower_corner` to `global_dim - 1 + upper_corner`.",
            "IM2COL_CORNER": "An im2col store or reduction has `lower_corner >= 0` and "
            "`upper_corner <= 0`.",
            "RED_TYPE": "The type has the operation of the reduction.",
            "DATA_TYPE": "`data_type` is a type that the architecture has.",
            "INTERLEAVE": "`interleave` is 0 to 2.",
            "SWIZZLE": "`swizzle` is a swizzle that the architecture has.",
            "L2_PROMOTION": "`l2_promotion` is 0 to 3.",
            "OOB_FILL": "`oob_fill` is 0 or 1; NaN (1) needs a floating-point type.",
            "RANK": "The rank is 1 to 5; interleave and im2col need at least 3.",
            "GLOBAL_ADDRESS": "`global_address` is a multiple of 16; of 32 with 32-byte "
            "interleave.",
            "GLOBAL_DIM": "Each `global_dim` is 1 to 2**32.",
            "GLOBAL_STRIDES": "Each of `global_strides` is below 2**40 and a multiple of 16; of 32 "
            "with 32-byte interleave. Zero, overlapping rows and any order are legal.",
            "ELEMENT_STRIDES": "Each of `element_strides` is 1 to 8.",
            "BOX_DIM": "Each `box_dim` is 1 to 256.",
            "INNER_ALIGN": "`box_dim[0]`, or `channels_per_pixel`, times the element size is a "
            "multiple of 16 bytes.",
            "INNER_SPAN": "Swizzled without interleave, `box_dim[0]`, or `channels_per_pixel`, "
            "times the element size is at most the span of the swizzle.",
            "BOX_BYTES": "The box has at most 233472 bytes; its extents are divided by the element "
            "strides and rounded down.",
            "CHANNELS_PER_PIXEL": "`channels_per_pixel` is 1 to 256.",
            "PIXELS_PER_COLUMN": "`pixels_per_column` is 1 to 1024.",
            "CORNER": "Corners are -32768 to 32767 (rank 3), -128 to 127 (rank 4) or -16 to 15 "
            "(rank 5).",
            "BOUNDING_BOX": "`int32(global_dim + upper_corner) - lower_corner` is positive in each "
            "spatial dimension.",
        },
        Origin.PTX: {
            "GMEM_FAULT": "Global memory exists at every address inside the tensor or the bulk "
            "range, and at the tensor map. Behind AXI4, `dim` of the record is the response: 2 for "
            "SLVERR, 3 for DECERR. With a TLB, it is 4 if the page is absent, and 5 if a store "
            "writes a read-only page; `value` is the virtual address.",
            "COORD_RANGE": "Each coordinate fits in 32 signed bits.",
            "OVERRIDE": "An override of extents needs a tiled map and coordinates 0. It has an "
            "extent of 1 to 255 and a stride for each dimension. A multicast has 32 bits.",
            "REPORT": "A load that reports has an mbarrier of layout v1, and no `.ignore_oob`.",
            "FEATURE": "The architecture has the feature that a request uses.",
            "SUB_BYTE": "A map with a sub-byte type meets the type's own limits on box, address, "
            "strides, extents, interleave and swizzle.",
        },
        Origin.CHOICE: {
            "MAP_FIELD": "Each field of the tensor map is legal for the unit. `TmaError.detail` "
            "has the code, from 32 on, of the rule that is broken.",
            "IM2COL_OFFSET": "im2col offsets are at most 65535 (rank 3), 255 (rank 4) or 31 "
            "(rank 5).",
            "WRONG_TAG": "Each answer of global memory has the tag of an access in flight, and no "
            "access is answered twice. The unit drops other answers: `dim` is 0 for a read and 1 "
            "for a write, `value` is the tag, and `request_id` is 0.",
            "LENGTH": "A sequence has the number of entries that the rank requires.",
            "VERSION": "The version field is 0.",
            "MAP_BYTES": "A tensor map has 128 bytes, of which the unit reads the first 64.",
            "REPLACE": "`tensormap.replace` names an existing field, a legal index of it, and a "
            "value that its operand can hold.",
            "ARRAY": "A map can be made of an array with 1 to 5 axes, a contiguous last axis, and "
            "a type that tensor maps have.",
            "ARCH": "An architecture is an `Arch`.",
            "SWIZZLE_PATTERN": "The shared-memory address of a swizzled box is a multiple of the "
            "pattern's period; otherwise the box starts inside the pattern.",
            "ROW_PADDING": "Rows of a store end at a 16-byte boundary; otherwise the store "
            "overwrites the padding behind them.",
            "EXPECT_TX": "An mbarrier expects exactly the bytes that its requests signal; "
            "otherwise its phase cannot complete.",
            "BULK_SIZE": "The size of a bulk request is a multiple of 16 below 2**20; otherwise "
            "the request moves and signals fewer bytes.",
        },
    }
)


class TmaError(ValueError):
    """A tensor map or a request breaks a rule; a refused request has no effect.

    Attributes
    ----------
    code : ErrorCode
        The broken rule. For a request, the code in the unit's error record.
    parameter : str
        Name of the offending parameter, such as ``coords[0]``.
    dim : int
        Dimension of the parameter, or 0, as in the error record.
    value : int
        Offending value, as in the error record; 0 for a value that is no integer.
    limit : str
        Condition that the value does not meet.
    origin : Origin
        Source of the rule.
    detail : ErrorCode
        With MAP_FIELD, the rule of tensor maps that is broken; FEATURE, if the architecture lacks
        a feature of the request; otherwise ``code``.
    text : str
        Message without code and origin.

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
        self.text = f"{parameter} = {self._shown}: {limit}"
        names = code.name if self.detail is code else f"{code.name}: {self.detail.name}"
        super().__init__(f"{self.text} [{names}, {self.origin.value}]")

    def as_map_field(self, word: int) -> "TmaError":
        """Return the error of a request whose map breaks this rule; its value is word w2."""
        return TmaError(
            ErrorCode.MAP_FIELD,
            self.parameter,
            word,
            self.limit,
            shown=self._shown,
            detail=self.code,
        )


def missing_feature(
    code: ErrorCode,
    feature: Feature,
    arch: Arch,
    parameter: str,
    value: int,
    *,
    shown: str = "",
    dim: int = 0,
) -> TmaError:
    """Return the error of a request that uses a feature which the architecture lacks."""
    limit = arch.lacks(feature)
    return TmaError(code, parameter, value, limit, shown=shown, dim=dim, detail=ErrorCode.FEATURE)


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
    """Warning about a request that the unit accepts, but that is probably a mistake.

    Attributes
    ----------
    code : ErrorCode
        Code of the warning, 64 or more.
    text : str
        Message without the code.
    """

    code: ClassVar[ErrorCode]

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text} [{self.code.name}]")


class SwizzlePatternWarning(TmaWarning):
    """A swizzled box starts inside the pattern: readers must swizzle absolute addresses."""

    code = ErrorCode.SWIZZLE_PATTERN


class RowPaddingWarning(TmaWarning):
    """A store or reduction overwrites up to 15 bytes behind each row."""

    code = ErrorCode.ROW_PADDING


class ExpectTxWarning(TmaWarning):
    """An mbarrier waits for bytes that no request signals, or got more than it expects."""

    code = ErrorCode.EXPECT_TX


class BulkSizeWarning(TmaWarning):
    """A bulk request moves fewer bytes than its size says."""

    code = ErrorCode.BULK_SIZE


FAULTS = (
    (
        "The read of a line fails.",
        (
            "`GMEM_FAULT`, once for the request. The line is not written, the others are; the "
            "barrier is not signalled (`unreadable_lines_are_an_error`)."
        ),
    ),
    (
        "The write of a line fails.",
        (
            "`GMEM_FAULT`. The other lines are written, and the bulk group completes "
            "(`unwritable_lines_are_an_error`)."
        ),
    ),
    (
        "A tensor map cannot be read.",
        ("`GMEM_FAULT`; the request has no effect (`an_unreadable_map_is_an_error`)."),
    ),
    (
        "An answer of memory is lost.",
        (
            "Its request does not end, its tag and slot stay in use, and `control.idle` stays "
            "0. Other requests go on. A reset frees them (`an_answer_that_is_lost`)."
        ),
    ),
    (
        "An answer comes late, by a million clocks.",
        ("Its request ends when it has come. Other requests go on (`an_answer_that_comes_late`)."),
    ),
    (
        "An answer comes twice, or has the tag of no access.",
        ("`WRONG_TAG`; the answer is dropped (`reset_at_any_clock`)."),
    ),
    (
        "Bits of a tensor map are flipped.",
        (
            "It is a legal map, or the request is refused with `MAP_FIELD` or `MAP_MODE` "
            "([fuzzing](fuzzing.md))."
        ),
    ),
    (
        "A tensor map is changed under a request.",
        ("The request uses all old words or all new ones (`a_fill_in_flight_is_overtaken`)."),
    ),
    (
        "A barrier is initialised again under a load.",
        (
            "The bytes that come later are counted in the new word "
            "(`a_barrier_that_is_changed_under_a_load`)."
        ),
    ),
    (
        "A receiver in a cluster takes nothing.",
        ("Requests to it wait; those to other CTAs go on (`a_slow_receiver_stalls_only_its_own`)."),
    ),
    (
        "A receiver in a cluster does not run.",
        ("`DST_CTA`, with its rank; the others get their data (`an_absent_receiver_is_reported`)."),
    ),
    (
        "All tables and queues are full.",
        ("Requests wait at the port (`as_many_loads_in_flight_as_there_are_slots`)."),
    ),
    (
        "The unit is reset at any clock.",
        ("It is as new, and drops answers to accesses from before (`reset_at_any_clock`)."),
    ),
)
"""Faults of what is around the unit, and what it does; in brackets a test of the RTL."""


def errors_table() -> str:
    """Return the text of ``docs/errors.md``: code, rule and origin of every error and warning."""

    def rows(first: int, last: int) -> list[str]:
        return [
            f"| {rule.code.value} | `{rule.code.name}` | {rule.meaning} | {rule.origin.value} |"
            for rule in RULES.values()
            if first <= rule.code <= last
        ]

    def request_rows(first: int, last: int) -> list[str]:
        return [
            f"| {rule.code.value} | `{rule.code.name}` | {rule.meaning} | {rule.silicon} | "
            f"{rule.origin.value} |"
            for rule in RULES.values()
            if first <= rule.code <= last
        ]

    head = ["", "| code | name | what must hold | origin |", "|---|---|---|---|"]
    request_head = [
        "",
        "| code | name | what must hold | otherwise, silicon | origin |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(
        [
            "# Errors and warnings",
            "",
            "`.venv/bin/python -m golden errors docs/errors.md` writes this page; a test fails if",
            "it is stale.",
            "",
            "An error is a `golden.TmaError` in the golden model, and an error record in the unit.",
            "Both have the code, the dimension and the offending value. A refused request has no",
            "effect.",
            "",
            "Origin of a rule: *silicon* is measured on a real unit, *PTX ISA* is NVIDIA's",
            "document, *choice* is this project's decision.",
            "",
            "## Requests",
            "",
            "If a request breaks several rules, the unit reports the one with the lowest code.",
            "`MAP_FIELD` stands for any rule of tensor maps.",
            "",
            "Silicon answers with a CUDA error, and the grid ends: *illegal instruction* (715),",
            "*misaligned address* (716), *illegal address* (700) or *launch failure* (719). The",
            "names are those of cases in the recordings of [tests/silicon](../tests/silicon).",
            *request_head,
            *request_rows(1, 31),
            "",
            "## Tensor maps",
            "",
            "If a rule of origin *silicon* is broken, the driver's encoder returns",
            "`CUDA_ERROR_INVALID_VALUE`. The other rules are checked by the golden model.",
            *head,
            *rows(32, 63),
            "",
            "## Warnings",
            "",
            "A warning is a Python warning of the class `golden.TmaWarning`. The request is",
            "executed.",
            *head,
            *rows(64, 95),
            "",
            "## Faults around the unit",
            "",
            "None of these stops the unit, harms another request, or lets it write elsewhere. In",
            "brackets is a test in `tests/top`.",
            "",
            "| fault | what the unit does |",
            "|---|---|",
            *(f"| {fault} | {outcome} |" for fault, outcome in FAULTS),
            "",
        ]
    )
