"""Runs a reduction unit in Verilator, millions of sectors in seconds, and makes operands for it.

What was built stays in the cache, by a hash of its contents (``hw.flow.cache``).
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from golden.enums import DataType
from golden.enums import ReductionOp as GoldenOp
from golden.reduction import Words, operation
from hw.flow.cache import cached, digest, sources
from hw.flow.lint import VERILATOR, WAIVERS
from hw.flow.verilog import convert
from hw.layouts.isa import ElementType, ReductionOp
from hw.layouts.ports import SECTOR_BYTES, reduction_request_layout
from hw.params import TmaParams
from hw.reduce.reduction_unit import ReductionUnit
from sim_tb.simulator.runner import MAKEFLAGS, make_flags, tools

PARAMS = TmaParams()
FLAGS = (*MAKEFLAGS, "OPT_FAST=-O1")
HARNESS = Path(__file__).with_name("reduction_harness.cpp")
ARGUMENTS = (
    *("--cc", "--exe", "--build", "-j", "2", "--assert", "-Wall", "-O3", "--top-module", "bench"),
    *("--Mdir", "obj", "-o", "bench", "-CFLAGS", "-std=gnu++20"),
    *("lint.vlt", "bench.v", "harness.cpp"),
)

HEADER = np.dtype(
    [("base", "<u8"), ("sectors", "<u4"), ("requests", "<u4"), ("stall", "<u4"), ("seed", "<u4")]
)
REQUEST = np.dtype(
    [
        ("sector", "<u8"),
        ("tag", "<u4"),
        ("op", "u1"),
        ("element_type", "u1"),
        ("pieces", "u1"),
        ("reserved", "u1"),
        ("data", "u1", SECTOR_BYTES),
    ]
)
DONE = np.dtype([("tag", "<u4"), ("clock", "<u4")])
"""Records that the harness reads and writes."""

BASE = 0x5A5_1234_5678_9ABC
"""Sector address of the memory."""

CHUNK = 1 << 16
"""Sectors of arithmetic that are reduced in one run."""

GOLDEN_TYPES = {
    ElementType.U32: DataType.UINT32,
    ElementType.S32: DataType.INT32,
    ElementType.U64: DataType.UINT64,
    ElementType.S64: DataType.INT64,
    ElementType.F16: DataType.FLOAT16,
    ElementType.BF16: DataType.BFLOAT16,
    ElementType.F32: DataType.FLOAT32,
    ElementType.F32_FTZ: DataType.FLOAT32_FTZ,
    ElementType.F64: DataType.FLOAT64,
}

GOLDEN_OPS = {op: GoldenOp[op.name] for op in ReductionOp}


class PlainPorts(wiring.Component):
    """Reduction unit with plain ports: C++ accesses the fields of a request one by one."""

    def __init__(self) -> None:
        self.unit = unit = ReductionUnit(PARAMS)
        self.inner = {
            "_".join(path): (member.flow, value)
            for path, member, value in unit.signature.flatten(unit)
        }
        flow, payload = self.inner.pop("request_payload")
        fields = reduction_request_layout(PARAMS).members
        self.inner |= {f"request_{name}": (flow, payload[name]) for name in fields}
        super().__init__({name: flow(value.shape()) for name, (flow, value) in self.inner.items()})

    def elaborate(self, _platform) -> Module:
        m = Module()
        m.submodules.unit = self.unit
        for name, (flow, inner) in self.inner.items():
            port = getattr(self, name)
            m.d.comb += inner.eq(port) if flow == In else port.eq(inner)
        return m


@cache
def executable() -> Path:
    """The harness around the unit, built if it is not there; Verilator's warnings are errors."""
    written = cached("verilog", digest([sources("hw"), Path(__file__).read_text()]), _write)
    files = {
        "bench.v": (written / "bench.v").read_text(),
        "harness.cpp": HARNESS.read_text(),
        "lint.vlt": WAIVERS.read_text(),
    }
    parts = [*files.values(), *ARGUMENTS, *FLAGS, *tools()]
    return cached("reduction", digest(parts), partial(_build, files)) / "bench"


def _write(directory: Path) -> None:
    (directory / "bench.v").write_text(convert(PlainPorts(), "bench"))


def _build(files: dict[str, str], directory: Path) -> None:
    for file, text in files.items():
        (directory / file).write_text(text)
    env = {**os.environ, "MAKEFLAGS": make_flags(FLAGS)}
    env.pop("MAKELEVEL", None)
    built = subprocess.run(
        [VERILATOR, *ARGUMENTS], cwd=directory, env=env, capture_output=True, text=True
    )
    if built.returncode:
        raise RuntimeError(f"the build failed:\n{built.stdout}{built.stderr}")
    shutil.move(directory / "obj" / "bench", directory)
    shutil.rmtree(directory / "obj")


@dataclass(frozen=True)
class Run:
    """Outcome of a run of the unit.

    ``accepted`` are clocks; ``tags`` and ``done`` are tags and clocks of ``done``, in order.
    """

    memory: np.ndarray
    accepted: np.ndarray
    tags: np.ndarray
    done: np.ndarray


