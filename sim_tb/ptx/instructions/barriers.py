"""``mbarrier`` instructions. Threads of a warp at the same mbarrier are one operation (silicon)."""

import numpy as np

from golden import mbarrier
from golden.mbarrier import Op
from sim_tb.ptx.engine import TIME_LIMIT, Origin
from sim_tb.ptx.machine import LANES, RANK_SHIFT, SHARED_WINDOW, Lanes, Mask, Warp, changed
from sim_tb.ptx.operands import Execute, Operands, instruction
from sim_tb.ptx.waits import Answer, Wait

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


def threads_at(
    ins: Operands, warp: Warp, addresses: Lanes, mask: Mask, *, own: bool
) -> list[tuple[Origin, int, int, list[int]]]:
    """Return origin, rank, offset and lanes of each mbarrier that the threads of a mask address.

    Raises
    ------
    PtxError
        If ``own`` and the mbarrier is in another block.
    """
    places: dict[tuple[int, int], list[int]] = {}
    for lane in np.flatnonzero(mask).tolist():
        places.setdefault(shared_place(int(addresses[lane])), []).append(lane)
    made = []
    for (rank, offset), lanes in places.items():
        origin = Origin(ins.instruction, warp, lanes[0])
        if own and rank != warp.cta.rank:
            raise origin.error(f"the mbarrier is that of block {rank} of the cluster: must be own")
        made.append((origin, rank, offset, lanes))
    return made


@instruction("mbarrier")
def operation_of_mbarrier(ins: Operands) -> Execute:
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
    state = ins.write(0) if first and ins.is_used(0) else None
    address = ins.address(first)
    count = ins.read(first + 1, "u32") if len(ins) > first + 1 else None

    def execute(warp: Warp, mask: Mask) -> Wait | None:
        counts = count(warp) if count else np.ones(LANES, np.uint32)
        answers: list[tuple[Answer, list[int]]] = []
        for origin, cta, offset, lanes in threads_at(ins, warp, address(warp), mask, own=False):
            total = int(counts[lanes].sum())
            bits = sum(1 << lane for lane in lanes)
            answer = warp.cta.engine.update(
                origin, operation, cta, offset, total, bits, returns=state is not None
            )
            answers.append((answer, lanes))
        changed(warp)
        if state is None:
            return None

        def finish() -> None:
            states = np.zeros(LANES, np.uint64)
            for answer, lanes in answers:
                states[lanes] = answer.value
                if operation.no_complete:
                    states[lanes] = _merged_states(answer.value, lanes, counts)
            state(warp, states, mask)

        return Wait.until([answer for answer, _ in answers], ins.instruction.opcode, finish)

    return execute


def _merged_states(word: int, lanes: list[int], counts: Lanes) -> list[int]:
    """Return the state that each thread of a ``noComplete`` arrival gets."""
    mask, earlier, states = sum(1 << lane for lane in lanes), 0, []
    for lane in lanes:
        states.append(mbarrier.returned_state(word, merged=mask, earlier=earlier))
        earlier += int(counts[lane])
    return states


def _initialise(ins: Operands, name: str) -> Execute:
    ins.require_parts((*_QUALIFIERS, name))
    address = ins.address(0)
    count = ins.read(1, "u32") if name == "init" else None

    def execute(warp: Warp, mask: Mask) -> None:
        counts = count(warp) if count else None
        for origin, _, offset, lanes in threads_at(ins, warp, address(warp), mask, own=True):
            expected = None if counts is None else int(counts[lanes[0]])
            warp.cta.engine.initialise(origin, offset, expected)
        changed(warp)

    return execute


def _wait(ins: Operands) -> Execute:
    """``test_wait`` and ``try_wait``; one that fails gives other threads a turn."""
    ins.require_parts((*_QUALIFIERS, "try_wait", "test_wait", "parity"))
    write, address = ins.write(0), ins.address(1)
    by_parity = ins.has("parity")
    state = ins.read(2, "u32" if by_parity else "u64")
    time_limit = 0 if ins.has("test_wait") else TIME_LIMIT

    def execute(warp: Warp, mask: Mask) -> Wait:
        states = state(warp)
        answers: list[tuple[Answer, list[int]]] = []
        for _, _, offset, lanes in threads_at(ins, warp, address(warp), mask, own=True):
            for phase in dict.fromkeys(states[lanes].tolist()):
                threads = [lane for lane in lanes if states[lane] == phase]
                answer = warp.cta.engine.test(
                    Origin(ins.instruction, warp, threads[0]),
                    offset,
                    phase & 1 if by_parity else phase,
                    by_state=not by_parity,
                    time_limit=time_limit,
                )
                answers.append((answer, threads))

        def finish() -> None:
            done = np.zeros(LANES, bool)
            for answer, threads in answers:
                done[threads] = answer.value != 0
            warp.cta.grid.polls += not done[mask].all()
            write(warp, done, mask)

        reason = f"{ins.instruction.opcode} at {offset:#x}"
        smem = warp.cta.cluster.rows[warp.cta.rank]
        return Wait.until(
            [answer for answer, _ in answers], reason, finish, lambda: _state(smem, offset)
        )

    return execute


def _state(smem: "np.ndarray[tuple[int], np.dtype[np.uint8]]", offset: int) -> str:
    """Return the state of an mbarrier in words."""
    word = mbarrier.Barrier.decode(int(smem[offset : offset + 8].view(np.uint64)[0]))
    return (
        f"phase {word.phase}, {word.pending} of {word.expected} arrivals pending, tx-count "
        f"{word.tx_count}"
    )


def _pending_count(ins: Operands) -> Execute:
    write, read = ins.write(0), ins.read(1, "u64")

    def execute(warp: Warp, mask: Mask) -> None:
        counts = [
            mbarrier.pending_count(int(state)) if on else 0
            for state, on in zip(read(warp), mask, strict=True)
        ]
        write(warp, np.array(counts, np.uint32), mask)

    return execute
