"""Control flow, named barriers, cluster barriers, and instructions without an effect here."""

from collections.abc import Callable

import numpy as np

from sim_tb.ptx.engine import Origin
from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import LANES, Lanes, Mask, NamedBarrier, Warp, changed
from sim_tb.ptx.operands import EXIT, Execute, Operands, instruction, shown
from sim_tb.ptx.syntax import RETURN, Call, Name, Number
from sim_tb.ptx.waits import YIELD, Wait


def _label(ins: Operands, name: str) -> int:
    target = ins.instruction.scope.label(name)
    if target is None:
        raise PtxError(f"no label {name}", ins.instruction.line)
    return target


BARRIERS = 16
"""Named barriers of a block."""


@instruction("bra", "brx")
def branch(ins: Operands) -> Execute:
    """``bra`` to a label, and ``brx.idx`` to one of a list."""
    operand = ins.operands[ins.parts[0] == "brx"]
    if not isinstance(operand, Name):
        raise PtxError(f"no label {shown(operand)}", ins.instruction.line)
    if ins.parts[0] == "bra":
        target = _label(ins, operand.text)
        return lambda _warp, _mask: target
    names = ins.instruction.scope.branch_targets(operand.text)
    if names is None:
        raise PtxError(f"no .branchtargets {operand.text}", ins.instruction.line)
    targets = np.array([_label(ins, name) for name in names], np.int64)
    index, line = ins.read(0, "u32"), ins.instruction.line

    def execute(warp: Warp, mask: Mask) -> Lanes:
        chosen = index(warp)
        wrong = mask & (chosen >= targets.size)
        if wrong.any():
            lane = int(np.argmax(wrong))
            raise PtxError(
                f"brx.idx: index {chosen[lane]} must be below {targets.size}, "
                f"{warp.thread_name(lane)}",
                line,
            )
        return targets[np.where(mask, chosen, 0)]

    return execute


@instruction("ret", "exit")
def leave(ins: Operands) -> Execute:
    """Return to the caller of a function, or end the threads: a kernel has no caller."""
    found = ins.instruction.scope.register(RETURN)
    if ins.parts[0] == "exit" or found is None:
        return lambda _warp, _mask: EXIT
    number, _ = found
    return lambda warp, _mask: warp.registers[number].astype(np.int64)


def _local(ins: Operands, name: str) -> int:
    """Return the local address of an argument or a result."""
    space, address = ins.symbols.get(name, ("", 0))
    if space != "local":
        raise ins.refuse(f"argument {name} is no .param")
    return address


@instruction("call")
def call(ins: Operands) -> Execute:
    """Call of a function of the file; the second half, behind it, takes the results.

    A function has one set of registers: it cannot call itself.
    """
    operand = ins.operands[0]
    if not isinstance(operand, Call):
        raise ins.refuse()
    function = ins.functions.get(operand.function)
    back = ins.parts[-1] == "results"
    if function is None or function.first is None:
        if back:  # the first half is refused
            return lambda _warp, _mask: None
        raise ins.refuse(f"function {operand.function} is not in the file")
    first, register = function.first, function.return_register
    given, formal = operand.arguments, function.parameters
    if back:
        given, formal = operand.results, function.results
    if len(given) != len(formal):
        raise PtxError(
            f"{function.name} has {len(formal)} parameters or results, the call {len(given)}",
            ins.instruction.line,
        )
    moves = [
        (_local(ins, name), _local(ins, each.name), each.size)
        for name, each in zip(given, formal, strict=True)
    ]

    def execute(warp: Warp, mask: Mask) -> int | None:
        for outside, inside, size in moves:
            source, target = (inside, outside) if back else (outside, inside)
            warp.local[mask, target : target + size] = warp.local[mask, source : source + size]
        if back:
            return None
        warp.registers[register] = np.where(mask, warp.pc + 1, warp.registers[register])
        return first

    return execute


@instruction("trap")
def trap(ins: Operands) -> Execute:
    """Stop the launch with an error."""
    line = ins.instruction.line

    def execute(warp: Warp, mask: Mask) -> None:
        raise PtxError(f"trap, {warp.thread_name(int(np.argmax(mask)))}", line)

    return execute


@instruction("nanosleep")
def nanosleep(_ins: Operands) -> Execute:
    """Give the other threads a turn."""
    return lambda _warp, _mask: YIELD


