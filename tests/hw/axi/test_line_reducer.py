"""Line reducer: reductions by reads and writes of a memory of any latency; writes pass."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from golden.enums import DataType
from golden.enums import ReductionOp as GoldenOp
from golden.reduction import operation
from hw.axi.line_reducer import LineReducer
from hw.layouts.isa import ElementType, ReductionOp
from hw.params import TmaParams
from tests.hw.axi.test_read_port import params_of
from tests.hw.simulate import Run, run_streams, simulation

COUNT = 60
LINES = 6
"""Lines of memory, so that many reductions meet."""

KINDS = [
    (ReductionOp.ADD, ElementType.U32, GoldenOp.ADD, DataType.UINT32),
    (ReductionOp.MAX, ElementType.S32, GoldenOp.MAX, DataType.INT32),
    (ReductionOp.XOR, ElementType.U64, GoldenOp.XOR, DataType.UINT64),
    (ReductionOp.ADD, ElementType.F16, GoldenOp.ADD, DataType.FLOAT16),
]


KINDS_BY_CODE = {(op, element_type): kind for op, element_type, *kind in KINDS}
INTEGERS = ElementType.U32, ElementType.S32, ElementType.U64


def combine(line: bytearray, data: bytes, strobe: int, kind: Sequence | None) -> None:
    """Write the selected bytes of a line, or reduce them with an operation and a type."""
    result = data
    if kind is not None:
        combined, dtype = operation(*kind), f"<u{kind[1].bits // 8}"
        old, new = (np.frombuffer(bytes(part), dtype) for part in (line, data))
        result = combined(old, new).astype(dtype).tobytes()
    for at in range(len(line)):
        if strobe >> at & 1:
            line[at] = result[at]


class Memory:
    """Sends writes and reductions with free tags; answers reads and writes in any order."""

    def __init__(self, params: TmaParams, seed: int, fails: float) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.fails = fails
        size = params.line_bytes
        self.lines = [bytearray(self.rng.randbytes(size)) for _ in range(LINES)]
        self.expected = [bytearray(line) for line in self.lines]
        self.in_flight: dict[int, tuple[int, bool]] = {}  # by tag: line, and whether it reduces
        self.failed: set[int] = set()  # tags
        self.seen = dict.fromkeys(("o", "read", "answered"), 0)
        self.reads: list = []
        self.writes: list = []
        self.sent = 0
        self.errors = 0
        self.passed = 0  # reductions that memory performs

    def new(self, run: Run, port: str) -> list:
        payloads = run.payloads[port][self.seen[port] :]
        self.seen[port] += len(payloads)
        return payloads

    def feed(self, run: Run, _cycle: int) -> dict[str, list]:
        self.reads += self.new(run, "read")
        for write in self.new(run, "o"):
            assert not write.reduction.enabled or self.params.axi_atomics
            self.passed += write.reduction.enabled
            self.writes.append(write)
        for answer in self.new(run, "answered"):
            line, reduces = self.in_flight.pop(answer.tag)
            assert answer.error == (reduces and answer.tag in self.failed)
            assert answer.decode == (answer.error and answer.tag % 2)
            self.failed.discard(answer.tag)
            self.errors += answer.error
            if not answer.error:
                assert self.lines[line] == self.expected[line] or self.is_busy(line)
        return {"i": self._send(), "ack": self._acks(), "line": self._read()}

    def is_busy(self, line: int) -> bool:
        return any(other == line for other, _ in self.in_flight.values())

    def _acks(self) -> list[dict]:
        """Perform a write, and answer it."""
        if not self.writes or self.rng.random() < 0.7:
            return []
        line = self.rng.choice(self.writes).line
        write = next(write for write in self.writes if write.line == line)
        self.writes.remove(write)
        data = write.data.to_bytes(self.params.line_bytes, "little")
        kind = KINDS_BY_CODE[write.reduction.op, write.reduction.element_type]
        combine(self.lines[line], data, write.strobe, kind if write.reduction.enabled else None)
        return [{"tag": write.tag, "error": 0}]

    def _read(self) -> list[dict]:
        if not self.reads or self.rng.random() < 0.7:
            return []
        read = self.reads.pop(self.rng.randrange(len(self.reads)))
        assert read.attributes.cache_policy % 7 == 3
        tag = read.attributes.cache_policy // 7
        data = int.from_bytes(self.lines[read.line], "little")
        error = tag in self.failed
        decode = error and tag % 2
        return [{"number": read.number, "error": error, "decode": decode, "data": data}]

    def _send(self) -> list[dict]:
        free = [tag for tag in range(self.params.tags) if tag not in self.in_flight]
        if self.sent == COUNT or not free:
            return []
        tag, reduces = self.rng.choice(free), self.rng.random() < 0.7
        number = self.rng.randrange(LINES)
        if not reduces and (number, False) in self.in_flight.values():
            return []  # two writes are not ordered
        op, element_type, golden_op, golden_type = self.rng.choice(KINDS)
        size = self.params.line_bytes
        data = self.rng.randbytes(size)
        pieces = self.rng.randrange(1, 1 << size // 16)
        strobe = sum(0xFFFF << 16 * piece for piece in range(size // 16) if pieces >> piece & 1)
        is_read = reduces and not (self.params.axi_atomics and element_type in INTEGERS)
        fails = is_read and self.rng.random() < self.fails
        if fails:
            self.failed.add(tag)
        else:
            kind = (golden_op, golden_type) if reduces else None
            combine(self.expected[number], data, strobe, kind)
        self.in_flight[tag] = number, reduces
        self.sent += 1
        return [
            {
                "tag": tag,
                "line": number,
                "attributes": {"cache_policy": 7 * tag + 3},
                "reduction": {"enabled": reduces, "op": op, "element_type": element_type},
                "strobe": strobe,
                "data": int.from_bytes(data, "little"),
            }
        ]


def reduce_lines(params: TmaParams, seed: int, fails: float = 0.0, **options) -> Memory:
    memory = Memory(params, seed, fails)
    inputs: dict[str, list] = {"i": [], "ack": [], "line": []}
    outputs = ["o", "read", "answered"]
    run_streams(simulation(LineReducer, params), inputs, outputs, feed=memory.feed, seed=seed,
                **options)  # fmt: skip
    return memory


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("line_bytes", [16, 64, 128])
def test_memory_gets_the_results(line_bytes: int, seed: int) -> None:
    memory = reduce_lines(params_of(line_bytes, 128), seed)
    assert (memory.sent, memory.in_flight) == (COUNT, {})
    assert memory.lines == memory.expected


def test_a_line_that_cannot_be_read_is_not_written() -> None:
    memory = reduce_lines(params_of(64, 128), 1, fails=0.3)
    assert memory.errors > 5
    assert memory.lines == memory.expected


def test_memory_performs_reductions_of_integers_if_it_can() -> None:
    memory = reduce_lines(params_of(64, 128, axi_atomics=True), 1, fails=0.3)
    assert (memory.sent, memory.in_flight) == (COUNT, {})
    assert memory.lines == memory.expected
    assert memory.passed > COUNT // 4