def run(memory: np.ndarray, requests: np.ndarray, *, stall: float = 0, seed: int = 0) -> Run:
    """Apply ``requests``, of type ``REQUEST``, to ``memory``, an array of rows of 32 bytes."""
    header = np.array((BASE, len(memory), len(requests), round(256 * stall), seed), HEADER)
    given = header.tobytes() + memory.tobytes() + requests.tobytes()
    ran = subprocess.run([executable()], input=given, capture_output=True)
    if ran.returncode:
        raise AssertionError(f"seed {seed}: {ran.stderr.decode()}{ran.stdout[-1000:]!r}")
    size, count = memory.size, len(requests)
    assert len(ran.stdout) == size + count * (4 + DONE.itemsize)
    done = np.frombuffer(ran.stdout, DONE, count, size + 4 * count)
    return Run(
        np.frombuffer(ran.stdout, np.uint8, size).reshape(-1, SECTOR_BYTES),
        np.frombuffer(ran.stdout, np.uint32, count, size),
        done["tag"],
        done["clock"],
    )


def make_requests(sectors: np.ndarray, op, kind, data: np.ndarray, pieces=3) -> np.ndarray:
    """Requests for these sectors of the memory, with tags in turn."""
    requests = np.zeros(len(sectors), REQUEST)
    requests["sector"] = np.uint64(BASE) + sectors.astype(np.uint64)
    requests["tag"] = np.arange(len(sectors)) % PARAMS.tags
    requests["op"] = op
    requests["element_type"] = kind
    requests["pieces"] = pieces
    requests["data"] = data
    return requests


def golden(op: ReductionOp, kind: ElementType, m: Words, s: Words) -> Words:
    """Return the result of the golden model for memory operands and shared-memory operands."""
    return operation(GOLDEN_OPS[op], GOLDEN_TYPES[kind])(m, s)


def check(op: ReductionOp, kind: ElementType, m: Words, s: Words, what: object = "") -> int:
    """Compare the unit with the golden model on pairs of elements, a sector a clock.

    Returns
    -------
    int
        Number of pairs.
    """
    in_sector = SECTOR_BYTES // m.itemsize
    step = CHUNK * in_sector
    for first in range(0, len(m), step):
        memory_operand, source_operand = m[first : first + step], s[first : first + step]
        rest = -len(memory_operand) % in_sector
        memory_operand, source_operand = (
            np.pad(memory_operand, (0, rest)),
            np.pad(source_operand, (0, rest)),
        )
        memory = memory_operand.view(np.uint8).reshape(-1, SECTOR_BYTES)
        data = source_operand.view(np.uint8).reshape(-1, SECTOR_BYTES)
        ran = run(memory, make_requests(np.arange(len(memory)), op.value, kind.value, data))
        got = ran.memory.reshape(-1).view(m.dtype)
        want = golden(op, kind, memory_operand, source_operand)
        wrong = np.flatnonzero(got != want)
        if len(wrong):
            i = wrong[0]
            words = " ".join(
                f"{name} {int(word[i]):#0{2 + 2 * m.itemsize}x}"
                for name, word in (
                    ("m", memory_operand),
                    ("s", source_operand),
                    ("got", got),
                    ("expected", want),
                )
            )
            text = f"{kind.name} {op.name} {what}: {len(wrong)} wrong, the first: {words}"
            raise AssertionError(text)
        assert (np.diff(ran.accepted) == 1).all(), "less than a sector a clock"
    return len(m)


