"""A cluster of CTAs: shared memories, mbarriers and bulk groups around the unit.

Each request is executed at once, when it is issued: this is one of the orders that the unit may
choose. An mbarrier is its 64-bit word in shared memory.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from golden import mbarrier
from golden.advice import advice
from golden.arch import Arch, Feature
from golden.bulk_group import BulkGroups
from golden.checks import (
    BARRIER_BYTES,
    check_cta,
    check_feature,
    check_mask,
    check_mbarrier,
    check_pair,
    check_window,
)
from golden.enums import SMEM_BYTES, DataType, ReductionOp
from golden.errors import ErrorCode, ExpectTxWarning, TmaError, require
from golden.fields import integer, require_arch
from golden.memory import Bytes, Memory, require_memory
from golden.model import execute, plan_of_request
from golden.reduction import ASYNC_PAIRS, operation
from golden.request import (
    ApplyPriority,
    BulkApplyPriority,
    BulkReduce,
    BulkStore,
    Completion,
    Load,
    Request,
    Store,
)

_JOINS_GROUP = Store | BulkStore | BulkReduce | ApplyPriority | BulkApplyPriority
"""Requests with ``.bulk_group`` as their completion mechanism."""

_MOST_CTAS = 16
"""CTAs of a cluster; as many as a mask has bits where ``.multicast::cluster::32b`` is (choice)."""


class Cluster:
    """CTAs that share a global memory.

    Parameters
    ----------
    gmem : Memory
        Global memory.
    ctas : int
        Number of CTAs, 1 to 16; on ``SM_107A`` to 32 (choice).
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
    TmaError
        If ``ctas`` is not legal, or if an argument has a wrong type.

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
        require_memory("gmem", gmem)
        require_arch(arch)
        most = 32 if arch.has(Feature.MULTICAST_32B) else _MOST_CTAS
        ctas = integer(ErrorCode.DST_CTA, "ctas", ctas, 1, most)
        smem_bytes = integer(ErrorCode.SMEM_RANGE, "smem_bytes", smem_bytes, 0, 1 << 32)
        self.gmem = gmem
        self.arch = arch
        self.smem: list[Bytes] = [np.zeros(smem_bytes, np.uint8) for _ in range(ctas)]
        self._groups: dict[tuple[int, int], BulkGroups] = {}

    def issue(self, request: Request, *, cta: int = 0, thread: int = 0) -> list[Completion]:
        """Execute a request of a thread, and signal its mbarriers.

        Stores and reductions to global memory, and changes of priority, join the thread's next bulk
        group.

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
        plan = None
        if isinstance(request, Load | Store):
            plan = plan_of_request(request, self.arch)
        for warning in advice(request, plan):
            warnings.warn(warning, stacklevel=2)
        if isinstance(request, _JOINS_GROUP):
            groups = self.groups(cta, thread)
            number = groups.issue()
            groups.source_read(number)
            groups.complete(number)
        self._signal(completions)
        return completions

    def _signal(self, completions: Sequence[Completion]) -> None:
        """Signal mbarriers, each in one operation.

        Raises
        ------
        TmaError
            MBAR_FAULT, the first one, after all mbarriers were signalled.
        """
        faults = []
        for completion in completions:
            address, cta, count = completion.mbarrier, completion.cta, completion.bytes
            before = mbarrier.Barrier.decode(self.word(address, cta), v1=self._has_v1)
            try:
                op, reports = mbarrier.Op.COMPLETE_TX, completion.reports
                self._update(op, address, count, cta=cta, remote=True, reports=reports)
            except TmaError as error:
                faults.append(error)
                continue
            excess = count - before.tx_count
            if before.pending == 0 and excess > 0:
                warnings.warn(
                    ExpectTxWarning(
                        f"mbarrier {address:#x} of CTA {cta} got {excess} bytes more than it "
                        "expects: the phase cannot complete; on silicon it may complete before all "
                        "bytes have come"
                    ),
                    stacklevel=3,
                )
        if faults:
            raise faults[0]

    def st_async(
        self, stores: Sequence[tuple[int, bytes]], mbarrier_address: int, *, cta: int
    ) -> list[Completion]:
        """Store bytes of a warp to the shared memory of a CTA, and signal an mbarrier there.

        The mbarrier is signalled once for all lanes (choice); silicon signals parts.

        Parameters
        ----------
        stores : sequence of (int, bytes)
            Byte offset, and the 4, 8 or 16 bytes, of each lane; the offset is a multiple of the
            size.
        mbarrier_address : int
            Byte offset of the mbarrier.
        cta : int
            CTA that is written. The CTA bits of the mbarrier's address have no effect (silicon).

        Raises
        ------
        TmaError
            SMEM_ALIGN, SMEM_RANGE, DST_CTA or MBAR_ALIGN; MBAR_FAULT, after the data is written.
        ValueError
            If a lane does not have 4, 8 or 16 bytes.
        """
        for _, data in stores:
            if len(data) not in (4, 8, 16):
                raise ValueError(f"{len(data)} bytes: must be 4, 8 or 16")
        sizes = [(address, len(data)) for address, data in stores]
        targets = self._targets(sizes, mbarrier_address, cta)
        for target, (_, data) in zip(targets, stores, strict=True):
            target[:] = np.frombuffer(data, np.uint8)
        return self._signal_bytes(sizes, mbarrier_address, cta)

    def red_async(
        self,
        values: Sequence[tuple[int, int]],
        data_type: DataType,
        op: ReductionOp,
        mbarrier_address: int,
        *,
        cta: int,
    ) -> list[Completion]:
        """Reduce values of a warp into the shared memory of a CTA, and signal an mbarrier there.

        Parameters
        ----------
        values : sequence of (int, int)
            Byte offset, and operand as an unsigned number, of each lane.
        mbarrier_address, cta : int
            As in `st_async`.
        data_type, op
            One of `ASYNC_PAIRS`.

        Raises
        ------
        TmaError
            As `st_async`, and RED_TYPE.
        """
        check_pair(data_type, op, ASYNC_PAIRS)
        size = data_type.itemsize
        sizes = [(address, size) for address, _ in values]
        targets = self._targets(sizes, mbarrier_address, cta)
        for target, (_, value) in zip(targets, values, strict=True):
            word = target.view(f"<u{size}")
            operand = np.frombuffer(value.to_bytes(size, "little"), word.dtype)
            word[:] = operation(op, data_type)(word, operand)
        return self._signal_bytes(sizes, mbarrier_address, cta)

    def _targets(
        self, ranges: Sequence[tuple[int, int]], mbarrier_address: int, cta: int
    ) -> list[Bytes]:
        """Check operands of ``st.async`` or ``red.async``; return the bytes that each lane writes.

        ``ranges`` has the byte offset and the size of each lane.
        """
        for address, size in ranges:
            limit = f"must be a multiple of {size}"
            require(address % size == 0, ErrorCode.SMEM_ALIGN, "address", address, limit)
        check_cta("cta", cta, len(self.smem))
        memory = self.smem[cta]
        for address, size in ranges:
            check_window("address", address, size, memory.size)
        self._barrier(mbarrier_address, cta)
        return [memory[address : address + size] for address, size in ranges]

    def _signal_bytes(
        self, ranges: Sequence[tuple[int, int]], mbarrier_address: int, cta: int
    ) -> list[Completion]:
        completions = [Completion(cta, mbarrier_address, sum(size for _, size in ranges))]
        self._signal(completions)
        return completions

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

    @property
    def _has_v1(self) -> bool:
        """True if the unit has layout v1."""
        return self.arch.has(Feature.MBARRIER_V1)

    def mbarrier_update(
        self,
        op: mbarrier.Op,
        address: int,
        count: int = 1,
        *,
        lanes: int = 1,
        cta: int = 0,
        issuer: int | None = None,
        cta_mask: int | None = None,
    ) -> int:
        """Count arrivals or bytes at an mbarrier, as `mbarrier.update` does.

        Parameters
        ----------
        op : Op
            The operation.
        address : int
            Byte offset in shared memory, a multiple of 8.
        count, lanes : int
            Operands, as in `mbarrier.update`.
        cta : int
            CTA that holds the mbarrier.
        issuer : int, optional
            CTA of the thread; None is the CTA that holds the mbarrier.
        cta_mask : int, optional
            ``.multicast::cluster::32b``: the operation is one on the mbarriers of all these CTAs
            (PTX ISA, ``SM_107A``). ``cta`` then has no effect.

        Returns
        -------
        int
            State before the operation, for ``mbarrier_test_wait``; 0 if the thread is in another
            CTA, because PTX returns none.

        Raises
        ------
        TmaError
            MBAR_FAULT, and the mbarrier is locked. The thread of another CTA does not learn of it
            on silicon.
        """
        if cta_mask is not None:
            check_feature(Feature.MULTICAST_32B, self.arch, "cta_mask", cta_mask)
            limit = "must not be a noComplete operation with cta_mask"
            require(not op.no_complete, ErrorCode.MASK, "op", 0, limit, shown=op.value)
            check_mask(cta_mask, len(self.smem))
            for rank in range(len(self.smem)):
                if cta_mask >> rank & 1:
                    self._update(op, address, count, lanes=lanes, cta=rank, remote=True)
            return 0
        remote = issuer not in (None, cta)
        before = self._update(op, address, count, lanes=lanes, cta=cta, remote=remote)
        if remote:
            return 0
        return mbarrier.returned_state(before, merged=(1 << lanes) - 1 if op.no_complete else 0)

    def _update(
        self, op: mbarrier.Op, address: int, count: int, *, lanes: int = 1, cta: int, remote: bool,
        reports: bool = False,
    ) -> int:  # fmt: skip
        """Change an mbarrier; return its previous word. A fault locks it."""
        view = self._barrier(address, cta)
        before = int(view[0])
        options = {"remote": remote, "v1": self._has_v1, "reports": reports}
        try:
            view[0] = mbarrier.update(before, op, count, lanes=lanes, **options)
        except TmaError as error:
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
            1 to 2**20 - 1; in layout v1, 1 to 511. See `mbarrier.init` for other counts.
        v1 : bool
            Use layout v1; a fault on units that do not have it.
        cta : int
            CTA that holds the mbarrier.
        """
        if v1 and not self._has_v1:
            raise mbarrier.layout_v1_is_missing()
        self._barrier(address, cta)[0] = mbarrier.init(count, v1=v1)

    def mbarrier_inval(self, address: int, *, cta: int = 0) -> None:
        """Invalidate an mbarrier: this leaves the word as it is (silicon)."""
        self._barrier(address, cta)

    def mbarrier_arrive(
        self, address: int, count: int = 1, *, cta: int = 0, issuer: int | None = None
    ) -> int:
        """Arrive ``count`` times; return the state, as all arrivals do."""
        return self.mbarrier_update(mbarrier.Op.ARRIVE, address, count, cta=cta, issuer=issuer)

    def mbarrier_arrive_drop(
        self, address: int, count: int = 1, *, cta: int = 0, issuer: int | None = None
    ) -> int:
        """Arrive, and lower the arrivals that later phases expect."""
        op = mbarrier.Op.ARRIVE_DROP
        return self.mbarrier_update(op, address, count, cta=cta, issuer=issuer)

    def mbarrier_arrive_expect_tx(
        self, address: int, tx_bytes: int, *, cta: int = 0, issuer: int | None = None
    ) -> int:
        """Expect ``tx_bytes`` bytes, and arrive once."""
        op = mbarrier.Op.ARRIVE_EXPECT_TX
        return self.mbarrier_update(op, address, tx_bytes, cta=cta, issuer=issuer)

    def mbarrier_expect_tx(
        self, address: int, tx_bytes: int, *, cta: int = 0, issuer: int | None = None
    ) -> None:
        """Expect ``tx_bytes`` bytes; this may complete the phase, also with 0 bytes (silicon)."""
        self.mbarrier_update(mbarrier.Op.EXPECT_TX, address, tx_bytes, cta=cta, issuer=issuer)

    def mbarrier_complete_tx(
        self, address: int, tx_bytes: int, *, cta: int = 0, issuer: int | None = None
    ) -> None:
        """Count ``tx_bytes`` bytes as received, as the unit does for a request."""
        self.mbarrier_update(mbarrier.Op.COMPLETE_TX, address, tx_bytes, cta=cta, issuer=issuer)

    def mbarrier_report(self, address: int, value: int, *, cta: int = 0) -> int:
        """OR ``value`` into the report of the phase (layout v1); return the previous word."""
        view = self._barrier(address, cta)
        before = int(view[0])
        view[0] = mbarrier.report(before, value, v1=self._has_v1)
        return before

    def mbarrier_check_layout(self, address: int, layout: int, *, cta: int = 0) -> bool:
        """Return whether an mbarrier has layout v0 or v1, the number ``layout``."""
        return mbarrier.check_layout(self.word(address, cta), layout, v1=self._has_v1)

    def mbarrier_pending_count(self, state: int) -> int:
        """Return the pending arrivals in a state that an operation has returned."""
        return mbarrier.pending_count(state)

    def mbarrier_test_wait(
        self, address: int, state: int, *, conditional: bool = False, cta: int = 0
    ) -> bool:
        """Return whether the phase of ``state`` is complete.

        ``conditional`` tests the conditional phase of layout v1 instead; ``state`` is then a word.

        Warns
        -----
        ExpectTxWarning
            If all arrivals have come, but bytes are missing. No request is in flight, as each is
            executed at once, so a program that waits here waits forever.
        """
        parity = mbarrier.parity_of(state, conditional=conditional)
        return self._test(address, parity, conditional, cta)

    def mbarrier_test_wait_parity(
        self, address: int, parity: int, *, conditional: bool = False, cta: int = 0
    ) -> bool:
        """Return whether the phase of ``parity`` is complete; warns as ``mbarrier_test_wait``."""
        return self._test(address, parity, conditional, cta)

    def _test(self, address: int, parity: int, conditional: bool, cta: int) -> bool:
        word, v1 = self.word(address, cta), self._has_v1
        done = mbarrier.is_complete(word, parity, conditional=conditional, v1=v1)
        barrier = mbarrier.Barrier.decode(word, v1=v1)
        if not done and barrier.pending == 0 and barrier.tx_count > 0:
            warnings.warn(
                ExpectTxWarning(
                    f"mbarrier {address:#x} of CTA {cta} waits for {barrier.tx_count} bytes more, "
                    "and no request is in flight"
                ),
                stacklevel=3,
            )
        return done
