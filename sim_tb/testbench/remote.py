"""Operations of one SM's threads on barriers and shared memory of other CTAs."""

import ctypes
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from golden import DataType, ReductionOp
from sim_tb.testbench.barriers import operand
from sim_tb.testbench.bridge import Bridge, RemoteCommandRecord, RemoteStoreRecord
from sim_tb.testbench.requests import RequestIds

PIECE_BYTES = 16
WORD_BYTES = 4


class RemoteOperations:
    """Barrier operations, ``st.async`` and ``red.async`` to other CTAs.

    The unit answers none of them. An error record has the request id.

    Parameters
    ----------
    bridge : Bridge
    ids : RequestIds
    ops : mapping
        The design's ``BarrierOp``: name to number.
    """

    def __init__(self, bridge: Bridge, ids: RequestIds, ops: Mapping[str, int]) -> None:
        self._bridge = bridge
        self._ids = ids
        self._ops = ops

    def send_barrier(
        self,
        cta: int,
        op: str,
        address: int,
        count: int = 0,
        *,
        lanes: int = 1,
        request_id: int | None = None,
    ) -> int:
        """Queue an operation, a name of ``BarrierOp``, on the barrier at ``address`` of ``cta``.

        ``count`` and ``lanes`` are those of ``hw.layouts.barriers.BarrierCommand``.

        Returns
        -------
        int
            The request id, by default the next one.
        """
        request_id = self._ids.choose(request_id)
        command = RemoteCommandRecord(
            not_before=self._bridge.not_before,
            holder=cta,
            op=self._ops[op],
            address=address,
            count=operand(op, count),
            lanes=lanes,
            request_id=request_id,
        )
        self._bridge.remote_command(ctypes.byref(command))
        return request_id

    def store(
        self,
        cta: int,
        address: int,
        values: NDArray[Any],
        mbarrier: int,
        *,
        reduction: tuple[DataType, ReductionOp] | None = None,
        request_id: int | None = None,
    ) -> int:
        """Queue ``st.async``, or with ``reduction`` ``red.async``, of ``values`` to ``cta``.

        The unit refuses a store whose address is no multiple of its size. A store that leaves its
        16 aligned bytes goes to the unit with its own address, and others with that of the 16
        bytes.

        Returns
        -------
        int
            The request id, by default the next one.

        Raises
        ------
        ValueError
            If the values are not 4, 8 or 16 bytes.
        """
        raw = values.tobytes()
        if len(raw) not in (4, 8, 16):
            raise ValueError(f"{len(raw)} bytes: must be 4, 8 or 16")
        first = address % PIECE_BYTES
        if first % WORD_BYTES or first + len(raw) > PIECE_BYTES:
            first = 0
        data_type, op = reduction or (DataType.UINT8, ReductionOp.ADD)
        request_id = self._ids.choose(request_id)
        record = RemoteStoreRecord(
            request_id=request_id,
            dst_cta=cta,
            address=address - first,
            mbarrier=mbarrier,
            reduces=reduction is not None,
            op=int(op),
            element_type=data_type.format,
            words=((1 << len(raw) // WORD_BYTES) - 1) << first // WORD_BYTES,
            data=(ctypes.c_uint8 * PIECE_BYTES)(*bytes(first), *raw),
        )
        self._bridge.remote_store(ctypes.byref(record))
        return request_id
