"""Shared-memory reduction: results as NumPy has them, atomic, one packet per clock."""

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from golden.enums import DataType
from golden.enums import ReductionOp as GoldenOp
from golden.reduction import ASYNC_PAIRS, operation
from hw.cluster.smem_reduction import LATENCY, MAX_PACKETS, SmemReduction
from hw.layouts.isa import ASYNC_REDUCTIONS, ElementType, ReductionOp
from hw.params import TmaParams
from tests.hw.simulate import simulation
from tests.quick import quick

PARAMS = TmaParams(line_bytes=32, ctas=4)
NARROW = TmaParams(line_bytes=16, ctas=2, sub_byte=False)
WIDE = TmaParams(ctas=16)

TYPES = {
    ElementType.U32: DataType.UINT32,
    ElementType.S32: DataType.INT32,
    ElementType.U64: DataType.UINT64,
    ElementType.S64: DataType.INT64,
}
WIDE_TYPES = DataType.UINT64, DataType.INT64
PAIRS = [(op, kind) for kind, ops in ASYNC_REDUCTIONS.items() for op in ops]
EDGES = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]


def words(rng: random.Random, params: TmaParams) -> np.ndarray:
    """Return a beat, mostly of extreme numbers."""
    return np.uint32(
        [
            rng.choice(EDGES) if rng.random() < 0.6 else rng.getrandbits(32)
            for _ in range(params.line_bytes // 4)
        ]
    )


def to_lanes(beat: np.ndarray) -> list[int]:
    return [int.from_bytes(beat[at : at + 4].tobytes(), "little") for at in range(0, len(beat), 4)]


def from_lanes(lanes) -> np.ndarray:
    return np.frombuffer(b"".join(lane.to_bytes(16, "little") for lane in lanes), np.uint32)


def make_packet(rng: random.Random, params: TmaParams, beat: int, pair=None) -> dict:
    """Return a packet of random bytes, of whole lanes or of single words."""
    op, kind = pair or rng.choice(PAIRS)
    pick = (15, 3, 12) if TYPES[kind] in WIDE_TYPES else (15, 1, 2, 4, 8, 3, 12, 5)
    return {
        "request_id": rng.getrandbits(params.request_id_bits),
        "cta": rng.randrange(params.ctas),
        "mbarrier": 8 * rng.getrandbits(21),
        "tx_words": rng.getrandbits(params.lane_bits + 3),
        "reduction": {"enabled": 1, "op": op, "element_type": kind},
        "beat": beat,
        "valid": rng.randrange(1, 1 << params.lanes),
        "words": [rng.choice(pick) for _ in range(params.lanes)],
        "data": to_lanes(words(rng, params)),
    }


def written(packet) -> np.ndarray:
    """Return the mask of the words that a packet writes."""
    return np.array(
        [
            bool(packet["valid"] >> lane & 1 and mask >> word & 1)
            for lane, mask in enumerate(packet["words"])
            for word in range(4)
        ]
    )


def combined(packet, held: np.ndarray) -> np.ndarray:
    """Return the beat after the packet."""
    kind = TYPES[packet["reduction"]["element_type"]]
    combine = operation(GoldenOp[packet["reduction"]["op"].name], kind)
    wide = np.uint64 if kind in WIDE_TYPES else np.uint32
    after = combine(held.view(wide), from_lanes(packet["data"]).view(wide)).view(np.uint32)
    return np.where(written(packet), after, held)


@dataclass
class Ran:
    """Packets of a run, and the clocks of its transfers."""

    memory: dict[int, np.ndarray]
    accepted: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)


