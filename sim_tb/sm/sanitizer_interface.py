"""Signatures of the sanitizer's package ``sim_tb.sm.sanitizer``, which replaces this file.

Instructions of the SM call these methods. Everything is imported from ``sim_tb.sm.sanitizer``:
``Sanitizer, Threads, TrackedWarpgroup, TrackedBarrier, TrackedRequest, Scope, Access, GlobalBytes``.
The handle of accumulators is ``sim_tb.sm.wgmma.Accumulator``.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from golden import Swizzle
from sim_tb.sm.smem import Tile


class Scope(IntEnum):
    """Scope of a release or an acquire: threads outside of it learn nothing."""

    CTA, CLUSTER, GPU, SYSTEM = range(4)


class Access(IntEnum):
    """Kind of an access of threads to memory."""

    READ, WRITE, ATOMIC = range(3)


class Threads(Protocol):
    """Threads of one warpgroup that execute an instruction together: warps, and lanes in each.

    A ``TrackedWarpgroup`` makes them: ``tracked.all`` (four warps of 32 lanes), ``tracked.elected``
    (lane 0 of warp 0), ``tracked.leaders`` (lane 0 of each warp), and
    ``tracked.threads(warps=0b1111, lanes=0xFFFFFFFF)``, both bit masks.
    """

    group: Any
    warps: int
    lanes: int

    @property
    def count(self) -> int:
        """Number of threads."""


class GlobalBytes(Protocol):
    """Bytes of global memory: ``sanitizer.box(...)`` or ``sanitizer.bytes(address, size)``."""


class Sanitizer(Protocol):
    """Follows all threads. Raises ``KernelError`` at the instruction that is wrong.

    ``cycle`` is always the cycle for the message. ``cta`` is the number of the SM, which is the
    rank in the cluster. Every method that takes ``threads`` accepts ``tracked.all`` and so on.
    """

    # Threads and CTAs

    def add_warpgroup(self, cta: int, role: str, thread: int = 0) -> Any:
        """Add a warpgroup of a CTA; return its ``TrackedWarpgroup``, with ``all``, ``elected``."""

    def begin_roles(self, cta: int) -> None:
        """Follow the end of the prologue of a CTA: ``__syncthreads`` of this CTA, nothing more.

        A kernel whose barriers are used by other CTAs calls ``cluster_sync`` in its prologue.
        """

    def exit_warpgroup(self, tracked: Any, cycle: int) -> None:
        """Follow the return of a role."""

    def end_cta(self, cta: int, cycle: int) -> None:
        """Follow the end of all roles of a CTA (grids: before the next CTA starts on this SM).

        Its shared memory and barriers are forgotten; what it did to global memory is not.
        """

    def end_kernel(self, cycle: int) -> None:
        """Follow the end of the kernel."""

    # mbarrier

    def barrier_init(self, threads: Threads, address: int, count: int, cycle: int) -> Any:
        """``mbarrier.init`` (also on storage that held a barrier: without ``inval`` it raises)."""

    def barrier_inval(self, threads: Threads, address: int, cycle: int) -> None:
        """``mbarrier.inval``."""

    def barrier_at(
        self, threads: Threads, instruction: str, cta: int, address: int, cycle: int
    ) -> Any:
        """Return the ``TrackedBarrier`` that an instruction names; check that it may be used."""

    def fence_mbarrier_init(self, threads: Threads) -> None:
        """``fence.mbarrier_init.release.cluster``."""

    def arrive(
        self, threads: Threads, barrier: Any, cycle: int, count: int = 1, tx_bytes: int = 0,
        *, scope: Scope = Scope.CTA, relaxed: bool = False, drop: bool = False,
    ) -> None:  # fmt: skip
        """``mbarrier.arrive`` and its forms. *Each* thread arrives ``count`` times.

        With ``tx_bytes`` also ``expect_tx``, of each thread. ``drop``: ``arrive_drop``.
        """

    def expect_tx(self, threads: Threads, barrier: Any, cycle: int, tx_bytes: int) -> None:
        """``mbarrier.expect_tx``, of each thread."""

    def complete_tx(self, threads: Threads, barrier: Any, cycle: int, tx_bytes: int) -> None:
        """``mbarrier.complete_tx`` by threads."""

    def phase_completed(self, barrier: Any, cycle: int) -> None:
        """Follow the completion of a phase, as the unit reports it."""

    def wait_begins(
        self, threads: Threads, barrier: Any, parity: int, cycle: int, scope: Scope = Scope.CTA
    ) -> None:
        """A wait for the phase of ``parity`` begins; until it returns the threads are blocked."""

    def wait_returned(
        self, threads: Threads, barrier: Any, parity: int, cycle: int,
        scope: Scope = Scope.CTA, *, relaxed: bool = False,
    ) -> None:  # fmt: skip
        """A ``try_wait`` or ``test_wait`` returned true. (One that returned false: no call.)"""

    # Barriers of threads, global synchronisation, fences

    def sync(
        self, threads: Sequence[Threads], cycle: int, scope: Scope = Scope.CTA,
        *, relaxed: bool = False,
    ) -> None:  # fmt: skip
        """``bar.sync`` or ``barrier.cluster`` (scope CLUSTER) of all these threads is complete."""

    def release(self, threads: Threads, address: int, scope: Scope) -> None:
        """``st.release``, ``atom.release``, ``red.release`` at an address of global memory."""

    def acquire(self, threads: Threads, address: int, scope: Scope) -> None:
        """``ld.acquire``, ``atom.acquire`` of an address of global memory."""

    def fence(self, threads: Threads, scope: Scope) -> None:
        """``fence.acq_rel`` / ``__threadfence``."""

    def fence_async(
        self, threads: Threads, *, shared: bool = True, global_memory: bool = True
    ) -> None:
        """``fence.proxy.async``, with ``.shared::*`` or ``.global`` for one of the memories."""

    # Accesses of threads

    def thread_read(
        self, threads: Threads, instruction: str, tile: Tile, cycle: int, *, columns: bool = False,
        cta: int | None = None,
    ) -> None:  # fmt: skip
        """``ldmatrix``, ``ld.shared`` of a tile: warp w reads its rows (or columns)."""

    def thread_write(
        self, threads: Threads, instruction: str, tile: Tile, cycle: int, *, columns: bool = False,
        cta: int | None = None,
    ) -> None:  # fmt: skip
        """``stmatrix``, ``st.shared`` of a tile: warp w writes its rows (or columns)."""

    def shared_access(
        self, threads: Threads, text: str, addresses: NDArray[np.int64], size: int, cycle: int,
        access: Access, cta: int | None = None,
    ) -> None:  # fmt: skip
        """``ld/st/atom.shared`` of ``size`` bytes at one address per thread (warps, then lanes)."""

    def global_access(
        self, threads: Threads, text: str, addresses: NDArray[np.int64], size: int, cycle: int,
        access: Access, *, strong: bool = False,
    ) -> None:  # fmt: skip
        """``ld/st/atom.global`` of ``size`` bytes at one address per thread.

        ``strong``: ``.relaxed``, ``.acquire``, ``.release``, ``.volatile``: two strong accesses do
        not race. Atomics are always strong.
        """

    # Requests

    def use_map(self, threads: Threads, text: str, address: int, cycle: int) -> None:
        """Check the tensor map of a request: alignment, address space, life, changes."""

    def box(self, plan: Any, coords: Sequence[int], offsets: Sequence[int] = ()) -> GlobalBytes:
        """Return the bytes of global memory that a tensor request touches."""

    def bytes(self, address: int, size: int) -> GlobalBytes:
        """Return a range of global memory."""

    def load(
        self, threads: Threads, request: Any, receivers: Iterable[int], address: int, size: int,
        swizzle: Swizzle | None, signals: int, source: GlobalBytes | None = None,
        *, signal_cta: int | None = None,
    ) -> None:  # fmt: skip
        """A load (``source``: what it reads of global memory), or what a DSMEM request, ``st.async``
        or ``red.async`` writes (``source`` None).

        The barrier is at offset ``signals`` in each receiver, or in ``signal_cta``.
        """

    def store(
        self, threads: Threads, request: Any, address: int, size: int, swizzle: Swizzle | None,
        barrier: Any = None, target: GlobalBytes | None = None, *, reduces: bool = False,
    ) -> None:  # fmt: skip
        """A store or reduction to ``target``, or with ``barrier`` the source of a DSMEM request."""

    def prefetch(self, threads: Threads, request: Any) -> None:
        """A prefetch to L2: only its map is used."""

    def commit(self, threads: Threads, cycle: int) -> None:
        """``cp.async.bulk.commit_group``."""

    def group_wait_returned(
        self, threads: Threads, groups: int, cycle: int, *, read: bool = False
    ) -> None:
        """``cp.async.bulk.wait_group``, with ``read`` ``.read``, has returned."""

    # Tensor maps

    def map_placed(self, address: int, name: str) -> None:
        """The host put a map at this address of global memory."""

    def map_freed(self, address: int, cycle: int) -> None:
        """The host freed the map, or the tensor that it is in."""

    def replace_map(self, threads: Threads, address: int, text: str) -> None:
        """``tensormap.replace`` on a map."""

    def release_map(self, threads: Threads, address: int | None = None) -> None:
        """``fence.proxy.tensormap::generic.release`` or ``tensormap.cp_fenceproxy``."""

    def acquire_map(self, threads: Threads, address: int) -> None:
        """``fence.proxy.tensormap::generic.acquire``."""

    # Tensor cores

    def wgmma(
        self, threads: Threads, accumulator: Any, a: Any, b: Tile, cycle: int
    ) -> None:
        """``wgmma.mma_async`` of an ``Accumulator``: the operands in shared memory are read by the
        async proxy until a wait for the group.
        """

    def wgmma_fence(self, threads: Threads) -> None:
        """``wgmma.fence``."""

    def wgmma_commit(self, threads: Threads) -> None:
        """``wgmma.commit_group``."""

    def wgmma_wait_returned(self, threads: Threads, groups: int, cycle: int) -> None:
        """``wgmma.wait_group`` has returned."""

    # Blocked threads, for the explanation of a hang

    def blocked(self, threads: Threads, what: str | None, cycle: int) -> None:
        """The threads wait for something else than an mbarrier (None: no longer)."""
