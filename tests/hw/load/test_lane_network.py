"""Lane network: every piece at its swizzled address, counted once, never before it is written."""

import random

import pytest

from hw.load.lane_network import FILL_LEAD, LaneNetwork
from hw.params import TmaParams
from tests.hw.simulate import simulation
from tests.quick import quick

SWIZZLE_MASK = (0, 1, 3, 7)


def swizzled(piece: int, swizzle: int) -> int:
    """Return a piece address after the swizzle of shared memory."""
    return piece ^ (piece >> 3 & SWIZZLE_MASK[swizzle])


class Driver:
    """Random lines and fill enter the network; a shared memory is behind it.

    ``stall`` is the share of clocks in which nothing is offered or taken, ``busy`` that of shared
    memory, if it is another one.
    """

    def __init__(
        self,
        params: TmaParams,
        seed: int,
        lines: list[dict],
        fills: list[dict],
        stall: float,
        busy: float | None = None,
    ):
        busy = stall if busy is None else busy
        self.params = params
        self.memory: dict[int, int] = {}
        self.landed: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.reports: dict[str, dict[int, list[int]]] = {"written": {}, "filled": {}}
        self.cycles = 0
        rng = random.Random(seed)
        sim = simulation(LaneNetwork, params)
        dut = sim.dut
        total = sum(line["pieces"] for line in lines) + sum(
            beat["valid"].bit_count() for beat in fills
        )
        filled = {
            swizzled(beat["beat"] * params.lanes + lane, beat["style"]["swizzle"])
            for beat in fills
            for lane in range(params.lanes)
            if beat["valid"] >> lane & 1
        }
        never_written = sum(line["pieces"] - line["valid"].bit_count() for line in lines)

        async def drive(ctx):
            queues = {"line": list(lines), "fill": list(fills)}
            landed = {"written": 0, "filled": 0}
            reported = {"written": 0, "filled": 0}
            held = {}
            ends = sum(beat["last"] for beat in fills)
            while (
                sum(reported.values()) < total
                or sum(map(len, self.reports["filled"].values())) < ends
            ):
                for name, queue in queues.items():
                    port = getattr(dut, name)
                    if not ctx.get(port.valid) and queue and rng.random() >= stall:
                        ctx.set(port.p, queue[0])
                        ctx.set(port.valid, 1)
                ctx.set(dut.smem_write.ready, rng.random() >= busy)
                for name in reported:
                    ctx.set(getattr(dut, name).ready, rng.random() >= stall / 2)
                taken = []
                for name, queue in queues.items():
                    port = getattr(dut, name)
                    if ctx.get(port.valid) and ctx.get(port.ready):
                        queue.pop(0)
                        taken.append(port)
                for name, never in ("written", never_written), ("filled", 0):
                    port = getattr(dut, name)
                    if name in held:
                        assert ctx.get(port.valid), f"{name}: withdrew what it offered"
                        assert ctx.get(port.p) == held.pop(name), f"{name}: changed its offer"
                    if not ctx.get(port.valid):
                        continue
                    report = ctx.get(port.p)
                    if not ctx.get(port.ready):
                        held[name] = report
                        continue
                    self.reports[name].setdefault(report.slot, []).append(report.pieces)
                    self.written[report.slot] = self.written.get(report.slot, 0) + report.pieces
                    reported[name] += report.pieces
                    assert reported[name] <= landed[name] + never, "counted before it was written"
                if ctx.get(dut.smem_write.valid) and ctx.get(dut.smem_write.ready):
                    beat = ctx.get(dut.smem_write.p)
                    for lane in range(params.lanes):
                        if beat[lane].valid:
                            address = beat[lane].beat * params.lanes + lane
                            assert address not in self.memory, "written twice"
                            self.memory[address] = beat[lane].data
                            self.landed[address] = self.cycles
                            landed["filled" if address in filled else "written"] += 1
                await ctx.tick()
                for port in taken:
                    ctx.set(port.valid, 0)
                self.cycles += 1
                assert self.cycles < 20000, "stuck"

        sim.run(drive)


