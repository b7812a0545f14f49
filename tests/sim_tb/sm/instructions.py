"""Small kernels, each of a few instructions, whose results NumPy or the golden model knows."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from golden import (
    AccessMode,
    ArrayMemory,
    DataType,
    Load,
    Override,
    ReductionOp,
    ReportMechanism,
    Swizzle,
)
from golden import Cluster as Model
from golden.reduction import operation
from sim_tb.sm.check import Check, equal
from sim_tb.sm.global_memory import Order
from sim_tb.sm.kernel import Kernel
from sim_tb.sm.sanitizer import Scope
from sim_tb.sm.smem import BarrierState
from sim_tb.sm.warps import warps
from sim_tb.testbench.bridge import LogKind

U32, F32 = np.dtype(np.uint32), np.dtype(np.float32)
LINE = 32
"""Elements of 4 bytes in a line."""


@dataclass
class Small(Kernel):
    """A kernel that compares lists of numbers: ``got`` with ``expected``."""

    got: list = field(default_factory=list)
    expected: list = field(default_factory=list)

    def host(self, device):
        self.x = device.tensor("x", np.arange(8 * LINE, dtype=U32).reshape(8, LINE))
        self.y = device.tensor("y", np.zeros((8, LINE), U32))

    def smem(self, smem):
        self.tile, self.other = smem.tiles("tile", 2, (4, LINE), U32)
        self.full, self.turn = smem.mbarrier("full"), smem.mbarrier("turn")

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1)
        await wg.mbarrier_init(self.turn, 2)
        await wg.fence_mbarrier_init()
        if self.ctas > 1:
            await wg.cluster_sync()

    def roles(self):
        return {"role": self.role}

    def take(self, got, expected):
        """Note a result and what it must be."""
        self.got.append(np.asarray(got).tolist())
        self.expected.append(np.asarray(expected).tolist())

    def check(self):
        for number, (got, expected) in enumerate(zip(self.got, self.expected, strict=True)):
            if got != expected:
                wrong = f"result {number}: expected {expected}, got {got}"
                return Check("results", len(self.got), 0, 0, wrong)
        return Check("results", len(self.got), 0, 0)


class Grid(Small):
    """CTAs of a grid add their index to a line; each has shared memory and barriers of its own."""

    @property
    def grid_dim(self):
        return 4, 2, 1

    @warps(2)
    async def role(self, wg):
        x, y, _ = wg.block_idx
        assert wg.grid_dim == (4, 2, 1)
        await wg.mbarrier_arrive_expect_tx(self.full, 128)
        await wg.cp_async_bulk(self.tile, self.x.at(4 * y + x), 128, self.full)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        values = (await wg.ld_shared(self.tile.rows(0, 1)))[0]
        inside = wg.thread_idx < LINE
        index = 4 * y + x, np.minimum(wg.thread_idx, LINE - 1)
        await wg.st_global(self.y, index, np.resize(values, wg.threads) + x, where=inside)

    def check(self):
        block = np.arange(8)[:, None] % 4
        return equal("y", self.y.array, self.x.array + block.astype(U32))


class GridOfSms(Grid):
    """The same on four SMs, each CTA on the next free one."""

    @property
    def sms(self):
        return 4


class Threads(Small):
    """Global loads, stores and atomic operations of threads, and a flag between two roles."""

    def host(self, device):
        super().host(device)
        self.count = device.tensor("count", np.zeros(4, U32))
        self.f = device.tensor("f", np.zeros((2, 2), F32))
        self.flag = device.tensor("flag", np.zeros(1, U32))
        self.map = device.tensor_map(self.x, (LINE, 4))

    def roles(self):
        return {"first": self.first, "second": self.second}

    async def first(self, wg):
        t = wg.thread_idx
        self.take(t, range(128))
        values = await wg.ld_global(self.x, t, where=t < 100)
        self.take(values, np.where(t < 100, t, 0))
        await wg.st_global(self.y, (t // LINE, t % LINE), 2 * values)
        old = await wg.atom_global(self.count, 0, 1, ReductionOp.ADD)
        self.take(old, range(128))
        old = await wg.atom_global(self.count, 1, t, ReductionOp.MAX, where=t % 2 == 0)
        self.take(old[::2], [0, *range(0, 126, 2)])
        await wg.red_global(self.count, 2, 6, ReductionOp.INC)
        await wg.red_global(self.f, 3, 0.5, ReductionOp.ADD)
        old = await wg.atom_cas_global(self.count, 3, t, t + 1)
        self.take(old, t)
        await wg.bar_sync(1, 128)
        await wg.st_global(self.flag, 0, 7, where=t == 0, order=Order.RELEASE)

    @warps(1)
    async def second(self, warp):
        self.take([warp.thread_idx[0], warp.threads], [128, 32])
        lane = warp.thread_idx == 128
        while (await warp.ld_global(self.flag, 0, where=lane, order=Order.ACQUIRE))[0] != 7:
            pass
        self.take(
            await warp.ld_global(self.y, (3, np.arange(32))), [*range(192, 200, 2), *[0] * 28]
        )

    def check(self):
        t = np.arange(256)
        self.take(self.count.array, [128, 126, 128 % 7, 128])
        self.take(self.f.array, [[0, 0], [0, 64]])
        self.take(self.y.array.reshape(-1), np.where(t < 100, 2 * t, 0))
        return super().check()


class Barriers(Small):
    """Arrivals that return states, drops, tests, and waits with a time limit."""

    def smem(self, smem):
        super().smem(smem)
        self.many = smem.mbarrier("many")

    async def prologue(self, wg):
        await super().prologue(wg)
        await wg.mbarrier_init(self.many, 128 + 4 + 1)

    async def role(self, wg):
        state = await wg.mbarrier_arrive_state(self.turn)
        self.take(await wg.mbarrier_pending_count(state), 2)
        self.take(await wg.mbarrier_test_wait(self.turn, state), False)
        self.take(await wg.mbarrier_try_wait(self.turn, state, time_limit=50), False)
        again = await wg.mbarrier_arrive_state(self.turn)
        self.take(await wg.mbarrier_pending_count(again), 1)
        self.take(await wg.mbarrier_try_wait(self.turn, state), True)
        self.take(await wg.mbarrier_test_wait(self.turn, again), True)
        self.take(await wg.mbarrier_test_wait_parity(self.turn, 0), True)
        self.take(await wg.mbarrier_test_wait_parity(self.turn, 1), False)
        self.take(await wg.mbarrier_try_wait_parity(self.turn, 1, time_limit=9), False)

        state = await wg.mbarrier_arrive_no_complete(self.turn, 1)
        self.take(await wg.mbarrier_pending_count(state), 2)
        await wg.mbarrier_arrive_drop(self.turn)  # from now on one arrival is expected
        await wg.mbarrier_try_wait(self.turn, state)
        await wg.mbarrier_arrive_expect_tx(self.turn, 16)
        await wg.mbarrier_complete_tx(self.turn, 16)
        await wg.mbarrier_try_wait_parity(self.turn, 0)

        await wg.mbarrier_arrive(self.many, threads=wg.all)
        await wg.mbarrier_arrive(self.many, threads=wg.leaders)
        self.take(await wg.mbarrier_try_wait_parity(self.many, 0, time_limit=300), False)
        await wg.mbarrier_arrive(self.many)
        await wg.mbarrier_try_wait_parity(self.many, 0)


def recorded_barriers(most):
    """Programs of a barrier each, of arrivals, drops, tests and waits, and what silicon returned.

    Each is a list of (operation, count, state operand, returned state, predicate). Operations on
    different barriers do not depend on each other, so a recorded program gives one for each of its
    barriers that has neither bytes nor a second initialisation.
    """
    with np.load(SILICON / "barriers.npz") as file:
        programs, ops, names = file["programs"], file["ops"], file["op_names"].tolist()
    made = []
    for program in programs[(programs["set"] == "random") & (programs["error"] == 0)]:
        slots, barriers = {}, {}
        for op in ops[program["first"] : program["first"] + program["count"]]:
            operand = int(op["value"]) if op["src"] == 255 else slots.get(int(op["src"]), 0)
            slots[int(op["save"])] = int(op["state"])
            result = int(op["state"]), bool(op["pred"])
            step = names[op["op"]], int(op["count"]), operand, *result
            barriers.setdefault(int(op["bar"]), []).append(step)
        for steps in barriers.values():
            kinds = [name for name, *_ in steps]
            if kinds[0] == "INIT" and len(steps) > 3 and set(kinds[1:]) <= REPLAYED:
                made.append(steps)
    return made[:most]


SILICON = Path(__file__).parents[2] / "silicon"
REPLAYED = {
    *("ARRIVE", "ARRIVE_N", "ARRIVE_NC", "DROP", "DROP_N", "DROP_NC"),
    *("TEST", "TEST_P", "TRY", "TRY_P", "PENDING"),
}


class Recorded(Small):
    """Programs of mbarriers return the states and predicates of an H200."""

    def smem(self, smem):
        self.programs = recorded_barriers(40)
        self.barriers = smem.mbarriers("barrier", len(self.programs))

    async def prologue(self, wg):
        for barrier, ((_, count, *_), *_) in zip(self.barriers, self.programs, strict=True):
            await wg.mbarrier_init(barrier, count)

    async def role(self, wg):
        self.take(len(self.programs), 40)
        for barrier, (_, *steps) in zip(self.barriers, self.programs, strict=True):
            for name, count, operand, state, predicate in steps:
                got = await self.step(wg, barrier, name, count, BarrierState(operand))
                expected = state if name.startswith(("ARRIVE", "DROP", "PENDING")) else predicate
                self.take([name, got], [name, expected])

    async def step(self, wg, barrier, name, count, state):
        match name:
            case "PENDING":
                return await wg.mbarrier_pending_count(state)
            case "TEST":
                return await wg.mbarrier_test_wait(barrier, state)
            case "TEST_P":
                return await wg.mbarrier_test_wait_parity(barrier, count)
            case "TRY":
                return await wg.mbarrier_try_wait(barrier, state, time_limit=0)
            case "TRY_P":
                return await wg.mbarrier_try_wait_parity(barrier, count, time_limit=0)
        drop, count = name.startswith("DROP"), count if "_" in name else 1
        if name.endswith("_NC"):
            return (await wg.mbarrier_arrive_no_complete(barrier, count, drop=drop)).word
        return (await wg.mbarrier_arrive_state(barrier, count, drop=drop)).word


class Meetings(Small):
    """``bar.arrive`` of one role and ``bar.sync`` of another, which writes first."""

    def roles(self):
        return {"writer": self.writer, "reader": self.reader}

    @warps(2)
    async def writer(self, wg):
        await wg.st_shared(self.tile, self.x.array[:4].copy())
        await wg.bar_arrive(3, 64 + 128)
        self.left = wg.clock

    async def reader(self, wg):
        await wg.issue(100)
        await wg.bar_sync(3, 64 + 128)
        self.take(await wg.ld_shared(self.tile), self.x.array[:4])
        self.take(self.left < wg.clock - 50, True)


class Hints(Small):
    """Prefetches to L2 and cache hints reach the memory port, and change no result."""

    def host(self, device):
        super().host(device)
        self.map = device.tensor_map(self.x, (LINE, 4))
        self.map_y = device.tensor_map(self.y, (LINE, 4))

    async def role(self, wg):
        env = wg.sm.env
        env._bridge.log_kinds(1 << LogKind.HINT | 1 << LogKind.PREFETCH)
        await wg.cp_async_bulk_prefetch(self.x.at(2), 256, cache_policy=3)
        await wg.cp_async_bulk_prefetch_tensor(self.map, (0, 4), cache_policy=1)
        await wg.mbarrier_arrive_expect_tx(self.full, 1024)
        await wg.cp_async_bulk_tensor(
            self.tile, self.map, (0, 0), self.full, cache_policy=5, joins_group=True
        )
        await wg.commit_group()
        issued = wg.clock
        await wg.wait_group(0)
        self.take(wg.clock > issued, True)  # until the load has read its map
        await wg.cp_async_bulk(self.other, self.x.at(4), 512, self.full, cache_policy=6)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, 0), self.tile, cache_policy=7)
        await wg.cp_async_bulk_store(self.y.at(4), self.other, 512, cache_policy=8)
        await wg.commit_group()
        await wg.wait_group(0)
        policies, lines = np.unique(env.log(LogKind.HINT)["key"], return_counts=True)
        self.take([policies, lines], [[1, 3, 5, 6, 7, 8], [4, 2, 4, 4, 4, 4]])
        first = self.x.address // 128
        prefetched = sorted(env.log(LogKind.PREFETCH)["key"].astype(int) - first)
        self.take(prefetched, [2, 3, 4, 5, 6, 7])

    def check(self):
        self.take(self.y.array, self.x.array)
        return super().check()


# Clusters


@dataclass
class Cluster(Small):
    """A kernel on a cluster of four CTAs, which write to their right neighbour."""

    @property
    def ctas(self):
        return 4

    async def role(self, wg):
        right = (wg.cta + 1) % 4
        own = np.arange(128, dtype=U32).reshape(4, LINE) + U32.type(1000 * wg.cta)
        await wg.st_shared(self.tile, own)
        await wg.st_shared(self.other, own)
        await wg.fence_proxy_async()
        await wg.mbarrier_arrive_expect_tx(self.full, self.tx_bytes)
        await wg.bar_sync(1, 128)
        await wg.cluster_sync()
        await self.write(wg, right, own)
        await wg.mbarrier_try_wait_parity(self.full, 0, scope=Scope.CLUSTER)
        left = (wg.cta - 1) % 4
        source = np.arange(128, dtype=U32).reshape(4, LINE) + U32.type(1000 * left)
        self.take(await wg.ld_shared(self.other), self.expected_of(own, source))
        await wg.cluster_sync()

    tx_bytes = 512


class DsmemReduce(Cluster):
    """``cp.reduce.async.bulk`` to the neighbour."""

    op = ReductionOp.XOR

    async def write(self, wg, right, _):
        await wg.cp_reduce_async_bulk_dsmem(
            right, self.other, self.tile, self.full, DataType.UINT32, self.op
        )

    def expected_of(self, own, source):
        return operation(self.op, DataType.UINT32)(own, source)


class StAsync(Cluster):
    """``st.async`` of 16 bytes a thread, and of a single word."""

    tx_bytes = 512 + 4

    def smem(self, smem):
        super().smem(smem)
        self.word = smem.tile("word", (1, 1), U32)

    async def write(self, wg, right, own):
        await wg.st_async(right, self.other, own, self.full)
        await wg.st_async(right, self.word, own[:1, :1], self.full)
        await wg.mbarrier_try_wait_parity(self.full, 0, scope=Scope.CLUSTER)
        self.take(await wg.ld_shared(self.word), [[1000 * ((wg.cta - 1) % 4)]])

    def expected_of(self, _, source):
        return source


class RedAsync(Cluster):
    """``red.async`` of a word a thread."""

    async def write(self, wg, right, own):
        await wg.red_async(right, self.other, own, ReductionOp.ADD, self.full)

    def expected_of(self, own, source):
        return own + source


class Shared(Cluster):
    """``ld.shared::cluster`` and ``st.shared::cluster`` after ``mapa``."""

    async def role(self, wg):
        there = await wg.mapa(self.tile, (wg.cta + 1) % 4)
        await wg.st_shared(there, self.x.array[:4] + U32.type(wg.cta))
        await wg.cluster_sync()
        self.take(await wg.ld_shared(self.tile), self.x.array[:4] + U32.type((wg.cta - 1) % 4))
        start = wg.clock
        self.take(await wg.ld_shared(there), self.x.array[:4] + U32.type(wg.cta))
        self.take(wg.clock - start in range(216, 222), True)
        await wg.cluster_sync()


class Multicast(Cluster):
    """A bulk copy that CTA 2 multicasts to CTAs 1 to 3, and one to CTA 0 by ``mapa``."""

    async def write(self, wg, *_):
        if wg.cta == 2:
            await wg.cp_async_bulk(self.other, self.x.at(0), 512, self.full, cta_mask=0b1110)
            there = await wg.mapa(self.other, 0)
            await wg.cp_async_bulk(there, self.x.at(0), 512, self.full)

    def expected_of(self, *_):
        return self.x.array[:4]


class Pairs(Cluster):
    """``.cta_group::2``: the loads of both CTAs of a pair signal the barrier of the even one."""

    def host(self, device):
        super().host(device)
        self.map = device.tensor_map(self.x, (LINE, 4))

    async def role(self, wg):
        even = wg.cta & ~1
        if wg.cta == even:
            await wg.mbarrier_arrive_expect_tx(self.full, 1024)
        await wg.cluster_sync()
        barrier = await wg.mapa(self.full, even)
        where = 0, 4 * (wg.cta & 1)
        await wg.cp_async_bulk_tensor(self.other, self.map, where, barrier, cta_group=2)
        if wg.cta == even:
            await wg.mbarrier_try_wait_parity(self.full, 0)
            self.take(await wg.ld_shared(self.other), self.x.array[:4])
        await wg.cluster_sync()
        if wg.cta != even:
            self.take(await wg.ld_shared(self.other), self.x.array[4:])


class Remote(Cluster):
    """Arrivals, drops and bytes at barriers of another CTA; relaxed halves of the barrier."""

    async def role(self, wg):
        right = (wg.cta + 1) % 4
        turn = await wg.mapa(self.turn, right)
        await wg.mbarrier_arrive(turn, scope=Scope.CLUSTER)
        await wg.mbarrier_arrive_drop(turn, scope=Scope.CLUSTER)
        await wg.mbarrier_try_wait_parity(self.turn, 0, scope=Scope.CLUSTER)
        await wg.mbarrier_arrive_drop_expect_tx(turn, 32, scope=Scope.CLUSTER, relaxed=True)
        await wg.mbarrier_complete_tx(turn, 32)
        await wg.mbarrier_try_wait_parity(self.turn, 1, scope=Scope.CLUSTER)
        point = await wg.cluster_arrive(relaxed=True)
        await wg.issue(10 * wg.cta)
        await wg.cluster_wait(point)
        await wg.cluster_sync()


# Later architectures


@dataclass
class Later(Small):
    """A kernel on a unit with the modes of Blackwell."""

    @property
    def unit_params(self):
        later = "gather4", "im2col_w", "ignore_oob", "override", "mbarrier_v1", "report_mechanism"
        return dict.fromkeys(later, True)


class Scatter(Later):
    """``.tile::gather4`` rows, and ``.tile::scatter4`` them elsewhere."""

    def host(self, device):
        super().host(device)
        self.map, self.map_y = (device.tensor_map(each, (LINE, 1)) for each in (self.x, self.y))

    async def role(self, wg):
        await wg.mbarrier_arrive_expect_tx(self.full, 512)
        await wg.cp_async_bulk_tensor(
            self.tile, self.map, (0, 7, 1, 3, 3), self.full, mode=AccessMode.TILE_GATHER4
        )
        await wg.mbarrier_try_wait_parity(self.full, 0)
        mode = AccessMode.TILE_SCATTER4
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, 0, 2, 4, 6), self.tile, mode=mode)
        await wg.commit_group()
        await wg.wait_group(0)

    def check(self):
        expected = np.zeros_like(self.y.array)
        expected[::2] = self.x.array[[7, 1, 3, 3]]
        return equal("y", self.y.array, expected)


class Overridden(Later):
    """``.override::global_address`` with and without extents, and ``.ignore_oob``."""

    def host(self, device):
        super().host(device)
        self.map_x, self.map_y = (device.tensor_map(each, (LINE, 2)) for each in (self.x, self.y))

    async def role(self, wg):
        row = 4 * LINE
        moved = Override(self.x.address + 3 * row)
        await wg.cp_async_bulk_prefetch_tensor(self.map_x, (0, 0), override=moved)
        await wg.mbarrier_arrive_expect_tx(self.full, 2 * row)
        await wg.cp_async_bulk_tensor(self.tile, self.map_x, (0, 0), self.full, override=moved)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        apart = Override(self.y.address, (LINE, 2), (2 * row >> 4,))
        await wg.cp_async_bulk_tensor_store(self.map_y, (0, 0), self.tile, override=apart)
        await wg.commit_group()
        await wg.wait_group(0)
        await wg.mbarrier_arrive_expect_tx(self.full, 32)
        first = self.x.at(1, 4)
        await wg.cp_async_bulk(self.tile, first, 32, self.full, ignore_first=4, ignore_last=8)
        await wg.mbarrier_try_wait_parity(self.full, 1)
        got = wg.sm.env.smem[self.tile.address :][4:24].view(np.uint32)
        self.take(got, self.x.array[1, 5:10].view(np.uint32))

    def check(self):
        expected = np.zeros_like(self.y.array)
        expected[[0, 2]] = self.x.array[[3, 4]]
        return equal("y", self.y.array, expected)


class Masked(Later):
    """``.cp_mask``: only some bytes of each 16 are written."""

    async def role(self, wg):
        await wg.mbarrier_arrive_expect_tx(self.full, 512)
        await wg.cp_async_bulk(self.tile, self.x.at(1), 512, self.full)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        await wg.cp_async_bulk_store(self.y.at(), self.tile, 512, byte_mask=0xF00F)
        await wg.commit_group()
        await wg.wait_group(0)

    def check(self):
        expected = np.zeros_like(self.y.array)
        expected[:4] = np.where(np.arange(LINE) % 4 % 3 == 0, self.x.array[1:5], 0)
        return equal("y", self.y.array, expected)


class Columns(Later):
    """``.im2col::w`` with a halo, compared with the golden model; and its prefetch."""

    where, halo = (0, 3, 2, 1), (20, 1)

    def host(self, device):
        shape = 4, 9, 13, 64  # N, H, W, C
        values = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape)
        self.image = device.tensor("image", values)
        self.map = device.im2col_map(
            self.image, ((-1,), (1,)), (64, 32), Swizzle.SWIZZLE_128B, wide=True, arch=self.arch
        )
        self.words = device.maps[self.map.address].tobytes()

    def smem(self, smem):
        self.tile = smem.tile("tile", (52, 64), np.uint16, Swizzle.SWIZZLE_128B)
        self.full = smem.mbarrier("full")

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1)
        await wg.fence_mbarrier_init()

    async def role(self, wg):
        mode = {"mode": AccessMode.IM2COL_W, "halo": self.halo}
        await wg.cp_async_bulk_prefetch_tensor(self.map, self.where, **mode)
        await wg.mbarrier_arrive_expect_tx(self.full, self.tile.nbytes)
        await wg.cp_async_bulk_tensor(self.tile, self.map, self.where, self.full, **mode)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        model = Model(ArrayMemory(self.image.array, self.image.address), arch=self.arch)
        w_halo, w_offset = self.halo
        load = Load(self.words, self.where, AccessMode.IM2COL_W, w_halo=w_halo, w_offset=w_offset)
        model.mbarrier_init(1 << 16, 1)
        model.issue(replace(load, mbarrier=1 << 16))
        size = self.tile.nbytes
        self.take(await wg.ld_shared(self.tile) * 0, np.zeros((52, 64)))
        self.take(wg.sm.env.smem[:size], model.smem[0][:size])
        self.take(model.smem[0][:size].any(), True)


class Layouts(Later):
    """Barriers of layout v1, whose conditional phase can be tested."""

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1, v1=True)

    async def role(self, wg):
        self.take(await wg.mbarrier_test_wait_parity(self.full, 0, conditional=True), False)
        await wg.mbarrier_arrive(self.full)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        self.take(await wg.mbarrier_test_wait_parity(self.full, 0, conditional=True), True)
        await wg.mbarrier_report(self.full, 3)
        await wg.mbarrier_arrive(self.full)
        await wg.mbarrier_try_wait_parity(self.full, 1)
        self.take(await wg.mbarrier_test_wait_parity(self.full, 1, conditional=True), False)


class Reported(Later):
    """``.mbarrier::report::validity``: data with a byte FF stops the conditional phase."""

    def host(self, device):
        super().host(device)
        self.map_x, self.map_y = (device.tensor_map(each, (LINE, 1)) for each in (self.x, self.y))

    async def prologue(self, wg):
        await wg.mbarrier_init(self.full, 1, v1=True)
        await wg.fence_mbarrier_init()

    async def role(self, wg):
        report, size = ReportMechanism.PER_ELEMENT_FF, 4 * LINE
        row = 255 // LINE  # the only row with a byte FF
        await wg.mbarrier_arrive_expect_tx(self.full, size)
        await wg.cp_async_bulk(self.tile, self.x.at(row), size, self.full, report=report)
        await wg.mbarrier_try_wait_parity(self.full, 0)
        self.take(await wg.mbarrier_test_wait_parity(self.full, 0, conditional=True), False)
        # The conditional phase advances with the zeros of y, and no further.
        for parity, source, start in (1, self.map_y, 0), (0, self.map_x, row):
            await wg.mbarrier_arrive_expect_tx(self.full, size)
            await wg.cp_async_bulk_tensor(self.tile, source, (0, start), self.full, report=report)
            await wg.mbarrier_try_wait_parity(self.full, parity)
            self.take(await wg.mbarrier_test_wait_parity(self.full, 0, conditional=True), True)
            self.take(await wg.mbarrier_test_wait_parity(self.full, 1, conditional=True), False)


# Mistakes


@dataclass
class Wrong(Threads):
    """A kernel with a wrong operand."""

    what: str = ""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def roles(self):
        return {"role": self.one_warp if self.what in ("Registers", "Products") else self.role}

    @warps(1)
    async def one_warp(self, warp):
        if self.what == "Products":
            await warp.wgmma_fence()
        await warp.setmaxnreg(40)

    async def role(self, wg):
        t, tile = wg.thread_idx, self.tile
        wrong = {
            "Bare": lambda: wg.mbarrier_arrive(self.turn.address),
            "Address": lambda: wg.cp_async_bulk(tile, self.x.address, 16, self.full),
            "Map": lambda: wg.cp_async_bulk_tensor(tile, self.x, (0, 0), self.full),
            "Rows": lambda: wg.ldmatrix(self.x.array),
            "Values": lambda: wg.st_shared(tile, 3),
            "Shape": lambda: wg.st_shared(tile, self.x.array[:3]),
            "Outside": lambda: wg.ld_global(self.x, t + 255),
            "TooMany": lambda: wg.ld_global(self.x, (t, t, t)),
            "Fraction": lambda: wg.ld_global(self.x, t / 2),
            "Threads": lambda: wg.st_global(self.x, t, t[:3]),
            "Minimum": lambda: wg.atom_global(self.f, 0, 1, ReductionOp.MIN),
            "Op": lambda: wg.atom_global(self.f, 0, 1, "ADD"),
            "Mode": lambda: wg.cp_async_bulk_tensor(tile, self.map, (0, 0), self.full, mode="TILE"),
            "Named": lambda: wg.bar_sync(16, 128),
            "Odd": lambda: wg.bar_sync(1, 100),
            "Nobody": lambda: wg.mapa(tile, 1),
        }
        await wrong[self.what]()


@dataclass
class Sized(Cluster):
    """A kernel with a grid and SMs of any size."""

    grid: tuple = (4, 1, 1)
    number: int = 4

    @property
    def grid_dim(self):
        return self.grid

    @property
    def sms(self):
        return self.number


LOCAL = [Grid(), Threads(), Barriers(), Recorded(), Meetings(), Hints()]
CLUSTERED = [
    GridOfSms(),
    DsmemReduce(),
    StAsync(),
    RedAsync(),
    Shared(),
    Multicast(),
    Pairs(),
    Remote(),
]
LATER = [Scatter(), Overridden(), Masked(), Columns(), Layouts(), Reported()]
