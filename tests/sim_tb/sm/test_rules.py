"""Rules of the sanitizer, one by one: a wrong order of calls is named, the mended one is not.

No simulator runs: the tests call the sanitizer as instructions do.
"""

import re

import numpy as np
import pytest

from golden import Swizzle
from sim_tb.sm.accumulators import Accumulator
from sim_tb.sm.device import Device
from sim_tb.sm.errors import KernelError
from sim_tb.sm.launch import Addresses
from sim_tb.sm.sanitizer import Access, Sanitizer, Scope, TrackedRequest
from sim_tb.sm.smem import SmemLayout

F32 = np.dtype(np.float32)
ROWS, COLUMNS = 64, 32
MAP_WORDS = 32


class Bench:
    """Roles of some CTAs, two tiles, barriers, two tensors and a map of the first one.

    Members
    -------
    a, b : TrackedWarpgroup
        Two roles of CTA 0; ``far`` is a role of the last CTA.
    """

    def __init__(self, ctas=1, cluster=None):
        self.layout, self.device = SmemLayout(1 << 16), Device(Addresses())
        self.x = self.device.tensor("x", np.zeros((ROWS, COLUMNS), F32))
        self.y = self.device.empty("y", (ROWS, COLUMNS), F32)
        self.map = self.device.tensor_map(self.x, (COLUMNS, ROWS), Swizzle.SWIZZLE_128B)
        self.tile, self.other = self.layout.tiles("tile", 2, (ROWS, COLUMNS), F32)
        self.full, self.empty, self.spare = (
            self.layout.mbarrier(name).address for name in ("full", "empty", "spare")
        )
        sanitizer = self.s = Sanitizer(self.layout, 1 << 16, ctas, self.device, cluster)
        self.ctas, self.cycle = range(ctas), 0
        self.init = [sanitizer.add_warpgroup(cta, "prologue", 4) for cta in self.ctas]
        self.groups = []

    def start(self, *, fence=True, meet=True, counts=(1, 1)):
        """Initialise *full* and *empty* in each CTA, and begin the roles ``a`` and ``b``."""
        for prologue in self.init:
            for address, count in zip((self.full, self.empty), counts, strict=True):
                self.s.barrier_init(prologue.elected, address, count, 0)
            if fence:
                self.s.fence_mbarrier_init(prologue.elected)
        if meet and len(self.ctas) > 1:
            self.s.sync([prologue.all for prologue in self.init], Scope.CLUSTER)
        for cta, prologue in zip(self.ctas, self.init, strict=True):
            self.groups.append([self.s.add_warpgroup(cta, role, 4) for role in "ab"])
            self.s.exit_warpgroup(prologue, 0)
            self.s.begin_roles(cta)
        self.a, self.b = self.groups[0]
        self.far = self.groups[-1][1]
        return self

    def now(self):
        self.cycle += 1
        return self.cycle

    def barrier(self, group, address, cta=0):
        return self.s.barrier_at(group.elected, "mbarrier", cta, address, self.now())

    def arrive(self, group, address, cta=0, *, threads=None, **options):
        """Let an elected thread arrive; a phase that is complete completes."""
        barrier = self.barrier(group, address, cta)
        self.s.arrive(threads or group.elected, barrier, self.now(), **options)
        self.complete(barrier)

    def complete(self, barrier):
        if barrier.arrived == barrier.count and barrier.expected_bytes == barrier.load_bytes:
            self.s.phase_completed(barrier, self.now())

    def wait(self, group, address, parity=0, scope=Scope.CTA, threads=None, **options):
        barrier = self.barrier(group, address, group.cta)
        threads = threads or group.all
        self.s.wait_begins(threads, barrier, parity, self.now())
        self.s.wait_returned(threads, barrier, parity, self.now(), scope, **options)

    def hand_over(self, giver, taker, address=None):
        """Let all warps of a role meet, one thread arrive at *empty*, and another role wait."""
        self.s.sync([giver.all])
        self.arrive(giver, self.empty if address is None else address)
        self.wait(taker, self.empty if address is None else address)

    def request(self, text, tx_bytes=0, tensor_map=None):
        return TrackedRequest(None, text, 0, "role", self.now(), tx_bytes, tensor_map)

    def load(self, group, tile, *, source=None, receivers=(0,), expect=True, wait=None):
        """Load ``tile`` in some CTAs; ``wait`` names the role that waits for it."""
        size = tile.nbytes
        for cta in receivers if expect else ():
            owner = self.groups[cta][0]
            self.s.arrive(owner.elected, self.barrier(owner, self.full, cta), 0, tx_bytes=size)
        request = self.request("a load", size, self.map.address)
        self.s.load(group.elected, request, receivers, tile.address, size, None, self.full, source)
        for cta in receivers:
            self.complete(self.s.barriers[cta, self.full])
        if wait is not None:
            self.wait(wait, self.full)

    def store(self, group, tile, *, target=None, reduces=False, commit=True):
        self.s.store(
            group.elected,
            self.request("a store"),
            tile.address,
            tile.nbytes,
            None,
            target=target,
            reduces=reduces,
        )
        if commit:
            self.s.commit(group.elected)

    def wait_group(self, group, *, read=False):
        self.s.group_wait_returned(group.elected, 0, self.now(), read=read)

    def read(self, group, tile=None):
        self.s.thread_read(group.all, "ld.shared", tile or self.tile, self.now())

    def write(self, group, tile=None):
        self.s.thread_write(group.all, "st.shared", tile or self.tile, self.now())

    def fence(self, group, **options):
        self.s.fence_async(group.all, **options)

    def global_bytes(self, tensor, rows=ROWS):
        return self.s.bytes(tensor.address, rows * tensor.array.strides[0])

    def touch(self, group, tensor, access, *, strong=False, first=0):
        """Let each thread access its own word of a tensor."""
        addresses = tensor.address + 4 * (first + np.arange(128))
        text = f"{'ld' if access == Access.READ else 'st'}.global"
        self.s.global_access(group.all, text, addresses, 4, self.now(), access, strong=strong)

    def replace(self, group):
        words = self.device.maps[self.map.address]
        self.s.replace_map(group.elected, self.map.address, "tensormap.replace of a field")
        words[MAP_WORDS - 1] ^= 1

    def use(self, group):
        self.s.use_map(group.elected, "a load", self.map.address, self.now())


