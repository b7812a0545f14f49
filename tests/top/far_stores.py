"""Random stores of boxes whose rows are far apart in global memory, and of large boxes."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    Arch,
    ErrorCode,
    HashedMemory,
    LayeredMemory,
    Plan,
    Store,
    TensorMap,
    TmaError,
    execute,
)
from golden.enums import SMEM_BYTES
from golden.model import operands_of
from sim_tb.testbench.environment import Environment
from tests.golden.random_requests import Rng, overlaps, random_bytes, random_row

LINE = 128
MOST_ROWS = 64
"""Rows of a box whose rows are far apart."""

Areas = dict[int, NDArray[np.uint8]]
"""Arrays of bytes, by their addresses."""


@dataclass
class FarStore:
    """A store, and the lines of global memory that it touches, with random bytes before it."""

    request: Store
    areas: Areas
    expected: Areas

    async def run(self, env: Environment, thread: int, missing: int | None = None) -> None:
        """Run it alone, and compare the lines with the golden model's.

        Parameters
        ----------
        env : Environment
            What is around the unit.
        thread : int
            Thread that issues the store.
        missing : int, optional
            Address of an area of one line that is not there: the unit must report it.
        """
        for address, area in self.areas.items():
            if address != missing:
                env.gmem.place(address, area)
        tensor_map = self.request.tensor_map
        assert isinstance(tensor_map, TensorMap)
        words = np.frombuffer(tensor_map.encode(), np.uint32).copy()
        map_address = env.descriptors.place(words)
        name = env.requests.submit(self.request, map_address, thread=thread)
        env.requests.commit_group(thread)
        await env.requests.wait_group(0, thread=thread)
        await env.idle()
        records = [(error.request_id, error.code, error.value) for error in env.errors.take_all()]
        fault = (name, ErrorCode.GMEM_FAULT, missing)
        assert records == ([] if missing is None else [fault]), (records, self.request)
        for address, area in self.areas.items():
            if address == missing:
                continue
            assert np.array_equal(area, self.expected[address]), (self.request, hex(address))
            env.gmem.remove(address)
        env.gmem.remove(map_address)

    def single_lines(self, line_bytes: int) -> list[int]:
        """Return the addresses of the areas of one line of the unit."""
        return [address for address, area in self.areas.items() if area.size == line_bytes]


def box_of(rng: Rng, rows: int, elements: int) -> list[int]:
    """Return a box of up to ``rows`` rows of ``elements``."""
    box = [elements]
    for _ in range(int(rng.integers(1, 5))):
        box.append(min(256, int(rows ** rng.random())))
        rows //= box[-1]
    if rows <= 256 and len(box) < 5:
        box.append(rows)
    return box


def random_map(rng: Rng, room: int, bits: int, *, far: bool) -> TensorMap:
    """Return a map of a box that fits ``room`` bytes of shared memory.

    Parameters
    ----------
    rng : Generator
        Source of the choice.
    room : int
        Bytes of shared memory.
    bits : int
        Width of an address.
    far : bool
        Any strides, and few rows; else the rows are side by side.
    """
    row, kind = random_row(rng, room)
    most = min(room, SMEM_BYTES) // row
    box = box_of(rng, min(most, MOST_ROWS) if far else most, row // kind.itemsize)
    dims = [max(1, n + int(rng.choice([0, 0, 0, -1, 1]))) for n in box]
    dense = [16 * -(-dims[0] * kind.itemsize // 16)]
    for extent in dims[1:-1]:
        dense.append(dense[-1] * extent)
    width = min(40, bits - 8) - 4
    strides = [16 * int(rng.integers(1, 1 << int(rng.integers(6, width + 1)))) for _ in dense]
    base = 16 * int(rng.integers(1 << (min(bits, 62) - 6)))
    return TensorMap.tiled(kind, base, dims, strides if far else dense, box)


def far_store(rng: Rng, smem: NDArray[np.uint8], arch: Arch, env: Environment) -> FarStore:
    """Return a random store from anywhere in ``smem``: half of them far, half of them large."""
    bits = env.interface.parameters["address_bits"]
    while True:
        try:
            tensor_map = random_map(rng, smem.size, bits, far=rng.random() < 0.5)
        except TmaError:  # a stride or a box is illegal
            continue
        bytes_ = prod(tensor_map.box_dim) * tensor_map.data_type.itemsize
        address = 128 * int(rng.integers((smem.size - bytes_) // 128 + 1))
        coords = (0,) * tensor_map.rank
        request = Store(tensor_map, coords, AccessMode.TILE, smem_address=address)
        if overlaps(request, arch):
            continue
        plan = Plan(request.descriptor, request.mode, store=True, arch=arch)
        spread = plan.spread(request.smem_address, operands_of(request))
        lines = np.unique(spread.gmem[spread.inside > 0] // np.uint64(LINE))
        if lines.size and (bits == 64 or int(lines.max()) < env.gmem.maps // LINE):
            break
    groups = np.split(lines, np.flatnonzero(np.diff(lines) != 1) + 1)
    areas = {LINE * int(group[0]): random_bytes(rng, LINE * group.size) for group in groups}
    expected = {address: area.copy() for address, area in areas.items()}
    execute(request, LayeredMemory(HashedMemory(), expected), [smem], arch=arch)
    return FarStore(request, areas, expected)
