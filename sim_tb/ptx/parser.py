"""Parser of PTX: text to kernels, with declarations, labels and instructions by line.

The parser knows the grammar of statements and operands, but no instruction: an opcode is split at
its dots, and ``sim_tb.ptx.instructions`` gives it a meaning.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sim_tb.ptx.errors import PtxError

_TOKENS = re.compile(
    r"""
    (?P<space>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
  | (?P<newline>\n)
  | (?P<string>"[^"\n]*")
  | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?|\d+\.\d+|\d+U?)
  | (?P<name>[\w$%.]+(?:::[\w$.]+)*)
  | (?P<sign>[][{}()<>,;:@!|+=*-])
    """,
    re.VERBOSE | re.DOTALL,
)

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)},
    "f16x2": 4,
    "bf16": 2,
    "bf16x2": 4,
    "tf32": 4,
    "b128": 16,
}
"""Bytes of each type of a value in memory or a register."""


class Token(NamedTuple):
    """A token, its kind (a group of the scanner) and its line."""

    kind: str
    text: str
    line: int


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
class Address:
    """``[base+offset]``, or ``[base, {coordinates}]`` of a tensor."""

    base: Name | Number
    offset: int = 0
    coordinates: tuple["Operand", ...] | None = None


Operand = Name | Number | Vector | Pair | Address


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
    """

    parent: "Scope | None" = None
    registers: dict[str, tuple[int, str]] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)

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
    """A declared variable: state space, alignment and bytes; 0 bytes are ``.extern`` ``[]``."""

    name: str
    space: str
    align: int
    size: int
    line: int


@dataclass
class Kernel:
    """An entry: parameters, variables, register types in order of number, and instructions."""

    name: str
    line: int
    parameters: list[Variable] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    register_types: list[str] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Text:
    """A parsed file: ``.target``, entries by name, variables outside entries."""

    target: str = ""
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


def _scan(text: str) -> Iterator[Token]:
    line, at = 1, 0
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise PtxError(f"character {text[at]!r} is not PTX", line)
        kind, at = str(match.lastgroup), match.end()
        if kind not in ("space", "newline"):
            yield Token(kind, match.group(), line)
        line += match.group().count("\n")
    yield Token("end", "end of file", line)