# Each case: the message of the wrong order, and a function that is right with ``mended``.

CASES = {}


def case(message):
    def keep(function):
        CASES[function.__name__] = message, function
        return function

    return keep


@case(
    r"a: a load in cycle \d+ overwrites 0x0 of shared memory before its release: warp 0 of a .*"
    r"nothing but the order of the program stands between .*; call fence_proxy_async, or let"
)
def read_then_load_by_one_thread(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a)
    bench.s.thread_read(bench.a.elected, "ld.shared", bench.tile, 9)
    if mended:
        bench.fence(bench.a)
    bench.load(bench.a, bench.tile)


def test_a_read_and_a_load_with_a_barrier_between_need_no_fence():
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.b)
    bench.read(bench.b)
    bench.hand_over(bench.b, bench.a)
    bench.load(bench.a, bench.tile)


@case(r"a: a load in cycle \d+ overwrites 0x\w+ of shared memory before its release: warp 1 of b")
def released_by_one_warp_of_four(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.b)
    bench.read(bench.b)
    if mended:
        bench.s.sync([bench.b.all])
    bench.arrive(bench.b, bench.empty)
    bench.wait(bench.a, bench.empty)
    bench.load(bench.a, bench.tile)


@case(
    r"a: st.shared of tile\[0\] in cycle \d+, at 0x0 of shared memory: nothing orders it behind "
    r"st.shared of tile\[0\] by b in cycle \d+; let the writer arrive"
)
def two_roles_write(mended):
    bench = Bench().start()
    bench.write(bench.b)
    if mended:
        bench.hand_over(bench.b, bench.a)
    bench.write(bench.a)


@case(
    r"a: ld.shared of turned in cycle \d+, at 0x\w+ of shared memory: nothing orders it behind "
    r"st.shared of tile\[0\] by a in cycle \d+, by warp 0 of a: only a barrier orders the warps"
)
def warps_of_a_warpgroup(mended):
    bench = Bench().start()
    bench.write(bench.a)
    if mended:
        bench.s.sync([bench.a.all])
    turned = bench.tile.rows(0, 32)  # other rows for each warp
    object.__setattr__(turned, "name", "turned")
    bench.read(bench.a, turned)


@case(
    r"a: a store in cycle \d+, at 0x0 of shared memory: without fence\.proxy\.async, the unit may "
    r"not see an earlier write \(st\.shared of tile\[0\] by a in cycle \d+\)"
)
def fence_before_a_store(mended):
    bench = Bench().start()
    bench.write(bench.a)
    if mended:
        bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    bench.store(bench.a, bench.tile)


