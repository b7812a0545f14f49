"""Exchange between the threads of a warp."""

from collections.abc import Callable

import numpy as np

from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp
from sim_tb.ptx.operands import DTYPES, Execute, Operands, instruction

_LANE = np.arange(LANES)


@instruction("elect")
def elect(ins: Operands) -> Execute:
    """``elect.sync``: the lowest thread of those that execute it (silicon)."""
    lane, chosen = ins.pair(0)

    def execute(warp: Warp, mask: Mask) -> None:
        leader = int(np.argmax(mask))
        lane(warp, np.full(LANES, leader, np.uint32), mask)
        if chosen is not None:
            chosen(warp, np.equal(_LANE, leader), mask)

    return execute


@instruction("shfl")
def shuffle(ins: Operands) -> Execute:
    """``shfl.sync``: the value of another thread of the warp."""
    ins.require_parts(("sync", "idx", "bfly", "up", "down", "b32"))
    mode = ins.parts[2]
    write, valid = ins.pair(0)
    a, b, c = ins.read(1, "b32"), ins.read(2, "u32"), ins.read(3, "u32")

    def execute(warp: Warp, mask: Mask) -> None:
        offset, control = b(warp).astype(int) & 31, c(warp).astype(int)
        clamp, segment = control & 31, control >> 8 & 31
        most = (_LANE & segment) | (clamp & ~segment)
        if mode == "idx":
            source = (_LANE & segment) | (offset & ~segment)
        else:
            source = {"up": _LANE - offset, "down": _LANE + offset, "bfly": _LANE ^ offset}[mode]
        inside = source >= most if mode == "up" else source <= most
        source = np.where(inside, source, _LANE)
        write(warp, a(warp)[source], mask)
        if valid is not None:
            valid(warp, inside, mask)

    return execute


def _bits(lanes: Mask) -> int:
    return int(np.packbits(lanes, bitorder="little").view(np.uint32)[0])


@instruction("vote", "activemask", "match")
def vote(ins: Operands) -> Execute:
    """``vote.sync``, ``activemask`` and ``match.sync``."""
    if ins.parts[0] == "activemask":
        write = ins.write(0)
        return lambda warp, mask: write(warp, np.full(LANES, _bits(mask), np.uint32), mask)
    if ins.parts[0] == "match":
        return _match(ins)
    mode = ins.parts[2]
    if mode not in ("all", "any", "uni", "ballot"):
        raise ins.refuse(f".{mode}")
    write, read = ins.write(0), ins.read(1, "pred")

    def execute(warp: Warp, mask: Mask) -> None:
        ones = read(warp) & mask
        if mode == "ballot":
            write(warp, np.full(LANES, _bits(ones), np.uint32), mask)
            return
        every, some = bool((ones == mask).all()), bool(ones.any())
        result = {"all": every, "any": some, "uni": every or not some}[mode]
        write(warp, np.full(LANES, result), mask)

    return execute


def _match(ins: Operands) -> Execute:
    """``match.any`` and ``match.all``, whose second destination tells whether all are equal."""
    ins.require_parts(("any", "all", "sync", "b32", "b64"))
    every = ins.has("all")
    write, equal_all = ins.pair(0)
    read = ins.read(1, ins.parts[-1])

    def execute(warp: Warp, mask: Mask) -> None:
        values = read(warp)
        if not every:
            equal = [_bits(mask & (values == value)) for value in values]
            write(warp, np.array(equal, np.uint32), mask)
            return
        same = bool((values[mask] == values[mask][0]).all())
        write(warp, np.full(LANES, _bits(mask) if same else 0, np.uint32), mask)
        if equal_all is not None:
            equal_all(warp, np.full(LANES, same), mask)

    return execute


_REDUCE: dict[str, Callable[[Lanes], object]] = {
    "add": lambda values: np.add.reduce(values, dtype=values.dtype),
    "min": np.min,
    "max": np.max,
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
}


@instruction("redux")
def reduce(ins: Operands) -> Execute:
    """``redux.sync`` of integers."""
    kind, function = ins.parts[-1], _REDUCE[ins.parts[2]]
    ins.require_parts(("sync", ins.parts[2], kind))
    write, read, dtype = ins.write(0), ins.read(1, kind), DTYPES[kind]
    return lambda warp, mask: write(warp, np.full(LANES, function(read(warp)[mask]), dtype), mask)