def run_of_lines(
    params: TmaParams, rng: random.Random, first: int, count: int, swizzle: int, slot: int
) -> tuple[list[dict], dict[int, int]]:
    """Return the lines of one run to the pieces from ``first`` on, and the memory afterwards."""
    lanes = params.lanes
    lines, memory = [], {}
    for number in range(count):
        origin = first + number * lanes
        data = [0] * lanes
        for lane in range(lanes):
            value = rng.getrandbits(128)
            data[(origin + lane) % lanes] = value
            memory[swizzled(origin + lane, swizzle)] = value
        lines.append(
            {
                "slot": slot,
                "style": {"swizzle": swizzle, "fill": 0, "round_tf32": 0},
                "beat": origin // lanes,
                "next_beat": origin // lanes + 1,
                "boundary": origin % lanes,
                "pieces": lanes,
                "valid": (1 << lanes) - 1,
                "data": data,
            }
        )
    return lines, memory


@pytest.mark.parametrize("line_bytes", [16, 32, 64, 128])
@pytest.mark.parametrize("swizzle", range(4))
def test_lands_at_the_swizzled_address(line_bytes, swizzle):
    """Each piece does."""
    depth = 4 if line_bytes == 16 else 16
    params = TmaParams(line_bytes=line_bytes, lane_depth=depth)
    rng = random.Random(swizzle)
    lanes = params.lanes
    lines, memory = run_of_lines(params, rng, 5, 40, swizzle, slot=1)
    rng.shuffle(lines)
    fills = []
    for beat in range(1000, 1020):
        valid = rng.randrange(1 << lanes)
        fills.append(
            {
                "slot": 2,
                "style": {"swizzle": swizzle, "fill": 1, "round_tf32": 0},
                "beat": beat,
                "valid": valid,
                "last": beat == 1019,
            }
        )
        for lane in range(lanes):
            if valid >> lane & 1:
                memory[swizzled(beat * lanes + lane, swizzle)] = int("7FF7" * 8, 16)
    drive = Driver(params, swizzle, lines, fills, stall=0.5)
    assert drive.memory == memory
    assert drive.written == {1: 40 * lanes, 2: sum(f["valid"].bit_count() for f in fills)}


