"""Operations on barriers, and their outcomes according to ``golden.mbarrier``."""

from dataclasses import dataclass

from golden import mbarrier as golden
from golden.errors import TmaError
from golden.mbarrier import Fault
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.params import TmaParams

NO_FAULT = BarrierFault.NONE.value


@dataclass(frozen=True)
class Item:
    """Operation, as a command or as an update; the fields are those of `BarrierCommand`.

    ``v1`` of an update is its ``reports``, in a unit with ``report_mechanism``.
    """

    op: BarrierOp
    address: int = 0
    count: int = 0
    lanes: int = 1
    state: int = 0
    time_limit: int = 0
    v1: int = 0


CHANGES = {BarrierOp[op.name]: op for op in golden.Op}
"""Operations that count arrivals or bytes."""
BY_PARITY = BarrierOp.TEST_WAIT_PARITY, BarrierOp.TRY_WAIT_PARITY
TRIES = BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY
TESTS = BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY, *TRIES


def init(address: int, count: int, *, v1: bool = False) -> Item:
    """Return the operation that initialises a barrier for ``count`` arrivals."""
    return Item(BarrierOp.INIT, address, state=golden.init(count, v1=v1))


def shown(item: Item, word: int, params: TmaParams) -> int:
    """Return ``state`` of the result of an operation that finds ``word``."""
    if item.op is BarrierOp.PENDING_COUNT:
        return golden.pending_count(item.state)
    if item.op in CHANGES and CHANGES[item.op].no_complete:
        return golden.returned_state(word, merged=item.state & 0xFFFFFFFF)
    return word if params.mbarrier_v1 and word & 1 else golden.returned_state(word)


def model(item: Item, word: int, port: str, params: TmaParams) -> tuple[int, bool, int]:
    """Return the outcome of an operation.

    Parameters
    ----------
    item : Item
        The operation.
    word : int
        The barrier before the operation.
    port : str
        ``command`` or ``update``.
    params : TmaParams
        Parameters of the unit.

    Returns
    -------
    tuple[int, bool, int]
        The barrier after the operation, ``done`` and ``fault`` of the result.
    """
    has_v1 = params.mbarrier_v1
    is_update = port == "update"
    reports = bool(
        params.report_mechanism and is_update and item.op is BarrierOp.COMPLETE_TX and item.v1
    )
    if is_update and item.op not in CHANGES:
        return word, False, Fault.OPERATION
    if not has_v1 and (item.op is BarrierOp.REPORT or (item.v1 and item.op in TESTS)):
        return word, False, Fault.OPERATION
    conditional = bool(item.v1)
    try:
        match item.op:
            case BarrierOp.INIT:
                return item.state, False, NO_FAULT
            case BarrierOp.INVAL | BarrierOp.PENDING_COUNT:
                return word, False, NO_FAULT
            case BarrierOp.REPORT:
                return golden.report(word, item.count, v1=has_v1), False, NO_FAULT
            case op if op in CHANGES:
                after = golden.update(
                    *(word, CHANGES[op], item.count),
                    lanes=item.lanes,
                    remote=is_update,
                    v1=has_v1,
                    reports=reports,
                )
                return after, False, NO_FAULT
        parity = item.count
        if item.op not in BY_PARITY:
            parity = golden.parity_of(item.state, conditional=conditional)
        done = golden.is_complete(word, parity, conditional=conditional, v1=has_v1)
        return word, done, NO_FAULT
    except TmaError as error:
        return error.value if item.op in CHANGES else word, False, error.dim
