"""Random boxes for the tests of blocks, and the pieces that each box consists of.

The pieces of a box are a dictionary. Keys are shared-memory addresses in pieces. Values are
``(global address in pieces, bytes inside the tensor)``, or ``None`` if the whole piece is fill.
"""

import random
from dataclasses import dataclass, replace
from itertools import product
from math import prod

Pieces = dict[int, tuple[int, int] | None]

ITEM_SIZE_LOG2 = {0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 1, 7: 2, 8: 2, 9: 3, 10: 1}
SPAN_PIECES = {1: 2, 2: 4, 3: 8}


@dataclass(frozen=True)
class Box:
    """A tiled load: the fields of its tensor map, its coordinates and its shared-memory address."""

    format: int
    swizzle: int
    fill: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    coords: tuple[int, ...]
    smem_address: int
    interleave: int = 0

    @property
    def item_bytes(self) -> int:
        return 1 << ITEM_SIZE_LOG2[self.format]

    @property
    def row(self) -> int:
        """Pieces of global memory in a row, or in a slice of an interleaved map."""
        return self.interleave or self.box[0] * self.item_bytes // 16

    @property
    def pitch(self) -> int:
        """Pieces from one row to the next in shared memory."""
        return self.row if self.interleave else SPAN_PIECES.get(self.swizzle, self.row)

    @property
    def outer(self) -> range:
        """Numbers of the dimensions above the row."""
        return range(0 if self.interleave else 1, len(self.dims))

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of the box in each dimension above the row."""
        steps = [-(-self.box[i] // self.element_strides[i]) for i in self.outer]
        if self.interleave:
            steps[-2] = 1  # the slice
        return tuple(steps)

    def words(self) -> list[int]:
        """Words w0 to w15 of the tensor map."""
        rank = len(self.dims)
        words = [0] * 16
        words[0] = self.address & 0xFFFFFFFF
        words[1] = self.address >> 32
        words[2] = (rank - 1) << 4 | self.format << 7 | self.swizzle << 13 | self.fill << 15
        words[2] |= self.interleave << 11
        for i, stride in enumerate(self.strides):
            words[3 + i] = stride >> 4 & 0xFFFFFFFF
            words[7] |= (stride >> 36) << (4 * i)
        for i in range(rank):
            words[8 + i] = self.dims[i] - 1
            words[13] |= (self.element_strides[i] - 1) << (3 * i)
        words[13] |= (self.box[0] - 1) << 24
        for i in range(1, rank):
            words[14] |= (self.box[i] - 1) << (8 * i - 8)
        return words

    def pieces(self) -> Pieces:
        """Return the pieces of the box, from the definition of a tiled load."""
        pieces: Pieces = {}
        rows = product(*(range(n) for n in reversed(self.steps)))
        pitches = (16 * self.interleave, *self.strides)
        first = 0 if self.interleave else self.coords[0] * self.item_bytes
        end = 16 * self.interleave or self.dims[0] * self.item_bytes
        for number, row_steps in enumerate(rows):
            address = self.address + first
            inside = True
            for i, k in zip(self.outer, reversed(row_steps), strict=True):
                position = self.coords[i] + k * self.element_strides[i]
                inside &= 0 <= position < self.dims[i]
                address += position * pitches[i]
            for j in range(self.row):
                start = first + 16 * j
                valid = min(16, end - start)
                smem = self.smem_address // 16 + number * self.pitch + j
                good = inside and start >= 0 and valid > 0
                pieces[smem] = (((address >> 4) + j) % (1 << 60), valid) if good else None
        return pieces

    def stored(self) -> Pieces:
        """Return the pieces that a store writes; each is whole, also at the tensor's end."""
        return {smem: (source[0], 16) for smem, source in self.pieces().items() if source}