@instruction("setmaxnreg")
def set_registers(ins: Operands) -> Execute:
    """Check the number of registers: a thread has all that the kernel declares."""
    operand = ins.operands[0]
    if not isinstance(operand, Number) or operand.value not in range(24, 257, 8):
        raise PtxError(
            f"{ins.instruction.opcode}: {shown(operand)} must be a multiple of 8 from 24 to 256",
            ins.instruction.line,
        )
    return lambda _warp, _mask: None


@instruction("createpolicy", "griddepcontrol", "prefetchu")
def no_effect(_ins: Operands) -> Execute:
    """Do nothing: memory is consistent, grids run one after another, and there is no cache."""
    return lambda _warp, _mask: None


@instruction("fence", "membar")
def fence(ins: Operands) -> Execute:
    """Take time; one that acquires a tensor map removes it from the unit's descriptor cache."""
    if ins.has("proxy") and "tensormap::generic" in ins.parts and ins.has("acquire"):
        return _acquire_map(ins)

    def execute(warp: Warp, mask: Mask) -> None:
        costs = warp.cta.grid.costs
        warp.cta.grid.observer.fence(warp, mask)
        if not ins.has("proxy"):
            warp.clock += costs.fence_acq_rel
        elif "shared::cta" in ins.parts[-1]:
            warp.clock += costs.fence_async_shared.clocks
        elif ins.has("async"):
            warp.clock += costs.fence_async.clocks

    return execute


def _acquire_map(ins: Operands) -> Execute:
    address = ins.address(0)

    def execute(warp: Warp, mask: Mask) -> Wait:
        addresses = address(warp)
        lanes = {int(addresses[lane]): lane for lane in np.flatnonzero(mask).tolist()}
        answers = [
            warp.cta.engine.fence_tensor_map(Origin(ins.instruction, warp, lane), where)
            for where, lane in lanes.items()
        ]
        return Wait.until(answers, ins.instruction.opcode, lambda: changed(warp))

    return execute


@instruction("prefetch")
def prefetch(ins: Operands) -> Execute:
    """``prefetch.tensormap``; a prefetch of a line does nothing, because there is no cache."""
    if not ins.has("tensormap"):
        return lambda _warp, _mask: None
    address = ins.address(0)

    def execute(warp: Warp, mask: Mask) -> None:
        addresses = address(warp)
        for lane in np.flatnonzero(mask).tolist():
            origin = Origin(ins.instruction, warp, lane)
            warp.cta.engine.prefetch_tensor_map(origin, int(addresses[lane]))

    return execute


def converged(ins: Operands) -> Callable[[Warp, Mask], None]:
    """Return the check of an ``.aligned`` instruction: all live threads of the warp execute it."""
    line = ins.instruction.line
    opcode = ins.instruction.opcode

    def check(warp: Warp, mask: Mask) -> None:
        if (mask != warp.live).any():
            lane = int(np.argmax(warp.live & ~mask))
            raise PtxError(
                f"{opcode} is executed by a warp that is not converged: "
                f"{warp.thread_name(lane)} is elsewhere",
                line,
            )

    return check


def _expected(warp: Warp, barrier: NamedBarrier) -> int:
    """Return the number of threads that complete a barrier."""
    if barrier.expected is not None:
        return barrier.expected
    return LANES * sum(bool(each.live.any()) for each in warp.cta.warps)


def _arrive(warp: Warp, barrier: NamedBarrier, threads: int, expected: int | None) -> None:
    barrier.expected = expected
    barrier.arrived += threads
    barrier.cycle = max(barrier.cycle, warp.clock)
    changed(warp)
    _complete(warp, barrier)


def _complete(warp: Warp, barrier: NamedBarrier) -> None:
    """Complete the phase of a barrier if all threads have arrived."""
    if barrier.arrived and barrier.arrived >= _expected(warp, barrier):
        barrier.votes = barrier.ones, barrier.arrived
        barrier.arrived = barrier.ones = 0
        barrier.phase += 1
        barrier.meeting = None


