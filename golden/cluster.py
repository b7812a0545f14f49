"""A cluster of CTAs: shared memories, mbarriers and bulk groups around the unit.

Each request is executed at once, when it is issued: this is one of the orders that the unit may
choose. An mbarrier is its 64-bit word in shared memory.
"""

import warnings
from collections.abc import Callable

import numpy as np

from golden import mbarrier
from golden.advice import advice
from golden.bulk_group import BulkGroups
from golden.checks import BARRIER_BYTES, check_cta, check_mbarrier, check_window
from golden.enums import SMEM_BYTES, Arch
from golden.errors import ErrorCode, ExpectTxWarning, TmaError
from golden.memory import Bytes, Memory
from golden.model import execute, plan_for
from golden.request import (
    BulkReduce,
    BulkStore,
    Completion,
    Load,
    Request,
    Store,
)


class Cluster:
    """CTAs that share a global memory.

    Parameters
    ----------
    gmem : Memory
        Global memory.
    ctas : int
        Number of CTAs, 1 to 16.
    smem_bytes : int
        Bytes of each CTA's shared-memory window.
    arch : Arch
        Architecture whose features requests may use.

    Attributes
    ----------
    smem : list of ndarray
        Shared memory of each CTA, of uint8, initially zero.

    Raises
    ------
    ValueError
        If ``ctas`` is not from 1 to 16.

    Examples
    --------
    >>> import ml_dtypes, numpy as np
    >>> from golden import ArrayMemory, Load, TensorMap
    >>> array = np.arange(64 * 64).astype(ml_dtypes.bfloat16).reshape(64, 64)
    >>> cluster = Cluster(ArrayMemory.of(array))
    >>> cluster.mbarrier_init(0, 1)
    >>> state = cluster.mbarrier_arrive_expect_tx(0, 8 * 64 * 2)
    >>> tensor_map = TensorMap.from_array(array, box=(64, 8), swizzle="128B")
    >>> cluster.issue(Load(tensor_map, (0, 16), smem_address=1024, mbarrier=0))
    [Completion(cta=0, mbarrier=0, bytes=1024)]
    >>> cluster.mbarrier_test_wait(0, state)
    True
    """

    def __init__(
        self,
        gmem: Memory,
        ctas: int = 1,
        *,
        smem_bytes: int = SMEM_BYTES,
        arch: Arch = Arch.SM_90A,
    ) -> None:
        if not 1 <= ctas <= 16:
            raise ValueError(f"ctas = {ctas}: must be from 1 to 16")
        self.gmem = gmem
        self.arch = arch
        self.smem: list[Bytes] = [np.zeros(smem_bytes, np.uint8) for _ in range(ctas)]
        self._groups: dict[tuple[int, int], BulkGroups] = {}

    def issue(self, request: Request, *, cta: int = 0, thread: int = 0) -> list[Completion]:
        """Execute a request of a thread, and signal its mbarriers.

        Stores and reductions to global memory join the thread's next bulk group.

        Parameters
        ----------
        request : Request
            Any request.
        cta, thread : int
            Issuing CTA and thread.

        Returns
        -------
        list of Completion
            The ``complete_tx`` operations that the request caused.

        Warns
        -----
        TmaWarning
            If the request is legal, but probably a mistake.

        Raises
        ------
        TmaError
            If the request is refused: it has no effect. With MBAR_FAULT the data is written, and
            the mbarrier is locked.
        """
        check_cta("cta", cta, len(self.smem))
        completions = execute(request, self.gmem, self.smem, cta=cta, arch=self.arch)
        if isinstance(request, Load | Store):
            store = isinstance(request, Store)
            plan = plan_for(request.tensor_map, request.mode, store=store, arch=self.arch)
            for warning in advice(request, plan):
                warnings.warn(warning, stacklevel=2)
        if isinstance(request, Store | BulkStore | BulkReduce):
            groups = self.groups(cta, thread)
            number = groups.issue()
            groups.source_read(number)
            groups.complete(number)
        for completion in completions:
            self._complete_tx(completion)
        return completions

    def _complete_tx(self, completion: Completion) -> None:
        address, cta = completion.mbarrier, completion.cta
        self._update(address, cta, lambda word: mbarrier.complete_tx(word, completion.bytes))
        barrier = mbarrier.Barrier.decode(self.word(address, cta))
        if barrier.pending == 0 and barrier.tx_count < 0:
            warnings.warn(
                ExpectTxWarning(
                    f"mbarrier {address:#x} of CTA {cta} got {-barrier.tx_count} bytes more than "
                    "it expects: the phase cannot complete"
                ),
                stacklevel=3,
            )

    def groups(self, cta: int = 0, thread: int = 0) -> BulkGroups:
        """Return the bulk groups of a thread."""
        return self._groups.setdefault((cta, thread), BulkGroups())

    # Operations on mbarriers

    def word(self, address: int, cta: int = 0) -> int:
        """Return the 64-bit word of an mbarrier.

        Raises
        ------
        TmaError
            SMEM_RANGE, MBAR_ALIGN or DST_CTA.
        """
        return int(self._barrier(address, cta)[0])

    def _barrier(self, address: int, cta: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        check_cta("cta", cta, len(self.smem))
        check_window("mbarrier", address, BARRIER_BYTES, self.smem[cta].size)
        check_mbarrier(address)
        return self.smem[cta][address : address + BARRIER_BYTES].view("<u8")

    def _has_v1(self) -> bool:
        """Return whether the unit has layout v1: only units later than Hopper do (choice)."""
        return self.arch >= Arch.SM_100A

    def _require_layout(self, word: int, *, locks: bool) -> None:
        if not self._has_v1():
            mbarrier.require_layout(word, locks=locks)

    def _require_v1(self) -> None:
        if not self._has_v1():
            raise mbarrier.layout_v1_is_missing()

    def _update(self, address: int, cta: int, change: Callable[[int], int]) -> int:
        """Change an mbarrier; return its previous word. A fault locks it."""
        view = self._barrier(address, cta)
        before = int(view[0])
        try:
            self._require_layout(before, locks=True)
            view[0] = change(before)
        except TmaError as error:
            if error.code is ErrorCode.MBAR_FAULT:
                view[0] = error.value
            raise
        return before

    def mbarrier_init(self, address: int, count: int, *, v1: bool = False, cta: int = 0) -> None:
        """Initialise an mbarrier with ``count`` arrivals a phase.

        Parameters
        ----------
        address : int
            Byte offset in shared memory, a multiple of 8.
        count : int
            1 to 2**20 - 1; in layout v1, 1 to 511.
        v1 : bool
            Use layout v1; a fault on units that do not have it.
        cta : int
            CTA that holds the mbarrier.
        """
        barrier = self._barrier(address, cta)
        if v1:
            self._require_v1()
        barrier[0] = mbarrier.init(count, v1=v1)

    def mbarrier_inval(self, address: int, *, cta: int = 0) -> None:
        """Invalidate an mbarrier: operations on it are faults until it is initialised again."""
        self._barrier(address, cta)[0] = mbarrier.inval()

    def mbarrier_arrive(self, address: int, count: int = 1, *, cta: int = 0) -> int:
        """Arrive ``count`` times; return the state of the phase, for ``mbarrier_test_wait``.

        ``cta`` is the CTA that holds the mbarrier, as in all operations. In PTX, an operation on
        the mbarrier of another CTA returns no state.
        """
        return self._update(address, cta, lambda word: mbarrier.arrive(word, count))

    def mbarrier_arrive_no_complete(self, address: int, count: int = 1, *, cta: int = 0) -> int:
        """Arrive; it is a fault if this completes the phase."""
        return self._update(address, cta, lambda word: mbarrier.arrive_no_complete(word, count))

    def mbarrier_arrive_drop(self, address: int, count: int = 1, *, cta: int = 0) -> int:
        """Arrive, and lower the arrivals that later phases expect."""
        return self._update(address, cta, lambda word: mbarrier.arrive_drop(word, count))

    def mbarrier_arrive_drop_no_complete(
        self, address: int, count: int = 1, *, cta: int = 0
    ) -> int:
        """Arrive as ``mbarrier_arrive_drop``; it is a fault if this completes the phase."""
        return self._update(
            address, cta, lambda word: mbarrier.arrive_drop_no_complete(word, count)
        )

    def mbarrier_arrive_expect_tx(self, address: int, tx_bytes: int, *, cta: int = 0) -> int:
        """Expect ``tx_bytes`` bytes, and arrive once."""
        return self._update(address, cta, lambda word: mbarrier.arrive_expect_tx(word, tx_bytes))

    def mbarrier_arrive_drop_expect_tx(self, address: int, tx_bytes: int, *, cta: int = 0) -> int:
        """Expect ``tx_bytes`` bytes, arrive once, and lower the arrivals of later phases."""
        return self._update(
            address, cta, lambda word: mbarrier.arrive_drop_expect_tx(word, tx_bytes)
        )

    def mbarrier_expect_tx(self, address: int, tx_bytes: int, *, cta: int = 0) -> None:
        """Expect ``tx_bytes`` bytes."""
        self._update(address, cta, lambda word: mbarrier.expect_tx(word, tx_bytes))

    def mbarrier_complete_tx(self, address: int, tx_bytes: int, *, cta: int = 0) -> None:
        """Count ``tx_bytes`` bytes as received, as the unit does for a request."""
        self._update(address, cta, lambda word: mbarrier.complete_tx(word, tx_bytes))

    def mbarrier_report(self, address: int, value: int, *, cta: int = 0) -> int:
        """OR ``value`` into the report of the phase (layout v1); return the previous word."""
        self._require_v1()
        view = self._barrier(address, cta)
        before = int(view[0])
        view[0] = mbarrier.report(before, value)
        return before

    def mbarrier_pending_count(self, state: int) -> int:
        """Return the pending arrivals in a state that an operation has returned."""
        return mbarrier.pending_count(state)

    def mbarrier_test_wait(
        self, address: int, state: int, *, conditional: bool = False, cta: int = 0
    ) -> bool:
        """Return whether the phase of ``state`` is complete.

        ``conditional`` tests the conditional phase of layout v1 instead.

        Warns
        -----
        ExpectTxWarning
            If all arrivals have come, but bytes are missing. No request is in flight, as each is
            executed at once, so a program that waits here waits forever.
        """
        test = mbarrier.test_conditional_wait if conditional else mbarrier.test_wait
        return self._test(address, cta, conditional, lambda word: test(word, state))

    def mbarrier_test_wait_parity(
        self, address: int, parity: int, *, conditional: bool = False, cta: int = 0
    ) -> bool:
        """Return whether the phase of ``parity`` is complete; warns as ``mbarrier_test_wait``."""
        test = mbarrier.test_conditional_wait_parity if conditional else mbarrier.test_wait_parity
        return self._test(address, cta, conditional, lambda word: test(word, parity))

    def _test(self, address: int, cta: int, conditional: bool, test: Callable[[int], bool]) -> bool:
        word = self.word(address, cta)
        if conditional:
            self._require_v1()
        self._require_layout(word, locks=False)
        done = test(word)
        barrier = mbarrier.Barrier.decode(word)
        if not done and barrier.pending == 0 and barrier.tx_count > 0:
            warnings.warn(
                ExpectTxWarning(
                    f"mbarrier {address:#x} of CTA {cta} waits for {barrier.tx_count} bytes more, "
                    "and no request is in flight"
                ),
                stacklevel=3,
            )
        return done
