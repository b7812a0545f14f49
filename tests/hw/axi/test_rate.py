"""Rate of the AXI4 ports with a memory that answers late: nearly a beat a clock, at any width."""

from collections import deque
from dataclasses import replace

import pytest

from hw.axi.read_port import ReadPort
from hw.axi.write_port import WritePort
from hw.layouts.axi import Response
from hw.params import TmaParams
from tests.hw.axi.test_read_port import params_of
from tests.hw.simulate import Run, run_streams, simulation

LATENCY = 400
"""Clocks from an address, or from the last beat of a write, to the first answer."""

CLOCKS = 1500
"""Clocks that are measured, behind those in which the first answers come."""

LEAST = 0.97
"""Least share of the clocks with a beat."""

LINE_BYTES = 128
PLACES = {64: 64, 128: 128, 512: 256, 1024: 512}
"""Tags, by the width of the port: more than the lines that a port moves in ``LATENCY``."""


def params_for(bits: int) -> TmaParams:
    params = replace(params_of(LINE_BYTES, bits), tags=PLACES[bits])
    beats = max(1, LINE_BYTES * 8 // bits)
    assert params.tags > LATENCY // beats
    return params


class Memory:
    """Answers in order, each ``LATENCY`` clocks after it was asked, a beat a clock at most."""

    def __init__(self, tags: int, last_of: str) -> None:
        self.free = deque(range(tags))
        self.waiting: deque[tuple[int, int]] = deque()  # clock and id of each answer
        self.seen = {last_of: 0, "answers": 0}
        self.last_of = last_of
        self.line = 0

    def take(self, run: Run, cycle: int, ids) -> None:
        """Take what was asked for."""
        for payload in run.payloads[self.last_of][self.seen[self.last_of] :]:
            self.seen[self.last_of] += 1
            for number in ids(payload):
                self.waiting.append((cycle + LATENCY, number))

    def due(self, cycle: int) -> list[int]:
        """Return the id of the answer of this clock, if there is one."""
        if self.waiting and self.waiting[0][0] <= cycle:
            return [self.waiting.popleft()[1]]
        return []

    def lines(self, run: Run, port: str) -> list[dict]:
        """Return a request for a line with each tag that is free."""
        answers = run.payloads[port][self.seen["answers"] :]
        self.seen["answers"] += len(answers)
        self.free += [answer.tag for answer in answers]
        found = []
        while self.free:
            self.line += 1
            found.append({"line": self.line, "tag": self.free.popleft()})
        return found


def share(clocks: list[int]) -> float:
    """Return the share of the clocks, behind the first of ``clocks``, that are in the list."""
    return sum(clocks[0] <= clock < clocks[0] + CLOCKS for clock in clocks) / CLOCKS


@pytest.mark.parametrize("bits", PLACES)
def test_reads(bits: int) -> None:
    params = params_for(bits)
    memory = Memory(params.tags, "ar")

    def feed(run: Run, cycle: int) -> dict[str, list]:
        memory.take(run, cycle, lambda ar: [ar.id] * (ar.len + 1))
        beats = [{"id": n, "data": 0, "resp": Response.OKAY, "last": 0} for n in memory.due(cycle)]
        return {"r": beats, "gnic_request": memory.lines(run, "gnic_response")}

    inputs: dict[str, list] = {"r": [], "gnic_request": []}
    run = run_streams(
        simulation(ReadPort, params), inputs, ["ar", "gnic_response"], feed=feed, stall=0.0,
        quiet=2 * LATENCY,
        until=lambda run: run.taken["r"] and run.taken["r"][-1] > run.taken["r"][0] + CLOCKS,
    )  # fmt: skip
    assert share(run.taken["r"]) >= LEAST, share(run.taken["r"])


@pytest.mark.parametrize("bits", PLACES)
def test_writes(bits: int) -> None:
    params = params_for(bits)
    memory = Memory(params.tags, "w")

    def feed(run: Run, cycle: int) -> dict[str, list]:
        begun = iter(run.payloads["aw"][memory.seen["aw"] :])

        def ids(beat) -> list[int]:
            memory.seen["aw"] += beat.last
            return [next(begun).id] if beat.last else []

        memory.take(run, cycle, ids)
        found = [{"id": n, "resp": Response.OKAY} for n in memory.due(cycle)]
        return {"b": found, "gnic_write": memory.lines(run, "gnic_ack")}

    memory.seen["aw"] = 0
    inputs: dict[str, list] = {"b": [], "gnic_write": []}
    run = run_streams(
        simulation(WritePort, params), inputs, ["aw", "w", "gnic_ack"], feed=feed, stall=0.0,
        quiet=2 * LATENCY,
        until=lambda run: run.cycles["w"] and run.cycles["w"][-1] > run.cycles["w"][0] + 2 * CLOCKS,
    )  # fmt: skip
    behind = [clock for clock in run.cycles["w"] if clock >= run.cycles["gnic_ack"][0]]
    assert share(behind) >= LEAST
