"""Random stores and reductions for simulated tests of the unit; about one in six is refused."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    Arch,
    ArrayMemory,
    BulkReduce,
    BulkStore,
    DataType,
    ErrorCode,
    Plan,
    Reduce,
    ReductionOp,
    Store,
    TmaError,
    execute,
)
from golden.model import operands_of
from golden.request import as_descriptor
from sim_tb.coverage import crosses
from sim_tb.testbench.environment import Environment
from tests.golden.random_requests import (
    GMEM_BYTES,
    SMEM_BYTES,
    Rng,
    overlaps,
    pick,
    random_bytes,
    random_case,
)

HOPPER = (
    "store_tile",
    "store_tile_interleaved",
    "store_im2col",
    "store_im2col_interleaved",
    "reduce_tile",
    "reduce_tile_interleaved",
    "reduce_im2col",
    "reduce_im2col_interleaved",
    "bulk_store",
    "bulk_reduce",
)
LATER = (
    *("sm_100a_store_tile", "sm_100a_scatter4", "sm_100a_im2col_w_store"),
    *("sm_103a_b6p2x16", "sm_107a_scatter4", "sm_107a_override_store"),
)
"""Modes of stores that Hopper lacks."""

WINDOW = SMEM_BYTES
"""Bytes of shared memory that each thread stores from."""

LOWEST = 1 << 32
"""Address of the first global memory, unless the unit has narrower addresses."""

LINE = 128
APART = 1 << 20
"""Distance between the global memories of two requests, in bytes."""

StoreRequest = Store | BulkStore | BulkReduce


@dataclass
class Item:
    """A request with a global memory of its own.

    Members
    -------
    request : StoreRequest
    base : int
        Address of its global memory.
    memory : array of bytes
        The global memory, which the unit writes.
    expected : array of bytes
        The golden model's memory after the request. A refused request changes nothing.
    refusal : TmaError, optional
        The golden model's reason to refuse the request.
    map_address : int
        Address of its tensor map, once it has been submitted.
    """

    request: StoreRequest
    base: int
    memory: NDArray[np.uint8]
    expected: NDArray[np.uint8]
    refusal: TmaError | None = None
    map_address: int = 0

    def __str__(self) -> str:
        request = self.request
        if not isinstance(request, Store):
            return str(request)
        words = " ".join(f"{word:x}" for word in words_of(request)[:16])
        op = request.op.name if isinstance(request, Reduce) else "store"
        assert request.mode is not None
        where = f"{request.coords} from {request.smem_address:#x}"
        return f"{op} {request.mode.name} of [{words}] at {where}"

    def submit(self, env: Environment, thread: int) -> int:
        """Place its memory and tensor map, and issue it; return its request id."""
        self.place(env)
        return self.issue(env, thread)

    def place(self, env: Environment) -> None:
        """Place its memory, and its tensor map if it has one."""
        env.gmem.place(self.base, self.memory)
        if isinstance(self.request, Store):
            self.map_address = env.descriptors.place(words_of(self.request))

    def issue(self, env: Environment, thread: int) -> int:
        """Issue it; return its request id."""
        return env.requests.submit(self.request, self.map_address, thread=thread)

    def check(self, env: Environment) -> None:
        """Compare its memory, and remove it from the address space."""
        self.compare()
        env.gmem.remove(self.base)
        env.gmem.remove(self.map_address)

    def compare(self) -> None:
        """Compare its memory with the golden model's."""
        differ = np.flatnonzero(self.memory != self.expected)
        if differ.size:
            at = int(differ[0])
            about = "" if self.refusal is None else f"refused ({self.refusal}): "
            raise AssertionError(
                f"{about}{differ.size} bytes differ, the first at {at:#x}: "
                f"expected {self.expected[at]:#04x}, got {self.memory[at]:#04x}\n{self}"
            )


def words_of(request: Store) -> NDArray[np.uint32]:
    """Return a copy of the words of its tensor map."""
    return np.array(as_descriptor(request.tensor_map).words, np.uint32)


def altered(rng: Rng, request: StoreRequest, arch: Arch) -> StoreRequest:
    """Return ``request``, in one of six cases with a random change that mostly makes it illegal."""
    choice = int(rng.integers(60))
    if choice == 0:
        return replace(request, smem_address=request.smem_address + int(rng.integers(1, 16)))
    if choice == 1:
        return replace(request, smem_address=1 << 23)
    if isinstance(request, Store):
        return altered_tensor(rng, request, choice)
    odd = int(rng.integers(1, 16))
    match choice:
        case 2 | 3:
            return replace(request, gmem_address=request.gmem_address + odd)
        case 4 | 5:
            return replace(request, size=request.size + odd)
        case 6 if isinstance(request, BulkStore) and arch is Arch.SM_90A:
            return replace(request, byte_mask=int(rng.integers(0, 0xFFFF)))
        case 7 | 8 | 9 if isinstance(request, BulkReduce):
            kind = pick(rng, *(kind for kind in DataType if kind <= DataType.FLOAT32_FTZ))
            return replace(request, data_type=kind, op=pick(rng, *ReductionOp))
    return request


