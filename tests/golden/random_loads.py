"""Random tiled loads that the unit accepts: over every edge, of every type and layout."""

from dataclasses import dataclass
from math import prod

import numpy as np

from golden import DataType, Interleave, OobFill, Swizzle, TensorMap


@dataclass(frozen=True)
class Load:
    """A request."""

    tensor_map: TensorMap
    smem_address: int
    coords: tuple[int, ...]


def random_load(rng: np.random.Generator, elements: int = 600, interleaved: bool = False) -> Load:
    """A load of about ``elements`` elements at most."""
    rank = int(rng.integers(3 if interleaved else 1, 6))
    data_type = DataType(int(rng.integers(0, 13)))
    item = data_type.itemsize
    swizzle = Swizzle(int(rng.integers(0, 4)))
    interleave = Interleave(int(rng.integers(1, 3))) if interleaved else Interleave.NONE
    align = 32 if interleave is Interleave.INTERLEAVE_32B else 16
    unit = 16 // item
    widest = (swizzle.span or 1024) // item if not interleaved else 256
    box = [unit * int(rng.integers(1, max(2, min(widest, 256, elements) // unit + 1)))]
    element_strides = [int(rng.choice([1, 1, 1, 2, 3, 5, 8])) for _ in range(rank)]
    for i in range(1, rank):
        box.append(int(rng.integers(1, 6)) * element_strides[i])
    while prod(-(-n // e) for n, e in zip(box, [1, *element_strides[1:]], strict=True)) > elements:
        largest = 1 + int(np.argmax(box[1:])) if max(box[1:], default=1) > 1 else 0
        step = unit if largest == 0 else 1
        box[largest] = max(step, box[largest] // 2 // step * step)
    dims = [max(1, n + int(rng.choice([0, 0, 1, -1, rng.integers(-8, 40)]))) for n in box]
    strides = []
    pitch = -(-dims[0] * (item if not interleaved else align) // align) * align
    for i in range(1, rank):
        pitch += align * int(rng.choice([0, 0, 1, rng.integers(0, 100)]))
        strides.append(pitch)
        pitch *= dims[i]
    step = 1 if interleaved else unit
    coords = [step * int(rng.choice([0, 0, -1, 1, rng.integers(-9, 10)]))]
    for i in range(1, rank):
        coords.append(int(rng.choice([0, 0, -1, 1, rng.integers(-box[i] - 2, dims[i] + 2)])))
    if rng.random() < 0.05:
        coords[int(rng.integers(rank))] = int(rng.choice([-(1 << 31), (1 << 31) - 32]))
    return Load(
        TensorMap.tiled(
            data_type,
            align * int(rng.integers(0, 1 << 30)),
            dims,
            strides,
            box,
            element_strides,
            interleave=interleave,
            swizzle=swizzle,
            oob_fill=OobFill(int(rng.integers(0, 2)) if data_type.is_float else 0),
        ),
        128 * int(rng.integers(0, 32)),
        tuple(coords),
    )
