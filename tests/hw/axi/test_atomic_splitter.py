"""Atomic splitter and write port: AtomicStores do what the reductions of lines define."""

import random
from itertools import pairwise

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from golden.enums import DataType
from golden.enums import ReductionOp as GoldenOp
from golden.reduction import operation
from hw.axi.atomic_splitter import AtomicSplitter
from hw.axi.write_port import WritePort
from hw.layouts.axi import aw_layout, b_layout, w_layout
from hw.layouts.isa import BULK_REDUCTIONS, ElementType, ReductionOp
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.params import TmaParams
from tests.hw.axi.slave import Slave
from tests.hw.axi.test_read_port import params_of
from tests.hw.simulate import Run, run_streams, simulation

COUNT = 40
LINES = 5
"""Lines of memory, so that many reductions meet."""

TYPES = {
    ElementType.U32: DataType.UINT32,
    ElementType.S32: DataType.INT32,
    ElementType.U64: DataType.UINT64,
    ElementType.S64: DataType.INT64,
}
KINDS = [
    (op, kind)
    for kind in TYPES
    for op in BULK_REDUCTIONS[kind]
    if op not in (ReductionOp.INC, ReductionOp.DEC)
]


class AtomicWrites(wiring.Component):
    """A splitter in front of a write port."""

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(gnic_write_layout(params))),
                "answered": Out(stream.Signature(gnic_ack_layout(params))),
                "aw": Out(stream.Signature(aw_layout(params))),
                "w": Out(stream.Signature(w_layout(params))),
                "b": In(stream.Signature(b_layout(params))),
            }
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.splitter = splitter = AtomicSplitter(self.params)
        m.submodules.port = port = WritePort(self.params)
        connect(m, flipped(self.i), splitter.i)
        connect(m, splitter.o, port.gnic_write)
        connect(m, port.gnic_ack, splitter.ack)
        connect(m, splitter.answered, flipped(self.answered))
        for name in "aw", "w":
            connect(m, getattr(port, name), flipped(getattr(self, name)))
        connect(m, flipped(self.b), port.b)
        return m


class Writer:
    """Writes and reduces lines with free tags, the lines of writes one at a time."""

    def __init__(self, params: TmaParams, seed: int, fails: float) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.slave = Slave(params, seed, fails)
        size = LINES * params.line_bytes
        self.expected = bytearray(self.slave.read(0, size).to_bytes(size, "little"))
        self.in_flight: dict[int, tuple[int, bool]] = {}  # by tag: line, and whether it reduces
        self.sent = self.seen = self.errors = 0
        self.accesses = 0  # AW of the writes that were answered

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        found: dict[str, list] = self.slave.feed(run)
        for answer in run.payloads["answered"][self.seen :]:
            del self.in_flight[answer.tag]
            resps = [write.resps[0] for write in self.slave.writes if write.number == answer.tag]
            failed = [resp for resp in resps if resp >= 2]
            assert answer.error == bool(failed)
            assert not failed or answer.decode in {resp == 3 for resp in failed}
            self.accesses += len(resps)
            self.slave.forget(answer.tag)
            self.seen += 1
            self.errors += answer.error
        found["i"] = self._line()
        return found

    def _line(self) -> list[dict]:
        free = [tag for tag in range(self.params.tags) if tag not in self.in_flight]
        if self.sent == COUNT or not free:
            return []
        tag, reduces = self.rng.choice(free), self.rng.random() < 0.7
        number, size = self.rng.randrange(LINES), self.params.line_bytes
        others = [is_reduction for line, is_reduction in self.in_flight.values() if line == number]
        if others and not (reduces and all(others)):
            return []  # writes are not ordered
        op, kind = self.rng.choice(KINDS)
        data = self.rng.randbytes(size)
        pieces = self.rng.randrange(1, 1 << size // 16)
        strobe = sum(0xFFFF << 16 * piece for piece in range(size // 16) if pieces >> piece & 1)
        self._expect(number, data, strobe, (op, kind) if reduces else None)
        self.in_flight[tag] = number, reduces
        self.sent += 1
        return [
            {
                "tag": tag,
                "line": number,
                "attributes": {"cache_policy": 0},
                "reduction": {"enabled": reduces, "op": op, "element_type": kind},
                "strobe": strobe,
                "data": int.from_bytes(data, "little"),
            }
        ]

    def _expect(self, number: int, data: bytes, strobe: int, kind) -> None:
        size = self.params.line_bytes
        result = data
        if kind is not None:
            golden = TYPES[kind[1]]
            combine = operation(GoldenOp[kind[0].name], golden)
            dtype = f"<u{golden.bits // 8}"
            line = bytes(self.expected[number * size : (number + 1) * size])
            old, new = (np.frombuffer(part, dtype) for part in (line, data))
            result = combine(old, new).astype(dtype).tobytes()
        for at in range(size):
            if strobe >> at & 1:
                self.expected[number * size + at] = result[at]


def write(params: TmaParams, seed: int, fails: float = 0.0, **options) -> tuple[Writer, Run]:
    writer = Writer(params, seed, fails)
    inputs: dict[str, list] = {"i": [], "b": []}
    outputs = ["answered", "aw", "w"]
    run = run_streams(simulation(AtomicWrites, params), inputs, outputs, feed=writer.feed,
                      seed=seed, **options)  # fmt: skip
    assert (writer.sent, writer.in_flight) == (COUNT, {})
    return writer, run


@pytest.mark.parametrize(("line_bytes", "bits"), [(16, 128), (64, 64), (64, 512)])
def test_memory_gets_the_results(line_bytes: int, bits: int) -> None:
    params = params_of(line_bytes, bits, axi_atomics=True)
    writer, run = write(params, line_bytes + bits)
    size = len(writer.expected)
    assert writer.slave.read(0, size) == int.from_bytes(writer.expected, "little")
    assert writer.accesses == len(run.payloads["aw"])
    assert len({aw.atop for aw in run.payloads["aw"]}) > 5


def test_an_answer_has_an_error_if_one_of_its_elements_has() -> None:
    writer, _ = write(params_of(64, 128, axi_atomics=True), 1, fails=0.05)
    assert COUNT // 10 < writer.errors < COUNT


def test_an_element_a_clock() -> None:
    _, run = write(params_of(64, 128, axi_atomics=True), 2, stall=0.0)
    clocks = run.cycles["aw"]
    steps = [after - before for before, after in pairwise(clocks)]
    assert sorted(steps)[len(steps) // 2] == 1