@case(r"a: a store in cycle \d+, at 0x0 of shared memory: without fence\.proxy\.async, the unit")
def fence_of_global_memory_only(mended):
    bench = Bench().start()
    bench.write(bench.a)
    bench.fence(bench.a, shared=mended)
    bench.s.sync([bench.a.all])
    bench.store(bench.a, bench.tile)


@case(
    r"a: wgmma of tile\[0\] in cycle \d+, at 0x0 of shared memory: without fence\.proxy\.async, "
    r"the tensor cores may not see an earlier write"
)
def fence_before_a_product(mended):
    bench = Bench().start()
    bench.write(bench.a)
    if mended:
        bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    registers = Accumulator(bench.a, np.zeros((64, 8), F32))
    bench.s.wgmma_fence(bench.a.all)
    bench.s.wgmma(bench.a.all, registers, bench.tile, bench.tile, bench.now())


@case(r"a: a load in cycle \d+ overwrites 0x0 of shared memory before its release: a wgmma of a")
def product_reads_until_its_group(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a)
    registers = Accumulator(bench.a, np.zeros((64, 8), F32))
    bench.s.wgmma_fence(bench.a.all)
    bench.s.wgmma(bench.a.all, registers, bench.tile, bench.tile, bench.now())
    bench.s.wgmma_commit(bench.a.all)
    bench.s.wgmma_wait_returned(bench.a.all, 0 if mended else 1)
    bench.load(bench.a, bench.tile)


@case(
    r"a reads an accumulator of a wgmma whose group may be in flight, in cycle 77 \(a: wgmma in "
    r"cycle "
    r"\d+\): the registers change until then; call wgmma_commit_group and wgmma_wait_group first"
)
def accumulator_read_early(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a)
    registers = Accumulator(bench.a, np.zeros((64, 8), F32), lambda: 77)
    bench.s.wgmma_fence(bench.a.all)
    bench.s.wgmma(bench.a.all, registers, bench.tile, bench.tile, bench.now())
    bench.s.wgmma_commit(bench.a.all)
    bench.s.wgmma_wait_returned(bench.a.all, 0 if mended else 1)
    assert registers.columns(0, 4).values.shape == (64, 4)


@case(
    r"a: wgmma in cycle \d+ adds to an accumulator that threads wrote after its last product, "
    r"without wgmma\.fence"
)
def accumulator_written_without_a_fence(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a)
    registers = Accumulator(bench.a, np.zeros((64, 8), F32))
    bench.s.wgmma_fence(bench.a.all)
    for fences in (0, int(mended)):
        for _ in range(fences):
            bench.s.wgmma_fence(bench.a.all)
        bench.s.wgmma(bench.a.all, registers, bench.tile, bench.tile, bench.now())
        bench.s.wgmma_commit(bench.a.all)
        bench.s.wgmma_wait_returned(bench.a.all, 0)
        registers.columns(0, 4).write(1.0)


@case(r"a: wgmma in cycle \d+ reads A from registers that threads may have written since")
def fragments_without_a_fence(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a)
    registers = Accumulator(bench.a, np.zeros((64, 8), F32))
    bench.s.wgmma_fence(bench.a.all)
    bench.s.registers_written(bench.a.all)
    if mended:
        bench.s.wgmma_fence(bench.a.all)
    bench.s.wgmma(bench.a.all, registers, np.zeros((64, 16)), bench.tile, bench.now())


@case(
    r"a: st\.shared of tile\[0\] in cycle \d+ overwrites 0x0 of shared memory before its release: "
    r"a "
    r"store of a reads .*, and its group was never committed: a wait covers committed groups only"
)
def store_without_a_commit(mended):
    bench = Bench().start()
    bench.write(bench.a)
    bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    bench.store(bench.a, bench.tile, commit=mended)
    bench.wait_group(bench.a, read=True)
    bench.s.sync([bench.a.all])
    bench.write(bench.a)


# Global memory


@case(
    r"a: a load in cycle \d+, at 0x\w+ of x: without fence\.proxy\.async, the unit may not see an "
    r"earlier write \(st\.global by a in cycle \d+\)"
)
def thread_writes_then_load(mended):
    bench = Bench().start()
    bench.touch(bench.a, bench.x, Access.WRITE)
    if mended:
        bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    bench.load(bench.a, bench.tile, source=bench.global_bytes(bench.x))


