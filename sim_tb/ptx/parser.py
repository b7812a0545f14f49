"""Parser of PTX: text to kernels, with declarations, labels and instructions by line.

The parser knows the grammar of statements and operands, but no instruction: an opcode is split at
its dots, and ``sim_tb.ptx.instructions`` gives it a meaning.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from sim_tb.ptx.errors import PtxError
from sim_tb.ptx.syntax import (
    REGISTER_TYPES,
    RETURN,
    TYPE_BYTES,
    Address,
    Call,
    Function,
    Instruction,
    Kernel,
    Name,
    Number,
    Operand,
    Pair,
    Scope,
    Text,
    Variable,
    Vector,
)

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

_MOST_REGISTERS = 1_000_000
"""Registers of a declaration, at most; compilers declare some ten thousand."""


class Token(NamedTuple):
    """A token, its kind (a group of the scanner) and its line."""

    kind: str
    text: str
    line: int


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
        self._functions: dict[str, Function] = {}

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _after(self) -> Token:
        """The token behind the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

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
            elif ".func" in (token.text, self._after.text):
                self._accept(".extern")
                self._function()
            elif token.text in (".extern", ".shared", ".global", ".const"):
                result.variables.append(self._variable())
            elif not self._accept(";"):
                raise PtxError(f"{token.text!r} where a declaration must be", token.line)
        if not result.kernels:
            raise PtxError("the text has no .entry")
        for kernel in result.kernels.values():
            self._add_functions(kernel)
        return result

    def _function(self) -> None:
        """Parse the head of a function, and step over its instructions."""
        line = self._take(".func").line
        results = self._variables()
        function = Function(self._take().text, line, results, self._variables())
        while self._next.text not in ("{", ";", ".func", ".entry", ".visible", ".extern"):
            self._take()  # such as .noreturn
        if self._next.text == "{":
            function.start = self._at
            depth = 0
            while True:
                depth += {"{": 1, "}": -1}.get(self._take().text, 0)
                if not depth:
                    break
        known = self._functions.get(function.name)
        if known is None or known.start is None:
            self._functions[function.name] = function

    def _variables(self) -> list[Variable]:
        """Parse parameters in parentheses, if there are any."""
        found = []
        if self._accept("("):
            while not self._accept(")"):
                found.append(self._variable())
                self._accept(",")
        return found

    def _add_functions(self, kernel: Kernel) -> None:
        """Put the instructions of the functions that a kernel calls behind its own."""
        callers: dict[str, set[str]] = {}
        pending = [(kernel.name, _called(kernel.instructions))]
        while pending:
            caller, names = pending.pop()
            for name in names:
                callers.setdefault(name, set()).update({caller, *callers.get(caller, ())})
                if name in callers.get(caller, ()) or name == caller:
                    line = self._functions[name].line
                    raise PtxError(f"recursion of {name} is not supported", line)
                if name in self._functions and name not in kernel.functions:
                    first = len(kernel.instructions)
                    self._add_function(kernel, self._functions[name])
                    pending.append((name, _called(kernel.instructions[first:])))

    def _add_function(self, kernel: Kernel, known: Function) -> None:
        function = replace(known)
        kernel.functions[known.name] = function
        if known.start is None:
            return
        if not kernel.functions.keys() - {known.name}:
            line = kernel.instructions[-1].line if kernel.instructions else kernel.line
            kernel.instructions.append(Instruction("exit", None, (), line, Scope()))
        function.first = len(kernel.instructions)
        for variable in (*known.results, *known.parameters):
            kernel.variables.append(replace(variable, space="local"))
        function.return_register = len(kernel.register_types)
        scope = Scope(registers={RETURN: (function.return_register, "u32")})
        kernel.register_types.append("u32")
        self._at = known.start
        self._take("{")
        self._statements(kernel, scope)
        line = self._tokens[self._at - 1].line
        kernel.instructions.append(Instruction("ret", None, (), line, scope))

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
        data = b""
        if self._accept("="):
            data = b"".join(self._initial(element))
            size = max(size, len(data))
        self._accept(";")
        return Variable(name, space, align or element or 1, size, line, data)

    def _initial(self, element: int) -> Iterator[bytes]:
        """Parse the values of a variable, and yield the bytes of each."""
        if self._accept("{"):
            while not self._accept("}"):
                yield from self._initial(element)
                self._accept(",")
            return
        if self._next.kind != "number" and self._next.text != "-":
            token = self._next
            raise PtxError(f"initial value {token.text!r} is not supported", token.line)
        value = self._number().value & ((1 << 8 * element) - 1)
        yield value.to_bytes(element, "little")

    def _kernel(self) -> Kernel:
        self._take(".entry")
        token = self._take()
        kernel = Kernel(token.text, token.line)
        kernel.parameters.extend(self._variables())
        while self._next.text != "{":
            self._take()
        self._take("{")
        self._statements(kernel, Scope())
        return kernel

    def _statements(self, kernel: Kernel, scope: Scope) -> None:
        """Parse statements up to the brace that closes a kernel or a function."""
        depth = [scope]
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
            elif token.text == ".param":
                kernel.variables.append(replace(self._variable(), space="local"))
            elif token.text == ".pragma":
                while self._take().text != ";":
                    pass
            elif token.text.startswith("."):
                raise PtxError(f"{token.text} is not supported in a kernel", token.line)
            elif self._after.text == ":":
                self._label(kernel, depth[-1])
            elif not self._accept(";"):
                made = self._instruction(depth[-1])
                kernel.instructions.append(made)
                if made.parts[0] == "call":
                    results = replace(made, opcode=f"{made.opcode}.results")
                    kernel.instructions.append(results)

    def _label(self, kernel: Kernel, scope: Scope) -> None:
        """Parse a label: of an instruction, of a list of targets or of a prototype."""
        name = self._take().text
        self._take(":")
        if self._accept(".branchtargets"):
            labels = []
            while not self._accept(";"):
                labels.append(self._take().text)
                self._accept(",")
            scope.targets[name] = tuple(labels)
        elif self._next.text == ".callprototype":
            while self._take().text != ";":
                pass
        else:
            scope.labels[name] = len(kernel.instructions)

    def _registers(self, kernel: Kernel, scope: Scope) -> None:
        line = self._take(".reg").line
        kind = self._take().text[1:]
        if kind not in REGISTER_TYPES:
            raise PtxError(f".reg .{kind} is not supported", line)
        while True:
            name = self._take().text
            names = [name]
            if self._accept("<"):
                count = self._integer()
                if not 0 <= count <= _MOST_REGISTERS:
                    raise PtxError(f"{count} registers: must be at most {_MOST_REGISTERS}", line)
                names = [f"{name}{number}" for number in range(count)]
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
        operands: list[Operand] = []
        if token.text.split(".")[0] == "call":
            operands.append(self._call())
            self._take(";")
            return Instruction(token.text, guard, tuple(operands), token.line, scope)
        while not self._accept(";"):
            operands.append(self._operand())
            if self._next.text != ";":
                self._take(",")
        return Instruction(token.text, guard, tuple(operands), token.line, scope)

    def _call(self) -> Call:
        """Parse ``(result), function, (arguments)``."""

        def names() -> tuple[str, ...]:
            found = []
            if self._accept("("):
                while not self._accept(")"):
                    found.append(self._name())
                    self._accept(",")
            return tuple(found)

        results = names()
        self._accept(",")
        function = self._name()
        self._accept(",")
        arguments = names()
        if self._accept(","):
            token = self._take()
            raise PtxError("an indirect call is not supported", token.line)
        return Call(results, function, arguments)

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


def _called(instructions: list[Instruction]) -> list[str]:
    """Return the names of the functions that instructions call."""
    names = [
        operand.function
        for each in instructions
        for operand in each.operands
        if isinstance(operand, Call)
    ]
    return list(dict.fromkeys(names))


def parse(text: str) -> Text:
    """Parse a PTX text.

    Raises
    ------
    PtxError
        If the text is not PTX, with the line.
    """
    return _Parser(text).text()
