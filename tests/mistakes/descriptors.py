"""Mistakes with tensor maps in memory: edits, caches, and maps that are no longer there."""

from dataclasses import replace

from golden import Load, TensorMap, tensormap_replace
from tests.mistakes.form import Group, judge, lint
from tests.mistakes.maps import MATRIX
from tests.mistakes.probe import COLUMNS, F16, ROWS, SWIZZLE, Copy

GROUP = Group("Edits and caches of tensor maps")

WORDS = TensorMap.tiled(**MATRIX).encode()


@GROUP.kernel(
    "edit-without-acquire",
    "producer: cp.async.bulk.tensor of other at (0, 0) in cycle N uses the tensor map at 0x",
    "after tensormap.replace of global_address by producer in cycle N, without "
    "fence.proxy.tensormap acquire: the descriptor cache may hold the old map",
)
class EditWithoutAcquire(Copy):
    """A map is pointed at another tensor, and used at once."""

    def host(self, device):
        super().host(device)
        self.other = device.empty("other", self.x.array.shape, self.x.array.dtype)
        self.map_x = device.tensor_map(self.other, (COLUMNS, ROWS), SWIZZLE)

    async def producer(self, wg):
        await wg.tensormap_replace(self.map_x, "global_address", self.x.address)
        await wg.fence_proxy_tensormap_release()
        if self.mended:
            await wg.fence_proxy_tensormap(self.map_x)
        await super().producer(wg)


@GROUP.kernel(
    "edit-without-release",
    "producer: cp.async.bulk.tensor of other at (0, 0) in cycle N uses the tensor map at 0x",
    "the change was not released; call fence_proxy_tensormap_release after the changes",
)
class EditWithoutRelease(EditWithoutAcquire):
    """The map is acquired, but its change was never released."""

    async def producer(self, wg):
        await wg.tensormap_replace(self.map_x, "global_address", self.x.address)
        if self.mended:
            await wg.fence_proxy_tensormap_release()
        await wg.fence_proxy_tensormap(self.map_x)
        await Copy.producer(self, wg)


@GROUP.kernel(
    "edit-in-flight",
    "tensormap.replace of global_address by producer in cycle N changes the tensor map at 0x",
    "which request 0",
    "may still be using; wait for this request's barrier or bulk group first",
)
class EditInFlight(Copy):
    """The map of the next group is written over the one that loads in flight still use."""

    async def producer(self, wg):
        for step in range(self.steps):
            stage = self.stage(step)
            await self.acquire(wg, stage)
            if step == 1:
                await self.edit(wg, self.stage(step - 1))
            await self.fill(wg, stage, step)

    async def edit(self, wg, previous):
        if self.mended:
            await wg.mbarrier_try_wait_parity(previous.full, previous.parity)
        await wg.tensormap_replace(self.map_x, "global_address", self.x.address)
        await wg.fence_proxy_tensormap_release()
        await wg.fence_proxy_tensormap(self.map_x)


@GROUP.kernel(
    "address-without-a-map",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N: there is no tensor map at 0x",
    "use what device.tensor_map or device.im2col_map returned",
)
class AddressWithoutAMap(Copy):
    """The kernel takes the second map of an array of maps, and there is one."""

    distance = 1024

    async def load(self, wg, stage, step):
        address = self.map_x.address + (self.distance if self.wrong else 0)
        tensor_map = replace(self.map_x, address=address)
        await wg.cp_async_bulk_tensor(stage.tile, tensor_map, (0, step * ROWS), stage.full)


@GROUP.kernel(
    "map-off-its-alignment",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N",
    "is 16 bytes into the tensor map at 0x",
    "a map is aligned to 64 bytes",
)
class MapOffItsAlignment(AddressWithoutAMap):
    """The workspace that maps are copied to is aligned to 16 bytes only."""

    distance = 16


@GROUP.kernel(
    "map-in-shared-memory",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N: the tensor map's address, 0x1080",
    "is one of shared memory: requests read their map from global, constant or parameter memory",
)
class MapInSharedMemory(Copy):
    """The map was edited in shared memory, and is used there."""

    def smem(self, smem):
        super().smem(smem)
        self.copied = smem.tile("map", (1, 64), F16)

    async def load(self, wg, stage, step):
        address = self.copied.address if self.wrong else self.map_x.address
        tensor_map = replace(self.map_x, address=address)
        await wg.cp_async_bulk_tensor(stage.tile, tensor_map, (0, step * ROWS), stage.full)


@GROUP.kernel(
    "freed-map",
    "producer: cp.async.bulk.tensor of x at (0, 0) in cycle N: the tensor map at 0x",
    "was freed (by the host); keep it until the last request that uses it is complete",
)
class FreedMap(Copy):
    """The host frees the map when it has launched the kernel."""

    def host(self, device):
        super().host(device)
        self.device = device

    async def prologue(self, wg):
        await super().prologue(wg)
        if self.wrong:
            self.device.free_map(self.map_x)


@GROUP.kernel(
    "map-changed-by-the-host",
    "producer: cp.async.bulk.tensor of x at (0, 16) in cycle N uses the tensor map at 0x",
    "which the host has changed since the kernel was launched",
)
class MapChangedByTheHost(FreedMap):
    """The host points the map at other data while a kernel runs."""

    async def prologue(self, wg):
        await Copy.prologue(self, wg)

    async def fill(self, wg, stage, step):
        await super().fill(wg, stage, step)
        if self.wrong:
            self.device.maps[self.map_x.address][0] += 128


GROUP.check(
    "stride-in-units-of-16-bytes",
    "global_strides[0] = 128 is less than a row of 2048 bytes: rows overlap",
    wrong=lambda: lint(tensormap_replace(WORDS, "global_stride", 2048 >> 4, 0)),
    mended=lambda: lint(tensormap_replace(WORDS, "global_stride", 2048, 0)),
)
GROUP.check(
    "rank-instead-of-rank-minus-one",
    "len(coords) = 2: must be 3 for TILE with a rank-3 map",
    wrong=lambda: judge(Load(tensormap_replace(WORDS, "rank", 2), (0, 0))),
    mended=lambda: judge(Load(tensormap_replace(WORDS, "rank", 1), (0, 0))),
)