@case(
    r"a: ld\.global in cycle \d+, at 0x\w+ of y: request \(a store .*\) writes there, and the "
    r"threads do not know that it is complete; .*wait_group, not \.read"
)
def store_then_thread_reads(mended):
    bench = Bench().start()
    bench.write(bench.a)
    bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    bench.store(bench.a, bench.tile, target=bench.global_bytes(bench.y))
    bench.wait_group(bench.a, read=not mended)
    bench.s.sync([bench.a.all])
    bench.touch(bench.a, bench.y, Access.READ)


@case(r"a: a store in cycle \d+ overwrites 0x\w+ of y before its release: warp 0 of a reads")
def thread_reads_then_store(mended):
    bench = Bench().start()
    bench.write(bench.a)
    bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    bench.s.global_access(
        bench.a.elected, "ld.global", np.array([bench.y.address]), 4, bench.now(), Access.READ
    )
    if mended:
        bench.fence(bench.a)
    bench.store(bench.a, bench.tile, target=bench.global_bytes(bench.y))


@case(
    r"b: st\.global in cycle \d+ overwrites 0x\w+ of x before its release: a request that "
    r"signals full"
)
def load_reads_while_threads_write(mended):
    bench = Bench().start()
    bench.load(
        bench.a, bench.tile, source=bench.global_bytes(bench.x), wait=bench.b if mended else None
    )
    bench.touch(bench.b, bench.x, Access.WRITE)


@case(
    r"a: a store in cycle \d+, at 0x\w+ of y: request \(a store .*\) writes there, and the threads"
)
def two_stores_to_one_place(mended):
    bench = Bench().start()
    bench.write(bench.a)
    bench.fence(bench.a)
    bench.s.sync([bench.a.all])
    for _ in range(2):
        bench.store(bench.a, bench.tile, target=bench.global_bytes(bench.y), reduces=mended)


@case(r"b: st\.global in cycle \d+, at 0x\w+ of y: nothing orders it behind st\.global by a")
def plain_accesses_race_and_atomic_ones_do_not(mended):
    bench = Bench().start()
    access = Access.ATOMIC if mended else Access.WRITE
    bench.touch(bench.a, bench.y, access)
    bench.touch(bench.b, bench.y, access)


def test_accesses_to_other_words_do_not_race():
    bench = Bench().start()
    bench.touch(bench.a, bench.y, Access.WRITE)
    bench.touch(bench.b, bench.y, Access.WRITE, first=128)


