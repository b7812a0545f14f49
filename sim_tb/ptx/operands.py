"""Interface between the compiler of a kernel and the modules of instructions.

A module of ``sim_tb.ptx.instructions`` has builders. A builder gets an `Operands`, once for each
instruction of a kernel, and returns a function that executes it::

    @instruction("add")
    def add(ins: Operands) -> Execute:
        kind = ins.parts[-1]  # the opcode, split at its dots
        a, b, write = ins.read(1, kind), ins.read(2, kind), ins.write(0)

        def execute(warp: Warp, mask: Mask) -> None:
            write(warp, a(warp) + b(warp), mask)

        return execute

A reader returns 32 values, a writer stores those of the lanes in ``mask``, which are at least one.
Execution returns None; the index of the instruction to jump to, or one for each lane; `EXIT`; or
`YIELD` or a `Wait`, after which the instruction is complete. A builder calls ``ins.refuse`` for
what it does not have, so that it is refused before the kernel runs.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np

from sim_tb.ptx.errors import PtxError, UnsupportedError
from sim_tb.ptx.machine import LANES, SHARED_START, Lanes, Mask, Warp
from sim_tb.ptx.syntax import (
    Address,
    Function,
    Instruction,
    Name,
    Number,
    Operand,
    Pair,
    Vector,
)
from sim_tb.ptx.waits import Wait, Yield

EXIT = -1
"""Result of an instruction that ends its threads."""

Execute = Callable[[Warp, Mask], int | Lanes | Yield | Wait | None]
Read = Callable[[Warp], Lanes]
Write = Callable[[Warp, Lanes, Mask], None]
Builder = Callable[["Operands"], Execute]
Compute = Callable[..., Lanes]
"""Function of the values of all lanes."""

BUILDERS: dict[str, Builder] = {}
"""Builder of each instruction, by the first part of its opcode."""

DTYPES: dict[str, np.dtype[np.generic]] = {
    "pred": np.dtype(bool),
    "b8": np.dtype(np.uint8),
    "u8": np.dtype(np.uint8),
    "s8": np.dtype(np.int8),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
    "e4m3x2": np.dtype(np.uint16),
    "e5m2x2": np.dtype(np.uint16),
    "tf32": np.dtype(np.uint32),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for kind in "bu" for bits in (16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (16, 32, 64)},
}
"""Type of the values that a reader returns, by PTX type; packed and unknown floats are bits."""

_AXES = {"x": 0, "y": 1, "z": 2}


def register_dtype(kind: str) -> "np.dtype[np.generic]":
    """Return the type of a register's array."""
    if kind == "pred":
        return DTYPES["pred"]
    return np.dtype(f"u{max(DTYPES[kind].itemsize, 2)}")


def instruction(*names: str) -> Callable[[Builder], Builder]:
    """Register a builder for all opcodes that begin with one of ``names``."""

    def register(builder: Builder) -> Builder:
        for name in names:
            if name in BUILDERS:
                raise ValueError(f"{name}: two builders")
            BUILDERS[name] = builder
        return builder

    return register


def apply(write: Write, function: Compute, sources: list[Read]) -> Execute:
    """Return the execution of a function of all lanes."""
    if len(sources) == 2:
        a, b = sources
        return lambda warp, mask: write(warp, function(a(warp), b(warp)), mask)
    return lambda warp, mask: write(warp, function(*(read(warp) for read in sources)), mask)


def _constant(values: Lanes) -> Read:
    values.setflags(write=False)
    return lambda _warp: values


def number_bits(number: Number, kind: str) -> int:
    """Return the bits of a constant as a value of a type."""
    bits = 8 * DTYPES[kind].itemsize if kind != "pred" else 1
    if number.width == 64 and kind == "f32":
        double = np.array([number.value], np.uint64).view(np.float64)
        return int(double.astype(np.float32).view(np.uint32)[0])
    return number.value & ((1 << bits) - 1)


def shown(operand: Operand) -> str:
    """Return an operand as text, for messages."""
    if isinstance(operand, Name):
        return ("!" if operand.negated else "") + operand.text
    if isinstance(operand, Number):
        return str(operand.value)
    if isinstance(operand, Vector):
        return "{" + ", ".join(shown(item) for item in operand.items) + "}"
    if isinstance(operand, Pair):
        return f"{operand.first.text}|{operand.second.text}"
    return f"[{shown(operand.base)}]" if isinstance(operand, Address) else operand.function