class _Parser:
    """Recursive descent over the tokens of a file."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_scan(text))
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, wanted: str | None = None) -> Token:
        """Return the next token and step over it; it must be ``wanted``, if given."""
        token = self._next
        if wanted is not None and token.text != wanted:
            raise PtxError(f"{token.text!r} where {wanted!r} must be", token.line)
        if token.kind == "end":
            raise PtxError("the text ends within a statement", token.line)
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._next.text == text:
            self._at += 1
            return True
        return False

    def _integer(self) -> int:
        sign = -1 if self._accept("-") else 1
        token = self._take()
        try:
            return sign * int(token.text.rstrip("U"), 0)
        except ValueError:
            raise PtxError(f"{token.text!r} where a number must be", token.line) from None

    def text(self) -> Text:
        """Parse the file."""
        result = Text()
        while self._next.kind != "end":
            token = self._next
            if token.text == ".target":
                self._take()
                result.target = self._take().text
                while self._accept(","):
                    self._take()
            elif token.text in (".version", ".address_size"):
                self._at += 2
            elif token.text in (".file", ".section"):
                self._skip(token)
            elif token.text in (".visible", ".weak", ".common"):
                self._take()
            elif token.text == ".entry":
                kernel = self._kernel()
                result.kernels[kernel.name] = kernel
            elif token.text in (".func", ".alias"):
                raise PtxError(f"{token.text} is not supported: inline the function", token.line)
            elif token.text in (".extern", ".shared", ".global", ".const"):
                result.variables.append(self._variable())
            elif not self._accept(";"):
                raise PtxError(f"{token.text!r} where a declaration must be", token.line)
        if not result.kernels:
            raise PtxError("the text has no .entry")
        return result

    def _skip(self, first: Token) -> None:
        """Step over a line, or a section in braces."""
        if first.text == ".section":
            while self._take().text != "{":
                pass
            while self._take().text != "}":
                pass
            return
        while self._next.line == first.line and self._next.kind != "end":
            self._at += 1

    def _variable(self) -> Variable:
        """Parse ``.space .align N .type name[N]... = {...};``."""
        line, space, align, element = self._next.line, "", 0, 0
        self._accept(".extern")
        while self._next.text.startswith("."):
            word = self._take().text[1:]
            if word == "align":
                align = self._integer()
            elif word in ("shared", "global", "const", "local", "param"):
                space = word
            elif word in TYPE_BYTES:
                element = TYPE_BYTES[word]
            elif word == "ptr":
                while self._next.text in (".global", ".shared", ".const", ".local", ".align"):
                    if self._take().text == ".align":
                        self._integer()
        name, size = self._take().text, element
        while self._accept("["):
            size *= 0 if self._next.text == "]" else self._integer()
            self._take("]")
        if self._accept("="):
            while self._next.text != ";":
                self._take()
        self._accept(";")
        return Variable(name, space, align or element or 1, size, line)

    def _kernel(self) -> Kernel:
        self._take(".entry")
        token = self._take()
        kernel = Kernel(token.text, token.line)
        if self._accept("("):
            while not self._accept(")"):
                kernel.parameters.append(self._variable())
                self._accept(",")
        while self._next.text != "{":
            self._take()
        self._take("{")
        depth = [Scope()]
        while depth:
            token = self._next
            if self._accept("{"):
                depth.append(Scope(depth[-1]))
            elif self._accept("}"):
                depth.pop()
            elif token.text == ".reg":
                self._registers(kernel, depth[-1])
            elif token.text == ".loc":
                self._skip(token)
            elif token.text in (".shared", ".local", ".global", ".const"):
                kernel.variables.append(self._variable())
            elif token.text == ".pragma":
                while self._take().text != ";":
                    pass
            elif token.text.startswith("."):
                raise PtxError(f"{token.text} is not supported in a kernel", token.line)
            elif self._tokens[self._at + 1].text == ":":
                depth[-1].labels[self._take().text] = len(kernel.instructions)
                self._take(":")
            elif not self._accept(";"):
                kernel.instructions.append(self._instruction(depth[-1]))
        return kernel

    def _registers(self, kernel: Kernel, scope: Scope) -> None:
        self._take(".reg")
        kind = self._take().text[1:]
        while True:
            name = self._take().text
            names = [name]
            if self._accept("<"):
                names = [f"{name}{number}" for number in range(self._integer())]
                self._take(">")
            for each in names:
                scope.registers[each] = (len(kernel.register_types), kind)
                kernel.register_types.append(kind)
            if not self._accept(","):
                break
        self._take(";")

    def _instruction(self, scope: Scope) -> Instruction:
        guard = None
        if self._accept("@"):
            negated = self._accept("!")
            guard = Name(self._take().text, negated)
        token = self._take()
        if token.kind != "name":
            raise PtxError(f"{token.text!r} where an instruction must be", token.line)
        operands = []
        while not self._accept(";"):
            operands.append(self._operand())
            if self._next.text != ";":
                self._take(",")
        return Instruction(token.text, guard, tuple(operands), token.line, scope)

    def _operand(self) -> Operand:
        if self._accept("{"):
            items = []
            while not self._accept("}"):
                items.append(self._operand())
                self._accept(",")
            return Vector(tuple(items))
        if self._accept("["):
            return self._address()
        if self._accept("!"):
            return Name(self._take().text, negated=True)
        if self._next.kind == "number" or self._next.text == "-":
            return self._number()
        name = Name(self._name())
        if self._accept("|"):
            return Pair(name, Name(self._name()))
        return name

    def _name(self) -> str:
        token = self._take()
        if token.kind != "name":
            raise PtxError(f"{token.text!r} where an operand must be", token.line)
        return token.text

    def _number(self) -> Number:
        text = self._next.text
        if text[:2] in ("0f", "0F"):
            self._take()
            return Number(int(text[2:], 16), 32)
        if text[:2] in ("0d", "0D"):
            self._take()
            return Number(int(text[2:], 16), 64)
        if "." in text:
            self._take()
            return Number(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
        return Number(self._integer())

    def _address(self) -> Address:
        """Parse an address behind its bracket."""
        base: Name | Number
        base = self._number() if self._next.kind == "number" else Name(self._name())
        offset, coordinates = 0, None
        if self._accept("+") or self._next.text == "-":
            offset = self._integer()
        if self._accept(","):
            vector = self._operand()
            coordinates = vector.items if isinstance(vector, Vector) else (vector,)
        self._take("]")
        return Address(base, offset, coordinates)


def parse(text: str) -> Text:
    """Parse a PTX text.

    Raises
    ------
    PtxError
        If the text is not PTX, with the line.
    """
    return _Parser(text).text()
