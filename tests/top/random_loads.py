"""Random loads for simulated tests of the unit, about one in eight of them refused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    Arch,
    BulkLoad,
    BulkPrefetch,
    Completion,
    ErrorCode,
    Load,
    Plan,
    Prefetch,
    ReportMechanism,
    Swizzle,
    TensorMap,
    TmaError,
    check,
    execute,
)
from golden.memory import HashedMemory
from golden.model import operands_of
from golden.request import as_descriptor, moved_bytes
from hw.params import WARP
from sim_tb.coverage import crosses
from sim_tb.testbench.environment import Environment
from tests.golden.random_requests import (
    LATER,
    Case,
    Rng,
    gather4,
    im2col_w,
    load_im2col,
    load_short_rows,
    load_tile,
    overridden,
    pick,
)

LARGEST = 12 * 1024
"""Largest footprint of a box in shared memory, in bytes, gaps of the swizzle included."""

ATOMS = range(Swizzle.SWIZZLE_128B_ATOM_32B, Swizzle.SWIZZLE_96B)
WALKS_W = AccessMode.IM2COL_W, AccessMode.IM2COL_W_128
OPERANDS = ("coords", "im2col_offsets", "w_halo", "w_offset")


@dataclass
class Item:
    """A request, and the golden model's answer to it."""

    request: Load | BulkLoad
    arch: Arch
    map_address: int = 0

    def __str__(self) -> str:
        if isinstance(self.request, BulkLoad):
            return str(self.request)
        words = " ".join(f"{word:x}" for word in np.frombuffer(as_words(self.request), "<u4")[:16])
        shown = {name: getattr(self.request, name) for name in (*OPERANDS, "smem_address")}
        return f"{self.request.mode.name} of [{words}] {shown}"

    def golden(self, smem: NDArray[np.uint8]) -> Completion | TmaError:
        """Apply it to ``smem``; return its completion, or the reason why it is refused."""
        try:
            answers = execute(self.request, HashedMemory(), [smem], arch=self.arch)
        except TmaError as error:
            return error
        crosses.record(self.request, self.arch)
        if isinstance(self.request, BulkLoad):
            set_ignored(self.request, smem)
        # A bulk load of no bytes signals nothing.
        return answers[0] if answers else Completion(0, self.request.mbarrier, 0)

    def submit(self, env: Environment, *, cache_policy: int = 0, prefetch: bool = False) -> int:
        """Place its tensor map, and issue it; return its request id."""
        self.place(env)
        return self.issue(env, cache_policy=cache_policy, prefetch=prefetch)

    def place(self, env: Environment) -> None:
        """Place its tensor map, if it has one."""
        if isinstance(self.request, Load):
            words = np.frombuffer(as_words(self.request), np.uint32).copy()
            self.map_address = env.descriptors.place(words)

    def issue(self, env: Environment, *, cache_policy: int = 0, prefetch: bool = False) -> int:
        """Issue it, or with ``prefetch`` a prefetch of the same box; return its request id.

        Its address in shared memory chooses the thread, so that all streams have requests.
        """
        request = as_prefetch(self.request) if prefetch else self.request
        place = self.request.smem_address // 128
        thread = (WARP * place + place % WARP) % env.interface.parameters["threads"]
        return env.requests.submit(request, self.map_address, cache_policy, thread=thread)

    def move_below(self, end: int) -> None:
        """Let the addresses of its tensor, or of its bytes, wrap at ``end``, a power of two."""
        self._move(lambda address: address & (end - 1))

    def move_up(self, offset: int) -> None:
        """Add ``offset`` to the address of its tensor, or of its bytes."""
        self._move(lambda address: address + offset)

    def _move(self, moved: Callable[[int], int]) -> None:
        if isinstance(self.request, BulkLoad):
            address = moved(self.request.gmem_address)
            self.request = replace(self.request, gmem_address=address)
            return
        words = np.frombuffer(as_words(self.request), np.uint32).copy()
        address = moved(int(words[1]) << 32 | int(words[0]))
        words[0], words[1] = address & 0xFFFFFFFF, address >> 32
        self.request = replace(self.request, tensor_map=words.tobytes())

    def accesses(self, env: Environment, *, prefetch: bool) -> bool:
        """Return whether the request, or with ``prefetch`` its prefetch, accesses any line."""
        request = as_prefetch(self.request) if prefetch else self.request
        try:
            check(request, smem_bytes=env.smem.size, arch=self.arch)
        except TmaError:
            return False
        return self.lines(env.interface.parameters["line_bytes"])[0].size > 0

    def forget(self, env: Environment) -> None:
        """Remove its tensor map, if it has one."""
        env.gmem.remove(self.map_address)

    @property
    def extent(self) -> int:
        """Bytes of shared memory that it may write; 0 if its tensor map is refused."""
        if isinstance(self.request, BulkLoad):
            return self.request.size & 0xFFFF0
        try:
            return plan_of(self.request, self.arch).extent(self.request.w_halo)
        except TmaError:
            return 0

    def lines(self, line_bytes: int) -> tuple[NDArray[Any], int]:
        """Return the lines that it reads, and the most reads: one for each line of each row."""
        request = self.request
        if isinstance(request, BulkLoad):
            read = 0 if ignored_bytes(request).all() else self.extent
            end = request.gmem_address + read
            pieces = np.arange(request.gmem_address, end, 16, np.uint64)
            lines = np.unique(pieces // np.uint64(line_bytes))
            return lines, lines.size
        return lines_of(request, self.arch, line_bytes)


def as_words(request: Load | Prefetch) -> bytes:
    """Return the bytes of its tensor map."""
    tensor_map = request.tensor_map
    return tensor_map if isinstance(tensor_map, bytes) else tensor_map.encode()  # type: ignore[union-attr]


def as_prefetch(load: Load | BulkLoad) -> Prefetch | BulkPrefetch:
    """Return a prefetch of the same box or bytes."""
    if isinstance(load, BulkLoad):
        return BulkPrefetch(load.gmem_address, load.size)
    return Prefetch(
        as_words(load), load.coords, load.mode, load.im2col_offsets, load.w_halo, load.w_offset,
        override=load.override,
    )  # fmt: skip


def plan_of(request: Load | Prefetch, arch: Arch) -> Plan:
    """Return its plan; raise ``TmaError`` if its tensor map is refused."""
    return Plan(request.descriptor, request.mode, arch=arch)


def lines_of(request: Load | Prefetch, arch: Arch, line_bytes: int) -> tuple[NDArray[Any], int]:
    """Return the lines that a request reads, and the most reads: one for each line of each row."""
    spread = plan_of(request, arch).spread(0, operands_of(request))
    inside = spread.inside > 0
    first = spread.gmem[inside]
    last = first + (spread.inside[inside] - 1).astype(np.uint64)
    row = np.broadcast_to(np.arange(inside.shape[0])[:, None], inside.shape)[inside]
    line = np.concatenate([first, last]) // np.uint64(line_bytes)
    by_row = np.stack([np.concatenate([row, row]).astype(np.uint64), line])
    return np.unique(line), np.unique(by_row, axis=1).shape[1]


def random_bulk(rng: Rng, largest: int) -> BulkLoad:
    """Return a random bulk load; about one in ten is refused."""
    size = 16 * int(pick(rng, 0, 1, 2, rng.integers(64), rng.integers(largest // 16)))
    address = 16 * int(rng.integers(1 << int(pick(rng, 20, 44))))
    request = BulkLoad(address, 16 * int(rng.integers(8)), min(size, largest - 128))
    odd = int(rng.integers(1, 16))
    match rng.integers(48):
        case 0:
            return replace(request, gmem_address=address + odd)
        case 1:
            return replace(request, size=request.size + odd)
        case 2:
            return replace(request, smem_address=request.smem_address + odd)
        case 3:
            return replace(request, size=(1 << 32) - 16)
    return request


def ignored_bytes(request: BulkLoad) -> NDArray[np.bool_]:
    """Return for each byte that a load counts whether it ignores the byte."""
    size = moved_bytes(request.size)
    place = np.arange(size)
    return (place < request.ignore_first) | (place >= size - request.ignore_last)


def set_ignored(request: BulkLoad, smem: NDArray[np.uint8]) -> None:
    """Set the bytes that a load ignores, which PTX leaves open, to what the unit writes there.

    It is what memory has there; of a load of one piece that ignores all of it, it is 0.
    """
    ignored = ignored_bytes(request)
    place = np.arange(ignored.size, dtype=np.uint64)
    target = smem[request.smem_address :][: ignored.size]
    source = HashedMemory().read(np.uint64(request.gmem_address) + place)
    target[ignored] = 0 if ignored.all() else source[ignored]


def ignoring(rng: Rng, largest: int) -> BulkLoad:
    """Return a random bulk load with ``.ignore_oob``, most often a short one."""
    request = random_bulk(rng, int(pick(rng, 144, 256, largest)))
    first, last = (int(pick(rng, 0, rng.integers(16), 15)) for _ in range(2))
    return replace(request, ignore_first=first, ignore_last=last)


def overridden_load(rng: Rng) -> Case:
    """Return a random load with an override."""
    while True:
        case = overridden(rng, (load_tile, load_im2col, gather4))
        if isinstance(case.request, Load):
            return case


def reporting(rng: Rng, arch: Arch) -> Load | BulkLoad:
    """Return a random load that may report its data, so short that not all data has a pattern."""
    if rng.random() < 0.3:
        request: Load | BulkLoad = random_bulk(rng, 512)
    else:
        mode = pick(rng, "tile", "interleaved", "im2col", "gather4", "sub_byte")
        request = random_tensor_load(rng, mode, arch, 2048)
    return replace(request, report=ReportMechanism(int(rng.integers(len(ReportMechanism)))))


def later_tile(rng: Rng, most: int, wanted: Callable[[TensorMap], bool]) -> Case:
    """Return a random tile load of a later architecture whose tensor map is ``wanted``."""
    while True:
        case = load_tile(rng, arch=LATER, most=most)
        if wanted(case.request.tensor_map):
            return case


HOPPER = {
    "tile": lambda rng, most: load_tile(rng, most=most),
    "interleaved": lambda rng, most: load_tile(rng, interleaved=True, most=most),
    "short_rows": lambda rng, _: load_short_rows(rng),
    "im2col": lambda rng, most: load_im2col(rng, most=most),
    "im2col_interleaved": lambda rng, most: load_im2col(rng, interleaved=True, most=most),
}
BLACKWELL = {
    "gather4": lambda rng, _: gather4(rng),
    "im2col_w": lambda rng, _: im2col_w(rng),
    "im2col_w_128": lambda rng, _: im2col_w(rng, mode=AccessMode.IM2COL_W_128),
    "swizzle_atoms": lambda rng, most: later_tile(rng, most, lambda m: m.swizzle in ATOMS),
    "swizzle_96b": lambda rng, most: later_tile(
        rng, most, lambda m: m.swizzle is Swizzle.SWIZZLE_96B
    ),
    "sub_byte": lambda rng, most: later_tile(rng, most, lambda m: m.data_type.is_sub_byte),
}
OVERRIDE, IGNORING, REPORTING = "override", "ignore_oob", "report_mechanism"
BY_PARAMETER = OVERRIDE, IGNORING, REPORTING
"""Modes that need a parameter of the same name."""

BULK = {"bulk": random_bulk, IGNORING: ignoring}
MODES = {**HOPPER, **BLACKWELL, OVERRIDE: lambda rng, _: overridden_load(rng)}


def random_tensor_load(rng: Rng, mode: str, arch: Arch, largest: int) -> Load:
    """Return a random load of ``mode``, of at most ``largest`` bytes; ``arch`` may refuse it."""
    while True:
        try:
            case = MODES[mode](rng, int(pick(rng, 300, 1000, largest)))
        except TmaError:  # the drawn tensor map is illegal
            continue
        request = altered(rng, replace(case.request, smem_address=0, mbarrier=0))
        if breaks_override(request, arch):
            continue
        try:
            extent = plan_of(request, arch).extent(request.w_halo)
        except TmaError:
            return request
        if extent <= largest:
            return request


def breaks_override(request: Load, arch: Arch) -> bool:
    """Return whether it breaks a rule of overrides, which the unit does not check."""
    try:
        check(request, arch=arch)
    except TmaError as error:
        return error.code is ErrorCode.OVERRIDE
    return False


def altered(rng: Rng, request: Load) -> Load:
    """Return ``request``, in one of eight cases with a change that mostly makes it illegal."""
    words = np.frombuffer(as_words(request), np.uint32).copy()
    coords, dim = list(request.coords), int(rng.integers(len(request.coords)))
    offsets = list(request.im2col_offsets)
    mode = AccessMode(int(as_descriptor(request.tensor_map).mode))
    changes: dict[str, Any] = {"mode": mode if request.mode is None else request.mode}
    match rng.integers(56):
        case 0:
            coords[0] += int(rng.integers(1, 16))
        case 1:
            coords = (coords * 5)[: int(rng.integers(1, 6))]
        case 2:
            changes["smem_address"] = int(rng.integers(1, 128))
        case 3:
            changes["smem_address"] = 1 << int(rng.integers(18, 24))
        case 4:
            changes["mbarrier"] = int(rng.integers(1, 8))
        case 5:
            words[0] += int(rng.integers(1, 32))
        case 6:
            words[2] ^= 1 << int(rng.integers(23))
        case 7 if changes["mode"] is not AccessMode.IM2COL:
            changes["mode"] = AccessMode(rng.integers(6))
            offsets = []
        case 7 if offsets:
            offsets[int(rng.integers(len(offsets)))] = int(pick(rng, 32, 256, 65535))
        case 8:
            coords[dim] += int(pick(rng, -1, 1)) * int(rng.integers(1, 20))
        case 9 if changes["mode"] in WALKS_W:
            changes["w_halo"] = int(pick(rng, 32, 511, 512))
        case 10 if changes["mode"] in WALKS_W:
            changes["w_offset"] = 32
    coords = [min(max(coord, -(1 << 31)), (1 << 31) - 1) for coord in coords]
    changes |= {"coords": tuple(coords), "im2col_offsets": tuple(offsets)}
    return replace(request, tensor_map=words.tobytes(), **changes)


def random_item(
    rng: Rng,
    modes: Sequence[str],
    arch: Arch,
    smem_address: int,
    mbarrier: int,
    largest: int = LARGEST,
) -> Item:
    """Return a random request of one of ``modes``, also of ``BULK``, at ``smem_address``."""
    mode = pick(rng, *modes)
    request: Load | BulkLoad
    if mode in BULK:
        request = BULK[mode](rng, max(largest, 256))
    elif mode == REPORTING:
        request = reporting(rng, arch)
    else:
        request = random_tensor_load(rng, mode, arch, largest)
    # Added, so that an address that was made illegal stays illegal.
    at = request.smem_address + smem_address, request.mbarrier + mbarrier
    return Item(replace(request, smem_address=at[0], mbarrier=at[1]), arch)