def random_interleaved(rng: random.Random) -> Box:
    """Return an interleaved box, which often exceeds the tensor."""
    rank, unit = rng.randint(3, 5), rng.randint(1, 2)
    code = rng.choice(list(ITEM_SIZE_LOG2))
    least = 16 >> ITEM_SIZE_LOG2[code]
    element_strides = [rng.choice((1, 1, 1, 2, 3, 8)) for _ in range(rank)]
    box = [least * rng.randint(1, 2), *(rng.randint(1, 6) for _ in range(rank - 1))]
    dims = [max(1, n + rng.choice((0, 0, 1, -2, rng.randint(-9, 30)))) for n in box]
    strides, pitch = [], dims[0] * 16 * unit
    for i in range(1, rank):
        pitch += 16 * unit * rng.choice((0, 0, 1, rng.randint(0, 100)))
        strides.append(pitch)
        pitch *= dims[i]
    return Box(
        format=code,
        swizzle=rng.randint(0, 3),
        fill=rng.randint(0, 1) if code >= 6 else 0,
        address=rng.randrange(1 << 44) * 16 * unit,
        dims=tuple(dims),
        strides=tuple(strides),
        box=tuple(box),
        element_strides=tuple(element_strides),
        coords=tuple(rng.choice((0, 0, -1, 1, rng.randint(-9, n + 2))) for n in dims),
        smem_address=rng.randrange(64) * 128,
        interleave=unit,
    )


def random_box(rng: random.Random) -> Box:
    """Return a box of at most 400 pieces, which often exceeds the tensor or is far away."""
    rank = rng.randint(1, 5)
    code = rng.choice(list(ITEM_SIZE_LOG2))
    item_bytes = 1 << ITEM_SIZE_LOG2[code]
    swizzle = rng.randint(0, 3)
    most = SPAN_PIECES.get(swizzle, 20)
    row = rng.randint(1, min(most, 256 * item_bytes // 16))
    element_strides = [rng.choice((1, 1, 1, 2, 3, 5, 7, 8)) for _ in range(rank)]
    dense = rng.random() < 0.5
    if dense:  # rows without gaps between them
        element_strides = [1] * rank
        row = most if swizzle else row
    box = [row * 16 // item_bytes]
    for i in range(1, rank):
        box.append(rng.choice((1, 2, 3, rng.randint(1, 5))) * element_strides[i])
        box[i] = max(1, box[i] - rng.randrange(element_strides[i]))
    while prod(-(-n // e) for n, e in zip(box[1:], element_strides[1:], strict=True)) * row > 400:
        i = rng.randrange(1, rank)
        box[i] = max(1, box[i] // 2)
    dims = [max(1, n + rng.choice((0, 0, 1, -2, rng.randint(-9, 30)))) for n in box]
    if dense:
        dims[0] = box[0]
    strides = []
    pitch = -(-dims[0] * item_bytes // 16) * 16
    for i in range(1, rank):
        pitch += 0 if dense else 16 * rng.choice((0, 0, 1, 3, rng.randint(0, 1000)))
        strides.append(pitch if rng.random() < 0.95 else 0)
        pitch = pitch * dims[i]
    strides = [stride % (1 << 40) for stride in strides]
    unit = 16 // item_bytes
    coords = [unit * rng.choice((0, 0, 0, -1, 1, rng.randint(-row, 9)))]
    for i in range(1, rank):
        coords.append(rng.choice((0, 0, 0, -1, 1, rng.randint(-box[i] - 2, dims[i] + 2))))
    if rng.random() < 0.05:
        far = rng.randrange(rank)
        coords[far] = rng.choice((-(1 << 31), (1 << 31) - 16))
    return Box(
        format=code,
        swizzle=swizzle,
        fill=rng.randint(0, 1) if code >= 6 else 0,
        address=rng.randrange(1 << 44) * 16,
        dims=tuple(dims),
        strides=tuple(strides),
        box=tuple(box),
        element_strides=tuple(element_strides),
        coords=tuple(coords),
        smem_address=rng.randrange(64) * 128,
    )


def stored_box(rng: random.Random) -> Box:
    """Return a box without negative coordinates, which a store needs."""
    box = rng.choice((random_box, random_interleaved))(rng)
    return replace(box, coords=tuple(max(start, 0) for start in box.coords))
