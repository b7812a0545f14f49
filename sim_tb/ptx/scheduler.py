"""Scheduler: runs the warps of blocks in the order of their clocks, each on its quarter of the SM.

An instruction takes an issue slot of its quarter's warp scheduler. It begins when the registers
that it names are there. Warps run ahead of each other by at most `QUANTUM` clocks.

A warp runs the fragment whose basic block comes first (``control_flow``), and fragments that meet
at an instruction become one again: at the immediate post-dominator at the latest. A fragment that
waits or has polled without success leaves its turn to the others of its warp, and so does one that
has executed `SPIN` instructions, so that threads of a warp may wait for each other. An ``.aligned``
instruction waits for all live threads of its warp.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.machine import Fragment, Grid, Mask, Warp
from sim_tb.ptx.operands import EXIT, Execute
from sim_tb.ptx.waits import Wait, Yield
from sim_tb.sm.pipes import MUFU_PER_CLOCK, SCHEDULERS

QUANTUM = 32
"""Clocks by which a warp may run ahead of another one that could run."""

SPIN = 2048
"""Instructions after which a fragment leaves its turn to others of its warp."""

POLL = 20
"""Clocks after which a fragment that has polled without success goes on."""

MOST_POLLS = 20_000
"""Polls without success and without any event, after which the threads are in a deadlock."""

_MUFU_CLOCKS = 32 * SCHEDULERS // MUFU_PER_CLOCK
"""Clocks for which a warp uses the special-function unit of its quarter."""


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
    registers : tuple of int
        Numbers of the registers that it names.
    results : tuple of int
        Those of its destination.
    is_special : bool
        Whether the special-function unit executes it.
    """

    guard: int | None
    negated: bool
    execute: Execute
    aligned: bool
    registers: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    is_special: bool = False


