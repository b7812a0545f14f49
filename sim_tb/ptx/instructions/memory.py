"""Loads, stores, atomic operations and reductions of threads."""

from collections.abc import Callable

import numpy as np

from sim_tb.ptx.instructions.copies import reduce_async, store_async
from sim_tb.ptx.machine import (
    LANES,
    Lanes,
    Mask,
    Warp,
    changed,
    load,
    place,
    split,
    store,
)
from sim_tb.ptx.operands import DTYPES, Execute, Operands, instruction
from sim_tb.ptx.parser import TYPE_BYTES, Address, Name

_SPACES = ("global", "shared", "local", "param", "const")

_QUALIFIERS = (
    *("weak", "volatile", "relaxed", "acquire", "release", "acq_rel"),
    *("cta", "cluster", "gpu", "sys", "nc", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "v2", "v4"),
    *("L1::evict_normal", "L1::evict_first", "L1::evict_last", "L1::no_allocate"),
    *("L2::64B", "L2::128B", "L2::256B", "L2::cache_hint", "L2::evict_first", "L2::evict_last"),
)


def space_of(ins: Operands, operand: int) -> str:
    """Return the state space of an access: of its variable, of its opcode, or generic.

    Constants are in global memory; arguments of functions are in local memory.
    """
    address = ins.operands[operand]
    if isinstance(address, Address) and isinstance(address.base, Name):
        found = ins.symbols.get(address.base.text)
        if found is not None:
            return found[0]
    for part in ins.parts[1:]:
        space = part.split("::")[0]
        if space in _SPACES:
            return "global" if space == "const" else space
    return "generic"


def _require_known(ins: Operands) -> None:
    spaces = (*_SPACES, "shared::cta", "shared::cluster")
    ins.require_parts((*_QUALIFIERS, *spaces, ins.parts[-1]))


def _vector_length(ins: Operands) -> int:
    return 4 if ins.has("v4") else 2 if ins.has("v2") else 1


@instruction("ld", "ldu")
def load_values(ins: Operands) -> Execute:
    """``ld`` of all spaces, with vectors."""
    _require_known(ins)
    kind = ins.parts[-1]
    size, space = TYPE_BYTES[kind], space_of(ins, 1)
    ins.require_items(0, _vector_length(ins))
    address, writes = ins.address(1), ins.writes(0)
    dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")

    def execute(warp: Warp, mask: Mask) -> None:
        data = load(warp, space, address(warp), size * len(writes), mask)
        for index, write in enumerate(writes):
            part = np.ascontiguousarray(data[:, size * index : size * (index + 1)])
            write(warp, part.view(dtype).reshape(LANES), mask)

    return execute


@instruction("st")
def store_values(ins: Operands) -> Execute:
    """``st`` of all spaces, with vectors; ``st.async`` is with the copies."""
    if ins.has("async"):
        return store_async(ins)
    _require_known(ins)
    kind = ins.parts[-1]
    size, space = TYPE_BYTES[kind], space_of(ins, 0)
    ins.require_items(1, _vector_length(ins))
    address = ins.address(0)
    sources = ins.reads(1, f"b{8 * size}")

    def execute(warp: Warp, mask: Mask) -> None:
        parts = [
            np.ascontiguousarray(read(warp)).view(np.uint8).reshape(LANES, size) for read in sources
        ]
        store(warp, space, address(warp), np.concatenate(parts, axis=1), mask)

    return execute


def _wrapped_increment(old: Lanes, value: Lanes) -> Lanes:
    return np.where(old >= value, 0, old + 1).astype(old.dtype)


def _wrapped_decrement(old: Lanes, value: Lanes) -> Lanes:
    return np.where((old == 0) | (old > value), value, old - 1).astype(old.dtype)


_ATOMIC: dict[str, Callable[..., Lanes]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda _old, value: value,
    "inc": _wrapped_increment,
    "dec": _wrapped_decrement,
}


@instruction("atom", "red")
def atomic(ins: Operands) -> Execute:
    """``atom`` and ``red``, lane after lane; ``red.async`` is with the copies."""
    if ins.has("async"):
        return reduce_async(ins)
    kind = ins.parts[-1]
    names = [part for part in ins.parts if part in _ATOMIC or part == "cas"]
    spaces = (*_SPACES, "shared::cta", "shared::cluster")
    if len(names) != 1 or kind not in DTYPES or kind in ("f16", "bf16", "f16x2", "bf16x2"):
        raise ins.refuse()
    ins.require_parts((*_QUALIFIERS[:10], *spaces, names[0], kind))
    returns = ins.parts[0] == "atom"
    first = 1 if returns else 0
    space = space_of(ins, first)
    address, dtype = ins.address(first), DTYPES[kind]
    sources = [ins.read(index, kind) for index in range(first + 1, len(ins))]
    write = ins.write(0) if returns else None

    def combined(old: Lanes, operands: list[Lanes]) -> Lanes:
        if names[0] == "cas":
            return np.where(old == operands[0], operands[1], old)
        return _ATOMIC[names[0]](old, operands[0])

    def execute(warp: Warp, mask: Mask) -> None:
        where = address(warp)
        operands = [read(warp) for read in sources]
        before = np.zeros(LANES, dtype)
        ranges = [(space, mask, 0)] if space != "generic" else split(where, mask)
        for name, lanes, window in ranges:
            array, offsets = place(warp, name, where - window, dtype.itemsize, lanes)
            for lane in np.flatnonzero(lanes).tolist():
                at = int(offsets[lane])
                word = array[at : at + dtype.itemsize].view(dtype)
                one = slice(lane, lane + 1)
                before[one] = word
                word[:] = combined(word.copy(), [operand[one] for operand in operands])
        changed(warp)
        if write is not None:
            write(warp, before, mask)

    return execute
