"""Memories: every memory of the unit is a ``RowMemory``, with one write port and one read port."""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.hdl import Module, ShapeLike, Signal, Value
from amaranth.lib import data
from amaranth.lib.memory import Memory, ReadPort, WritePort

MOST_ROWS_UNCLOCKED = 32
"""Rows of the largest memory that is read in the clock of its address: LUT memory, or registers."""


class RowMemory(Memory):
    """A memory with one write port and one read port, which a macro can stand in for.

    If a row is read in the clock in which it is written, what is read has no meaning, unless the
    read port ``forwards``. Nothing is known of the rows after power-up.

    Parameters
    ----------
    shape : ShapeLike
        A row.
    depth : int
        Rows; with one row, the memory has two.
    in_block : bool, optional
        Block memory, whatever the size, or LUT memory. Default: synthesis chooses.
    """

    def __init__(self, shape: ShapeLike, depth: int, *, in_block: bool | None = None) -> None:
        # Synthesis then adds no logic for a row that is read while it is written.
        attributes: dict[str, int | str] = {"no_rw_check": 1}
        if in_block is not None:
            attributes["ram_style"] = "block" if in_block else "distributed"
        super().__init__(shape=shape, depth=max(depth, 2), init=[], attrs=attributes)

    def write_port(self) -> WritePort:
        """Return the write port, which writes whole rows.

        Raises
        ------
        ValueError
            If the memory has it already.
        """
        if self.write_ports:
            raise ValueError(f"a memory of {self.depth} rows: must have one write port")
        return super().write_port()

    def read_port(self, *, clocked: bool = True, forwards: bool = False) -> ReadPort:
        """Return the read port.

        Parameters
        ----------
        clocked : bool
            The row comes from a register, a clock after its address; otherwise in the same clock.
        forwards : bool
            Of a row that is written meanwhile, the new contents are read; only if ``clocked``.

        Raises
        ------
        ValueError
            If the memory has a read port already, or is too deep for one without a register.
        """
        if self.read_ports:
            raise ValueError(f"a memory of {self.depth} rows: must have one read port")
        if clocked:
            return super().read_port(transparent_for=self.write_ports if forwards else ())
        if self.depth > MOST_ROWS_UNCLOCKED:
            raise ValueError(
                f"a memory of {self.depth} rows: must have at most {MOST_ROWS_UNCLOCKED} if it is "
                "read in the clock of the address"
            )
        return super().read_port(domain="comb")


def clear_row(m: Module, write: WritePort, clear: data.View) -> None:
    """Let ``clear``, of ``hw.layouts.ports.clear_layout``, write 0 by ``write`` where it is
    ``enabled``. To be called behind all other assignments to ``write``.
    """
    with m.If(clear.enabled):
        m.d.comb += [write.en.eq(1), write.addr.eq(clear.row), write.data.eq(0)]


@dataclass(frozen=True)
class LastRow:
    """The row of a memory that was updated last: ``writes`` while ``row`` is written at
    ``addr``.
    """

    writes: Signal
    addr: Signal
    row: data.View


def write_later(
    m: Module, name: str, write: WritePort, updates: Value, addr: Value, row: data.View
) -> LastRow:
    """Write ``row`` at ``addr`` by ``write`` in the clock after one in which it ``updates``.

    Block memory is slow, and may lie far from the logic that finds the row. Who reads the row
    meanwhile takes it from the register that is returned. The signals' names begin with ``name``.
    """
    last = LastRow(
        Signal(name=f"{name}_writes"),
        Signal(len(write.addr), name=f"{name}_last_addr", reset_less=True),
        Signal(row.shape(), name=f"{name}_last_row", reset_less=True),
    )
    with m.If(updates):
        m.d.sync += [last.addr.eq(addr), last.row.eq(row)]
    m.d.sync += last.writes.eq(updates)
    m.d.comb += [write.en.eq(last.writes), write.addr.eq(last.addr), write.data.eq(last.row)]
    return last


class Copies:
    """Memories with the same rows, each with a read port: for rows that several readers need.

    Parameters
    ----------
    m : Module
        Gets the memories as submodules.
    name : str
        The memories are ``name_0`` and so on.
    shape, depth :
        see ``RowMemory``
    count : int
        Number of readers.

    Attributes
    ----------
    memories : Sequence[RowMemory]
    write : WritePort
        Writes a row of all memories.
    """

    def __init__(self, m: Module, name: str, shape: ShapeLike, depth: int, count: int) -> None:
        self.memories: Sequence[RowMemory] = [RowMemory(shape, depth) for _ in range(count)]
        ports = []
        for number, memory in enumerate(self.memories):
            m.submodules[f"{name}_{number}"] = memory
            ports.append(memory.write_port())
        self.write, *others = ports
        m.d.comb += [
            getattr(port, part).eq(getattr(self.write, part))
            for port in others
            for part in ("en", "addr", "data")
        ]