@instruction("bar", "barrier")
def bar(ins: Operands) -> Execute:
    """``bar`` and ``barrier`` ``.sync``, ``.arrive``, ``.warp.sync``; ``barrier.cluster``."""
    if ins.has("cluster"):
        return _cluster_barrier(ins)
    if ins.has("warp"):
        return _warp_barrier(ins)
    ins.require_parts(
        ("cta", "sync", "arrive", "aligned", "red", "popc", "and", "or", "u32", "pred")
    )
    aligned = ins.parts[0] == "bar" or ins.has("aligned")
    check = converged(ins)
    first = 1 if ins.has("red") else 0
    name = ins.read(first, "u32")
    threads = ins.read(first + 1, "u32") if len(ins) - 2 * first > 1 else None
    waits = not ins.has("arrive")
    vote = ins.read(len(ins) - 1, "pred") if first else None
    give = _vote(ins) if first else None

    def execute(warp: Warp, mask: Mask) -> Wait | None:
        if aligned:
            check(warp, mask)
        lane = int(np.argmax(mask))
        number = int(name(warp)[lane])
        expected = int(threads(warp)[lane]) if threads else None
        if number >= BARRIERS or (expected or 0) % LANES:
            raise PtxError(
                f"barrier {number} of {expected or 'all'} threads: must be below {BARRIERS}, and "
                f"of a multiple of {LANES} threads",
                ins.instruction.line,
            )
        barrier = warp.cta.barriers.setdefault(number, NamedBarrier())
        whole = bool((mask == warp.live).all())
        phase = barrier.phase
        observer = warp.cta.grid.observer
        meeting = observer.arrive(warp, mask, barrier)
        if vote is not None:
            barrier.ones += int((vote(warp) & mask).sum())
        _arrive(warp, barrier, LANES if whole else int(mask.sum()), expected)
        if not waits:
            return None

        def ready() -> int | None:
            if barrier.phase == phase:
                _complete(warp, barrier)  # threads that were missing may have left the kernel
            if barrier.phase == phase:
                return None
            observer.leave(warp, mask, meeting)
            if give is not None:
                give(warp, barrier, mask)
            return barrier.cycle

        return Wait(ready, f"barrier {number}")

    return execute


def _vote(ins: Operands) -> Callable[[Warp, NamedBarrier, Mask], None]:
    """Return what writes the result of ``.red``: a count, or whether all or any are true."""
    write = ins.write(0)

    def give(warp: Warp, barrier: NamedBarrier, mask: Mask) -> None:
        ones, threads = barrier.votes
        if ins.has("popc"):
            write(warp, np.full(LANES, ones, np.uint32), mask)
        else:
            write(warp, np.full(LANES, ones == threads if ins.has("and") else ones > 0), mask)

    return give


def _warp_barrier(ins: Operands) -> Execute:
    """``bar.warp.sync``: wait until all live threads of the member mask are here."""
    members = ins.read(0, "u32")

    def execute(warp: Warp, mask: Mask) -> Wait | None:
        bits = int(members(warp)[int(np.argmax(mask))])
        wanted = (bits >> np.arange(LANES) & 1).astype(bool)
        pc = warp.pc + 1
        if not (wanted & warp.live & ~mask).any():
            return None

        done: list[int] = []

        def here() -> int | None:
            arrived = mask.copy()
            for fragment in warp.fragments:
                if fragment.pc == pc and fragment.wait is not None:
                    arrived |= fragment.mask
            if not done and not (wanted & warp.live & ~arrived).any():
                for fragment in warp.fragments:
                    if fragment.pc == pc:
                        fragment.wait = None
                done.append(warp.clock)
            return done[0] if done else None

        return Wait(here, "bar.warp.sync")

    return execute


def _cluster_barrier(ins: Operands) -> Execute:
    """``barrier.cluster.arrive`` and ``.wait``."""
    ins.require_parts(("cluster", "arrive", "wait", "aligned", "release", "acquire", "relaxed"))
    arrives = ins.has("arrive")
    check = converged(ins) if ins.has("aligned") else None

    def complete(warp: Warp) -> None:
        cluster = warp.cta.cluster
        alive = sum(int(each.live.sum()) for cta in cluster.ctas for each in cta.warps)
        if cluster.arrivals.arrived and cluster.arrivals.arrived >= alive:
            cluster.arrivals.arrived = 0
            cluster.arrivals.phase += 1
            cluster.arrivals.meeting = None

    def execute(warp: Warp, mask: Mask) -> Wait | None:
        if check:
            check(warp, mask)
        barrier, observer = warp.cta.cluster.arrivals, warp.cta.grid.observer
        changed(warp)
        if arrives:
            barrier.cycle = max(barrier.cycle, warp.clock)
            warp.cluster_phase[mask] = barrier.phase
            warp.cluster_meeting = observer.arrive(warp, mask, barrier)
            barrier.arrived += int(mask.sum())
            complete(warp)
            return None
        phase = int(warp.cluster_phase[int(np.argmax(mask))])

        def ready() -> int | None:
            if barrier.phase == phase:
                complete(warp)
            if barrier.phase == phase:
                return None
            observer.leave(warp, mask, warp.cluster_meeting)
            return barrier.cycle

        return Wait(ready, "barrier.cluster")

    return execute
