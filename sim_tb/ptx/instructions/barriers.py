"""``mbarrier`` instructions: those of the golden model, thread after thread."""

import numpy as np

from golden import TmaError
from golden.mbarrier import Op
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import LANES, RANK_SHIFT, SHARED_WINDOW, YIELD, Mask, Warp, Yield
from sim_tb.ptx.operands import Execute, Operands, instruction
from sim_tb.ptx.parser import Name

_QUALIFIERS = (
    *("shared", "shared::cta", "shared::cluster", "b64", "cta", "cluster"),
    *("release", "acquire", "relaxed"),
)

_OPERATIONS = {
    ("arrive", False, False): Op.ARRIVE,
    ("arrive", True, False): Op.ARRIVE_EXPECT_TX,
    ("arrive_drop", False, False): Op.ARRIVE_DROP,
    ("arrive_drop", True, False): Op.ARRIVE_DROP_EXPECT_TX,
    ("arrive", False, True): Op.ARRIVE_NO_COMPLETE,
    ("arrive_drop", False, True): Op.ARRIVE_DROP_NO_COMPLETE,
    ("expect_tx", False, False): Op.EXPECT_TX,
    ("complete_tx", False, False): Op.COMPLETE_TX,
}


def shared_place(address: int) -> tuple[int, int]:
    """Return rank and offset of a shared or generic address."""
    if address >= SHARED_WINDOW:
        address -= SHARED_WINDOW
    return address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)


def mistake(ins: Operands, warp: Warp, lane: int, error: TmaError) -> PtxError:
    """Return the error of a thread whose request or mbarrier operation the unit refuses."""
    text = f"{ins.instruction.opcode}: {error}, {warp.thread_name(lane)}"
    return PtxError(text, ins.instruction.line)


@instruction("mbarrier")
def mbarrier(ins: Operands) -> Execute:
    """All operations of an mbarrier of layout v0."""
    name = ins.parts[1]
    if name == "pending_count":
        return _pending_count(ins)
    if name in ("try_wait", "test_wait"):
        return _wait(ins)
    if name in ("init", "inval"):
        return _initialise(ins, name)
    ins.require_parts((*_QUALIFIERS, name, "expect_tx", "noComplete"))
    key = (name, name != "expect_tx" and ins.has("expect_tx"), ins.has("noComplete"))
    if key not in _OPERATIONS:
        raise ins.refuse()
    operation = _OPERATIONS[key]
    first = 0 if name in ("expect_tx", "complete_tx") else 1
    state = ins.write(0) if first and ins.operands[0] != Name("_") else None
    address = ins.address(first)
    count = ins.read(first + 1, "u32") if len(ins) > first + 1 else None

    def execute(warp: Warp, mask: Mask) -> None:
        unit, rank = warp.cta.cluster.unit, warp.cta.rank
        addresses = address(warp)
        counts = count(warp) if count else np.ones(LANES, np.uint32)
        states = np.zeros(LANES, np.uint64)
        for lane in np.flatnonzero(mask).tolist():
            cta, offset = shared_place(int(addresses[lane]))
            try:
                states[lane] = unit.mbarrier_update(
                    operation, offset, int(counts[lane]), cta=cta, issuer=rank
                )
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
        warp.cta.grid.events += 1
        if state is not None:
            state(warp, states, mask)

    return execute


def _initialise(ins: Operands, name: str) -> Execute:
    ins.require_parts((*_QUALIFIERS, name))
    address = ins.address(0)
    count = ins.read(1, "u32") if name == "init" else None

    def execute(warp: Warp, mask: Mask) -> None:
        unit, addresses = warp.cta.cluster.unit, address(warp)
        for lane in np.flatnonzero(mask).tolist():
            cta, offset = shared_place(int(addresses[lane]))
            try:
                if count is None:
                    unit.mbarrier_inval(offset, cta=cta)
                else:
                    unit.mbarrier_init(offset, int(count(warp)[lane]), cta=cta)
            except TmaError as error:
                raise mistake(ins, warp, lane, error) from None
        warp.cta.grid.events += 1

    return execute


def _wait(ins: Operands) -> Execute:
    """``test_wait`` and ``try_wait``; one that fails gives other threads a turn."""
    ins.require_parts((*_QUALIFIERS, "try_wait", "test_wait", "parity"))
    write, address = ins.write(0), ins.address(1)
    by_parity = ins.has("parity")
    state = ins.read(2, "u32" if by_parity else "u64")

    def execute(warp: Warp, mask: Mask) -> Yield | None:
        unit, addresses, states = warp.cta.cluster.unit, address(warp), state(warp)
        test = unit.mbarrier_test_wait_parity if by_parity else unit.mbarrier_test_wait
        done = np.zeros(LANES, bool)
        known: dict[tuple[int, int], bool] = {}
        for lane in np.flatnonzero(mask).tolist():
            key = int(addresses[lane]), int(states[lane])
            if key not in known:
                cta, offset = shared_place(key[0])
                try:
                    known[key] = test(offset, key[1], cta=cta)
                except TmaError as error:
                    raise mistake(ins, warp, lane, error) from None
            done[lane] = known[key]
        write(warp, done, mask)
        return None if done[mask].all() else YIELD

    return execute


def _pending_count(ins: Operands) -> Execute:
    write, read = ins.write(0), ins.read(1, "u64")

    def execute(warp: Warp, mask: Mask) -> None:
        count = warp.cta.cluster.unit.mbarrier_pending_count
        counts = [
            count(int(state)) if on else 0 for state, on in zip(read(warp), mask, strict=True)
        ]
        write(warp, np.array(counts, np.uint32), mask)

    return execute