class Operands:
    """An instruction, with readers and writers of its operands.

    Attributes
    ----------
    instruction : Instruction
        The instruction as written.
    parts : tuple of str
        The opcode, split at its dots.
    operands : tuple of Operand
        Operands from left to right.
    symbols : dict of str to (str, int)
        State space and address of each variable and parameter.
    used : frozenset of int
        Registers that an instruction of the kernel reads.
    functions : mapping of str to Function
        Functions that the kernel calls.
    """

    def __init__(
        self,
        instruction: Instruction,
        symbols: dict[str, tuple[str, int]],
        used: frozenset[int] = frozenset(),
        functions: Mapping[str, Function] = MappingProxyType({}),
    ) -> None:
        self.instruction = instruction
        self._used = used
        self.parts = instruction.parts
        self.operands = instruction.operands
        self.symbols = symbols
        self.functions = functions

    def __len__(self) -> int:
        return len(self.operands)

    def has(self, part: str) -> bool:
        """Return whether the opcode has a part."""
        return part in self.parts

    def refuse(self, what: str = "") -> UnsupportedError:
        """Return the error of an instruction, a modifier or an operand that is not there."""
        text = f"{self.instruction.opcode} is not supported"
        return UnsupportedError(text + (f": {what}" if what else ""), self.instruction.line)

    def require_parts(self, known: Iterable[str]) -> None:
        """Refuse the instruction if its opcode has a part that is not known."""
        for part in self.parts[1:]:
            if part not in known:
                raise self.refuse(f".{part}")

    def require_sources(self, count: int) -> None:
        """Refuse the instruction if it has not one destination and ``count`` sources."""
        if len(self) != 1 + count:
            raise self.refuse(f"{len(self)} operands: must be {1 + count}")

    def items(self, index: int) -> tuple[Operand, ...]:
        """Return the operands in the braces of operand ``index``, or the operand alone."""
        operand = self.operands[index]
        return operand.items if isinstance(operand, Vector) else (operand,)

    def register(self, operand: Operand) -> tuple[int, str]:
        """Return number and type of a register."""
        found = None
        if isinstance(operand, Name):
            found = self.instruction.scope.register(operand.text)
        if found is None:
            raise PtxError(f"{shown(operand)} is not a register", self.instruction.line)
        return found

    def is_used(self, index: int) -> bool:
        """Return whether an instruction of the kernel reads the register of a destination."""
        operand = self.operands[index]
        if isinstance(operand, Name) and operand.text == "_":
            return False
        return self.register(operand)[0] in self._used

    def read(self, index: int | Operand, kind: str) -> Read:
        """Return the reader of an operand as values of a PTX type.

        A register that is wider than the type gives its low bits; a narrower one is extended with
        zeros.
        """
        operand = self.operands[index] if isinstance(index, int) else index
        dtype = DTYPES[kind]
        if isinstance(operand, Number):
            if kind == "pred":
                return _constant(np.full(LANES, operand.value != 0))
            bits = np.full(LANES, number_bits(operand, kind), f"u{dtype.itemsize}")
            return _constant(bits.view(dtype))
        if not isinstance(operand, Name):
            raise self.refuse(f"operand {shown(operand)}")
        found = self.instruction.scope.register(operand.text)
        if found is None:
            return self._special(operand.text, dtype)
        number, register_kind = found
        if (register_kind == "pred") != (kind == "pred"):
            raise self.refuse(f"{operand.text} is a register of type .{register_kind}")
        own = register_dtype(register_kind)
        if operand.negated:
            return lambda warp: ~warp.registers[number]
        if dtype == own:
            return lambda warp: warp.registers[number]
        if dtype.itemsize == own.itemsize:
            return lambda warp: warp.registers[number].view(dtype)
        bits_dtype = np.dtype(f"u{dtype.itemsize}")
        return lambda warp: warp.registers[number].astype(bits_dtype).view(dtype)

    def require_items(self, index: int, count: int) -> None:
        """Refuse the instruction if a vector operand has not ``count`` items."""
        found = len(self.items(index))
        if found != count:
            raise self.refuse(f"{found} values: must be {count}")

    def reads(self, index: int, kind: str) -> list[Read]:
        """Return the readers of a vector operand."""
        return [self.read(operand, kind) for operand in self.items(index)]

    def _special(self, text: str, dtype: "np.dtype[np.generic]") -> Read:
        """Return the reader of a special register or of the address of a variable."""
        if text in self.symbols:
            space, address = self.symbols[text]
            if space == "shared":
                return lambda warp: np.full(LANES, address | warp.cta.shared_base, dtype)
            if space == "global":
                return lambda warp: np.full(LANES, address + warp.cta.grid.variables, dtype)
            return _constant(np.full(LANES, address, dtype))
        name, _, axis = text.partition(".")
        reader = _SPECIAL.get(name)
        if reader is None or (axis and axis not in _AXES):
            raise self.refuse(f"operand {text}")
        which = _AXES.get(axis, 0)

        def read(warp: Warp) -> Lanes:
            value = reader(warp, which)
            return np.broadcast_to(np.asarray(value), LANES).astype(dtype)

        return read

    def write(self, index: int | Operand) -> Write:
        """Return the writer of a destination; ``_`` is not written.

        Values of the register's width are stored as bits, narrower ones are extended: with their
        sign, if the type is signed.
        """
        operand = self.operands[index] if isinstance(index, int) else index
        if isinstance(operand, Name) and operand.text == "_":
            return lambda _warp, _values, _mask: None
        number, kind = self.register(operand)
        dtype = register_dtype(kind)
        line = self.instruction.line

        def write(warp: Warp, values: Lanes, mask: Mask) -> None:
            if values.dtype != dtype:
                if "b" in (dtype.kind, values.dtype.kind):
                    raise PtxError(f"{shown(operand)}: a value of another type", line)
                if values.dtype.itemsize == dtype.itemsize:
                    values = np.ascontiguousarray(values).view(dtype)
                elif values.dtype.kind == "f":
                    values = values.view(f"u{values.dtype.itemsize}").astype(dtype)
                else:
                    values = values.astype(dtype)
            warp.registers[number] = np.where(mask, values, warp.registers[number])

        return write

    def writes(self, index: int) -> list[Write]:
        """Return the writers of a vector operand."""
        return [self.write(operand) for operand in self.items(index)]

    def pair(self, index: int) -> tuple[Write, Write | None]:
        """Return the writers of ``a|b``; the second is None if there is one destination."""
        operand = self.operands[index]
        if isinstance(operand, Pair):
            return self.write(operand.first), self.write(operand.second)
        return self.write(operand), None

    def address(self, index: int) -> Callable[[Warp], "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
        """Return the reader of the address of a memory operand, without its coordinates."""
        operand = self.operands[index]
        if not isinstance(operand, Address):
            raise self.refuse(f"{shown(operand)} is no address")
        offset, base = operand.offset, operand.base
        if isinstance(base, Name) and base.text in self.symbols:
            space, start = self.symbols[base.text]
            if space == "param":
                fixed = np.full(LANES, start + offset, np.int64)
                return lambda _warp: fixed
        if isinstance(base, Name) and self.instruction.scope.register(base.text):
            _, kind = self.register(base)
            read = self.read(base, "s64" if kind[1:] == "64" else "u32")
        else:
            read = self.read(base, "s64")
        return lambda warp: read(warp).astype(np.int64) + offset

    def coordinates(self, index: int) -> list[Read]:
        """Return the readers of the coordinates of a tensor operand, as s32."""
        operand = self.operands[index]
        if not isinstance(operand, Address) or operand.coordinates is None:
            raise self.refuse(f"{shown(operand)} has no coordinates")
        return [self.read(coordinate, "s32") for coordinate in operand.coordinates]


def _cluster_index(warp: Warp, axis: int) -> int:
    return warp.cta.index[axis] % warp.cta.grid.cluster[axis]


_SPECIAL: dict[str, Callable[[Warp, int], object]] = {
    "%tid": lambda warp, axis: warp.thread[axis],
    "%ntid": lambda warp, axis: warp.cta.grid.block[axis],
    "%ctaid": lambda warp, axis: warp.cta.index[axis],
    "%nctaid": lambda warp, axis: warp.cta.grid.grid[axis],
    "%laneid": lambda _warp, _axis: np.arange(LANES),
    "%warpid": lambda warp, _axis: warp.index,
    "%nwarpid": lambda _warp, _axis: 64,
    "%smid": lambda warp, _axis: warp.cta.rank,
    "%nsmid": lambda _warp, _axis: 132,
    "%lanemask_eq": lambda _warp, _axis: 1 << np.arange(LANES),
    "%lanemask_lt": lambda _warp, _axis: (1 << np.arange(LANES)) - 1,
    "%lanemask_ge": lambda _warp, _axis: 0x100000000 - (1 << np.arange(LANES)),
    "%lanemask_gt": lambda _warp, _axis: 0x100000000 - (2 << np.arange(LANES)),
    "%lanemask_le": lambda _warp, _axis: (2 << np.arange(LANES)) - 1,
    "%cluster_ctarank": lambda warp, _axis: warp.cta.rank,
    "%cluster_nctarank": lambda warp, _axis: len(warp.cta.cluster.ctas),
    "%cluster_ctaid": _cluster_index,
    "%cluster_nctaid": lambda warp, axis: warp.cta.grid.cluster[axis],
    "%clusterid": lambda warp, axis: warp.cta.index[axis] // warp.cta.grid.cluster[axis],
    "%is_explicit_cluster": lambda warp, _axis: warp.cta.grid.clustered,
    "%nclusterid": lambda warp, axis: warp.cta.grid.grid[axis] // warp.cta.grid.cluster[axis],
    "%gridid": lambda _warp, _axis: 0,
    "%total_smem_size": lambda warp, _axis: warp.cta.cluster.size - SHARED_START,
    "%aggr_smem_size": lambda warp, _axis: warp.cta.cluster.size,
    "%dynamic_smem_size": lambda warp, _axis: warp.cta.grid.dynamic_smem,
    "WARP_SZ": lambda _warp, _axis: LANES,
    "%clock_hi": lambda warp, _axis: warp.clock >> 32,
    "%globaltimer_hi": lambda warp, _axis: warp.clock >> 32,
    "%clock": lambda warp, _axis: warp.clock & 0xFFFFFFFF,
    "%clock64": lambda warp, _axis: warp.clock,
    "%globaltimer": lambda warp, _axis: warp.clock,
    "%globaltimer_lo": lambda warp, _axis: warp.clock & 0xFFFFFFFF,
}
"""Special registers: value from warp and axis. A clock takes a nanosecond (choice)."""
