"""Copies by threads: ``cp.async`` of 4, 8 or 16 bytes from global to shared memory.

The bytes are there when the copy is issued, which is one of the orders that the memory model
allows; a wait lasts until the load of the last copy would have its data.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from golden.mbarrier import Op
from sim_tb.ptx.instructions.barriers import threads_at
from sim_tb.ptx.machine import LANES, Lanes, Mask, Warp, changed, load, store
from sim_tb.ptx.operands import Execute, Operands
from sim_tb.ptx.syntax import Name, Number

_PARTS = ("async", "ca", "cg", "shared", "shared::cta", "global")
_HINTS = ("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B")
_SIZES = (4, 8, 16)


def copy_of_threads(ins: Operands) -> Execute:
    """``cp.async`` and its groups."""
    if ins.has("commit_group"):
        return _commit
    if ins.has("wait_group") or ins.has("wait_all"):
        return _wait(ins)
    if ins.has("mbarrier"):
        return _arrive(ins)
    ins.require_parts((*_PARTS, *_HINTS))
    size = ins.operands[2]
    if not isinstance(size, Number) or size.value not in _SIZES:
        raise ins.refuse("its size")
    if ins.has("cg") and size.value != 16:
        raise ins.refuse("its size")
    return _copy(ins, size.value)


def _read_size(ins: Operands, size: int) -> Callable[[Warp], Lanes]:
    """Return the reader of the bytes that are read; the others are zeros."""
    if len(ins) - ins.has("L2::cache_hint") == 3:
        everything = np.full(LANES, size)
        return lambda _warp: everything
    operand = ins.operands[3]
    found = ins.instruction.scope.register(operand.text) if isinstance(operand, Name) else None
    if found is not None and found[1] == "pred":
        ignored = ins.read(3, "pred")
        return lambda warp: np.where(ignored(warp), 0, size)
    given = ins.read(3, "u32")
    return lambda warp: np.minimum(given(warp), size).astype(np.int64)


def _copy(ins: Operands, size: int) -> Execute:
    target, source, count = ins.address(0), ins.address(1), _read_size(ins, size)

    def execute(warp: Warp, mask: Mask) -> None:
        counts = count(warp)
        data = _loaded(warp, source(warp), counts, size, mask)
        store(warp, "shared", target(warp), data, mask)
        warp.copies_end = warp.clock + warp.latency
        warp.latency = 0

    return execute


def _loaded(
    warp: Warp, addresses: NDArray[np.int64], counts: Lanes, size: int, mask: Mask
) -> NDArray[np.uint8]:
    """Return the first ``counts`` bytes at each address, and zeros behind them."""
    whole = mask & (counts == size)
    if whole.all():
        return load(warp, "global", addresses, size, whole)
    data = np.zeros((LANES, size), np.uint8)
    if whole.any():
        data = load(warp, "global", addresses, size, whole)
    for index in range(size):
        part = mask & ~whole & (counts > index)
        if part.any():
            data[part, index] = load(warp, "global", addresses + index, 1, part)[part, 0]
    return data


def _commit(warp: Warp, _mask: Mask) -> None:
    """``cp.async.commit_group``."""
    warp.copy_groups.append(warp.copies_end)


def _wait(ins: Operands) -> Execute:
    """``cp.async.wait_group`` and ``cp.async.wait_all``."""
    if ins.has("wait_all"):

        def wait_all(warp: Warp, _mask: Mask) -> None:
            warp.clock = max([warp.clock, warp.copies_end, *warp.copy_groups])
            warp.copy_groups.clear()

        return wait_all
    groups = ins.read(0, "u32")

    def wait(warp: Warp, mask: Mask) -> None:
        done = len(warp.copy_groups) - int(groups(warp)[int(np.argmax(mask))])
        if done > 0:
            warp.clock = max(warp.clock, *warp.copy_groups[:done])
            del warp.copy_groups[:done]

    return wait


def _arrive(ins: Operands) -> Execute:
    """``cp.async.mbarrier.arrive``, when the copies are complete: at once.

    Without ``.noinc``, the arrival is one more than the mbarrier expects: it changes nothing.
    """
    ins.require_parts(("async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64"))
    address = ins.address(0)
    if not ins.has("noinc"):
        return lambda _warp, _mask: None

    def execute(warp: Warp, mask: Mask) -> None:
        for origin, cta, offset, lanes in threads_at(ins, warp, address(warp), mask, own=True):
            bits = sum(1 << lane for lane in lanes)
            count = len(lanes)
            warp.cta.engine.update(origin, Op.ARRIVE, cta, offset, count, bits, returns=False)
        changed(warp)

    return execute