@case(
    r"a: st\.global in cycle \d+: two lanes of warp 0 write 0x\w+: which value stays is undefined"
)
def lanes_write_one_word(mended):
    bench = Bench().start()
    access = Access.ATOMIC if mended else Access.WRITE
    same = np.full(128, bench.y.address)
    if not mended:
        same = same + 4 * (np.arange(128) // 32)
    bench.s.global_access(bench.a.all, "st.global", same, 4, bench.now(), access)


@case(r"far|b of CTA 1: ld\.global in cycle \d+, at 0x\w+ of y: st\.global .* too narrow: the flag")
def flag_of_another_cta(mended):
    bench = Bench(2).start()
    flag = bench.x.address
    bench.s.global_access(
        bench.a.elected, "st.global", np.array([bench.y.address]), 4, 1, Access.WRITE
    )
    bench.s.release(bench.a.elected, flag, Scope.GPU)
    bench.s.acquire(bench.far.elected, flag, Scope.GPU if mended else Scope.CTA)
    bench.s.global_access(
        bench.far.elected, "ld.global", np.array([bench.y.address]), 4, 2, Access.READ
    )


@case(r"b: ld\.global in cycle \d+, at 0x\w+ of y: nothing orders it behind st\.global by a")
def relaxed_flag_needs_fences(mended):
    bench = Bench().start()
    value, flag = np.array([bench.y.address]), np.array([bench.x.address])
    for group, access in ((bench.a, Access.WRITE), (bench.b, Access.READ)):
        threads = group.elected
        if access == Access.WRITE:
            bench.s.global_access(threads, "st.global", value, 4, 1, access)
            bench.s.fence(threads, Scope.GPU)
            bench.s.global_access(threads, "st.relaxed", flag, 4, 2, access, strong=True)
        else:
            bench.s.global_access(threads, "ld.relaxed", flag, 4, 3, access, strong=True)
            if mended:
                bench.s.fence(threads, Scope.GPU)
            bench.s.global_access(threads, "ld.global", value, 4, 4, access)


def test_st_async_needs_no_fence_between_the_proxies():
    """It is not of the async proxy: the order of threads is enough."""
    for by_unit in (False, True):
        bench = Bench(2).start()
        bench.write(bench.far)
        bench.s.sync([bench.a.all, bench.far.all], Scope.CLUSTER)
        request, tile = bench.request("st.async", 64), bench.tile
        stored = bench.a.elected, request, [1], tile.address, 64, None, bench.full
        if by_unit:
            with pytest.raises(KernelError, match=r"without fence\.proxy\.async"):
                bench.s.load(*stored)
        else:
            bench.s.load(*stored, by_unit=False)


# Scopes


@case(
    r"a of CTA 0: a load in cycle \d+ overwrites 0x\w+ of shared memory of CTA 1 before .* too "
    r"narrow: the arrival by b of CTA 1 in cycle \d+ has scope \.cta; use scope \.cluster"
)
def arrival_at_cta_scope(mended):
    multicast_after_release(Scope.CLUSTER if mended else Scope.CTA, Scope.CLUSTER)


@case(
    r"a of CTA 0: a load in cycle \d+ overwrites 0x\w+ of shared memory of CTA 1 before .* too "
    r"narrow: the wait for empty of CTA 0 by a of CTA 0 in cycle \d+ has scope \.cta"
)
def wait_at_cta_scope(mended):
    multicast_after_release(Scope.CLUSTER, Scope.CLUSTER if mended else Scope.CTA)


@case(r"a of CTA 0: a load .* too narrow: the arrival by b of CTA 1 in cycle \d+ is relaxed")
def relaxed_arrival(mended):
    multicast_after_release(Scope.CLUSTER, Scope.CLUSTER, relaxed=not mended)


def multicast_after_release(arrives, waits, **options):
    bench = Bench(2).start()
    bench.load(bench.a, bench.tile, receivers=(0, 1), wait=None)
    bench.wait(bench.far, bench.full)
    bench.wait(bench.a, bench.full)
    bench.read(bench.far)
    bench.s.sync([bench.far.all])
    bench.arrive(bench.far, bench.empty, scope=arrives, **options)
    bench.wait(bench.a, bench.empty, scope=waits)
    bench.load(bench.a, bench.tile, receivers=(0, 1))


# Barriers


@case(
    r"a: a load on full in cycle \d+: this barrier was initialised by prologue in cycle 0, without "
    r"fence\.mbarrier_init: the unit may not see"
)
def init_without_a_fence(mended):
    bench = Bench().start(fence=mended)
    bench.load(bench.a, bench.tile)


@case(
    r"b of CTA 1: mbarrier on empty of CTA 0 in cycle \d+: this barrier was initialised by .*, and "
    r"nothing orders this operation behind that; let both meet at a barrier\.cluster"
)
def remote_arrival_before_the_ctas_met(mended):
    bench = Bench(2).start(meet=mended)
    bench.arrive(bench.far, bench.empty, scope=Scope.CLUSTER)


@case(
    r"a: st\.shared of over in cycle \d+ accesses 0x\w+ of shared memory, where full is a live "
    r"barrier: .*call mbarrier_inval before its bytes are used again"
)
def storage_without_inval(mended):
    bench = Bench().start()
    over = bench.layout.tile("over", (1, 4), F32)
    object.__setattr__(over, "origin", bench.full)
    if mended:
        for address in (bench.full, bench.empty):
            bench.s.barrier_inval(bench.a.elected, address, bench.now())
    bench.s.thread_write(bench.a.elected, "st.shared", over, bench.now())


@case(
    r"a: mbarrier\.init of spare in cycle \d+ overwrites 0x\w+ .* reads|a: mbarrier\.init of spare "
    r"in cycle \d+, at 0x\w+ of shared memory: nothing orders it behind st\.shared of over by b"
)
def barrier_on_bytes_in_use(mended):
    bench = Bench().start()
    over = bench.layout.tile("over", (1, 2), F32)
    object.__setattr__(over, "origin", bench.spare)
    bench.s.thread_write(bench.b.elected, "st.shared", over, bench.now())
    if mended:
        bench.hand_over(bench.b, bench.a)
    bench.s.barrier_init(bench.a.elected, bench.spare, 1, bench.now())


@case(
    r"b: 32 arrivals at empty in cycle \d+, where 1 are expected per phase: each of the 32 lanes "
    r"arrives; let one elected lane arrive, or initialise the barrier with 32"
)
def every_lane_arrives(mended):
    bench = Bench().start(counts=(1, 32 if mended else 1))
    bench.arrive(bench.b, bench.empty, threads=bench.b.threads(1))


@case(
    r"b: one arrival too many at empty in cycle \d+: phase 0 already has all of its 1 arrivals "
    r"\(b\) and waits for 64 bytes"
)
def arrival_too_many(mended):
    bench = Bench().start(counts=(1, 2 if mended else 1))
    barrier = bench.barrier(bench.b, bench.empty)
    bench.s.expect_tx(bench.b.elected, barrier, bench.now(), 64)
    for _ in range(2):
        bench.arrive(bench.b, bench.empty)


@case(
    r"b: an arrival at full in cycle \d+ may run ahead: it counts for phase 1, but nothing orders "
    r"it behind the end of phase 0, in which b has arrived before; wait for that phase"
)
def arrival_that_runs_ahead(mended):
    bench = Bench().start(counts=(2, 1))
    for parity in (0, 1):
        bench.arrive(bench.a, bench.full)
        bench.arrive(bench.b, bench.full)
        bench.wait(bench.a, bench.full, parity)
        if mended:
            bench.wait(bench.b, bench.full, parity)


def test_the_arrivals_of_one_thread_are_in_order():
    bench = Bench().start(counts=(2, 1))
    for _ in range(4):
        bench.arrive(bench.a, bench.full)


def test_loads_tell_what_their_threads_have_waited_for():
    bench = Bench().start(counts=(1, 2))
    size = bench.tile.nbytes
    for parity in (0, 1):
        bench.arrive(bench.a, bench.full, tx_bytes=size)  # before a waits for the empty stage
        if parity:
            bench.wait(bench.a, bench.empty)
        bench.load(bench.a, bench.tile, expect=False)
        bench.wait(bench.b, bench.full, parity)
        for group in (bench.b, bench.a):
            bench.arrive(group, bench.empty)


@case(
    r"full: phase 0 has all of its arrivals in cycle \d+, but expect_tx is 32 bytes too small: "
    r"expect_tx: 32 bytes by a in cycle \d+; loads: request \(mbarrier\.complete_tx by b in cycle "
    r"\d+, 64 bytes\)"
)
def more_bytes_than_expected(mended):
    bench = Bench().start()
    barrier = bench.barrier(bench.a, bench.full)
    bench.s.arrive(bench.a.elected, barrier, bench.now(), tx_bytes=64 if mended else 32)
    bench.s.complete_tx(bench.b.elected, barrier, bench.now(), 64)


def test_dropped_arrivals_are_not_expected_again():
    bench = Bench().start(counts=(1, 3))
    bench.arrive(bench.a, bench.empty, drop=True)
    bench.arrive(bench.b, bench.empty)
    bench.arrive(bench.b, bench.empty)
    assert bench.barrier(bench.a, bench.empty).count == 2
    assert bench.barrier(bench.a, bench.empty).completed_phases == 1


@case(
    r"b: ld\.shared of tile\[0\] in cycle \d+, at 0x0 of shared memory: request \(a load .*\) "
    r"writes there and signals full, .*returned in cycle \d+, when 1 phases had completed, as at "
    r"the wait before: two waits with one parity; let the parity follow the uses"
)
def parity_of_an_index_that_skips(mended):
    bench = Bench().start()
    for step, parity in enumerate((0, int(mended), 0)):
        bench.load(bench.a, bench.tile)
        bench.wait(bench.b, bench.full, parity)
        bench.read(bench.b)
        if step < 2:
            bench.hand_over(bench.b, bench.a) if step == 0 else skip(bench)


def skip(bench):
    bench.s.sync([bench.b.all])
    bench.arrive(bench.b, bench.empty)
    bench.wait(bench.a, bench.empty, 1)


@case(
    r"b: ld\.shared of tile\[0\] in cycle \d+, at 0x0 .* has not waited for that phase: it has "
    r"never"
)
def wait_of_another_thread(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile)
    if mended:
        bench.wait(bench.b, bench.full)
    bench.read(bench.b)


@case(r"b: ld\.shared of tile\[0\] in cycle \d+, at 0x\w+ of shared memory: request")
def wait_of_one_warp(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile)
    bench.wait(bench.b, bench.full, threads=bench.b.all if mended else bench.b.elected)
    bench.read(bench.b)


@case(
    r"a: mbarrier\.inval on full in cycle \d+: b waits for its phase 0; invalidate it after the "
    r"last"
)
def inval_while_a_thread_waits(mended):
    bench = Bench().start()
    barrier = bench.barrier(bench.b, bench.full)
    if not mended:
        bench.s.wait_begins(bench.b.all, barrier, 0, bench.now())
    bench.s.barrier_inval(bench.a.elected, bench.full, bench.now())


# Ends


@case(
    r"a of CTA 0: the CTA ends in cycle \d+ while the arrival by b of CTA 1 in cycle \d+ at empty "
    r"of CTA 0 may still come"
)
def cta_ends_before_a_remote_arrival(mended):
    bench = Bench(2).start()
    bench.arrive(bench.far, bench.empty, scope=Scope.CLUSTER)
    if mended:
        bench.wait(bench.a, bench.empty, scope=Scope.CLUSTER)
    for group in reversed(bench.groups[0]):
        bench.s.exit_warpgroup(group, bench.now())


@case(
    r"b of CTA 1: mbarrier on empty of CTA 0 in cycle \d+: CTA 0 has ended, and its shared memory"
)
def arrival_at_a_cta_that_has_ended(mended):
    bench = Bench(2).start()
    for group in bench.groups[0][: 1 if mended else 2]:
        bench.s.exit_warpgroup(group, bench.now())
    bench.arrive(bench.far, bench.empty, scope=Scope.CLUSTER)


@case(
    r"b: the CTA ends in cycle \d+ while request \(a load .*\) may still write to its shared memory"
)
def cta_ends_before_a_load(mended):
    bench = Bench().start()
    bench.load(bench.a, bench.tile, wait=bench.a if mended else None)
    for group in bench.groups[0]:
        bench.s.exit_warpgroup(group, bench.now())


@case(r"the kernel ends before phase 0 of full has completed: expect_tx: 64 bytes by a")
def bytes_expected_at_the_end(mended):
    bench = Bench().start()
    if not mended:
        bench.s.expect_tx(bench.a.elected, bench.barrier(bench.a, bench.full), 1, 64)
    bench.s.end_kernel()


# Tensor maps


@case(
    r"a: a load in cycle \d+ uses the tensor map at 0x\w+ after tensormap\.replace of a field, the "
    r"change was not released; call fence_proxy_tensormap_release"
)
def map_not_released(mended):
    bench = Bench().start()
    bench.replace(bench.a)
    if mended:
        bench.s.release_map(bench.a.elected)
    bench.s.acquire_map(bench.a.all, bench.map.address)
    bench.use(bench.a)


@case(
    r"b: a load in cycle \d+ uses the tensor map at 0x\w+ after .*, nothing orders the acquire by "
    r"b "
    r"behind the release; let both meet"
)
def map_acquired_before_its_release(mended):
    bench = Bench().start()
    bench.replace(bench.a)
    bench.s.release_map(bench.a.elected)
    if mended:
        bench.s.sync([bench.a.all, bench.b.all])
    bench.s.acquire_map(bench.b.all, bench.map.address)
    bench.use(bench.b)


@case(
    r"b of CTA 1: a load in cycle \d+ uses the tensor map at 0x\w+ after .*, without "
    r"fence\.proxy\.tensormap acquire: the descriptor cache may hold the old map"
)
def map_changed_by_another_sm(mended):
    bench = Bench(2).start()
    bench.replace(bench.a)
    bench.s.release_map(bench.a.elected)
    bench.s.sync([bench.a.all, bench.far.all], Scope.CLUSTER)
    bench.s.acquire_map((bench.far if mended else bench.a).all, bench.map.address)
    bench.use(bench.far)


@case(
    r"a: a load in cycle \d+ uses the tensor map at 0x\w+, which the host has changed since the "
    r"kernel was launched: L2 and the descriptor cache may hold the old map"
)
def map_changed_by_the_host(mended):
    bench = Bench()
    words = bench.device.maps[bench.map.address]
    if mended:
        words[MAP_WORDS - 1] ^= 1  # before the launch
    bench.start()
    if not mended:
        words[MAP_WORDS - 1] ^= 1
    bench.use(bench.a)


@case(r"a: a load in cycle \d+: the tensor map at 0x\w+ was freed \(by the host\); keep it until")
def map_freed(mended):
    bench = Bench().start()
    if not mended:
        bench.device.free_map(bench.map)
    bench.use(bench.a)


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (32, r"0x\w+ is 32 bytes into the tensor map at 0x\w+: a map is aligned to 64 bytes"),
        (1 << 20, r"there is no tensor map at 0x\w+: use what device\.tensor_map"),
        (None, r"the tensor map's address, 0x40, is one of shared memory: requests read their map"),
    ],
)
def test_an_address_without_a_map(offset, message):
    bench = Bench().start()
    address = 0x40 if offset is None else bench.map.address + offset
    with pytest.raises(KernelError, match=rf"a: a load in cycle 1: {message}"):
        bench.s.use_map(bench.a.elected, "a load", address, 1)


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_named(name):
    message, script = CASES[name]
    with pytest.raises(KernelError) as caught:
        script(mended=False)
    assert re.match(message, str(caught.value), re.DOTALL), str(caught.value)


