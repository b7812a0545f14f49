"""Parts of a PTX text: operands, instructions, variables, functions, kernels."""

from dataclasses import dataclass, field

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)},
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "tf32": 4,
    "b128": 16,
}
"""Bytes of each type of a value in memory or a register."""


REGISTER_TYPES = frozenset(("pred", *TYPE_BYTES)) - {"b128", "tf32"}
"""Types of registers."""


@dataclass(frozen=True)
class Name:
    """A register, special register, symbol or label; ``negated`` is ``!`` in front."""

    text: str
    negated: bool = False


@dataclass(frozen=True)
class Number:
    """A constant: bits of a float have a ``width``, 32 or 64; integers have none."""

    value: int
    width: int | None = None


@dataclass(frozen=True)
class Vector:
    """Operands in braces."""

    items: tuple["Operand", ...]


@dataclass(frozen=True)
class Pair:
    """Two destinations, ``a|b``."""

    first: Name
    second: Name


@dataclass(frozen=True)
class Call:
    """Operands of ``call``: results, function and arguments by name."""

    results: tuple[str, ...]
    function: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Address:
    """``[base+offset]``, or ``[base, {coordinates}]`` of a tensor."""

    base: Name | Number
    offset: int = 0
    coordinates: tuple["Operand", ...] | None = None


Operand = Name | Number | Vector | Pair | Address | Call


@dataclass
class Scope:
    """Registers and labels between two braces.

    Parameters
    ----------
    parent : Scope or None
        Surrounding scope.
    registers : dict of str to (int, str)
        Number in the kernel, and type, of each register.
    labels : dict of str to int
        Index of the instruction behind each label.
    targets : dict of str to tuple of str
        Labels of each list of ``.branchtargets``.
    """

    parent: "Scope | None" = None
    registers: dict[str, tuple[int, str]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def register(self, name: str) -> tuple[int, str] | None:
        """Return number and type of a register, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            scope = scope.parent
        return None

    def label(self, name: str) -> int | None:
        """Return the index of the instruction behind a label, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def branch_targets(self, name: str) -> tuple[str, ...] | None:
        """Return the labels of a list of targets, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.targets:
                return scope.targets[name]
            scope = scope.parent
        return None


RETURN = "return address"
"""Name of the register that has the instruction to which a function returns."""


@dataclass(frozen=True)
class Instruction:
    """An instruction as written.

    Parameters
    ----------
    opcode : str
        Text with all modifiers, such as ``add.rn.ftz.f32``.
    guard : Name or None
        Predicate of ``@p`` or ``@!p``.
    operands : tuple of Operand
        Operands from left to right.
    line : int
        Line of the text.
    scope : Scope
        Registers and labels that it can name.
    """

    opcode: str
    guard: Name | None
    operands: tuple[Operand, ...]
    line: int
    scope: Scope

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode, split at its dots."""
        return tuple(self.opcode.split("."))


@dataclass(frozen=True)
class Variable:
    """A declared variable: state space, alignment, bytes and contents.

    Its size is 0 for ``[]`` of ``.extern``. ``data`` is empty, if the contents are zeros.
    """

    name: str
    space: str
    align: int
    size: int
    line: int
    data: bytes = b""


@dataclass
class Function:
    """A ``.func``.

    Parameters
    ----------
    name : str
        Its name.
    line : int
        Line of its declaration.
    results, parameters : list of Variable
        What it returns, and gets.
    start : int or None
        Number of its first token; None: its instructions are not in the text.
    first : int or None
        Its first instruction in a kernel that calls it.
    return_register : int
        Register of that kernel that has the instruction to which it returns.
    """

    name: str
    line: int
    results: list[Variable] = field(default_factory=list)
    parameters: list[Variable] = field(default_factory=list)
    start: int | None = None
    first: int | None = None
    return_register: int = 0


@dataclass
class Kernel:
    """An entry: parameters, variables, register types in order of number, and instructions.

    The instructions of functions that it calls are behind its own.
    """

    name: str
    line: int
    parameters: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    register_types: list[str] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    functions: dict[str, Function] = field(default_factory=dict)


@dataclass
class Text:
    """A parsed file: ``.target``, entries by name, variables outside entries."""

    target: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