@dataclass(frozen=True)
class Format:
    """A floating-point format, and classes of pairs of its words in which an adder may err."""

    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        """Width of a word, in bits."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def dtype(self) -> np.dtype:
        """NumPy type of the words."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def infinity(self) -> int:
        """Word of positive infinity."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    def words(self, sign, exponent, fraction) -> Words:
        """Words of these fields, each of which may be an array."""
        fields = (np.asarray(field).astype(np.uint64) for field in (sign, exponent, fraction))
        sign, exponent, fraction = fields
        mask = np.uint64((1 << self.fraction_bits) - 1)
        word = exponent << np.uint64(self.fraction_bits) | fraction & mask
        return (word | sign << np.uint64(self.bits - 1)).astype(self.dtype)

    def anything(self, rng: np.random.Generator, count: int) -> Words:
        """Random words."""
        return np.frombuffer(rng.bytes(count * self.dtype.itemsize), self.dtype)

    def specials(self) -> Words:
        """Zeros, limits of subnormals and normals, infinities, NaN, and what is near to one."""
        f = self.fraction_bits
        one = ((1 << (self.exponent_bits - 1)) - 1) << f
        quiet = self.infinity | 1 << (f - 1)
        tiny = 1 << f  # the smallest normal number
        words = [0, 1, 2, tiny >> 1, tiny - 2, tiny - 1, tiny, tiny + 1, 2 * tiny - 1, 2 * tiny]
        for word in (one, one - (f << f), one - ((f + 1) << f), one + ((f + 1) << f)):
            words += [word - 1, word, word + 1]
        largest = self.infinity - 1
        half = largest - tiny + 1 - ((f + 1) << f)  # half an ulp of the largest
        words += [half - 1, half, half + 1, largest - tiny, largest - 1, largest, self.infinity]
        words += [self.infinity + 1, quiet - 1, quiet, quiet + 1, (1 << (self.bits - 1)) - 1]
        positive = np.array(sorted({word for word in words if word >= 0}), np.uint64)
        return np.concatenate([positive, positive | np.uint64(1 << (self.bits - 1))]).astype(
            self.dtype
        )

    def _signs(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.integers(0, 2, count)

    def every_exponent(self, rng: np.random.Generator, count: int, start: int) -> tuple[Words, ...]:
        """Pairs of exponents in turn, from number ``start`` on; random signs and fractions."""
        pair = np.arange(start, start + count)
        exponents = pair & ((1 << self.exponent_bits) - 1), pair >> self.exponent_bits
        return tuple(
            self.words(
                self._signs(rng, count),
                exponent & ((1 << self.exponent_bits) - 1),
                rng.integers(0, 1 << self.fraction_bits, count),
            )
            for exponent in exponents
        )

    def near(self, rng: np.random.Generator, count: int) -> tuple[Words, ...]:
        """Exponents that differ by 2 at most."""
        top = (1 << self.exponent_bits) - 1
        first = rng.integers(0, top + 1, count)
        second = np.clip(first + rng.integers(-2, 3, count), 0, top)
        fractions = (rng.integers(0, 1 << self.fraction_bits, count) for _ in range(2))
        signs = (self._signs(rng, count) for _ in range(2))
        return tuple(map(self.words, signs, (first, second), fractions))

    def halfway(self, rng: np.random.Generator, count: int) -> tuple[Words, ...]:
        """Sums on, or just beside, the middle between two numbers: at every distance of exponents,
        and every number of bits that the smaller one has; half of them near the largest numbers.
        """
        f = self.fraction_bits
        top = (1 << self.exponent_bits) - 2
        number = np.arange(count)
        distance = number % (f + 5)
        kept = number // (f + 5) % (f + 2)  # bits of the smaller fraction below a random part
        exponent = np.minimum(rng.integers(0, top + 1, count) + distance, top)
        exponent = np.where(rng.random(count) < 0.5, top - rng.integers(0, 2, count), exponent)
        fraction = rng.integers(0, 1 << f, count)
        fraction = np.where(rng.random(count) < 0.3, (1 << f) - 1 - (fraction & 1), fraction)
        unit = 1 << kept
        smaller = rng.integers(0, 1 << f, count) // unit * unit + (unit >> 1)
        smaller += rng.integers(-1, 2, count)
        large = self.words(self._signs(rng, count), exponent, fraction)
        small = self.words(self._signs(rng, count), np.maximum(exponent - distance, 0), smaller)
        swap = rng.random(count) < 0.5
        return np.where(swap, small, large), np.where(swap, large, small)

    def cancelling(self, rng: np.random.Generator, count: int) -> tuple[Words, ...]:
        """Opposite numbers that differ in the last bits, of every number; some are subnormal."""
        word = self.anything(rng, count)
        small = rng.integers(0, 2 * (self.fraction_bits + 2) << self.fraction_bits, count)
        small = small.astype(self.dtype) % self.dtype.type(self.infinity)
        word = np.where(rng.random(count) < 0.3, small, word)
        kept = self.dtype.type(1) << (np.arange(count) % (self.fraction_bits + 3)).astype(
            self.dtype
        )
        by = np.where(rng.random(count) < 0.5, kept, self.anything(rng, count) % kept)
        by = np.where(rng.random(count) < 0.5, by, self.dtype.type(0) - by)
        return word, (word + by) ^ self.dtype.type(1 << (self.bits - 1))

    def special(self, rng: np.random.Generator, count: int) -> tuple[Words, ...]:
        """Special words with each other, then with random ones."""
        specials = self.specials()
        crossed = tuple(word.reshape(-1) for word in np.meshgrid(specials, specials))
        rest = count - len(crossed[0])
        pair = rng.choice(specials, rest), self.anything(rng, rest)
        swap = rng.random(rest) < 0.5
        mixed = np.where(swap, *pair), np.where(swap, *pair[::-1])
        return tuple(np.concatenate(pair) for pair in zip(crossed, mixed, strict=True))

    def pairs(self, seed: int) -> Iterator[tuple[Words, ...]]:
        """Half a million pairs: all classes, random and near ones twice as many."""
        rng = np.random.default_rng([seed, self.fraction_bits])
        count = 1 << 16
        yield self.special(rng, count)
        yield self.every_exponent(rng, count, seed * count)
        yield self.halfway(rng, count)
        yield self.cancelling(rng, count)
        yield self.near(rng, 2 * count)
        yield self.anything(rng, 2 * count), self.anything(rng, 2 * count)


FORMATS = {
    ElementType.F16: Format(5, 10),
    ElementType.BF16: Format(8, 7),
    ElementType.F32: Format(8, 23),
    ElementType.F32_FTZ: Format(8, 23),
    ElementType.F64: Format(11, 52),
}
