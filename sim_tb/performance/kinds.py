"""Requests of every mode and rank, with boxes of a given size."""

from golden import BulkLoad, BulkStore, Interleave, Load, Store, TensorMap

GLOBAL_BASE = 1 << 20
"""Global address of every tensor."""

SMEM_ADDRESS = 0x400
INNER_BYTES = 1 << 12
"""Extent of dimension 0, in elements of one byte."""

OUTER_EXTENTS = 2048, 64, 32, 16
"""Extents of dimensions 1 to 4: rows, and the dimensions above them."""

CopyRequest = Load | BulkLoad | Store | BulkStore
"""A request that the benchmark can time."""

OUTSIDE = {
    "of wide rows": TensorMap.tiled("u8", 0, (128, 64), (128,), (128, 32)),
    "of narrow rows": TensorMap.tiled("u8", 0, (64, 64), (64,), (16, 64)),
    "of rank 5": TensorMap.tiled(
        "u8", 0, (64, 8, 8, 8, 8), (64, 512, 4096, 32768), (64, 4, 4, 2, 2)
    ),
}
"""Tensor maps of boxes that are loaded far outside of their tensors."""


def dense_strides(row_pitch: int) -> list[int]:
    """Return the strides of dimensions 1 to 4, in bytes: each is dense over the one below."""
    strides = [row_pitch]
    for extent in OUTER_EXTENTS[:-1]:
        strides.append(strides[-1] * extent)
    return strides


def tile(rank: int, row_bytes: int, rows: int) -> TensorMap:
    """Return a tiled map of rank 1 to 5 whose box has ``rows`` rows; one row if the rank is 1."""
    box = [row_bytes, rows, 1, 1, 1][:rank]
    dims = [INNER_BYTES, *OUTER_EXTENTS][:rank]
    return TensorMap.tiled("u8", GLOBAL_BASE, dims, dense_strides(INNER_BYTES)[: rank - 1], box)


def interleaved_tile(rank: int, interleave: Interleave, slices: int) -> TensorMap:
    """Return an interleaved tiled map of rank 3 to 5 whose box has one slice or an even number of
    slices.
    """
    box = [max(2, slices), 1, 1, 1, 1][:rank]
    element_strides = [2 if slices == 1 else 1, 1, 1, 1, 1][:rank]
    dims = [INNER_BYTES, *OUTER_EXTENTS][:rank]
    strides = dense_strides(INNER_BYTES * 16 * interleave)[: rank - 1]
    shape = "u64", GLOBAL_BASE, dims, strides, box, element_strides
    return TensorMap.tiled(*shape, interleave=interleave, swizzle=swizzle_of(interleave))


def swizzle_of(interleave: Interleave) -> str:
    """Return the name of the swizzle that a map with this interleave uses."""
    return "32B" if interleave is Interleave.INTERLEAVE_32B else "NONE"


def im2col(rank: int, pixel_bytes: int, pixels: int) -> TensorMap:
    """Return an im2col map of rank 3 to 5 with a column of ``pixels`` pixels."""
    dims, corner = [INNER_BYTES, 64, 32, 16, 8][:rank], [0] * (rank - 2)
    pitch = INNER_BYTES
    strides = [pitch, pitch << 6, pitch << 11, pitch << 15][: rank - 1]
    return TensorMap.im2col("u8", GLOBAL_BASE, dims, strides, corner, corner, pixel_bytes, pixels)


def interleaved_im2col(rank: int, interleave: Interleave, pixels: int) -> TensorMap:
    """Return an interleaved im2col map of rank 3 to 5 with a column of ``pixels`` pixels."""
    dims, corner = [64, 32, 16, 8, 4][:rank], [0] * (rank - 2)
    pitch = 64 * 16 * interleave
    strides = [pitch, pitch << 5, pitch << 9, pitch << 12][: rank - 1]
    shape = "u8", GLOBAL_BASE, dims, strides, corner, corner, 16 * interleave, pixels
    return TensorMap.im2col(*shape, interleave=interleave, swizzle=swizzle_of(interleave))


def every_load(row_bytes: int, rows: int) -> dict[str, Load | BulkLoad]:
    """Return a load of each mode and rank, and a bulk load, by name.

    Each box has ``rows`` rows of ``row_bytes`` bytes. With interleave the rows are slices of 16 or
    32 bytes.
    """
    interleaves = Interleave.INTERLEAVE_16B, Interleave.INTERLEAVE_32B
    maps = {f"tile, rank {rank}": tile(rank, row_bytes, rows) for rank in range(1, 6)}
    for interleave in interleaves:
        for rank in range(3, 6):
            name = f"tile, {interleave.name.lower()}, rank {rank}".replace("_", " ")
            maps[name] = interleaved_tile(rank, interleave, rows)
    for rank in range(3, 6):
        maps[f"im2col, rank {rank}"] = im2col(rank, row_bytes, rows)
    for interleave in interleaves:
        for rank in range(3, 6):
            name = f"im2col, {interleave.name.lower()}, rank {rank}".replace("_", " ")
            maps[name] = interleaved_im2col(rank, interleave, rows)
    loads: dict[str, Load | BulkLoad] = {
        name: Load(tensor_map, (0, 1, 1, 1, 1)[: tensor_map.rank], smem_address=SMEM_ADDRESS)
        for name, tensor_map in maps.items()
    }
    loads["bulk"] = BulkLoad(GLOBAL_BASE, SMEM_ADDRESS, row_bytes * rows)
    return loads


def every_store(row_bytes: int, rows: int) -> dict[str, Store | BulkStore]:
    """Return a store of each box of ``every_load``, by the same names."""
    stores: dict[str, Store | BulkStore] = {}
    for name, load in every_load(row_bytes, rows).items():
        if isinstance(load, BulkLoad):
            stores[name] = BulkStore(load.gmem_address, SMEM_ADDRESS, load.size)
        else:
            stores[name] = Store(load.tensor_map, load.coords, smem_address=SMEM_ADDRESS)
    return stores


def load_outside(name: str) -> Load:
    """Return a load that is wholly outside of its tensor."""
    tensor_map = OUTSIDE[name]
    return Load(tensor_map, (*[0] * (tensor_map.rank - 1), -1000))
