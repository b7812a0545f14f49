"""Loads, stores, atomic operations and reductions of threads."""

from collections.abc import Callable

import numpy as np

from sim_tb.arithmetic import formats
from sim_tb.arithmetic.approximations import flushed
from sim_tb.arithmetic.rounding import odd_sum
from sim_tb.ptx.instructions.copies import reduce_async, store_async
from sim_tb.ptx.instructions.floats import HALVES, maximum, minimum
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
from sim_tb.ptx.syntax import TYPE_BYTES, Address, Name

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


def _of_halves(kind: str, name: str) -> Callable[[Lanes, Lanes], Lanes]:
    """Return ``add``, ``min`` or ``max`` of the bits of 16-bit floats, alone or packed."""
    element = kind.removesuffix("x2")
    function = {"add": odd_sum, "min": minimum, "max": maximum}[name]

    def combine(old: Lanes, value: Lanes) -> Lanes:
        a, b = (formats.numbers(bits.view(np.uint16), element) for bits in (old, value))
        return formats.bits_of(function(a, b), element).view(old.dtype)

    return combine


def _combination(kind: str, name: str, space: str) -> Callable[..., Lanes]:
    """Return what an atomic operation makes of the old value and its sources."""
    if name == "cas":
        return lambda old, expected, value: np.asarray(np.where(old == expected, value, old))
    if kind in HALVES:
        return _of_halves(kind, name)
    if kind == "f32" and space == "global":  # flushes subnormal numbers there (PTX ISA)
        return lambda old, value: flushed(flushed(old) + flushed(value))
    return _ATOMIC[name]


@instruction("atom", "red")
def atomic(ins: Operands) -> Execute:
    """``atom`` and ``red``, lane after lane; ``red.async`` is with the copies."""
    if ins.has("async"):
        return reduce_async(ins)
    kind = ins.parts[-1]
    names = [part for part in ins.parts if part in _ATOMIC or part == "cas"]
    spaces = (*_SPACES, "shared::cta", "shared::cluster")
    if len(names) != 1 or kind not in DTYPES:
        raise ins.refuse()
    if kind in ("f32", "f64") and names[0] != "add":
        raise ins.refuse(f".{names[0]}.{kind}")
    known = (*_QUALIFIERS[:10], "L2::cache_hint", "noftz", "v2", "v4", "v8")
    ins.require_parts((*known, *spaces, names[0], kind))
    returns = ins.parts[0] == "atom"
    first = 1 if returns else 0
    space = space_of(ins, first)
    address = ins.address(first)
    dtype = DTYPES[kind] if kind not in HALVES else DTYPES[f"b{8 * TYPE_BYTES[kind]}"]
    count = len(ins) - first - 1 - ins.has("L2::cache_hint")
    bits = kind if kind not in HALVES else f"b{8 * dtype.itemsize}"
    sources = [ins.reads(first + 1 + index, bits) for index in range(count)]
    elements = len(sources[0])
    if elements > 1 and names[0] == "cas":
        raise ins.refuse("vectors")
    writes = ins.writes(0) if returns else None

    def execute(warp: Warp, mask: Mask) -> None:
        where = address(warp)
        operands = [[read(warp) for read in each] for each in sources]
        before = np.zeros((elements, LANES), dtype)
        ranges = [(space, mask, 0)] if space != "generic" else split(where, mask)
        size = dtype.itemsize
        for name, lanes, window in ranges:
            array, offsets = place(warp, name, where - window, size * elements, lanes)
            warp.cta.grid.observer.updates(warp, name, where - window, size * elements, lanes)
            combined = _combination(kind, names[0], name)
            for lane in np.flatnonzero(lanes).tolist():
                one = slice(lane, lane + 1)
                for element in range(elements):
                    at = int(offsets[lane]) + element * size
                    word = array[at : at + size].view(dtype)
                    before[element, one] = word
                    word[:] = combined(word.copy(), *(each[element][one] for each in operands))
        changed(warp)
        if writes is not None:
            for write, old in zip(writes, before, strict=True):
                write(warp, old, mask)

    return execute
