"""Mistakes with swizzles."""

from dataclasses import replace

from golden import Load, Swizzle
from tests.mistakes.coordinates import MAP
from tests.mistakes.form import Group
from tests.mistakes.maps import MATRIX
from tests.mistakes.probe import COLUMNS, F16, ROWS, SWIZZLE, StagedCopy

GROUP = Group("Swizzle")

GROUP.map(
    "box-wider-than-the-swizzle",
    "box_dim[0]*2 = 256 bytes: must be at most 128 with SWIZZLE_128B",
    wrong=MATRIX | {"box_dim": (128, 64)},
    mended=MATRIX | {"box_dim": (64, 64)},
)
GROUP.map(
    "box-narrower-than-the-swizzle",
    "rows of 64 bytes lie 128 bytes apart with SWIZZLE_128B: 64 of each 128 bytes",
    wrong=MATRIX | {"box_dim": (32, 64)},
    mended=MATRIX | {"box_dim": (64, 64)},
)
GROUP.map(
    "columns-without-a-swizzle",
    "8 threads that read 16 bytes of 8 rows take 8 wavefronts with swizzle NONE",
    "1 with SWIZZLE_128B",
    wrong=MATRIX | {"swizzle": "NONE"},
    mended=MATRIX,
)
GROUP.map(
    "swizzle-of-a-later-architecture",
    "swizzle = SWIZZLE_128B_ATOM_32B: .swizzle_atomicity needs SM_100A",
    "not SM_90A",
    wrong=MATRIX | {"swizzle": "SWIZZLE_128B_ATOM_32B"},
    mended=MATRIX,
)
GROUP.request(
    "box-inside-the-pattern",
    "smem_address = 128: SWIZZLE_128B repeats every 1024 bytes",
    "the box starts inside the pattern",
    wrong=Load(MAP, (0, 0), smem_address=128),
    mended=Load(MAP, (0, 0), smem_address=1024),
)


@GROUP.kernel(
    "tile-inside-the-pattern",
    "consumer: ldmatrix of stage[0] in cycle N: the tile is at 0x80",
    "the phase of its swizzle 128B is off by 1 of 8 rows",
    "align the tile to 1024 bytes",
)
class TileInsideThePattern(StagedCopy):
    """Something small lies in shared memory before the first stage."""

    def smem(self, smem):
        smem.tile("scale", (1, 64), F16)
        align = 128 if self.wrong else 1024
        self.tiles = [
            smem.tile(f"stage[{n}]", (ROWS, COLUMNS), F16, SWIZZLE, align=align)
            for n in range(self.stages)
        ]
        self.out = smem.tile("out", (ROWS, COLUMNS), F16, SWIZZLE)
        self.ring = smem.ring("", self.stages)


@GROUP.kernel(
    "reader-without-the-swizzle",
    "consumer: ldmatrix of stage[0] in cycle N, at 0x0 of shared memory",
    "reads with swizzle NONE the data that request 0",
    "wrote with swizzle 128B",
)
class ReaderWithoutTheSwizzle(StagedCopy):
    """The threads address the stage as rows without a swizzle."""

    async def use(self, wg, stage, step):
        swizzle = Swizzle.NONE if self.wrong else SWIZZLE
        tile = replace(stage.tile, swizzle=swizzle)
        await super().use(wg, stage._replace(tile=tile), step)
