"""Contexts top: connects the units of the contexts of an SM to the ports that they share."""

from collections.abc import Callable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.context.answer_room import AnswerRoom
from hw.context.line_guard import LineGuard
from hw.context.map_guard import MapGuard
from hw.context.smem_window import SmemWindow
from hw.context.tagged_port import TaggedPort
from hw.layouts.contexts import address_range_layout
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    descriptor_fill_layout,
    gnic_ack_layout,
    gnic_request_layout,
    gnic_response_layout,
    gnic_write_layout,
    lanes_layout,
    smem_read_layout,
    smem_write_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.in_order_port import InOrderPort
from hw.lib.pass_port import pass_port
from hw.params import TmaParams
from hw.top import Tma, tma_ports

READS = (("gnic_request", "gnic_response"), (gnic_request_layout, gnic_response_layout))
WRITES = (("gnic_write", "gnic_ack"), (gnic_write_layout, gnic_ack_layout))
"""Ports of lines and of their answers, and their payloads."""

SMEM_READS_OF_WALK = 4
"""Reads of shared memory under way in a unit beside those that hide its latency."""


def shared_ports(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports that the contexts share: those of a unit with the tags of all."""
    names = ["gnic_request", "gnic_response", "descriptor_request", "descriptor_fill", "smem_write"]
    if params.stores:
        names += ["smem_read", "smem_data", "gnic_write", "gnic_ack"]
    ports = tma_ports(params.of_all_contexts)
    return {name: ports[name] for name in names}


def context_signature(params: TmaParams) -> wiring.Signature:
    """Return the ports that each context has for itself: the others of a unit."""
    shared = shared_ports(params)
    own = {name: port for name, port in tma_ports(params).items() if name not in shared}
    return wiring.Signature(own)


class Contexts(wiring.Component):
    """Units of contexts that share an SM, its shared memory, and its ports to global memory.

    A context has a unit of its own, a window of shared memory and a range of global memory. Its
    requests, its barriers, its bulk groups and its error records are those of its unit; only what
    is between the units and memory is shared. Whatever the requests, the tensor maps and the SM of
    a context do:

    - No access of a context leaves its window and its range. An access outside the range is
      answered with an error here, and ends as one that memory refused (GMEM_FAULT).
    - An answer goes to the context of its access.
    - An access of a context that has room for its answer waits for at most one access of each other
      context at the same port, and no answer waits for another context.

    The system around has to give each request to the port of its context, and to answer each access
    once.

    Latency: one clock more than ``Tma`` for an access of global memory, and that of a ``Queue`` for
    an answer and for data of shared memory. Throughput: that of ``Tma`` for all contexts together.
    Back-pressure and errors: those of ``Tma`` for each context.

    Parameters
    ----------
    params : TmaParams
        Of the unit of each context, with ``contexts`` above 1. ``smem_bytes`` is the window:
        that of context n begins at byte ``n * smem_bytes``.
    unit : callable
        Makes a unit, with the ports of ``Tma``. Tests replace it by a stand-in.

    Members
    -------
    context_0, context_1 and so on : ports of the units
        The ports of ``Tma`` without those below. Offsets in shared memory begin at the window;
        only those at ``barrier_memory`` begin at shared memory.
    allowed : In(address_range_layout).array(contexts)
        Global memory of each context. It may change while ``control.idle`` of the context is high.
    gnic_request, gnic_response, gnic_write, gnic_ack : as at ``Tma``
        A tag has the number of the context above the bits of ``params.tags``.
    descriptor_request, descriptor_fill, smem_write, smem_read, smem_data : as at ``Tma``

    Raises
    ------
    ValueError
        If ``contexts`` is 1.
    """

    def __init__(
        self, params: TmaParams, unit: Callable[[TmaParams], wiring.Component] = Tma
    ) -> None:
        if params.contexts < 2:
            raise ValueError(f"contexts = {params.contexts}: must be at least 2 to share an SM")
        self.params = params
        self._unit = unit
        own = Out(context_signature(params))
        contexts = {f"context_{number}": own for number in range(params.contexts)}
        allowed = In(address_range_layout(params)).array(params.contexts)
        super().__init__({**contexts, "allowed": allowed, **shared_ports(params)})

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        units, windows = [], []
        for number in range(p.contexts):
            m.submodules[f"unit_{number}"] = unit = self._unit(p)
            m.submodules[f"window_{number}"] = window = SmemWindow(p, number)
            port = getattr(self, f"context_{number}")
            connect(m, unit.barrier_memory, window.i_barrier)
            connect(m, unit.smem_write, window.i_write)
            connect(m, window.o_barrier, flipped(port.barrier_memory))
            for name in port.signature.members:
                if name != "barrier_memory":
                    pass_port(m, name, unit, port)
            units.append(unit)
            windows.append(window)
        self._share_lines(m, units, *READS)
        self._share_maps(m, units)
        layout = smem_write_layout(p.of_all_contexts)
        m.submodules.smem_write = smem_write = Arbiter(layout, p.contexts)
        for window, i in zip(windows, smem_write.i, strict=True):
            connect(m, window.o_write, i)
        connect(m, smem_write.o, flipped(self.smem_write))
        if p.stores:
            self._share_lines(m, units, *WRITES)
            self._share_smem_reads(m, units, windows)
        return m

    def _share_lines(self, m: Module, units: list, names: tuple, layouts: tuple) -> None:
        """Share a port with tags: guards, room for answers, then the port."""
        p = self.params
        inner, outer = ([layout(each) for layout in layouts] for each in (p, p.of_all_contexts))
        shapes = (inner[0], outer[0], inner[1], outer[1])
        access, answer = names
        port = m.submodules[access] = TaggedPort(*shapes, p.contexts)
        for number, unit in enumerate(units):
            room = m.submodules[f"{access}_room_{number}"] = AnswerRoom(*inner, p.tags)
            guard = m.submodules[f"{access}_guard_{number}"] = LineGuard(p, *inner)
            connect(m, getattr(unit, access), guard.i)
            connect(m, guard.answer, getattr(unit, answer))
            self._join(m, guard, room, port, number)
            m.d.comb += guard.allowed.eq(self.allowed[number])
        connect(m, port.o, flipped(getattr(self, access)))
        connect(m, flipped(getattr(self, answer)), port.o_answer)

    def _share_maps(self, m: Module, units: list) -> None:
        """Share the port of tensor maps: guards, room for answers, then the port."""
        p = self.params
        shapes = GLOBAL_ADDRESS_BITS, descriptor_fill_layout(p)
        entries = p.descriptor_cache_entries
        port = InOrderPort(*shapes, p.contexts, p.contexts * entries)
        m.submodules.descriptor_request = port
        for number, unit in enumerate(units):
            room = m.submodules[f"map_room_{number}"] = AnswerRoom(*shapes, entries)
            guard = m.submodules[f"map_guard_{number}"] = MapGuard(p, entries)
            connect(m, unit.descriptor_request, guard.i)
            connect(m, guard.answer, unit.descriptor_fill)
            self._join(m, guard, room, port, number)
            m.d.comb += guard.allowed.eq(self.allowed[number])
        connect(m, port.o, flipped(self.descriptor_request))
        connect(m, flipped(self.descriptor_fill), port.o_answer)

    def _share_smem_reads(self, m: Module, units: list, windows: list) -> None:
        """Share the read port of shared memory: windows, room for data, then the port."""
        p = self.params
        shapes = smem_read_layout(p.of_all_contexts), lanes_layout(p)
        reads = p.smem_reads + SMEM_READS_OF_WALK
        m.submodules.smem_read = port = InOrderPort(*shapes, p.contexts, p.contexts * reads)
        for number, (unit, window) in enumerate(zip(units, windows, strict=True)):
            room = m.submodules[f"smem_read_room_{number}"] = AnswerRoom(*shapes, reads)
            connect(m, unit.smem_read, window.i_read)
            connect(m, window.o_read, room.i)
            connect(m, room.answer, unit.smem_data)
            connect(m, room.o, port.i[number])
            connect(m, port.answer[number], room.o_answer)
        connect(m, port.o, flipped(self.smem_read))
        connect(m, flipped(self.smem_data), port.o_answer)

    @staticmethod
    def _join(m: Module, guard, room: AnswerRoom, port, number: int) -> None:
        """Connect the guard of a context to its room, and that to the shared port."""
        connect(m, guard.o, room.i)
        connect(m, room.answer, guard.o_answer)
        connect(m, room.o, port.i[number])
        connect(m, port.answer[number], room.o_answer)
