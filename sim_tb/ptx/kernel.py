"""Kernels of a PTX text, compiled to functions."""

from collections.abc import Iterable, Iterator, Sequence

from sim_tb.ptx import parser, syntax
from sim_tb.ptx.control_flow import block_order
from sim_tb.ptx.errors import PtxError, UnsupportedError
from sim_tb.ptx.instructions import BUILDERS
from sim_tb.ptx.machine import SHARED_START
from sim_tb.ptx.operands import Operands, register_dtype
from sim_tb.ptx.scheduler import Step

_SPECIAL_FUNCTIONS = {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div"}
"""Instructions whose ``.approx`` forms the special-function unit executes."""

_ALIGNED = {("bar", "sync"), ("bar", "arrive"), ("bar", "red")}
"""Instructions that are ``.aligned`` although they do not say so (PTX ISA)."""


_EXCHANGES = {"shfl", "vote", "match", "redux", "elect"}
"""Instructions with ``.sync`` whose last operand has the threads that take part."""

_ALL = 0xFFFFFFFF
"""Bits of all threads of a warp."""


def _is_of_all_threads(source: syntax.Instruction) -> bool:
    """Return whether an instruction waits until all threads of the warp execute it."""
    if source.parts[0] not in _EXCHANGES or not source.operands:
        return False
    members = source.operands[-1]
    return isinstance(members, syntax.Number) and members.value & _ALL == _ALL


def align_up(value: int, align: int) -> int:
    """Return the least multiple of ``align`` that is not below ``value``."""
    return -(-value // align) * align


def registers_of(source: syntax.Instruction, operands: Iterable[object]) -> Iterator[int]:
    """Yield the numbers of the registers that operands name."""
    for operand in operands:
        if isinstance(operand, syntax.Name):
            found = source.scope.register(operand.text)
            if found is not None:
                yield found[0]
        elif isinstance(operand, syntax.Vector):
            yield from registers_of(source, operand.items)
        elif isinstance(operand, syntax.Pair):
            yield from registers_of(source, (operand.first, operand.second))
        elif isinstance(operand, syntax.Address):
            yield from registers_of(source, (operand.base, *(operand.coordinates or ())))


def _sources(source: syntax.Instruction) -> Iterator[int]:
    """Yield the registers that an instruction may read: all but a destination that is first."""
    first = source.operands[:1]
    has_result = first and not isinstance(first[0], syntax.Address)
    yield from registers_of(source, source.operands[1:] if has_result else source.operands)
    if source.guard is not None:
        yield from registers_of(source, (source.guard,))


def _block_lines(instructions: Sequence[syntax.Instruction]) -> list[int]:
    """Return the line at which the basic block of each instruction begins: behind a label."""
    starts: set[int] = set()
    for each in instructions:
        scope: syntax.Scope | None = each.scope
        while scope is not None:
            starts.update(scope.labels.values())
            scope = scope.parent
    lines, line = [], 0
    for number, each in enumerate(instructions):
        if number in starts or not number:
            line = each.line
        lines.append(line)
    return lines


class Kernel:
    """A compiled entry.

    Parameters
    ----------
    source : syntax.Kernel
        The entry.
    outside : sequence of syntax.Variable
        Variables of the file.

    Attributes
    ----------
    parameters : list of (str, int, int)
        Name, offset and bytes of each parameter.
    steps : list of Step
        Compiled instructions.
    source : list of Instruction
        Instructions as written.
    blocks : list of int
        Line of the first instruction of each instruction's basic block.
    ranks : list of int
        Rank of each instruction's basic block, by which diverged threads take turns.
    block_ends : list of int
        The instruction behind each instruction's basic block.
    lines : list of int
        Line of each instruction, and of the end.
    shared_bytes : int
        First shared address behind the static variables, rounded for the dynamic ones.
    local_bytes : int
        Bytes of local memory of a thread.
    data : bytes
        Variables in ``.global`` and ``.const``, as they are at the start of a launch.

    Raises
    ------
    UnsupportedError
        If instructions are not supported: all of them, with their lines.
    """

    def __init__(self, source: syntax.Kernel, outside: Sequence[syntax.Variable]) -> None:
        self.name = source.name
        self._functions = source.functions
        self.symbols: dict[str, tuple[str, int]] = {}
        self.parameters: list[tuple[str, int, int]] = []
        self._place_parameters(source)
        self._place_variables([*outside, *source.variables])
        self.dtypes = [register_dtype(kind) for kind in source.register_types]
        self.lines = [each.line for each in source.instructions]
        self.lines.append(self.lines[-1] if self.lines else source.line)
        self.source = source.instructions
        self.blocks = _block_lines(source.instructions)
        self.ranks, self.block_ends = block_order(source.instructions, source.functions.values())
        self.steps: list[Step] = []
        self._used = frozenset(number for each in source.instructions for number in _sources(each))
        refused = []
        for each in source.instructions:
            try:
                self.steps.append(self._compiled(each))
            except UnsupportedError as error:
                refused.append(error)
        if refused:
            raise UnsupportedError("\n".join(str(error) for error in refused))

    def _place_parameters(self, source: syntax.Kernel) -> None:
        offset = 0
        for variable in source.parameters:
            offset = align_up(offset, variable.align)
            self.symbols[variable.name] = ("param", offset)
            self.parameters.append((variable.name, offset, variable.size))
            offset += variable.size
        self.parameter_bytes = offset

    def _place_variables(self, variables: Sequence[syntax.Variable]) -> None:
        """Give addresses to variables: static shared ones first, dynamic ones behind."""
        self._place_in_threads([each for each in variables if each.space == "local"])
        self.data = b""
        shared, align = SHARED_START, 16
        for variable in variables:
            if variable.space == "shared" and variable.size:
                shared = align_up(shared, variable.align)
                self.symbols[variable.name] = ("shared", shared)
                shared += variable.size
            elif variable.space == "shared":
                align = max(align, variable.align)
            elif variable.space in ("global", "const"):
                start = align_up(len(self.data), variable.align)
                self.symbols[variable.name] = ("global", start)
                contents = variable.data.ljust(variable.size, b"\0")
                self.data = self.data.ljust(start, b"\0") + contents
        self.shared_bytes = align_up(shared, align)
        for variable in variables:
            if variable.space == "shared" and not variable.size:
                self.symbols[variable.name] = ("shared", self.shared_bytes)

    def _place_in_threads(self, variables: Sequence[syntax.Variable]) -> None:
        """Give addresses to local variables; those of one name in several scopes share theirs."""
        sizes: dict[str, tuple[int, int]] = {}
        for variable in variables:
            size, align = sizes.get(variable.name, (0, 1))
            sizes[variable.name] = max(size, variable.size), max(align, variable.align)
        end = 0
        for name, (size, align) in sizes.items():
            start = align_up(end, align)
            self.symbols[name] = ("local", start)
            end = start + size
        self.local_bytes = align_up(end, 16)

    def _compiled(self, source: syntax.Instruction) -> Step:
        operands = Operands(source, self.symbols, self._used, self._functions)
        builder = BUILDERS.get(operands.parts[0])
        if builder is None:
            raise operands.refuse()
        try:
            execute = builder(operands)
        except IndexError:
            raise operands.refuse("an operand is missing") from None
        except KeyError as error:
            raise operands.refuse(f"its part {error}") from None
        aligned = operands.has("aligned") or operands.parts[:2] in _ALIGNED
        aligned = aligned or _is_of_all_threads(source)
        special = operands.has("approx") and operands.parts[0] in _SPECIAL_FUNCTIONS
        registers = tuple(dict.fromkeys(registers_of(source, source.operands)))
        results = tuple(registers_of(source, source.operands[:1]))
        if source.guard is None:
            return Step(None, False, execute, aligned, registers, results, special)
        number, kind = operands.register(source.guard)
        if kind != "pred":
            raise PtxError(f"@{source.guard.text} is no predicate", source.line)
        registers = (number, *registers)
        return Step(number, source.guard.negated, execute, aligned, registers, results, special)


class Kernels:
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
    """

    def __init__(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            if text[:4] in (b"\x7fELF", b"\x50\xed\x55\xba"):
                raise PtxError(
                    "this is a cubin or fatbin, not PTX: get PTX from `nvcc -ptx -arch=sm_90a`, "
                    "`cuobjdump -ptx`, or kernel.asm['ptx'] of Triton"
                )
            try:
                text = text.rstrip(b"\0").decode()
            except UnicodeDecodeError as error:
                raise PtxError(f"the text is not UTF-8: {error}") from None
        self.text = text
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
