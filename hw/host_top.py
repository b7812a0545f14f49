"""Host top: a unit with its shared memory, for a host without an SM."""

from collections.abc import Callable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect

from hw.axi.port import AxiPort, axi_signals, streams_of
from hw.axi.signals import channel_signals, join_channel
from hw.host.front_end import HostFrontEnd, unit_streams
from hw.host.lite_port import LITE_CHANNELS
from hw.host.lite_port import PREFIX as LITE_PREFIX
from hw.host.monitor_registers import monitor_ports
from hw.host.read_merge import ReadMerge
from hw.host.shared_memory import SharedMemory
from hw.lib.pass_port import pass_port
from hw.params import TmaParams
from hw.top import Tma
from hw.translate.translation import walker_ports

SMEM_PORTS = "smem_write", "smem_read", "smem_data", "barrier_memory"


class HostTma(wiring.Component):
    """A unit with its shared memory, between a master of AXI4-Lite and an AXI4 memory.

    A host writes request records to a ring in memory and rings a doorbell; the unit reads and does
    them, and writes completion records to another ring. See docs/host.md, and ``registers.rdl`` for
    the registers. Latency, throughput, back-pressure and errors are those of ``HostFrontEnd``,
    ``Tma``, ``AxiPort`` and ``SharedMemory``.

    Parameters
    ----------
    params : TmaParams
        With ``host``.
    unit : callable
        Makes the unit, with the ports of ``Tma``.

    Members
    -------
    m_axi_arid, m_axi_araddr and so on :
        Master of AXI4; see ``hw.layouts.axi``.
    s_axi_awaddr and so on :
        Slave of AXI4-Lite; see ``hw.host.lite_port``.
    irq : Out(1)
        Interrupt, high while one is pending and enabled.
    walk_request, walk_response, tlb_invalidate :
        As at ``Tma``; present with ``tlb_entries``. The rings of the host have physical addresses.

    Raises
    ------
    ValueError
        If the parameters are without ``host``.
    """

    def __init__(
        self, params: TmaParams, unit: Callable[[TmaParams], wiring.Component] = Tma
    ) -> None:
        if not params.host:
            raise ValueError("host = False: must be True in a unit for a host")
        self.params = params
        self._unit = unit
        super().__init__(
            axi_signals(params)
            | channel_signals(LITE_CHANNELS, LITE_PREFIX)
            | {"irq": Out(1)}
            | walker_ports(params)
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.unit = unit = self._unit(p)
        m.submodules.axi_port = axi_port = AxiPort(p)
        m.submodules.front_end = front_end = HostFrontEnd(p)
        m.submodules.shared_memory = shared_memory = SharedMemory(p)
        m.submodules.read_merge = read_merge = ReadMerge(p)
        for name in (*unit_streams(p), *monitor_ports(p)):
            connect(m, getattr(front_end, name), getattr(unit, name))
        for name in SMEM_PORTS:
            connect(m, getattr(unit, name), getattr(shared_memory, name))
        connect(m, front_end.smem_access, shared_memory.access)
        connect(m, shared_memory.answer, front_end.smem_answer)

        # Tensor maps and request records are read at the same port.
        for name in streams_of(p):
            if name not in ("descriptor_request", "descriptor_fill"):
                connect(m, getattr(unit, name), getattr(axi_port, name))
        connect(m, unit.descriptor_request, read_merge.request[0])
        connect(m, read_merge.fill[0], unit.descriptor_fill)
        connect(m, front_end.record_fetch, read_merge.request[1])
        connect(m, read_merge.fill[1], front_end.record_fill)
        connect(m, read_merge.merged_request, axi_port.descriptor_request)
        connect(m, axi_port.descriptor_fill, read_merge.merged_fill)
        connect(m, front_end.completion_write, axi_port.completion_write)
        connect(m, axi_port.completion_ack, front_end.completion_ack)

        m.d.comb += [
            front_end.idle.eq(unit.control.idle),
            unit.control.drain.eq(front_end.drain),
            self.irq.eq(front_end.irq),
        ]
        for name in axi_signals(p):
            pass_port(m, name, axi_port, self)
        for name in walker_ports(p):
            pass_port(m, name, unit, self)
        for name, (flow, _) in LITE_CHANNELS.items():
            channel = getattr(front_end, name)
            join_channel(m, self, LITE_PREFIX, name, channel, drives=flow is Out)
        return m