def run(
    params,
    packets,
    memory,
    *,
    seed=0,
    stalls=(0, 0, 0),
    read_clocks=lambda: 1,
    write_clocks=lambda: 1,
    limit=20_000,
    complete=True,
) -> Ran:
    """Reduce ``packets`` into beats of ``memory``, and check each as it leaves.

    ``stalls`` are the stall shares of packets, reads and results. A read returns memory as it is
    when the read is accepted. A write is performed, with ``done``, ``write_clocks`` clocks after
    its packet left, in order.
    """
    sim = simulation(SmemReduction, params)
    dut = sim.dut
    ran = Ran({beat: held.copy() for beat, held in memory.items()})
    expected = dict(memory)

    async def drive(ctx):
        rng = random.Random(seed)
        left = deque(packets)
        unread: deque[dict] = deque()  # accepted, not given
        answers: deque[tuple[int, list[int]]] = deque()
        writes: deque[tuple[int, dict, np.ndarray]] = deque()
        offers: dict[str, object] = {}
        for cycle in range(limit):
            if not ctx.get(dut.i.valid) and left and rng.random() >= stalls[0]:
                ctx.set(dut.i.payload, left[0])
                ctx.set(dut.i.valid, 1)
            ctx.set(dut.smem_read.ready, rng.random() >= stalls[1])
            ctx.set(dut.o.ready, rng.random() >= stalls[2])
            ripe = bool(answers and answers[0][0] <= cycle)
            ctx.set(dut.smem_data.valid, ripe)
            ctx.set(dut.smem_data.payload, answers[0][1] if ripe else [0] * params.lanes)
            performed = bool(writes and writes[0][0] <= cycle)
            ctx.set(dut.done, performed)

            for name in "o", "smem_read":
                port = getattr(dut, name)
                valid = ctx.get(port.valid)
                payload = ctx.get(port.payload) if valid else None
                if name in offers:
                    assert valid, f"{name}: withdrew what it offered"
                    assert payload == offers.pop(name), f"{name}: changed what it offered"
                if valid and not ctx.get(port.ready):
                    offers[name] = payload

            assert ctx.get(dut.smem_data.ready)
            if ripe:
                answers.popleft()
                ran.answered.append(cycle)
            accepted = ctx.get(dut.i.valid) and ctx.get(dut.i.ready)
            read = ctx.get(dut.smem_read.valid) and ctx.get(dut.smem_read.ready)
            assert accepted == read, "a packet is read when it is accepted"
            if accepted:
                packet = left.popleft()
                asked = ctx.get(dut.smem_read.payload)
                assert [lane.valid for lane in asked] == [
                    packet["valid"] >> lane & 1 for lane in range(params.lanes)
                ]
                lanes = to_lanes(ran.memory[packet["beat"]])
                for lane, one in enumerate(asked):
                    assert one.beat == packet["beat"] or not one.valid
                    if not one.valid:
                        lanes[lane] = rng.getrandbits(128)
                answers.append((cycle + read_clocks(), lanes))
                unread.append(packet)
                ran.accepted.append(cycle)
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                packet = unread.popleft()
                result = ctx.get(dut.o.payload)
                beat = packet["beat"]
                expected[beat] = combined(packet, expected[beat])
                mask = written(packet)
                got = from_lanes(result.data)
                assert (got[mask] == expected[beat][mask]).all(), packet
                for name in set(packet) - {"data", "reduction", "words"}:
                    assert getattr(result, name) == packet[name], name
                assert list(result.words) == packet["words"]
                for name, value in packet["reduction"].items():
                    assert getattr(result.reduction, name) == value, name
                writes.append((cycle + write_clocks(), packet, got))
                ran.given.append(cycle)
            if performed:
                _, packet, got = writes.popleft()
                beat = packet["beat"]
                ran.memory[beat] = np.where(written(packet), got, ran.memory[beat])
            await ctx.tick()
            if accepted:
                ctx.set(dut.i.valid, 0)
            if not (left or unread or writes):
                return
        assert not complete, f"still busy after {limit} clocks: {ran}"

    sim.run(drive)
    if complete:
        for beat, held in expected.items():
            assert (ran.memory[beat] == held).all()
    return ran


def test_pairs_are_those_of_the_golden_model():
    assert {(TYPES[kind], GoldenOp[op.name]) for op, kind in PAIRS} == ASYNC_PAIRS


@pytest.mark.parametrize("params", [NARROW, PARAMS, WIDE], ids=["narrow", "middle", "wide"])
@pytest.mark.parametrize("seed", quick(range(4), 1))
def test_beats_that_collide(seed, params):
    """A few beats that differ in one bit each, with random delays of memory and ports."""
    rng = random.Random(100 * params.lanes + seed)
    base = rng.getrandbits(params.smem_beat_bits)
    count = rng.choice((1, 3, 20))
    beats = [base ^ (1 << bit) >> 1 for bit in range(min(count, params.smem_beat_bits + 1))]
    memory = {beat: words(rng, params) for beat in beats}
    packets = [make_packet(rng, params, rng.choice(beats)) for _ in range(100)]
    longest = rng.choice((1, 4, 30)), rng.choice((1, 4, 30))
    run(
        params,
        packets,
        memory,
        seed=seed,
        stalls=[rng.choice((0, 0.4, 0.8)) for _ in range(3)],
        read_clocks=lambda: rng.randint(1, longest[0]),
        write_clocks=lambda: rng.randint(1, longest[1]),
    )


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "_".join(part.name for part in pair))
def test_every_pair(pair):
    rng = random.Random(PAIRS.index(pair))
    beats = range(100, 140)
    memory = {beat: words(rng, PARAMS) for beat in beats}
    packets = [make_packet(rng, PARAMS, beat, pair) for beat in beats for _ in range(2)]
    for packet in packets[::2]:  # equal numbers, too
        packet["data"] = to_lanes(memory[packet["beat"]])
    rng.shuffle(packets)
    run(PARAMS, packets, memory)


