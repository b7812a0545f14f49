"""Response path and lane network: arrived lines land at the right bytes."""

import random

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator

from golden import ReportMechanism
from golden.definition import matches
from golden.memory import ArrayMemory
from hw.layouts.lines import line_arrival_layout, rotated_line_layout
from hw.load.response_path import LINES_WAITING, ResponsePath
from hw.params import TmaParams
from tests.hw.simulate import run_streams

TF32_VECTORS = {
    0x3F801000: 0x3F800000,
    0x3F801001: 0x3F802000,
    0x3F803000: 0x3F804000,
    0x7F7FEFFF: 0x7F7FE000,
    0x7F7FF000: 0x7F800000,
    0x00001000: 0x00000000,
    0x00001001: 0x00002000,
    0x807FFFFF: 0x80800000,
    0xFF800000: 0xFF800000,
    0x7F800000: 0x7F800000,
    0xFFC00001: 0x7FFFE000,
    0x7F800001: 0x7FFFE000,
    0x7FC00000: 0x7FFFE000,
    0xBF7FF001: 0xBF800000,
    0x3F7FEFFF: 0x3F7FE000,
    0x80000FFF: 0x80000000,
}


def arrival(params: TmaParams, data: bytes, **use) -> dict:
    style = {"swizzle": 0, "fill": use.pop("fill", 0), "round_tf32": use.pop("round_tf32", 0)}
    if params.report_mechanism:
        style["report"] = use.pop("report", 0)
    pieces = [int.from_bytes(data[i : i + 16], "little") for i in range(0, len(data), 16)]
    fields = {"slot": 1, "origin": 0, "valid": (1 << params.lanes) - 1, "tail": 0, "tail_bytes": 0}
    if params.gathers_rows:
        fields["source"] = list(range(params.lanes))
    failed = use.pop("failed", 0)
    return {"use": {**fields, **use, "style": style}, "failed": failed, "data": pieces}


class Admitted(wiring.Component):
    """A response path behind a register, as in the unit, which takes lines that are admitted."""

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_arrival_layout(params))),
                "o": Out(stream.Signature(rotated_line_layout(params))),
            }
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.dut = dut = ResponsePath(self.params)
        connect(m, dut.o, flipped(self.o))
        m.d.sync += [
            self.i.ready.eq(dut.admits_next),
            dut.i.valid.eq(self.i.valid & self.i.ready),
            dut.i.payload.eq(self.i.payload),
        ]
        return m


def rotated(params: TmaParams, arrivals: list[dict], seed: int = 0) -> list:
    return run_streams(Admitted(params), {"i": arrivals}, ["o"], seed=seed).payloads["o"]


def test_a_line_a_clock_and_none_is_lost_behind_a_stall():
    """The receiver waits until all places are taken, and then takes a line in each clock."""
    params = TmaParams(line_bytes=16)
    lines = [arrival(params, bytes(16), origin=number) for number in range(60)]
    dut = Admitted(params)
    sim = Simulator(dut)
    sim.add_clock(1e-9)
    beats: list[int] = []

    @sim.add_testbench
    async def drive(ctx):
        taken = 0
        for clock in range(100):
            ctx.set(dut.i.valid, taken < len(lines))
            ctx.set(dut.i.p, lines[min(taken, len(lines) - 1)])
            ctx.set(dut.o.ready, clock >= 30)
            taken += ctx.get(dut.i.ready) and taken < len(lines)
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                beats.append(ctx.get(dut.o.p.beat))
            await ctx.tick()
            if clock == 29:
                assert taken == LINES_WAITING
            if 30 <= clock < 30 + len(lines):
                assert len(beats) == clock - 29

    sim.run()
    assert beats == list(range(60))


def test_tf32_vectors():
    params = TmaParams(line_bytes=16)
    words = list(TF32_VECTORS)
    lines = [np.array(words[i : i + 4], "<u4").tobytes() for i in range(0, len(words), 4)]
    outputs = rotated(params, [arrival(params, line, round_tf32=1) for line in lines])
    got = [int(piece.data[0]) >> 32 * n & 0xFFFFFFFF for piece in outputs for n in range(4)]
    assert [hex(word) for word in got] == [hex(word) for word in TF32_VECTORS.values()]


def test_tf32_in_all_words_of_a_line():
    """Infinities, NaNs with one bit of their fraction, and others are in each word of each lane."""
    params = TmaParams()
    vectors = TF32_VECTORS | dict.fromkeys((0x7F800000 | 1 << bit for bit in range(23)), 0x7FFFE000)
    words = list(vectors)
    count = params.line_bytes // 4
    lines = [
        [words[(at + first) % len(words)] for at in range(count)] for first in range(len(words))
    ]
    data = [np.array(line, "<u4").tobytes() for line in lines]
    outputs = rotated(params, [arrival(params, each, round_tf32=1) for each in data])
    for line, out in zip(lines, outputs, strict=True):
        pieces = [int(piece).to_bytes(16, "little") for piece in out.data]
        got = np.frombuffer(b"".join(pieces), "<u4").tolist()
        assert [hex(word) for word in got] == [hex(vectors[word]) for word in line]


