"""Random requests between the CTAs of a cluster, compared with the golden model."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import (
    AccessMode,
    Arch,
    BulkLoad,
    BulkStore,
    Completion,
    DataType,
    DsmemCopy,
    DsmemReduce,
    Load,
    Plan,
    ReductionOp,
    ReportMechanism,
    TensorMap,
    TmaError,
    execute,
)
from golden.mbarrier import NOT_VALID, Barrier, Report
from golden.memory import HashedMemory
from golden.reduction import ASYNC_PAIRS, DSMEM_PAIRS, operation
from sim_tb.coverage.cluster_kinds import ClusterKind, Transfer
from sim_tb.coverage.crosses import record_in_cluster
from sim_tb.testbench.cluster_environment import ClusterEnvironment
from tests.golden.random_requests import Rng, load_tile, pick
from tests.top.random_loads import as_words, random_bulk, random_tensor_load
from tests.unit_arch import unit_arch

LARGEST = 8 * 1024
"""Largest number of bytes of a request."""

SOURCES = 32 * 1024
"""Bytes of shared memory, from offset 0, that requests only read."""

REDUCED = SOURCES, 2048
"""Offset and size of the shared memory that reductions of all CTAs change."""

FIRST_REGION = 64 * 1024
BARRIERS = 2
OUTPUT = 0x5000_0000
COMMUTING = {
    ReductionOp.ADD,
    ReductionOp.MIN,
    ReductionOp.MAX,
    ReductionOp.AND,
    ReductionOp.OR,
    ReductionOp.XOR,
}
"""Operations whose order does not change the result."""


@dataclass(frozen=True)
class RemoteStore:
    """``st.async``, or with ``reduction`` ``red.async``."""

    dst_cta: int
    address: int
    values: bytes
    mbarrier: int
    reduction: tuple[DataType, ReductionOp] | None = None


@dataclass
class Item:
    """A request of a thread of CTA ``cta``."""

    request: Load | BulkLoad | BulkStore | DsmemCopy | RemoteStore
    cta: int
    map_address: int = 0
    request_id: int = 0


class Round:
    """Requests that are in flight together. Each writes a region of shared memory of its own."""

    def __init__(self, cluster: ClusterEnvironment, rng: Rng, count: int) -> None:
        self.cluster = cluster
        self.rng = rng
        self.ctas = len(cluster.sms)
        self.parameters = cluster.sms[0].interface.parameters
        self.arch = unit_arch(self.parameters)
        size = cluster.sms[0].smem.size
        self.barriers = [size - 8 * (n + 1) for n in range(BARRIERS)]
        self.output = np.zeros(SOURCES, np.uint8)
        self.pair = pick(rng, *sorted(ASYNC_PAIRS))
        self.may_reduce = True
        self.next_region = FIRST_REGION
        self.items = [self._draw() for _ in range(count)]

    def _cta(self) -> int:
        return int(self.rng.integers(self.ctas))

    def _region(self) -> int:
        """Return the offset of a new region, a multiple of 128, with room for a larger offset."""
        region = self.next_region
        self.next_region += LARGEST + 256
        return region

    def _draw(self) -> Item:
        rng, cta = self.rng, self._cta()
        kinds = [self._multicast] * 3 + [self._elsewhere, self._own, self._store]
        kinds += [self._pair] * self.parameters["cta_group_2"]
        kinds += [self._dsmem] * 2 + [self._reduce] * 2 + [self._async] * 2
        return pick(rng, *kinds)(cta)

    def _load(self) -> Load | BulkLoad:
        rng = self.rng
        request: Load | BulkLoad
        if rng.random() < 0.3:
            request = random_bulk(rng, LARGEST)
        elif rng.random() < 0.2:
            rows = int(pick(rng, 1, rng.integers(1, 9)))
            box = TensorMap.tiled("u8", 16 * int(rng.integers(1 << 30)), (16, 8), (32,), (16, rows))
            request = Load(box, (0, int(rng.integers(8))), AccessMode.TILE)
        else:
            mode = pick(rng, "tile", "tile", "interleaved")
            request = random_tensor_load(rng, mode, Arch.SM_90A, LARGEST)
        at = request.smem_address + self._region(), request.mbarrier + pick(rng, *self.barriers)
        report = self._report()
        return replace(request, smem_address=at[0], mbarrier=at[1], report=report)

    def _report(self) -> ReportMechanism:
        """Return a pattern to report. Most loads report none, so that not every phase does."""
        if not self.parameters["report_mechanism"] or self.rng.random() < 0.9:
            return ReportMechanism.DISABLED
        return ReportMechanism(int(self.rng.integers(len(ReportMechanism))))

    def _multicast(self, cta: int) -> Item:
        is_wide = bool(self.parameters["multicast_32b"])
        mask = int(self.rng.integers(1, 1 << self.ctas))
        if self.rng.random() < 0.05:
            bits = self.cluster.sms[0].interface.derived["mask_bits"]
            beyond = [1 << self.ctas] if self.ctas < bits else []  # no request has a wider mask
            mask = pick(self.rng, 0, mask | 1 << (bits - 1), *beyond)
        return Item(replace(self._load(), cta_mask=mask, multicast_32b=is_wide), cta)

    def _elsewhere(self, cta: int) -> Item:
        dst = self._cta() if self.rng.random() < 0.95 else self.ctas
        return Item(replace(self._load(), dst_cta=dst), cta)

    def _own(self, cta: int) -> Item:
        return Item(self._load(), cta)

    def _pair(self, cta: int) -> Item:
        """Return a load with ``.cta_group::2`` of a box that the unit accepts."""
        request = None
        while request is None or Plan(request.tensor_map).footprint > LARGEST:
            with suppress(TmaError):  # the drawn tensor map is illegal
                request = load_tile(self.rng, most=400).request
        where: dict[str, Any]
        if self.rng.random() < 0.6:
            where = {"cta_mask": int(self.rng.integers(1, 1 << self.ctas))}
            where["mbarrier_cta"] = self._cta()
        else:
            dst = self._cta()
            where = {"dst_cta": dst, "mbarrier_cta": dst ^ int(self.rng.integers(2))}
        where |= {"smem_address": self._region(), "mbarrier": pick(self.rng, *self.barriers)}
        where["report"] = self._report()
        return Item(replace(request, cta_group=2, **where), cta)

    def _piece_range(self, most: int) -> tuple[int, int]:
        """Return offset and size of a random range of pieces inside ``most`` bytes."""
        size = 16 * int(pick(self.rng, 0, 1, 8, self.rng.integers(most // 16)))
        return 16 * int(self.rng.integers((most - size) // 16 + 1)), size

    def _dsmem(self, cta: int) -> Item:
        source, size = self._piece_range(LARGEST)
        dst = self._cta()
        at = self._region() + 16 * int(self.rng.integers(8))
        return Item(DsmemCopy(dst, at, source, size, pick(self.rng, *self.barriers)), cta)

    def _reduces(self) -> bool:
        """Return whether one more request may reduce: one only, if the order changes the result."""
        may, self.may_reduce = self.may_reduce, self.pair[1] in COMMUTING
        return may

    def _reduce(self, cta: int) -> Item:
        if self.pair not in DSMEM_PAIRS or not self._reduces():
            return self._dsmem(cta)
        start, most = REDUCED
        offset, size = self._piece_range(most)
        dst = self._cta()
        source = 16 * int(self.rng.integers(64))
        where = dst, start + offset, source, size, pick(self.rng, *self.barriers)
        kind, op = self.pair
        return Item(DsmemReduce(*where, data_type=kind, op=op), cta)

    def _async(self, cta: int) -> Item:
        rng = self.rng
        barrier = pick(rng, *self.barriers)
        if rng.random() < 0.5 or not self._reduces():
            words = int(pick(rng, 1, 2, 4))
            at = self._region() + 4 * words * int(rng.integers(8))
            return Item(RemoteStore(self._cta(), at, rng.bytes(4 * words), barrier), cta)
        start, most = REDUCED
        size = self.pair[0].itemsize
        at = start + size * int(rng.integers(most // size))
        return Item(RemoteStore(self._cta(), at, rng.bytes(size), barrier, self.pair), cta)

    def _store(self, cta: int) -> Item:
        """Return a store to global memory, which shares the store path with DSMEM copies."""
        offset, size = self._piece_range(LARGEST)
        target = OUTPUT + 16 * int(self.rng.integers((SOURCES - size) // 16 + 1))
        return Item(BulkStore(target, offset, size), cta)

    async def run(self) -> None:
        """Carry out all requests in the simulation and in the golden model, and compare."""
        sms = self.cluster.sms
        for env in sms:
            env.smem[:] = self.rng.integers(0, 256, env.smem.size, dtype=np.uint8)
        expected = [env.smem.copy() for env in sms]
        stores = [item for item in self.items if isinstance(item.request, BulkStore)]
        self.items = [item for item in self.items if item not in stores[1:]]  # several may overlap
        self.cluster.gmem.place(OUTPUT, self.output)
        wanted_output = self.output.copy()

        tx = np.zeros((self.ctas, BARRIERS), int)
        reports = np.zeros((self.ctas, BARRIERS), bool)
        v1 = bool(self.parameters["report_mechanism"])
        refused: dict[tuple[int, int], str] = {}
        outcomes = [self._golden(item, expected, wanted_output) for item in self.items]
        for item, outcome in zip(self.items, outcomes, strict=True):
            if not isinstance(outcome, TmaError):
                self._record(item, outcome)
                for done in outcome:
                    at = done.cta, self.barriers.index(done.mbarrier)
                    tx[at] += done.bytes
                    reports[at] |= done.reports
        for env in sms:
            for number, barrier in enumerate(self.barriers):
                await env.barriers.command("INIT", barrier, 1, v1=v1)
                await env.barriers.command("ARRIVE_EXPECT_TX", barrier, int(tx[env.sm, number]))
        for item, outcome in zip(self.items, outcomes, strict=True):
            self._submit(item)
            if isinstance(outcome, TmaError):
                refused[item.cta, item.request_id] = outcome.code.name
        await self.cluster.idle()
        self._compare(expected, wanted_output, refused, reports if v1 else None)
        for item in self.items:
            self.cluster.gmem.remove(item.map_address)
        self.cluster.gmem.remove(OUTPUT)

    def _golden(
        self, item: Item, smem: list[NDArray[np.uint8]], output: NDArray[np.uint8]
    ) -> list[Completion] | TmaError:
        """Apply the item; return its completions, or its refusal."""
        request = item.request
        match request:
            case BulkStore():
                at = request.gmem_address - OUTPUT
                source = smem[item.cta][request.smem_address :][: request.size]
                output[at : at + request.size] = source
                return []
            case RemoteStore():
                target = smem[request.dst_cta][request.address :][: len(request.values)]
                values = np.frombuffer(request.values, np.uint8)
                if request.reduction is not None:
                    kind, op = request.reduction
                    word = f"u{kind.itemsize}"
                    combined = operation(op, kind)(target.view(word), values.view(word))
                    values = combined.view(np.uint8)
                target[:] = values
                return [Completion(request.dst_cta, request.mbarrier, len(request.values))]
        try:
            return execute(request, HashedMemory(), smem, cta=item.cta, arch=self.arch)
        except TmaError as error:
            return error

    def _record(self, item: Item, completions: list[Completion]) -> None:
        """Record an accepted request for coverage, if the architecture is Hopper."""
        request, pair = item.request, None
        if isinstance(request, BulkStore) or self.arch is not Arch.SM_90A:
            return
        size = completions[0].bytes if completions else 0
        receivers = {item.cta}
        if isinstance(request, RemoteStore):
            transfer = Transfer.RED_ASYNC if request.reduction else Transfer.STORE_ASYNC
            receivers, pair = {request.dst_cta}, request.reduction
        elif isinstance(request, DsmemReduce):
            transfer = Transfer.REDUCE
            receivers, pair = {request.dst_cta}, (request.data_type, request.op)
        elif isinstance(request, DsmemCopy):
            transfer, receivers = Transfer.COPY, {request.dst_cta}
        else:
            transfer = Transfer.BULK if isinstance(request, BulkLoad) else Transfer.TILE
            if request.cta_mask is not None:
                mask = request.cta_mask
                receivers = {cta for cta in range(self.ctas) if mask >> cta & 1}
            elif request.dst_cta is not None:
                receivers = {request.dst_cta}
        if receivers:
            record_in_cluster(ClusterKind.of(transfer, item.cta, receivers, self.ctas, size, pair))

    def _submit(self, item: Item) -> None:
        env, request = self.cluster.sms[item.cta], item.request
        if isinstance(request, RemoteStore):
            kind = np.uint32 if request.reduction is None else f"u{request.reduction[0].itemsize}"
            item.request_id = env.remote.store(
                request.dst_cta,
                request.address,
                np.frombuffer(request.values, kind),
                request.mbarrier,
                reduction=request.reduction,
            )
            return
        if isinstance(request, Load):
            words = np.frombuffer(as_words(request), np.uint32).copy()
            item.map_address = env.descriptors.place(words)
        item.request_id = env.requests.submit(request, item.map_address)

    def _compare(self, expected, output, refused, reports) -> None:
        """Compare all results; ``reports`` is None if the barriers are of layout v0."""
        sms = self.cluster.sms
        records = {(env.sm, e.request_id): e.cause for env in sms for e in env.errors.take_all()}
        assert records == refused
        for env, wanted in zip(sms, expected, strict=True):
            for number, barrier in enumerate(self.barriers):
                report = None
                if reports is not None:
                    found = bool(reports[env.sm, number])
                    report = Report(NOT_VALID if found else 0, not found, stale=1)
                word = Barrier(phase=1, pending=1, expected=1, report=report)
                got = env.barriers.read(barrier, v1=reports is not None)
                assert got == word, f"CTA {env.sm}, barrier {barrier:#x}: {got}"
            end = min(self.barriers)
            differs = np.flatnonzero(env.smem[:end] != wanted[:end])
            if differs.size:
                first = int(differs[0])
                raise AssertionError(
                    f"CTA {env.sm}: {differs.size} bytes differ, first {first:#x}: expected "
                    f"{wanted[first]:#x}, got {env.smem[first]:#x}; {self.items}"
                )
        assert np.array_equal(self.output, output)