@pytest.mark.parametrize("name", CASES)
def test_the_mended_twin_raises_nothing(name):
    CASES[name][1](mended=True)


# State


def test_a_loop_that_waits_for_a_flag_is_no_progress():
    bench = Bench().start()
    flags = [np.array([bench.x.address + 4 * number]) for number in range(100)]
    before = []
    for flag in [*flags[:3], *flags[:3], *flags]:
        before.append(bench.s.progress)
        threads, cycle = bench.a.elected, bench.now()
        bench.s.global_access(threads, "ld.relaxed", flag, 4, cycle, Access.READ, strong=True)
    steps = np.diff([*before, bench.s.progress]).tolist()
    assert steps == [1] * 3 + [0] * 6 + [1] * 97
    assert bench.a.repeats is None
    bench.s.global_access(threads, "ld.relaxed", flag, 4, 500, Access.READ, strong=True)
    assert bench.a.repeats == ("ld.relaxed", cycle)


def ring(bench, steps):
    """Load, read and release a tile, again and again."""
    for step in range(steps):
        parity = step % 2
        bench.load(bench.a, bench.tile, source=bench.global_bytes(bench.x))
        bench.wait(bench.b, bench.full, parity)
        bench.read(bench.b)
        bench.write(bench.b, bench.other)
        bench.fence(bench.b)
        bench.s.sync([bench.b.all])
        bench.store(bench.b, bench.other, target=bench.global_bytes(bench.y))
        bench.wait_group(bench.b)
        bench.s.sync([bench.b.all])
        bench.arrive(bench.b, bench.empty)
        bench.wait(bench.a, bench.empty, parity)


