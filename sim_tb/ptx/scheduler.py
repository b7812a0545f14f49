"""Scheduler: runs the warps of a cluster in turn, and the fragments of a diverged warp.

A warp runs the fragment with the lowest program counter, and fragments that meet at an instruction
become one again: compilers lay out code so that this is at the immediate post-dominator. A fragment
that waits or has polled without success leaves its turn to the others of its warp, so that threads
of a warp may wait for each other. An ``.aligned`` instruction waits for all live threads of its
warp.
"""

from dataclasses import dataclass

from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import Cta, Fragment, Grid, Mask, Wait, Warp, Yield
from sim_tb.ptx.operands import EXIT, Execute

_IDLE_ROUNDS = 256
"""Rounds in which all threads poll without any event, after which the launch is a deadlock."""

_TURN = 100_000
"""Instructions of a warp after which the others get a turn."""


@dataclass(frozen=True)
class Step:
    """A compiled instruction.

    Parameters
    ----------
    guard : int or None
        Number of its predicate register.
    negated : bool
        Whether it executes where the predicate is false.
    execute : callable
        Its execution.
    aligned : bool
        Whether it waits until all live threads of the warp are there.
    """

    guard: int | None
    negated: bool
    execute: Execute
    aligned: bool


def run(grid: Grid, steps: list[Step], ctas: list[Cta]) -> None:
    """Run the blocks of a cluster until all threads have left the kernel.

    Raises
    ------
    PtxError
        If threads wait for each other forever: the lines at which they wait.
    """
    warps = [warp for cta in ctas for warp in cta.warps]
    idle = 0
    while warps:
        events, moved = grid.events, False
        for warp in warps:
            moved |= _turn(grid, steps, warp)
        warps = [warp for warp in warps if warp.fragments]
        idle = 0 if grid.events != events else idle + 1
        if warps and (not moved or idle > _IDLE_ROUNDS):
            raise _deadlock(grid, warps)


def _deadlock(grid: Grid, warps: list[Warp]) -> PtxError:
    """Return the error of threads that wait forever."""
    places: dict[tuple[int, str], int] = {}
    for warp in warps:
        for fragment in warp.fragments:
            reason = fragment.wait.reason if fragment.wait else "polling"
            line = grid.lines[min(fragment.pc, len(grid.lines) - 1)]
            places[line, reason] = places.get((line, reason), 0) + int(fragment.mask.sum())
    text = "; ".join(
        f"{count} threads before line {line}: {reason}"
        for (line, reason), count in sorted(places.items())
    )
    return PtxError(f"deadlock: {text}")


def _merged(warp: Warp) -> None:
    """Join fragments that are at the same instruction."""
    places: dict[int, Fragment] = {}
    fragments = []
    for fragment in warp.fragments:
        other = None if fragment.wait else places.get(fragment.pc)
        if other is None:
            fragments.append(fragment)
            if not fragment.wait:
                places[fragment.pc] = fragment
        else:
            other.mask = other.mask | fragment.mask
            other.yielded = other.yielded and fragment.yielded
    warp.fragments = fragments


def _turn(grid: Grid, steps: list[Step], warp: Warp) -> bool:
    """Run a warp until its fragments wait, have polled or are gone; return whether one ran."""
    moved, left = False, _TURN
    for fragment in warp.fragments:
        fragment.yielded = False
    while True:
        for fragment in warp.fragments:
            if fragment.wait and fragment.wait.ready():
                fragment.wait = None
        if len(warp.fragments) > 1:
            _merged(warp)
        ready = [f for f in warp.fragments if not f.wait and not f.yielded]
        if not ready or left <= 0:
            return moved
        moved = True
        fragment = min(ready, key=lambda f: f.pc)
        left -= _advance(grid, steps, warp, fragment)


def _advance(grid: Grid, steps: list[Step], warp: Warp, fragment: Fragment) -> int:
    """Run a fragment until it branches, waits, polls, ends or meets another; return the count."""
    others = [f.pc for f in warp.fragments if f is not fragment and f.pc > fragment.pc]
    stop = min(others, default=len(steps) + 1)
    pc, start = fragment.pc, fragment.pc
    count = 0
    while pc < stop and count < _TURN:
        if pc >= len(steps):
            _finish(warp, fragment, fragment.mask)
            break
        step = steps[pc]
        if step.aligned and (fragment.mask != warp.live).any():
            fragment.pc, fragment.yielded = pc, True
            break
        count += 1
        mask = fragment.mask
        if step.guard is not None:
            predicate = warp.registers[step.guard]
            mask = mask & (~predicate if step.negated else predicate)
            if not mask.any():
                pc += 1
                continue
        warp.pc = pc
        result = step.execute(warp, mask)
        if result is None:
            pc += 1
            continue
        fragment.pc = pc + 1
        if isinstance(result, Yield):
            fragment.yielded = True
        elif isinstance(result, Wait):
            fragment.wait = result
        elif result == EXIT:
            _finish(warp, fragment, mask)
        else:
            _branch(warp, fragment, mask, result)
        break
    else:
        fragment.pc = pc
    grid.instructions += count
    return max(count, pc - start, 1)


def _finish(warp: Warp, fragment: Fragment, mask: Mask) -> None:
    """End threads of a fragment."""
    warp.live = warp.live & ~mask
    fragment.mask = fragment.mask & ~mask
    warp.cta.grid.events += 1
    if not fragment.mask.any():
        warp.fragments.remove(fragment)


def _branch(warp: Warp, fragment: Fragment, mask: Mask, target: int) -> None:
    """Send threads of a fragment to another instruction."""
    rest = fragment.mask & ~mask
    if rest.any():
        warp.fragments.append(Fragment(target, mask))
        fragment.mask = rest
    else:
        fragment.pc = target