@pytest.mark.parametrize("fill", [0, 1])
@pytest.mark.parametrize("tail_bytes", range(16))
def test_tail_is_filled_and_not_rounded(tail_bytes, fill):
    params = TmaParams(line_bytes=32)
    data = bytes([0x11, 0x22, 0x33, 0x44] * 8)
    (out,) = rotated(
        params, [arrival(params, data, tail=0b10, tail_bytes=tail_bytes, fill=fill, round_tf32=1)]
    )
    kept = bytes([0x00, 0x20, 0x33, 0x44] * 4)
    filler = bytes([0xF7, 0x7F] * 8) if fill else bytes(16)
    end = tail_bytes or 16
    assert int(out.data[0]).to_bytes(16, "little") == kept
    assert int(out.data[1]).to_bytes(16, "little") == kept[:end] + filler[end:]


@pytest.mark.parametrize("line_bytes", [16, 32, 64, 128])
def test_rotates_pieces_to_their_lanes(line_bytes):
    params = TmaParams(line_bytes=line_bytes)
    lanes = params.lanes
    rng = random.Random(line_bytes)
    arrivals = []
    for origin in range(2 * lanes):
        data = rng.randbytes(line_bytes)
        arrivals.append(
            arrival(
                params, data, origin=origin, valid=rng.randrange(1 << lanes), failed=origin == 3
            )
        )
    for given, out in zip(arrivals, rotated(params, arrivals, seed=1), strict=True):
        origin, valid = given["use"]["origin"], given["use"]["valid"]
        assert (out.beat, out.boundary) == (origin // lanes, origin % lanes)
        assert out.next_beat == out.beat + 1
        assert out.pieces == valid.bit_count()
        for lane in range(lanes):
            target = (origin + lane) % lanes
            assert out.data[target] == given["data"][lane]
            assert out.valid >> target & 1 == (valid >> lane & 1 and not given["failed"])


@pytest.mark.parametrize("line_bytes", [32, 64, 128])
def test_gathered_pieces_take_their_places(line_bytes):
    """A moved piece is treated like one that was there; a piece may move to two places."""
    params = TmaParams(line_bytes=line_bytes)
    rng = random.Random(line_bytes)
    arrivals = []
    for _ in range(50):
        source = [rng.randrange(params.lanes) for _ in range(params.lanes)]
        origin = rng.randrange(2 * params.lanes)
        arrivals.append(arrival(params, rng.randbytes(line_bytes), origin=origin, source=source))
    for given, out in zip(arrivals, rotated(params, arrivals, seed=1), strict=True):
        for place, source in enumerate(given["use"]["source"]):
            target = (given["use"]["origin"] + place) % params.lanes
            assert out.data[target] == given["data"][source]


@pytest.mark.parametrize("mechanism", ReportMechanism)
def test_reports_are_those_of_the_golden_model(mechanism):
    """Lines with few values, so that each pattern is common, also across its neighbours and only
    in a part that is not read.
    """
    rng = random.Random(int(mechanism))
    params = TmaParams(line_bytes=64, mbarrier_v1=True, report_mechanism=True)
    lanes = range(params.lanes)
    arrivals, expected = [], []
    for number in range(400):
        values = [0, 0, 0, 8, 0x18, 0x80, 0x81, 0xFF] if number % 2 else [0] * 40 + [8, 128, 255]
        line = bytes(rng.choice(values) for _ in range(params.line_bytes))
        if mechanism is ReportMechanism.PER_16BYTES_80000000 and rng.random() < 0.5:
            at = rng.randrange(params.line_bytes - 3)
            line = line[:at] + bytes([0, 0, 0, 0x80]) + line[at + 4 :]
        use = {
            "source": [rng.choice(lanes) for _ in lanes],
            "origin": rng.randrange(2 * params.lanes),
            "valid": rng.randrange(1 << params.lanes),
            "tail": rng.randrange(1 << params.lanes),
            "tail_bytes": rng.randrange(16),
            "round_tf32": rng.getrandbits(1),
            "failed": rng.random() < 0.1,
        }
        arrivals.append(arrival(params, line, report=int(mechanism), **use))
        read = set()
        for place in lanes:
            if use["valid"] >> place & 1 and not use["failed"]:
                size = use["tail_bytes"] if use["tail"] >> place & 1 else 16
                read |= {16 * use["source"][place] + byte for byte in range(size or 16)}
        # A piece may have two places, one of them with fewer bytes: the larger one counts.
        expected.append(matches(mechanism, ArrayMemory(np.frombuffer(line, np.uint8)), read))
    got = [bool(out.reports) for out in rotated(params, arrivals, seed=1)]
    assert got == expected
    assert set(expected) == ({False, True} if mechanism else {False})
