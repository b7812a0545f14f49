"""Operations on barriers, and their outcomes according to ``golden.mbarrier``."""

from collections.abc import Callable
from dataclasses import dataclass

from golden import mbarrier as golden
from golden.errors import TmaError
from golden.mbarrier import Fault
from hw.layouts.barriers import BarrierFault, BarrierOp
from hw.params import TmaParams

NO_FAULT = BarrierFault.NONE.value


@dataclass(frozen=True)
class Item:
    """Operation, as a command or as an update; the fields are those of `BarrierCommand`."""

    op: BarrierOp
    address: int = 0
    count: int = 0
    state: int = 0
    time_limit: int = 0
    v1: int = 0


CHANGES: dict[BarrierOp, Callable[[int, int], int]] = {
    BarrierOp.ARRIVE: golden.arrive,
    BarrierOp.ARRIVE_NO_COMPLETE: golden.arrive_no_complete,
    BarrierOp.ARRIVE_DROP: golden.arrive_drop,
    BarrierOp.ARRIVE_DROP_NO_COMPLETE: golden.arrive_drop_no_complete,
    BarrierOp.ARRIVE_EXPECT_TX: golden.arrive_expect_tx,
    BarrierOp.ARRIVE_DROP_EXPECT_TX: golden.arrive_drop_expect_tx,
    BarrierOp.EXPECT_TX: golden.expect_tx,
    BarrierOp.COMPLETE_TX: golden.complete_tx,
}
BY_PARITY = BarrierOp.TEST_WAIT_PARITY, BarrierOp.TRY_WAIT_PARITY
TRIES = BarrierOp.TRY_WAIT, BarrierOp.TRY_WAIT_PARITY
TESTS = BarrierOp.TEST_WAIT, BarrierOp.TEST_WAIT_PARITY, *TRIES


def finds(item: Item, word: int) -> bool:
    """Return whether a test or wait finds its phase complete."""
    if item.op in BY_PARITY:
        by_parity = golden.test_conditional_wait_parity if item.v1 else golden.test_wait_parity
        return by_parity(word, item.count & 1)
    by_state = golden.test_conditional_wait if item.v1 else golden.test_wait
    return by_state(word, item.state)


def model(item: Item, word: int, port: str, params: TmaParams) -> tuple[int, bool, int, int]:
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
    tuple[int, bool, int, int]
        The barrier after the operation, ``done``, ``fault`` and ``state`` of the result.
    """
    if port == "update" and item.op not in CHANGES:
        return word, False, Fault.OPERATION, word
    special = item.op is BarrierOp.REPORT or (item.v1 and item.op in (BarrierOp.INIT, *TESTS))
    try:
        if special and not params.mbarrier_v1:
            raise golden.layout_v1_is_missing()
        if item.op is BarrierOp.INIT:
            return golden.init(item.count, v1=bool(item.v1)), False, NO_FAULT, word
        if item.op is BarrierOp.INVAL:
            return golden.inval(), False, NO_FAULT, word
        if item.op is BarrierOp.PENDING_COUNT:
            return word, False, NO_FAULT, golden.pending_count(item.state)
        if not params.mbarrier_v1:
            golden.require_layout(word, locks=item.op in CHANGES)
        if item.op in TESTS:
            return word, finds(item, word), NO_FAULT, word
        if item.op is BarrierOp.REPORT:
            return golden.report(word, item.count), False, NO_FAULT, word
        return CHANGES[item.op](word, item.count), False, NO_FAULT, word
    except TmaError as error:
        after = error.value if item.op in CHANGES else word
        return after, False, error.dim, word