def altered_tensor(rng: Rng, request: Store, choice: int) -> Store:
    """Return a request with a tensor map, changed by the random number ``choice``."""
    coords, dim = list(request.coords), int(rng.integers(len(request.coords)))
    words = words_of(request)
    changes: dict[str, Any] = {}
    match choice:
        case 2:
            coords[0] += int(rng.integers(1, 16))
        case 3 | 4:
            coords[dim] = -int(pick(rng, 1, 16, 1 << 31))
        case 5:
            coords = (coords * 5)[: int(rng.integers(1, 6))]
        case 6:
            words[2] ^= 1 << int(rng.integers(7, 23))
        case 7:
            changes["mode"] = pick(rng, *AccessMode)
        case 8 if as_descriptor(request.tensor_map).mode:
            words[14] = int(rng.integers(1 << 32))
        case 9 if isinstance(request, Reduce):
            changes["op"] = pick(rng, *ReductionOp)
    changes |= {"coords": tuple(coords), "tensor_map": words.tobytes()}
    return replace(request, **changes)


def random_item(
    rng: Rng,
    mode: str,
    arch: Arch,
    smem: NDArray[np.uint8],
    number: int,
    thread: int,
    lowest: int = LOWEST,
) -> Item:
    """Return a random request of ``mode``.

    It stores from the window of ``thread`` in ``smem`` to a global memory of its own, whose address
    is ``lowest`` or higher, and depends on ``number``.
    """
    base = lowest + number * APART
    while True:
        request = altered(
            rng, relocated(random_case(rng, mode).request, base, thread, smem.size), arch
        )
        memory = random_bytes(rng, GMEM_BYTES)
        expected = memory.copy()
        try:
            execute(request, ArrayMemory(expected, base), [smem], arch=arch)
        except TmaError as error:
            # A request that reaches beyond its memory is not refused. The rules of overrides are
            # for the issuer, and the unit does not check them.
            if error.code in (ErrorCode.GMEM_FAULT, ErrorCode.OVERRIDE):
                continue
            return Item(request, base, memory, memory.copy(), error)
        if not overlaps(request, arch):
            crosses.record(request, arch)
            return Item(request, base, memory, expected)


def relocated(request: Any, base: int, thread: int, smem_bytes: int) -> StoreRequest:
    """Return ``request`` with its source in the window of ``thread`` and its target at ``base``.

    In a shared memory below one window, its source begins below the end: many are refused.
    """
    smem_address = (request.smem_address + thread * WINDOW) % (smem_bytes & -128)
    if isinstance(request, Store):
        mode = request.mode
        if mode is None:
            mode = AccessMode(int(as_descriptor(request.tensor_map).mode))
        words = words_of(request)
        address = (int(words[1]) << 32 | int(words[0])) + base
        words[0], words[1] = address & 0xFFFFFFFF, address >> 32
        changes: dict[str, Any] = {"tensor_map": words.tobytes(), "mode": mode}
        if request.override is not None:
            address = request.override.global_address + base
            changes["override"] = replace(request.override, global_address=address)
        return replace(request, smem_address=smem_address, **changes)
    assert isinstance(request, BulkStore | BulkReduce)
    gmem_address = request.gmem_address + base
    return replace(request, gmem_address=gmem_address, smem_address=smem_address)


def item_of(
    rng: Rng, request: StoreRequest, arch: Arch, smem: NDArray[np.uint8], base: int
) -> Item:
    """Return an accepted request from random bytes of thread 0's window.

    The lines that it writes are moved to the address ``base``, a multiple of 128.
    """
    first, last = written(request, arch)
    start = first & -LINE
    memory = random_bytes(rng, max((last | LINE - 1) + 1 - start, LINE))
    expected = memory.copy()
    request = relocated(request, base - start, 0, smem.size)
    execute(request, ArrayMemory(expected, base), [smem], arch=arch)
    crosses.record(request, arch)
    return Item(request, base, memory, expected)


def written(request: StoreRequest, arch: Arch) -> tuple[int, int]:
    """Return the addresses of the first and the last byte that a request writes."""
    if not isinstance(request, Store):
        return request.gmem_address, request.gmem_address + request.size - 1
    plan = Plan(request.descriptor, request.mode, store=True, arch=arch)
    spread = plan.spread(request.smem_address, operands_of(request))
    starts = spread.gmem[spread.inside > 0]
    if not starts.size:
        return request.descriptor.global_address, request.descriptor.global_address
    return int(starts.min()), int(starts.max()) + plan.piece_bytes - 1