def traffic(beats: list[int]) -> tuple[list[dict], dict[int, np.ndarray]]:
    rng = random.Random(len(beats))
    return [make_packet(rng, PARAMS, beat) for beat in beats], {
        beat: words(rng, PARAMS) for beat in beats
    }


@pytest.mark.parametrize("read_clocks", [1, 6])
def test_a_packet_a_clock_of_different_beats(read_clocks):
    """One packet per clock if ``done`` comes less than ``MAX_PACKETS`` clocks after the read; if it
    comes later, at most ``MAX_PACKETS`` packets are in the block.
    """
    packets, memory = traffic(list(range(80)))
    fastest = MAX_PACKETS - 1 - read_clocks - LATENCY
    clocks = {"read_clocks": lambda: read_clocks, "write_clocks": lambda: fastest}
    ran = run(PARAMS, packets, memory, **clocks)
    assert ran.accepted == list(range(80))
    assert ran.given == [clock + read_clocks + LATENCY for clock in ran.accepted]
    ran = run(PARAMS, packets, memory, **clocks | {"write_clocks": lambda: fastest + 1})
    assert ran.accepted == [n + n // MAX_PACKETS for n in range(80)]


@pytest.mark.parametrize(("read_clocks", "write_clocks"), [(1, 1), (4, 1), (1, 7)])
def test_the_same_beat_again(read_clocks, write_clocks):
    """The period is the sum of the read, combine and write latencies, and one clock more."""
    packets, memory = traffic([7] * 20)
    ran = run(
        PARAMS,
        packets,
        memory,
        read_clocks=lambda: read_clocks,
        write_clocks=lambda: write_clocks,
    )
    period = read_clocks + LATENCY + write_clocks + 1
    assert ran.accepted == list(range(0, 20 * period, period))


def test_beats_that_differ_in_one_bit_do_not_wait():
    rng = random.Random(1)
    beats = []
    for bit in range(PARAMS.smem_beat_bits):
        beat = rng.getrandbits(PARAMS.smem_beat_bits)
        beats += [beat, beat ^ 1 << bit]
    assert len(set(beats)) == len(beats)
    packets, memory = traffic(beats)
    assert run(PARAMS, packets, memory).accepted == list(range(len(beats)))


def test_alternating_beats_overlap():
    packets, memory = traffic([7, 8] * 10)
    ran = run(PARAMS, packets, memory)
    period = 1 + LATENCY + 1 + 1
    assert ran.accepted == [period * (n // 2) + n % 2 for n in range(20)]


def test_answers_have_room_while_results_wait():
    packets, memory = traffic(list(range(80)))
    ran = run(PARAMS, packets, memory, stalls=(0, 0, 1), limit=100, complete=False)
    assert ran.accepted == list(range(MAX_PACKETS))
    assert ran.answered == list(range(1, 1 + MAX_PACKETS))


WRONG = {
    "boundary": ({"boundary": 1}, "smem_reduction: a packet has two beats or a swizzle"),
    "swizzle": ({"style": {"swizzle": 3}}, "smem_reduction: a packet has two beats or a swizzle"),
    "not a reduction": (
        {"reduction": {"enabled": 0}},
        "smem_reduction: the packet has no legal reduction",
    ),
    "no pair": (
        {"reduction": {"enabled": 1, "op": ReductionOp.MIN, "element_type": ElementType.U64}},
        "smem_reduction: the packet has no legal reduction",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_packets_that_are_not_for_it(what):
    change, message = WRONG[what]
    packets, memory = traffic([7])
    with pytest.raises(AssertionError, match=message):
        run(PARAMS, [packets[0] | change], memory)