def test_fill_of_streams_is_counted_apart():
    """Beats of two requests alternate: each request is reported once, as a whole."""
    params = TmaParams(line_bytes=32, streams=2)
    rng = random.Random(3)
    fills = []
    for number in range(40):
        name = number % 2
        fills.append(
            {
                "slot": 2 * (number // 20) + name,
                "style": {"swizzle": 0, "fill": 0, "round_tf32": 0},
                "beat": number,
                "valid": rng.randrange(4),
                "last": number % 20 >= 18,
                "stream": name,
            }
        )
    drive = Driver(params, 3, [], fills, stall=0.3)
    for slot in range(4):
        pieces = sum(beat["valid"].bit_count() for beat in fills if beat["slot"] == slot)
        assert drive.reports["filled"][slot] == [pieces]


def test_a_line_that_failed_is_counted_and_not_written():
    params = TmaParams()
    rng = random.Random(3)
    lines, memory = run_of_lines(params, rng, 0, 9, 3, slot=1)
    lines[4]["valid"] = 0
    for piece in range(32, 40):
        del memory[swizzled(piece, 3)]
    drive = Driver(params, 0, lines, [], stall=0.3)
    assert drive.memory == memory
    assert drive.written == {1: 72}


@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize("offset", quick((0, 3, 7, 1, 2, 4, 5, 6), 3))
def test_one_line_a_clock_at_every_offset(swizzle, offset):
    """Lines in order, of a run that begins ``offset`` pieces off a beat of shared memory."""
    params = TmaParams()
    lines, memory = run_of_lines(params, random.Random(0), offset, 64, swizzle, slot=1)
    drive = Driver(params, 0, lines, [], stall=0)
    assert drive.memory == memory
    assert drive.cycles <= 64 + 8


@pytest.mark.parametrize("offset", range(8))
def test_full_queues_lose_nothing(offset):
    """Lines come each clock, and shared memory takes a beat in one of five."""
    params = TmaParams()
    lines, memory = run_of_lines(params, random.Random(0), offset, 64, 0, slot=1)
    drive = Driver(params, 0, lines, [], stall=0, busy=0.8)
    assert drive.memory == memory
    assert drive.written == {1: 64 * params.lanes}


@pytest.mark.parametrize("offset", [0, 7])
@pytest.mark.parametrize("lane", range(8))
def test_the_queue_of_a_lane_fills_alone(lane, offset):
    """Lines of one piece each, which is in the first part of its line, or in the second one."""
    params = TmaParams()
    lines, memory = run_of_lines(params, random.Random(0), offset, 64, 0, slot=1)
    for line in lines:
        line["valid"], line["pieces"] = 1 << lane, 1
    drive = Driver(params, 0, lines, [], stall=0, busy=0.8)
    assert drive.memory == {at: data for at, data in memory.items() if at % params.lanes == lane}


def test_shuffled_lines_keep_the_lanes_busy():
    """Lines out of order and across two swizzled beats: at least nine lines in ten clocks."""
    params = TmaParams()
    rng = random.Random(7)
    lines, memory = run_of_lines(params, rng, 3, 400, 3, slot=1)
    rng.shuffle(lines)
    drive = Driver(params, 0, lines, [], stall=0)
    assert drive.memory == memory
    assert drive.cycles <= 400 / 0.9


def test_lines_and_fill_take_turns():
    """Full lines and full beats of fill at once each get half of the clocks. Only for
    ``FILL_LEAD`` clocks fill may go first.
    """
    params = TmaParams()
    count = 400
    lines, memory = run_of_lines(params, random.Random(0), 0, count, 3, slot=1)
    style = {"swizzle": 3, "fill": 0, "round_tf32": 0}
    first = 2_000
    fills = [
        {"slot": 2, "style": style, "beat": beat, "valid": 0xFF, "last": beat == first + count - 1}
        for beat in range(first, first + count)
    ]
    drive = Driver(params, 0, lines, fills, stall=0)
    assert {a: w for a, w in drive.memory.items() if a < 8 * first} == memory
    assert drive.cycles <= 2 * count + 10
    for source in (range(8 * count), range(8 * first, 8 * (first + count))):
        half_way = sorted(drive.landed[piece] for piece in source)[len(source) // 2]
        assert abs(half_way - count) <= FILL_LEAD + 10
    lines_end = max(drive.landed[piece] for piece in range(8 * count))
    fill_end = max(drive.landed[piece] for piece in range(8 * first, 8 * (first + count)))
    assert FILL_LEAD - 10 <= lines_end - fill_end <= FILL_LEAD


def test_fill_uses_the_lanes_that_lines_leave_free():
    params = TmaParams()
    lines, _ = run_of_lines(params, random.Random(0), 0, 64, 0, slot=1)
    for line in lines:
        line["valid"], line["pieces"] = 0x0F, 4
    style = {"swizzle": 0, "fill": 0, "round_tf32": 0}
    fills = [
        {"slot": 1, "style": style, "beat": beat, "valid": 0xF0, "last": beat == 63}
        for beat in range(64)
    ]
    drive = Driver(params, 0, lines, fills, stall=0)
    assert drive.written == {1: 512}
    assert drive.cycles <= 64 + 10


def test_little_fill_goes_once_in_two_clocks():
    """While less than half of a queue is fill, each lane takes turns with the lines that wait."""
    params = TmaParams()
    lines, _ = run_of_lines(params, random.Random(0), 0, 64, 0, slot=1)
    first, count = 2_000, params.lane_depth - 2
    style = {"swizzle": 0, "fill": 0, "round_tf32": 0}
    fills = [
        {"slot": 2, "style": style, "beat": beat, "valid": 0xFF, "last": beat == first + count - 1}
        for beat in range(first, first + count)
    ]
    drive = Driver(params, 0, lines, fills, stall=0)
    for lane in range(params.lanes):
        landed = [drive.landed[beat * params.lanes + lane] for beat in range(first, first + count)]
        assert landed == [*range(landed[0], landed[0] + 2 * count, 2)]


def fill_of(lane: int, beat: int) -> dict:
    """Return fill of a lane, which is the last one of its request."""
    style = {"swizzle": 0, "fill": 0, "round_tf32": 0}
    return {"slot": 2, "style": style, "beat": beat, "valid": 1 << lane, "last": 1}


def line_of(lane: int, part: int, number: int) -> dict:
    """Return a line with one piece, which goes to a lane; it is in one of both parts.

    The piece in the last lane is never in the second part: there, it comes by its swizzle.
    """
    swizzles = lane == 7 and part == 1
    place = lane ^ swizzles
    return {
        "slot": 1,
        "style": {"swizzle": 3 if swizzles else 0, "fill": 0, "round_tf32": 0},
        "beat": 8 * number,
        "next_beat": 8 * number + 1,
        "boundary": 7 if part else 0,
        "pieces": 1,
        "valid": 1 << place,
        "data": [number if lane == place else 0 for lane in range(8)],
    }


@pytest.mark.parametrize("kind", ["part 0", "part 1", "fill"])
@pytest.mark.parametrize("lane", range(8))
def test_pieces_of_a_lane_wait_in_their_queue(lane, kind):
    """Shared memory takes nothing. A piece is at its port, and the queue has one place left."""
    params = TmaParams()
    sim = simulation(LaneNetwork, params)
    is_fill, part = kind == "fill", int(kind == "part 1")
    port, taken = sim.dut.fill if is_fill else sim.dut.line, 0

    async def drive(ctx):
        nonlocal taken
        await ctx.tick()
        for number in range(2 * params.lane_depth):
            ctx.set(port.p, fill_of(lane, number) if is_fill else line_of(lane, part, number))
            ctx.set(port.valid, 1)
            taken += ctx.get(port.ready)
            await ctx.tick()
            ctx.set(port.valid, 0)
            await ctx.tick().repeat(4)

    sim.run(drive)
    assert taken == 1 + params.lane_depth - 1


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("lane", range(8))
def test_nothing_is_reported_while_it_waits_for_its_lane(lane, part):
    """Lines and fill of one lane, in its queues with each ticket, and shared memory is busy."""
    params = TmaParams()
    count = 8 * params.lane_depth
    lines = [line_of(lane, part, number) for number in range(count)]
    fills = [fill_of(lane, 8 * count + number) for number in range(count)]
    drive = Driver(params, lane, lines, fills, stall=0, busy=0.5)
    written = {8 * (8 * number + part) + lane: number for number in range(count)}
    filled = {8 * (8 * count + number) + lane: 0 for number in range(count)}
    assert drive.memory == written | filled
    assert drive.written == {1: count, 2: count}


@pytest.mark.parametrize("seed", range(2))
def test_fill_goes_first_for_so_many_clocks(seed):
    """Lines and fill of one lane come at changing rates: each clock has the piece that the rule of
    the lead chooses.
    """
    params = TmaParams()
    rng = random.Random(seed)
    sim = simulation(LaneNetwork, params)
    ports = {"line": sim.dut.line, "fill": sim.dut.fill}

    async def drive(ctx):
        waiting = dict.fromkeys(ports, 0)
        lead, takes_turns, goes, numbers = 0, False, None, dict.fromkeys(ports, 0)
        ctx.set(sim.dut.smem_write.ready, 1)
        for name in "written", "filled":
            ctx.set(getattr(sim.dut, name).ready, 1)
        rates = dict.fromkeys(ports, 0.0)
        for clock in range(2000):
            if clock % 40 == 0:
                rates = {name: rng.choice((0, 0.3, 0.9, 1)) for name in ports}
            taken = []
            for name, port in ports.items():
                if not ctx.get(port.valid) and rng.random() < rates[name]:
                    numbers[name] += 1
                    number = numbers[name]
                    piece = line_of(3, 0, number) if name == "line" else fill_of(3, 8 * number + 2)
                    ctx.set(port.p, piece)
                    ctx.set(port.valid, 1)
                if ctx.get(port.valid) and ctx.get(port.ready):
                    taken.append(name)
            written = ctx.get(sim.dut.smem_write.p[3])
            is_written = ctx.get(sim.dut.smem_write.valid) and written.valid
            source = ("fill" if written.beat % 8 else "line") if is_written else None
            assert source == goes, f"clock {clock}: {source} goes, and not {goes}"

            both_wait = waiting["line"] and waiting["fill"]
            may_repeat = waiting["fill"] >= params.lane_depth // 2 and not takes_turns
            if both_wait:
                goes = "line" if goes == "fill" and not may_repeat else "fill"
            else:
                goes = next((name for name in ports if waiting[name]), None)
            takes_turns = lead == FILL_LEAD - 1
            if both_wait and goes == "fill":
                lead = min(lead + 1, FILL_LEAD - 1)
            elif not both_wait:
                lead = max(lead - 1, 0)
            if goes:
                waiting[goes] -= 1
            await ctx.tick()
            for name in taken:
                waiting[name] += 1
                ctx.set(ports[name].valid, 0)

    sim.run(drive)