def test_state_grows_with_what_is_live():
    sizes = []
    for steps in (4, 40):
        bench = Bench().start()
        ring(bench, steps)
        sizes.append(bench.s.sizes())
    assert sizes[0] == sizes[1]


def test_components_of_barriers_are_used_again():
    bench = Bench().start()
    before = None
    for _ in range(5):
        bench.s.barrier_init(bench.a.elected, bench.spare, 1, bench.now())
        bench.arrive(bench.a, bench.spare)
        bench.wait(bench.a, bench.spare)
        bench.s.barrier_inval(bench.a.elected, bench.spare, bench.now())
        before = before or bench.s.sizes()
    assert bench.s.sizes() == before


def test_ctas_that_have_ended_are_forgotten():
    """A CTA after the other on one SM; what they stored stays, and they do not know each other."""
    bench = Bench()
    sizes, kept = [], []
    for _ in range(4):
        bench.groups.clear()
        kept.append(bench.start().s.barriers)  # as callbacks keep them
        ring(bench, 2)
        for group in bench.groups[0]:
            bench.s.exit_warpgroup(group, bench.now())
        bench.s.end_cta(0)
        bench.init = [bench.s.add_warpgroup(0, "prologue", 4)]
        sizes.append(bench.s.sizes())
        bench.y = bench.device.empty(f"y{len(sizes)}", (ROWS, COLUMNS), F32)
    assert sizes[2]["components"] == sizes[3]["components"]
    bench.groups.clear()
    bench.start()
    first = bench.device.tensors[1]
    with pytest.raises(KernelError, match=r"a: ld\.global in cycle \d+, at 0x\w+ of y: request"):
        bench.touch(bench.a, first, Access.READ)
