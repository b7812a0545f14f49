"""Results that the unit returns to a simulated test."""

from typing import NamedTuple


class BarrierResult(NamedTuple):
    """The unit's answer to a barrier command.

    Members
    -------
    done : bool
        A ``test_wait`` or ``try_wait`` found the phase complete.
    waits : bool
        A ``try_wait`` found the phase incomplete, and its thread is suspended.
    fault : str, optional
        Why the operation was not carried out: a name of ``BarrierFault``.
    state : int
        High half of the barrier's word before the operation. Low half: 0, or of ``noComplete`` the
        lanes that the operation stands for. Of PENDING_COUNT: the number of arrivals.
    """

    done: bool
    waits: bool
    fault: str | None
    state: int


class WaitResult(NamedTuple):
    """The end of a ``try_wait``.

    Members
    -------
    done : bool
        The phase is complete.
    waited : bool
        The thread was suspended until the phase completed, the time limit passed or a fault
        occurred.
    fault : str, optional
        A name of ``BarrierFault``.
    cycle : int
        Cycle of the unit's last answer.
    """

    done: bool
    waited: bool
    fault: str | None
    cycle: int


class ErrorRecord(NamedTuple):
    """An error record of the unit: a request was refused, or failed.

    Members
    -------
    request_id : int
    code : int
        A value of ``ErrorCode``; ``cause`` is its name.
    dim, value : int
        Operands of the record, as ``golden.TmaError`` defines them for each code.
    cycle : int
        Cycle in which the record was transferred.
    cta : int
        In a cluster, the CTA that issued the request.
    """

    request_id: int
    code: int
    cause: str
    dim: int
    value: int
    cycle: int
    cta: int = 0
