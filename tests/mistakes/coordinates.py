"""Mistakes in coordinates, and in addresses and sizes of requests."""

from golden import BulkLoad, Load, TensorMap
from tests.mistakes.form import Group
from tests.mistakes.maps import IMAGE, MATRIX
from tests.mistakes.probe import COLUMNS, ROWS, Copy

GROUP = Group("Coordinates and alignment")

MAP = TensorMap.tiled(**MATRIX)
IMAGES = TensorMap.im2col(**IMAGE)

GROUP.request(
    "coordinate-alignment",
    "coords[0] = 130 starts at byte 260: must be a multiple of 16",
    wrong=Load(MAP, (130, 0)),
    mended=Load(MAP, (128, 0)),
)
GROUP.request(
    "coordinate-count",
    "len(coords) = 3: must be 2 for TILE with a rank-2 map",
    wrong=Load(MAP, (0, 0, 0)),
    mended=Load(MAP, (0, 0)),
)
GROUP.request(
    "shared-address",
    "smem_address = 1088: must be a multiple of 128",
    wrong=Load(MAP, (0, 0), smem_address=1088),
    mended=Load(MAP, (0, 0), smem_address=1024),
)
GROUP.request(
    "barrier-address",
    "mbarrier = 8196: must be a multiple of 8",
    wrong=Load(MAP, (0, 0), mbarrier=8196),
    mended=Load(MAP, (0, 0), mbarrier=8192),
)
GROUP.request(
    "im2col-start",
    "coords[1] = -2: must be from -1 to 12, in the bounding box",
    wrong=Load(IMAGES, (0, -2, 0, 0)),
    mended=Load(IMAGES, (0, -1, 0, 0)),
)
GROUP.request(
    "im2col-offset",
    "im2col_offsets[0] = 256: must be from 0 to 255 with rank 4",
    wrong=Load(IMAGES, (0, 0, 0, 0), im2col_offsets=(256, 0)),
    mended=Load(IMAGES, (0, 0, 0, 0), im2col_offsets=(2, 0)),
)
GROUP.request(
    "bulk-address",
    "gmem_address = 0x7f0000000008: must be a multiple of 16",
    wrong=BulkLoad(0x7F0000000008, 0, 256),
    mended=BulkLoad(0x7F0000000010, 0, 256),
)
GROUP.request(
    "bulk-size",
    "size = 252: must be a multiple of 16 below 2**20: 240 bytes move",
    wrong=BulkLoad(0x7F0000000000, 0, 252),
    mended=BulkLoad(0x7F0000000000, 0, 256),
)


@GROUP.kernel(
    "bulk-range",
    "producer: cp.async.bulk of 2048 bytes at 0x",
    "the last 1024 bytes are beyond the end of x, which has 9216 bytes",
)
class BulkRange(Copy):
    """The last chunk of x has half of the bytes of the others."""

    rows = 72

    async def fill(self, wg, stage, step):
        start = step * stage.tile.nbytes
        size = stage.tile.nbytes
        if self.mended:
            size = min(size, self.x.nbytes - start)
        await wg.mbarrier_arrive_expect_tx(stage.full, size)
        await wg.cp_async_bulk(stage.tile, self.x.at() + start, size, stage.full)

    def host(self, device):
        super().host(device)
        self.map_y = device.tensor_map(self.y, (COLUMNS, ROWS))
