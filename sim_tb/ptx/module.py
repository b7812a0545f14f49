"""Kernels of a PTX text: compiled to functions, and launched."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import TensorMap, TmaWarning
from golden.enums import SMEM_BYTES
from sim_tb.ptx import parser
from sim_tb.ptx.errors import PtxError, UnsupportedError
from sim_tb.ptx.instructions import BUILDERS
from sim_tb.ptx.machine import (
    LANES,
    SHARED_START,
    ClusterState,
    Cta,
    GlobalMemory,
    Grid,
    Lanes,
    Warp,
)
from sim_tb.ptx.operands import Operands, register_dtype
from sim_tb.ptx.scheduler import Step, run

_FIRST_ADDRESS = 0x10_0000_0000
"""Global address of the first array of a launch."""

_ALIGNMENT = 256
"""Alignment of arrays in global memory, in bytes."""

_ALIGNED = {("bar", "sync"), ("bar", "arrive"), ("bar", "red")}
"""Instructions that are ``.aligned`` although they do not say so (PTX ISA)."""

Size = tuple[int, int, int]


def _aligned(value: int, align: int) -> int:
    return -(-value // align) * align


class Kernel:
    """A compiled entry.

    Parameters
    ----------
    source : parser.Kernel
        The entry.
    outside : sequence of parser.Variable
        Variables of the file.

    Attributes
    ----------
    parameters : list of (str, int, int)
        Name, offset and bytes of each parameter.
    steps : list of Step
        Compiled instructions.
    lines : list of int
        Line of each instruction, and of the end.
    shared_bytes : int
        First shared address behind the static variables, rounded for the dynamic ones.

    Raises
    ------
    UnsupportedError
        If instructions are not supported: all of them, with their lines.
    """

    def __init__(self, source: parser.Kernel, outside: Sequence[parser.Variable]) -> None:
        self.name = source.name
        self.symbols: dict[str, tuple[str, int]] = {}
        self.parameters: list[tuple[str, int, int]] = []
        self._place_parameters(source)
        self._place_variables([*outside, *source.variables])
        self.dtypes = [register_dtype(kind) for kind in source.register_types]
        self.lines = [each.line for each in source.instructions]
        self.lines.append(self.lines[-1] if self.lines else source.line)
        self.steps: list[Step] = []
        refused = []
        for each in source.instructions:
            try:
                self.steps.append(self._compiled(each))
            except UnsupportedError as error:
                refused.append(error)
        if refused:
            raise UnsupportedError("\n".join(str(error) for error in refused))

    def _place_parameters(self, source: parser.Kernel) -> None:
        offset = 0
        for variable in source.parameters:
            offset = _aligned(offset, variable.align)
            self.symbols[variable.name] = ("param", offset)
            self.parameters.append((variable.name, offset, variable.size))
            offset += variable.size
        self.parameter_bytes = offset

    def _place_variables(self, variables: Sequence[parser.Variable]) -> None:
        """Give addresses to variables: static shared ones first, dynamic ones behind."""
        shared, local, align = SHARED_START, 0, 16
        for variable in variables:
            if variable.space == "shared" and variable.size:
                shared = _aligned(shared, variable.align)
                self.symbols[variable.name] = ("shared", shared)
                shared += variable.size
            elif variable.space == "shared":
                align = max(align, variable.align)
            elif variable.space == "local":
                local = _aligned(local, variable.align)
                self.symbols[variable.name] = ("local", local)
                local += variable.size
        self.local_bytes = _aligned(local, 16)
        self.shared_bytes = _aligned(shared, align)
        for variable in variables:
            if variable.space == "shared" and not variable.size:
                self.symbols[variable.name] = ("shared", self.shared_bytes)

    def _compiled(self, source: parser.Instruction) -> Step:
        operands = Operands(source, self.symbols)
        builder = BUILDERS.get(operands.parts[0])
        if builder is None:
            raise operands.refuse()
        try:
            execute = builder(operands)
        except (IndexError, KeyError) as error:
            raise operands.refuse(f"its types or operands ({error})") from None
        aligned = operands.has("aligned") or operands.parts[:2] in _ALIGNED
        if source.guard is None:
            return Step(None, False, execute, aligned)
        number, _ = operands.register(source.guard)
        return Step(number, source.guard.negated, execute, aligned)


class Module:
    """Kernels of a PTX text.

    Parameters
    ----------
    text : str or bytes
        PTX, as ``nvcc -ptx``, Triton's ``kernel.asm["ptx"]`` or clang write it, for ``sm_90`` or
        ``sm_90a``.

    Raises
    ------
    PtxError
        If the text is binary code, broken, or for another target.

    Examples
    --------
    >>> import numpy as np
    >>> text = '''.version 8.0
    ... .target sm_90a
    ... .address_size 64
    ... .entry twice(.param .u64 array) {
    ...     .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [array];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.s32 %r2, %r2, %r2;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret; }'''
    >>> array = np.arange(4, dtype=np.uint32)
    >>> Module(text).launch("twice", (1, 1, 1), (4, 1, 1), [array])
    >>> array
    array([0, 2, 4, 6], dtype=uint32)
    """

    def __init__(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            if text[:4] in (b"\x7fELF", b"\x50\xed\x55\xba"):
                raise PtxError(
                    "this is a cubin or fatbin, not PTX: get PTX from `nvcc -ptx -arch=sm_90a`, "
                    "`cuobjdump -ptx`, or kernel.asm['ptx'] of Triton"
                )
            text = text.rstrip(b"\0").decode()
        self._text = parser.parse(text)
        if self._text.target not in ("sm_90", "sm_90a"):
            raise PtxError(f".target {self._text.target}: must be sm_90 or sm_90a")
        self._kernels: dict[str, Kernel] = {}

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(self._text.kernels)

    def kernel(self, entry: str) -> Kernel:
        """Return a kernel, compiled once.

        Raises
        ------
        PtxError
            If there is no such entry, or an instruction of it is not supported.
        """
        if entry not in self._text.kernels:
            raise PtxError(f"no entry {entry}: the text has {', '.join(self.entries)}")
        if entry not in self._kernels:
            self._kernels[entry] = Kernel(self._text.kernels[entry], self._text.variables)
        return self._kernels[entry]

    def launch(
        self,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        *,
        cluster: Sequence[int] | None = None,
        smem: int = 0,
    ) -> None:
        """Run a grid; the kernel changes arrays in place.

        Parameters
        ----------
        entry : str
            Name of the kernel.
        grid, block, cluster : sequence of int
            One to three extents: blocks of the grid, threads of a block, blocks of a cluster.
        args : sequence
            One value for each parameter: an array, whose address the kernel gets; a
            `golden.TensorMap`, whose address is an offset in the
            last array before it; a number of the parameter's size; or bytes.
        smem : int
            Bytes of dynamic shared memory.

        Raises
        ------
        PtxError
            If an argument is wrong, or the kernel makes a mistake: the arrays are unchanged.
        """
        kernel = self.kernel(entry)
        if len(args) != len(kernel.parameters):
            raise PtxError(
                f"{entry} has {len(kernel.parameters)} parameters, {len(args)} arguments are given"
            )
        arrays: list[tuple[int, NDArray[np.uint8]]] = []
        outputs: list[tuple[int, NDArray[Any]]] = []
        data = np.zeros(kernel.parameter_bytes, np.uint8)
        address = _FIRST_ADDRESS
        for value, (name, offset, size) in zip(args, kernel.parameters, strict=True):
            if isinstance(value, np.ndarray) and value.ndim:
                raw = np.frombuffer(value.tobytes(), np.uint8)
                known = [at for at, each in outputs if each is value]
                if not known:
                    arrays.append((address, raw))
                    outputs.append((address, value))
                encoded = (known[0] if known else address).to_bytes(8, "little")
                address = address if known else _aligned(address + raw.size, _ALIGNMENT)
            elif isinstance(value, TensorMap):
                encoded = self._relocated(name, value, outputs).encode()
            elif isinstance(value, bytes):
                encoded = value
            else:
                encoded = _scalar(name, value, size)
            if len(encoded) != size:
                raise PtxError(f"{name} has {size} bytes, its argument has {len(encoded)}")
            data[offset : offset + size] = np.frombuffer(encoded, np.uint8)
        memory = GlobalMemory(arrays)
        execute(kernel, grid, block, cluster, smem, data, memory)
        for at, array in outputs:
            array[...] = memory.at(at, array.nbytes).view(array.dtype).reshape(array.shape)

    @staticmethod
    def _relocated(
        name: str, value: TensorMap, outputs: list[tuple[int, NDArray[Any]]]
    ) -> TensorMap:
        """Return a map whose address, an offset in the last array, is a global address."""
        if not outputs:
            raise PtxError(f"{name}: a tensor map needs an array among the arguments before it")
        at, array = outputs[-1]
        if value.global_address >= array.nbytes:
            raise PtxError(
                f"{name}: address {value.global_address:#x} of the map is outside the array before "
                f"it, which has {array.nbytes} bytes"
            )
        return value.with_address(at + value.global_address)


def _scalar(name: str, value: Any, size: int) -> bytes:
    """Return the bytes of a number as a parameter of ``size`` bytes."""
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, float) and size in (4, 8):
        return np.array(value, f"f{size}").tobytes()
    if isinstance(value, int):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
            return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
        raise PtxError(f"{name} has {size} bytes: {value} does not fit")
    raise PtxError(f"{name}: an argument of type {type(value).__name__} is no parameter")


def _extents(name: str, values: Sequence[int], most: int) -> Size:
    """Return one to three extents as three."""
    extents = tuple(int(value) for value in values)
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise PtxError(f"{name} = {extents}: must be one to three extents of at least 1")
    x, y, z = (*extents, 1, 1)[:3]
    if x * y * z > most:
        raise PtxError(f"{name} = {extents}: must be at most {most} together")
    return x, y, z


def execute(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    cluster: Sequence[int] | None,
    smem: int,
    parameters: NDArray[np.uint8],
    memory: GlobalMemory,
) -> Grid:
    """Run a grid on a memory, cluster by cluster; return its state with the instruction count.

    Parameters are those of `Module.launch`; ``cluster`` None is a launch without clusters, and
    ``parameters`` has the bytes of all parameters.
    """
    blocks = _extents("grid", grid, 1 << 31)
    threads = _extents("block", block, 1024)
    size = _extents("cluster", cluster or (1, 1, 1), 16)
    for axis in range(3):
        if blocks[axis] % size[axis]:
            raise PtxError(f"grid = {blocks}: must be multiples of cluster = {size}")
    shared = kernel.shared_bytes + smem
    if smem < 0 or shared > SMEM_BYTES:
        raise PtxError(
            f"smem = {smem}: must be from 0 to {SMEM_BYTES - kernel.shared_bytes} for {kernel.name}"
        )
    state = Grid(
        blocks, threads, size, parameters, memory, kernel.local_bytes, bool(cluster), kernel.lines
    )
    ranks = [(x, y, z) for z in range(size[2]) for y in range(size[1]) for x in range(size[0])]
    for z in range(0, blocks[2], size[2]):
        for y in range(0, blocks[1], size[1]):
            for x in range(0, blocks[0], size[0]):
                together = ClusterState(memory, len(ranks), shared)
                for rank, (i, j, k) in enumerate(ranks):
                    cta = Cta(state, together, (x + i, y + j, z + k), rank)
                    count = -(-threads[0] * threads[1] * threads[2] // LANES)
                    cta.warps = [Warp(cta, n, _registers(kernel)) for n in range(count)]
                    together.ctas.append(cta)
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore", TmaWarning)
                    run(state, kernel.steps, together.ctas)
    return state


def _registers(kernel: Kernel) -> list[Lanes]:
    """Return the registers of a warp, all zero."""
    return [np.zeros(LANES, dtype) for dtype in kernel.dtypes]
