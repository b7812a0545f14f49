"""Kinds of requests whose receivers are CTAs of a cluster, as coverage distinguishes them."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from golden.arch import EVERY_FEATURE, Arch
from golden.enums import PIECE, DataType, ReductionOp
from golden.reduction import ASYNC_PAIRS, DSMEM_PAIRS
from sim_tb.coverage.boxes import Operation, Type, reduction_misfit
from sim_tb.coverage.kinds import Kind

LINE = 128


class Transfer(StrEnum):
    """Transfer of bytes: a load, a copy or reduction of a CTA's bytes, or one of registers."""

    TILE = "tile"
    BULK = "bulk"
    COPY = "copy"
    REDUCE = "reduce"
    STORE_ASYNC = "st.async"
    RED_ASYNC = "red.async"

    @property
    def is_load(self) -> bool:
        """The bytes come from global memory, for any CTAs."""
        return self in (Transfer.TILE, Transfer.BULK)

    @property
    def reduces(self) -> bool:
        """The bytes are combined with those of the receiver."""
        return self in (Transfer.REDUCE, Transfer.RED_ASYNC)


class Receivers(StrEnum):
    """CTAs that receive the bytes: the one that issues the request, others, or both."""

    OWN = "own"
    OTHER = "other"
    OTHERS = "others"
    OWN_AND_OTHERS = "own+others"
    ALL = "all"


class Amount(StrEnum):
    """Bytes for each receiver: none, up to a piece of 16 bytes, up to a line of 128, or more."""

    NONE = "none"
    PIECE = "piece"
    LINE = "line"
    LINES = "lines"


@dataclass(frozen=True)
class ClusterKind(Kind):
    """The kind of a request with receivers. Only those that reduce have an operation and a type."""

    transfer: Transfer
    receivers: Receivers
    amount: Amount
    operation: Operation | None
    type: Type | None

    noun: ClassVar[str] = "requests in a cluster"
    dimensions: ClassVar[dict[str, Any]] = {
        "transfer": Transfer,
        "receivers": Receivers,
        "amount": Amount,
        "operation": Operation,
        "type": Type,
    }

    @classmethod
    def of(
        cls,
        transfer: Transfer,
        cta: int,
        receivers: set[int],
        ctas: int,
        size: int,
        pair: tuple[DataType, ReductionOp] | None = None,
    ) -> Self:
        """Return the kind of an accepted request.

        Parameters
        ----------
        transfer : Transfer
            Kind of its transfer.
        cta : int
            The CTA that issues it.
        receivers : set of int
            CTAs that receive the bytes, at least one.
        ctas : int
            CTAs of the cluster.
        size : int
            Bytes for each of them.
        pair : (DataType, ReductionOp), optional
            Of one that reduces.
        """
        if len(receivers) == ctas:
            where = Receivers.ALL
        elif len(receivers) == 1:
            where = Receivers.OWN if cta in receivers else Receivers.OTHER
        else:
            where = Receivers.OWN_AND_OTHERS if cta in receivers else Receivers.OTHERS
        amounts = zip(Amount, (0, PIECE, LINE), strict=False)
        amount = next((amount for amount, most in amounts if size <= most), Amount.LINES)
        if pair is None:
            return cls(transfer, where, amount, None, None)
        return cls(transfer, where, amount, list(Operation)[pair[1]], list(Type)[pair[0]])

    @classmethod
    def candidates(cls) -> Iterator[Self]:
        """Yield all combinations of bins that may be possible."""
        for transfer in Transfer:
            reductions = itertools.product(Operation, Type) if transfer.reduces else [(None, None)]
            for receivers, amount, pair in itertools.product(Receivers, Amount, reductions):
                yield cls(transfer, receivers, amount, *pair)

    def impossible(self, _arch: Arch = EVERY_FEATURE, /) -> str:
        """Return why no request is of this kind in a cluster of four CTAs; "" if some is."""
        is_single = self.receivers in (Receivers.OWN, Receivers.OTHER)
        of_registers = self.transfer in (Transfer.STORE_ASYNC, Transfer.RED_ASYNC)
        pairs = DSMEM_PAIRS if self.transfer is Transfer.REDUCE else ASYNC_PAIRS
        if not self.transfer.is_load and not is_single:
            return "the request has one receiver"
        if of_registers and self.amount is not Amount.PIECE:
            return "registers have 4 to 16 bytes"
        if self.transfer is Transfer.TILE and self.amount is Amount.NONE:
            return "a box has at least 16 bytes"
        if self.operation and self.type:
            return reduction_misfit(self.operation, self.type, pairs)
        return ""