class Scheduler:
    """Warps of the blocks that run at the same time.

    Parameters
    ----------
    grid : Grid
    steps : list of Step
        The kernel.
    ranks, block_ends : list of int
        Rank and end of the basic block of each instruction (`control_flow.block_order`).

    Attributes
    ----------
    warps : list of Warp
        Warps with threads that have not left the kernel.
    """

    def __init__(
        self, grid: Grid, steps: list[Step], ranks: list[int], block_ends: list[int]
    ) -> None:
        self._grid = grid
        self._steps = steps
        self._ranks = ranks
        self._block_ends = block_ends
        self.warps: list[Warp] = []
        self._last_events = 0

    def add(self, warps: Iterable[Warp]) -> None:
        """Add the warps of a block that starts."""
        self.warps.extend(warps)

    def run(self, until: int | None = None) -> int | None:
        """Run all warps up to clock ``until``, or as far as they can.

        Returns
        -------
        int or None
            Clock in which a warp can go on, not before ``until``. None: all warps wait, or have
            ended.

        Raises
        ------
        PtxError
            If a thread makes a mistake, or all threads only poll.
        """
        grid = self._grid
        while True:
            if grid.stirred:
                grid.stirred = False
                for warp in self.warps:
                    self._end_waits(warp)
            if grid.events != self._last_events:
                self._last_events, grid.polls = grid.events, 0
            elif grid.polls > MOST_POLLS:
                raise self.deadlock()
            first, second, chosen = None, None, None
            for warp in self.warps:
                at = warp.at
                if at is None:
                    continue
                if first is None or at < first:
                    first, second, chosen = at, first, warp
                elif second is None or at < second:
                    second = at
            if chosen is None or first is None:
                return None
            grid.now = first
            if until is not None and first >= until:
                return first
            limit = first + SPIN if second is None else second + QUANTUM
            self._turn(chosen, limit if until is None else min(limit, until))
            if not chosen.fragments:
                self.warps.remove(chosen)

    def deadlock(self) -> PtxError:
        """Return the error of threads that wait forever."""
        lines = self._grid.lines
        places: dict[tuple[int, str], int] = {}
        for warp in self.warps:
            for fragment in warp.fragments:
                reason = "polling"
                if fragment.wait:
                    state = fragment.wait.state()
                    reason = fragment.wait.reason + (f" ({state})" if state else "")
                if fragment.waits_for_warp:
                    reason = "for the other threads of the warp"
                line = lines[min(fragment.pc, len(lines) - 1)]
                places[line, reason] = places.get((line, reason), 0) + int(fragment.mask.sum())
        text = "; ".join(
            f"{count} threads before line {line}: {reason}"
            for (line, reason), count in sorted(places.items())
        )
        return PtxError(f"deadlock: {text}")

    def _end_waits(self, warp: Warp) -> None:
        """Let the fragments go on whose waits are over."""
        for fragment in warp.fragments:
            if fragment.wait is not None:
                cycle = fragment.wait.ready()
                if cycle is not None:
                    fragment.wait = None
                    fragment.cycle = cycle
        self._place(warp)

    @staticmethod
    def _place(warp: Warp) -> None:
        """Note when the warp can execute its next instruction."""
        cycles = [f.cycle for f in warp.fragments if f.wait is None and not f.waits_for_warp]
        warp.at = max(warp.clock, min(cycles)) if cycles else None

    def _turn(self, warp: Warp, limit: int) -> None:
        """Run a warp until its clock is ``limit``, or all its fragments wait or are gone."""
        while True:
            if len(warp.fragments) > 1:
                _merge(warp)
            ready = [f for f in warp.fragments if f.wait is None and not f.waits_for_warp]
            if not ready:
                break
            start = max(warp.clock, min(f.cycle for f in ready))
            if self._grid.keeps_spans and start > warp.clock:
                self._waited(warp, ready, start)
            warp.clock = start
            if start >= limit:
                break
            now = [f for f in ready if f.cycle <= start]
            self._advance(warp, min(now, key=self._turn_of), limit)
        self._place(warp)

    def _turn_of(self, fragment: Fragment) -> tuple[int, int, int]:
        """Return the key by which fragments of a warp take turns: the least is next."""
        return fragment.executed // SPIN, self._ranks[fragment.pc], fragment.pc

    def _waited(self, warp: Warp, ready: list[Fragment], start: int) -> None:
        """Record that a warp has waited until clock ``start``."""
        first = min(ready, key=lambda f: f.cycle)
        line = self._grid.lines[max(first.pc - 1, 0)]
        kind = "mma" if first.reason == "mma" else "wait"
        warp.cta.activity.add_span(warp, f"{kind} line {line}", warp.clock, start)

    def _advance(self, warp: Warp, fragment: Fragment, limit: int) -> None:
        """Run a fragment until it branches, waits, polls, ends or meets another, or to a clock."""
        steps, core, pending = self._steps, warp.core, warp.pending
        observer = self._grid.observer if self._grid.observer.is_active else None
        stop = len(steps) + 1
        if len(warp.fragments) > 1:
            others = [f.pc for f in warp.fragments if f is not fragment and f.pc > fragment.pc]
            stop = min(self._block_ends[fragment.pc], *others, stop)
        pc, count = fragment.pc, 0
        first, begin = pc, warp.clock
        while pc < stop:
            if pc >= len(steps):
                self._finish(warp, fragment, fragment.mask)
                break
            step = steps[pc]
            if step.aligned and len(warp.fragments) > 1:
                fragment.pc = pc
                if _waits_for_others(self._grid, warp, fragment):
                    break
            clock = max(warp.clock, core.scheduler)
            if pending:
                for register in step.registers:
                    clock = max(clock, pending.pop(register, 0))
            if step.is_special:
                clock = max(clock, core.mufu)
            warp.clock = clock
            if clock >= limit:
                break
            core.scheduler = clock + 1
            count += 1
            mask = fragment.mask
            if step.guard is not None:
                predicate = warp.registers[step.guard]
                mask = mask & (~predicate if step.negated else predicate)
                if not mask.any():
                    pc += 1
                    warp.clock = clock + 1
                    continue
            warp.pc = pc
            if observer is not None:
                observer.executes(warp, pc)
            if step.is_special:
                core.mufu = clock + _MUFU_CLOCKS
                warp.latency = _MUFU_CLOCKS
            result = step.execute(warp, mask)
            if warp.latency:
                for register in step.results:
                    pending[register] = clock + warp.latency
                warp.latency = 0
            warp.clock += 1
            pc += 1
            if result is None:
                continue
            if isinstance(result, Yield):
                fragment.cycle = warp.clock + POLL
                self._grid.polls += 1
            elif isinstance(result, Wait):
                fragment.pc = pc  # for waits that look at the fragments of their warp
                cycle = result.ready()
                if cycle is not None and cycle <= warp.clock:
                    continue
                fragment.reason = result.reason
                fragment.wait, fragment.cycle = (result, 0) if cycle is None else (None, cycle)
            elif not isinstance(result, int):
                fragment.pc = pc
                for target in np.unique(result[mask]).tolist():
                    self._branch(warp, fragment, mask & (result == target), target)
                pc = fragment.pc
            elif result == EXIT:
                self._finish(warp, fragment, mask)
            else:
                fragment.pc = pc
                self._branch(warp, fragment, mask, result)
                pc = fragment.pc
            break
        fragment.pc = pc
        fragment.executed += count
        if self._grid.keeps_spans:
            line = self._grid.blocks[min(first, len(steps) - 1)]
            warp.cta.activity.add_span(warp, f"issue from line {line}", begin, warp.clock)
        self._grid.instructions += count

    def _finish(self, warp: Warp, fragment: Fragment, mask: Mask) -> None:
        """End threads of a fragment."""
        warp.live = warp.live & ~mask
        fragment.mask = fragment.mask & ~mask
        self._grid.events += 1
        self._grid.stirred = True
        if not fragment.mask.any():
            warp.fragments.remove(fragment)
        if not warp.fragments:
            self._grid.observer.exits(warp)
        for other in warp.fragments:
            other.waits_for_warp = False

    @staticmethod
    def _branch(warp: Warp, fragment: Fragment, mask: Mask, target: int) -> None:
        """Send threads of a fragment to another instruction."""
        rest = fragment.mask & ~mask
        if rest.any():
            warp.fragments.append(Fragment(target, mask, None, warp.clock, fragment.executed))
            fragment.mask = rest
        else:
            fragment.pc = target


def _merge(warp: Warp) -> None:
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
            other.cycle = max(other.cycle, fragment.cycle)
            other.executed = max(other.executed, fragment.executed)
            other.waits_for_warp = False
    warp.fragments = fragments


def _waits_for_others(grid: Grid, warp: Warp, fragment: Fragment) -> bool:
    """Let a fragment at an ``.aligned`` instruction wait, unless it is the whole warp.

    Raises
    ------
    PtxError
        If all other fragments wait at other ``.aligned`` instructions.
    """
    missing = warp.live & ~fragment.mask
    fragment.waits_for_warp = bool(missing.any())
    fragments = warp.fragments
    if all(f.waits_for_warp for f in fragments) and len({f.pc for f in fragments}) > 1:
        lane = int(missing.argmax())
        other = next(f for f in fragments if f.mask[lane])
        raise PtxError(
            "an .aligned instruction is executed by a warp that is not converged: "
            f"{warp.thread_name(lane)} is at line {grid.lines[other.pc]}",
            grid.lines[fragment.pc],
        )
    return fragment.waits_for_warp
