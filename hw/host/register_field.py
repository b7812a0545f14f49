"""Register field: what is read of a register of the host, and what refuses a write."""

from dataclasses import dataclass, field

from amaranth.hdl import Signal, Value, ValueLike

from hw.layouts.host import HostError

BYTE_BITS = 2
"""Bits of an address that are that of a byte in its register."""

NONE = HostError.NONE


@dataclass
class Field:
    """Contents of a register.

    Parameters
    ----------
    value : Value
        What is read.
    refusal : ValueLike, optional
        The `HostError` for which a write is refused, or NONE; without it, the register is only
        read.

    Attributes
    ----------
    is_written : Signal
        The register is written in this clock.
    """

    value: Value
    refusal: ValueLike | None = None
    is_written: Signal = field(default_factory=lambda: Signal(name="is_written"))
