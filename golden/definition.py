"""A tiled load, element by element: slow, and to be compared with the rules line by line.

The vectorised model is ``golden.load``; both agree. Nothing is checked here: the request must be
one that the unit accepts.
"""

from itertools import product

import numpy as np

from golden.memory import Bytes, Memory
from golden.tensor_map import DataType, Descriptor, Interleave, OobFill

NAN_HALF = 0x7FF7


def ceil_div(a: int, b: int) -> int:
    """Round up."""
    return -(-a // b)


def swizzled(address: int, mask: int) -> int:
    """Where the byte of ``address`` lies: bits 6:4 change by the bits three above (silicon)."""
    return address ^ (address >> 3 & mask)


def round_tf32(word: int) -> int:
    """Round a binary32 to tf32: nearest even, infinities kept, one NaN (silicon)."""
    if word >> 23 & 0xFF == 0xFF:
        return 0x7FFFE000 if word & 0x7FFFFF else word
    return word + 0xFFF + (word >> 13 & 1) & 0xFFFFE000


def converted(data: bytes, data_type: DataType) -> bytes:
    """An element, or a slice of several, as a load leaves it in shared memory (silicon)."""
    if not data_type.rounds:
        return data
    words = (int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4))
    return b"".join(round_tf32(word).to_bytes(4, "little") for word in words)


def fill_bytes(oob_fill: OobFill, count: int) -> bytes:
    """What an element outside the tensor reads as (silicon)."""
    if oob_fill is OobFill.NONE:
        return bytes(count)
    return (NAN_HALF.to_bytes(2, "little") * count)[:count]


def load(
    descriptor: Descriptor,
    gmem: Memory,
    smem: Bytes,
    smem_address: int,
    coords: tuple[int, ...],
) -> int:
    """Load the box at ``coords`` to ``smem_address``; return the bytes that ``complete_tx`` counts.

    Every rule is (silicon).
    """
    d = descriptor
    rank, data_type = d.rank, d.data_type
    assert data_type is not None
    interleaved = d.interleave != Interleave.NONE
    unit = {0: data_type.itemsize, 1: 16, 2: 32}[d.interleave]
    stride = [d.element_strides[i] if interleaved or i > 0 else 1 for i in range(rank)]
    steps = [ceil_div(d.box_dim[i], stride[i]) for i in range(rank)]
    if interleaved:
        steps[rank - 2] = 1
    bytes_per_step = [unit, *d.global_strides]
    pitch = d.swizzle.span if d.swizzle.span and not interleaved else steps[0] * unit

    outer = product(*(range(n) for n in reversed(steps[1:])))
    for row, reversed_steps in enumerate(outer):
        for k0 in range(steps[0]):
            k = (k0, *reversed(reversed_steps))
            position = [coords[i] + k[i] * stride[i] for i in range(rank)]
            inside = all(0 <= position[i] < d.global_dim[i] for i in range(rank))
            address = d.global_address + sum(position[i] * bytes_per_step[i] for i in range(rank))
            if inside:
                addresses = np.arange(unit, dtype=np.uint64) + np.uint64(address % (1 << 64))
                data = converted(gmem.read(addresses).tobytes(), data_type)
            else:
                data = fill_bytes(d.oob_fill, unit)
            for b in range(unit):
                target = smem_address + row * pitch + k0 * unit + b
                smem[swizzled(target, d.swizzle.mask)] = data[b]
    return unit * int(np.prod(steps))
