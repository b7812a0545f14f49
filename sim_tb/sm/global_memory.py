"""Accesses of threads to global memory: loads, stores and atomic operations."""

from collections.abc import Iterator
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from golden import DataType, ReductionOp
from golden.reduction import BULK_PAIRS, operation
from sim_tb.sm.device import LINE_BYTES, Tensor
from sim_tb.sm.errors import KernelError, described
from sim_tb.sm.sanitizer import Access, Scope, Threads
from sim_tb.sm.sm import Array, Issuer
from sim_tb.sm.smem import LANES

Index: TypeAlias = ArrayLike | tuple[ArrayLike, ...]
"""Index of an element for each thread: one array per dimension, or one of flat indices."""


class Order(Enum):
    """Memory order of an access (``.sem``)."""

    WEAK = "weak"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"

    @property
    def acquires(self) -> bool:
        """True if later accesses stay behind this one."""
        return self in (Order.ACQUIRE, Order.ACQ_REL)

    @property
    def releases(self) -> bool:
        """True if earlier accesses stay before this one."""
        return self in (Order.RELEASE, Order.ACQ_REL)


class GlobalInstructions(Issuer):
    """The part of ``Warps`` that is about global memory.

    Each thread accesses one element of a tensor. ``index`` has an entry for each thread of the
    role, or one for all. ``where`` is the condition under which a thread executes the instruction:
    an array of bool. Its other threads get 0.
    """

    async def ld_global(
        self,
        tensor: Tensor,
        index: Index,
        *,
        where: ArrayLike = True,
        order: Order = Order.WEAK,
        scope: Scope = Scope.GPU,
    ) -> Array:
        """``ld.global``; return an element for each thread."""
        name = "ld.global" if order is Order.WEAK else f"ld.{order.value}.global"
        access = GlobalAccess(self, name, tensor, index, where)
        await self._transfer(access)
        ready = self.sm.env.not_before + self.sm.costs.global_load
        with self.span(f"wait {name}"):
            await self.sm.until(max(ready, self.ready_cycle))
        self._follow_global(access, Access.READ, order, scope)
        self.sm.sanitizer.registers_written(self.all)
        values: Array = tensor.array[access.places]
        return access.spread(values)

    async def st_global(
        self,
        tensor: Tensor,
        index: Index,
        values: ArrayLike,
        *,
        where: ArrayLike = True,
        order: Order = Order.WEAK,
        scope: Scope = Scope.GPU,
    ) -> None:
        """``st.global``: write a value of each thread."""
        name = "st.global" if order is Order.WEAK else f"st.{order.value}.global"
        access = GlobalAccess(self, name, tensor, index, where)
        await self._transfer(access)
        await self.sm.until(self.sm.env.not_before)
        self._follow_global(access, Access.WRITE, order, scope)
        tensor.array[access.places] = access.operand(values)

    async def atom_global(
        self,
        tensor: Tensor,
        index: Index,
        values: ArrayLike,
        op: ReductionOp,
        *,
        where: ArrayLike = True,
        order: Order = Order.RELAXED,
        scope: Scope = Scope.GPU,
    ) -> Array:
        """``atom.global``: combine elements with values of threads; return the elements before.

        The threads follow each other in the order of their numbers (choice).
        """
        return await self._atom("atom.global", tensor, index, values, op, where, order, scope)

    async def red_global(
        self,
        tensor: Tensor,
        index: Index,
        values: ArrayLike,
        op: ReductionOp,
        *,
        where: ArrayLike = True,
        order: Order = Order.RELAXED,
        scope: Scope = Scope.GPU,
    ) -> None:
        """``red.global``: as ``atom_global``, but nothing is returned or waited for."""
        await self._atom("red.global", tensor, index, values, op, where, order, scope)

    async def atom_cas_global(
        self,
        tensor: Tensor,
        index: Index,
        compare: ArrayLike,
        values: ArrayLike,
        *,
        where: ArrayLike = True,
        order: Order = Order.RELAXED,
        scope: Scope = Scope.GPU,
    ) -> Array:
        """``atom.cas.global``: write a value if the element equals ``compare``; return it."""
        access = GlobalAccess(self, "atom.cas.global", tensor, index, where)
        pairs = zip(access.operand(compare), access.operand(values), strict=True)

        def swap(before: Array) -> Array:
            expected, value = next(pairs)
            return value if before.tobytes() == expected.tobytes() else before

        return await self._modify(access, swap, order, scope, waits=True)

    async def fence_acq_rel(self, scope: Scope = Scope.GPU) -> None:
        """``fence.acq_rel`` (``__threadfence`` and its narrower forms)."""
        await self.issue(self.sm.costs.fence_acq_rel)
        self.sm.sanitizer.fence(self.all, scope)

    # Parts

    async def _atom(
        self,
        name: str,
        tensor: Tensor,
        index: Index,
        values: ArrayLike,
        op: ReductionOp,
        where: ArrayLike,
        order: Order,
        scope: Scope,
    ) -> Array:
        access = GlobalAccess(self, name, tensor, index, where)
        self.require(name, op=(op, ReductionOp))
        data_type = DataType.of_dtype(tensor.array.dtype)
        if data_type is None or (data_type, op) not in BULK_PAIRS:
            raise KernelError(
                f"{access.about}: {op.name.lower()} of {tensor.array.dtype}: there is no such "
                "atomic operation"
            )
        words = np.dtype(f"u{data_type.itemsize}")
        combine, operands = operation(op, data_type), iter(access.operand(values))

        def change(before: Array) -> Array:
            operand = np.atleast_1d(next(operands)).view(words)
            after: Array = combine(np.atleast_1d(before).view(words), operand)
            return after.view(before.dtype)

        return await self._modify(access, change, order, scope, waits=name == "atom.global")

    async def _modify(
        self, access: "GlobalAccess", change: Any, order: Order, scope: Scope, *, waits: bool
    ) -> Array:
        """Replace each element, one thread after the other; return the elements before."""
        await self._transfer(access)
        await self.sm.until(self.sm.env.not_before)
        issued = self.sm.env.not_before
        self._follow_global(access, Access.ATOMIC, order, scope)
        array, before = access.tensor.array, []
        for place in zip(*access.places, strict=True):
            before.append(array[place])
            array[place] = np.reshape(change(array[place]), ())
        if waits:
            with self.span(f"wait {access.name}"):
                await self.sm.until(max(issued + self.sm.costs.global_load, self.ready_cycle))
            self.sm.sanitizer.registers_written(self.all)
        return access.spread(np.array(before, array.dtype))

    async def _transfer(self, access: "GlobalAccess") -> None:
        """Issue an access: each warp takes a clock for each line that it touches."""
        lines = sum(len(np.unique(part // LINE_BYTES)) for _, part in access.by_warp())
        await self._use(self.sm.smem_port, lines, access.name)

    def _follow_global(
        self, access: "GlobalAccess", kind: Access, order: Order, scope: Scope
    ) -> None:
        """Let the sanitizer follow an access, and its release and acquire."""
        sanitizer, cycle = self.sm.sanitizer, self.sm.env.cycle
        size, strong = access.tensor.array.dtype.itemsize, order is not Order.WEAK
        text = f"{access.name} of {access.tensor.name}"
        for threads, addresses in access.by_warp():
            flags = np.unique(addresses).tolist() if strong else []
            for flag in flags if order.releases else ():
                sanitizer.release(threads, flag, scope)
            sanitizer.global_access(threads, text, addresses, size, cycle, kind, strong=strong)
            for flag in flags if order.acquires else ():
                sanitizer.acquire(threads, flag, scope)


class GlobalAccess:
    """Elements of a tensor that the threads of a role access.

    Members
    -------
    places : tuple of array
        Indices of the elements of the threads that take part, one array per dimension.

    Raises
    ------
    KernelError
        If an operand has a wrong type or shape, or an index is outside of the tensor. The text
        names the thread.
    """

    def __init__(
        self, issuer: Issuer, name: str, tensor: Tensor, index: Index, where: ArrayLike
    ) -> None:
        issuer.require(name, tensor=(tensor, Tensor))
        self.issuer, self.name, self.tensor = issuer, name, tensor
        self.about = f"{issuer.role}: {name} of {tensor.name} in cycle {issuer.sm.env.cycle}"
        self.mask = self._per_thread("where", where).astype(bool)
        shape = tensor.array.shape
        given = index if isinstance(index, tuple) else (index,)
        parts = [self._per_thread("index", each) for each in given]
        for part in parts:
            if part.dtype.kind not in "iu":
                raise KernelError(f"{self.about}: index has type {part.dtype}: must be of integers")
        if len(parts) == 1 and len(shape) > 1:
            extents: tuple[int, ...] = (int(np.prod(shape)),)
        else:
            extents = shape
        if len(parts) != len(extents):
            raise KernelError(
                f"{self.about}: {len(parts)} indices: must be {len(shape)}, one for each dimension "
                "of the tensor, or one flat index"
            )
        for dim, (part, extent) in enumerate(zip(parts, extents, strict=True)):
            wrong = np.flatnonzero(self.mask & ((part < 0) | (part >= extent)))
            if wrong.size:
                thread = int(wrong[0])
                raise KernelError(
                    f"{self.about}: thread {issuer.thread + thread} has index {part[thread]} in "
                    f"dimension {dim}: must be from 0 to {extent - 1}; exclude it by where="
                )
        active = tuple(part[self.mask] for part in parts)
        self.places = active if len(active) == len(shape) else np.unravel_index(active[0], shape)

    def _per_thread(self, name: str, values: ArrayLike) -> NDArray[Any]:
        threads = self.issuer.threads
        made = np.asarray(values)
        if made.shape not in ((), (threads,)):
            raise KernelError(
                f"{self.about}: {name} is {described(values)}: must have one entry for each of the "
                f"{threads} threads, or one for all"
            )
        return np.broadcast_to(made, threads)

    def operand(self, values: ArrayLike) -> Array:
        """Return the values of the threads that take part, in the type of the tensor."""
        made: Array = self._per_thread("values", values)[self.mask]
        return made.astype(self.tensor.array.dtype, casting="unsafe")

    def spread(self, values: Array) -> Array:
        """Return values of all threads; those of threads that do not take part are 0."""
        made = np.zeros(self.issuer.threads, self.tensor.array.dtype)
        made[self.mask] = values
        return made

    def by_warp(self) -> Iterator[tuple[Threads, NDArray[np.int64]]]:
        """Yield the threads of each warp that take part, and the address of each one's element."""
        strides = np.array(self.tensor.array.strides)[:, None]
        addresses = np.zeros(self.issuer.threads, np.int64)
        addresses[self.mask] = self.tensor.address + (np.array(self.places) * strides).sum(axis=0)
        for warp in range(self.issuer.warps):
            part = slice(warp * LANES, (warp + 1) * LANES)
            mask = self.mask[part]
            if mask.any():
                lanes = int(np.packbits(mask, bitorder="little").view(np.uint32)[0])
                yield self.issuer.select(1 << warp, lanes), addresses[part][mask]
