"""Host front end: lets a host without an SM use a unit, by registers and rings of records."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.host.completion_ring import CompletionRing
from hw.host.lite_port import LITE_CHANNELS, LitePort
from hw.host.monitor_registers import monitor_ports
from hw.host.record_decoder import RecordDecoder
from hw.host.registers import RegisterFile
from hw.host.request_ring import RequestRing
from hw.layouts.barriers import BarrierCommand, BarrierResult, BarrierWake
from hw.layouts.host import (
    WINDOW_BITS,
    BusAccess,
    BusAnswer,
    CompletionAnswer,
    completion_write_layout,
)
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    DescriptorInvalidate,
    descriptor_fill_layout,
    error_record_layout,
    group_result_layout,
    request_layout,
)
from hw.params import TmaParams


def unit_streams(params: TmaParams) -> dict[str, wiring.Member]:
    """Return the ports of a front end that stand for an SM: those of a unit, turned round."""
    return {
        "request": Out(stream.Signature(request_layout(params))),
        "error": In(stream.Signature(error_record_layout(params))),
        "descriptor_prefetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
        "descriptor_invalidate": Out(stream.Signature(DescriptorInvalidate)),
        "group_result": In(stream.Signature(group_result_layout(params))),
        "barrier_command": Out(stream.Signature(BarrierCommand)),
        "barrier_result": In(stream.Signature(BarrierResult)),
        "barrier_wake": In(stream.Signature(BarrierWake)),
    }


class HostFrontEnd(wiring.Component):
    """Stands for the SM of a unit: it takes request records from a ring in memory, and writes
    completion records to another one.

    The address map of the AXI4-Lite port: ``RegisterFile`` from 0 on; shared memory from
    ``2**WINDOW_BITS`` on. Latency, throughput, back-pressure and errors are those of its blocks.

    Parameters
    ----------
    params : TmaParams
        With ``host``.

    Members
    -------
    aw, w, b, ar, r :
        As at ``LitePort``.
    irq : Out(1)
        Interrupt, high while one is pending and enabled.
    request, barrier_command and so on :
        The ports of the SM's threads, see ``Tma``.
    drain : Out(1)
    idle : In(1)
        As in ``Control``.
    smem_access, smem_answer : Out(stream) of ``BusAccess``, In(stream) of ``BusAnswer``
        Accesses of the host to shared memory.
    record_fetch, record_fill : Out(stream) of 64 bits, In(stream) of ``descriptor_fill_layout``
        Reads of request records.
    completion_write, completion_ack :
        As at ``CompletionRing``.
    counters, trace :
        As at ``RegisterFile``; present with ``counters``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        channels = {
            name: flow(stream.Signature(layout)) for name, (flow, layout) in LITE_CHANNELS.items()
        }
        super().__init__(
            channels
            | unit_streams(params)
            | monitor_ports(params)
            | {
                "irq": Out(1),
                "drain": Out(1),
                "idle": In(1),
                "smem_access": Out(stream.Signature(BusAccess)),
                "smem_answer": In(stream.Signature(BusAnswer)),
                "record_fetch": Out(stream.Signature(GLOBAL_ADDRESS_BITS)),
                "record_fill": In(stream.Signature(descriptor_fill_layout(params))),
                "completion_write": Out(stream.Signature(completion_write_layout(params))),
                "completion_ack": In(stream.Signature(CompletionAnswer)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.lite_port = lite_port = LitePort()
        m.submodules.registers = registers = RegisterFile(p)
        m.submodules.request_ring = request_ring = RequestRing(p)
        m.submodules.record_decoder = decoder = RecordDecoder(p)
        m.submodules.completion_ring = completion_ring = CompletionRing(p)
        for name in LITE_CHANNELS:
            connect(m, getattr(lite_port, name), flipped(getattr(self, name)))
        self._route_accesses(m, lite_port, registers)
        for name in monitor_ports(p):
            connect(m, flipped(getattr(self, name)), getattr(registers, name))
        connect(m, registers.requests, request_ring.ring)
        connect(m, registers.completions, completion_ring.ring)

        # From the ring to the unit, and back.
        connect(m, request_ring.fetch, flipped(self.record_fetch))
        connect(m, flipped(self.record_fill), request_ring.fill)
        connect(m, request_ring.o, decoder.i)
        connect(m, decoder.refused, completion_ring.refused)
        for name, member in unit_streams(p).items():
            block = decoder if member.flow is Out else completion_ring
            connect(m, getattr(block, name), flipped(getattr(self, name)))
        connect(m, completion_ring.write, flipped(self.completion_write))
        connect(m, flipped(self.completion_ack), completion_ring.ack)
        m.d.comb += [
            decoder.idle.eq(self.idle),
            registers.idle.eq(
                self.idle & decoder.settled & ~request_ring.ring.busy & ~completion_ring.ring.busy
            ),
            registers.halted.eq(request_ring.halted),
            registers.completed.eq(completion_ring.completed),
            self.drain.eq(registers.drain),
            self.irq.eq(registers.irq),
        ]
        return m

    def _route_accesses(self, m: Module, lite_port: LitePort, registers: RegisterFile) -> None:
        """Give each access to shared memory or to the registers, which refuse what is nowhere."""
        access, answer = lite_port.access, lite_port.answer
        offset = access.p.address[:WINDOW_BITS]
        is_smem = access.p.address[WINDOW_BITS] & (offset < self.params.smem_bytes)
        for port, is_port in (self.smem_access, is_smem), (registers.access, ~is_smem):
            m.d.comb += [port.valid.eq(access.valid & is_port), port.p.eq(access.p)]
            with m.If(is_port):
                m.d.comb += access.ready.eq(port.ready)
        m.d.comb += self.smem_access.p.address.eq(offset)
        # An access is answered before the next one begins.
        for port in self.smem_answer, registers.answer:
            m.d.comb += port.ready.eq(answer.ready)
            with m.If(port.valid):
                m.d.comb += [answer.valid.eq(1), answer.p.eq(port.p)]
