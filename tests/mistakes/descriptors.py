"""Mistakes with tensor maps in memory: edits, caches, and maps that are no longer there."""

from golden import Load, TensorMap, tensormap_replace
from tests.mistakes.form import Group, judge, lint
from tests.mistakes.maps import MATRIX
from tests.mistakes.probe import COLUMNS, ROWS, SWIZZLE, Copy

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
        if self.mended:
            await wg.fence_proxy_tensormap(self.map_x)
        await super().producer(wg)


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
        await wg.fence_proxy_tensormap(self.map_x)


@GROUP.kernel(
    "address-without-a-map",
    "there is no tensor map at 0x",
    "use an address that device.tensor_map or device.im2col_map returned",
)
class AddressWithoutAMap(Copy):
    """The kernel takes the second map of an array of maps, and there is one."""

    async def load(self, wg, stage, step):
        tensor_map = self.map_x + (1024 if self.wrong else 0)
        await wg.cp_async_bulk_tensor(stage.tile, tensor_map, (0, step * ROWS), stage.full)


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
