"""Requests to the unit as the sanitizer and the report see them."""

from dataclasses import dataclass


@dataclass(eq=False)
class TrackedRequest:
    """A request to the unit.

    Members
    -------
    number : int, optional
        Request id; None until the request is issued.
    text : str
        Instruction, tensor and coordinates.
    cta : int
    role : str
    cycle : int
        Cycle in which the request was issued.
    tx_bytes : int
        Bytes that the barrier of a load counts. 0: the request is a store.
    tensor_map : int, optional
        Address of the tensor map.
    done : int, optional
        Cycle in which the phase of the barrier completed, or a wait for the bulk group returned.
    """

    number: int | None
    text: str
    cta: int
    role: str
    cycle: int
    tx_bytes: int = 0
    tensor_map: int | None = None
    done: int | None = None

    def __str__(self) -> str:
        size = f", {self.tx_bytes} bytes" if self.tx_bytes else ""
        number = "" if self.number is None else f" {self.number}"
        return f"request{number} ({self.text} by {self.role} in cycle {self.cycle}{size})"
