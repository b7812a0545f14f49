"""A box of every mode and rank, of a size that is asked for."""

from golden import BulkLoad, BulkStore, Interleave, Load, Store, TensorMap

BASE = 1 << 20
SMEM = 0x400
ELEMENTS = 1 << 12
"""Of dimension 0."""

EXTENTS = 2048, 64, 32, 16
"""Of the others: rows, and what is above them."""

Kind = Load | BulkLoad | Store | BulkStore


def strides(row: int) -> list[int]:
    """Of the dimensions over a row: they are dense."""
    found = [row]
    for extent in EXTENTS[:-1]:
        found.append(found[-1] * extent)
    return found


def tile(rank: int, width: int, rows: int) -> TensorMap:
    """Rows of ``width`` bytes of rank 1 to 5; of rank 1 there is but one."""
    box = [width, rows, 1, 1, 1][:rank]
    dims = [ELEMENTS, *EXTENTS][:rank]
    return TensorMap.tiled("u8", BASE, dims, strides(ELEMENTS)[: rank - 1], box)


def slices(rank: int, interleave: Interleave, rows: int) -> TensorMap:
    """``rows`` slices of a tensor of rank 3 to 5 with interleave: one, or an even number."""
    box = [max(2, rows), 1, 1, 1, 1][:rank]
    by = [2 if rows == 1 else 1, 1, 1, 1, 1][:rank]
    dims = [ELEMENTS, *EXTENTS][:rank]
    steps = strides(ELEMENTS * 16 * interleave)[: rank - 1]
    shape = "u64", BASE, dims, steps, box, by
    return TensorMap.tiled(*shape, interleave=interleave, swizzle=swizzle_of(interleave))


def swizzle_of(interleave: Interleave) -> str:
    """That it goes with."""
    return "32B" if interleave is Interleave.INTERLEAVE_32B else "NONE"


def column(rank: int, width: int, pixels: int) -> TensorMap:
    """Pixels of an image of rank 3 to 5, of ``width`` bytes each."""
    dims, corner = [ELEMENTS, 64, 32, 16, 8][:rank], [0] * (rank - 2)
    steps = [ELEMENTS, ELEMENTS << 6, ELEMENTS << 11, ELEMENTS << 15][: rank - 1]
    return TensorMap.im2col("u8", BASE, dims, steps, corner, corner, width, pixels)


def column_slices(rank: int, interleave: Interleave, pixels: int) -> TensorMap:
    """The same with interleave."""
    dims, corner = [64, 32, 16, 8, 4][:rank], [0] * (rank - 2)
    row = 64 * 16 * interleave
    steps = [row, row << 5, row << 9, row << 12][: rank - 1]
    shape = "u8", BASE, dims, steps, corner, corner, 16 * interleave, pixels
    return TensorMap.im2col(*shape, interleave=interleave, swizzle=swizzle_of(interleave))


def every_load(width: int, rows: int) -> dict[str, Load | BulkLoad]:
    """By name; where rows are slices they have 16 or 32 bytes."""
    maps = {f"tile, rank {rank}": tile(rank, width, rows) for rank in range(1, 6)}
    for interleave in Interleave(1), Interleave(2):
        for rank in range(3, 6):
            name = f"tile, {interleave.name.lower()}, rank {rank}".replace("_", " ")
            maps[name] = slices(rank, interleave, rows)
    for rank in range(3, 6):
        maps[f"im2col, rank {rank}"] = column(rank, width, rows)
    for interleave in Interleave(1), Interleave(2):
        for rank in range(3, 6):
            name = f"im2col, {interleave.name.lower()}, rank {rank}".replace("_", " ")
            maps[name] = column_slices(rank, interleave, rows)
    loads: dict[str, Load | BulkLoad] = {
        name: Load(tensor_map, (0, 1, 1, 1, 1)[: tensor_map.rank], smem_address=SMEM)
        for name, tensor_map in maps.items()
    }
    loads["bulk"] = BulkLoad(BASE, SMEM, width * rows)
    return loads


def every_store(width: int, rows: int) -> dict[str, Store | BulkStore]:
    """The same boxes, stored."""
    stores: dict[str, Store | BulkStore] = {}
    for name, load in every_load(width, rows).items():
        if isinstance(load, BulkLoad):
            stores[name] = BulkStore(load.gmem_address, SMEM, load.size)
        else:
            stores[name] = Store(load.tensor_map, load.coords, smem_address=SMEM)
    return stores
