"""AXI top: a unit whose global memory is behind an AXI4 port."""

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi.memory_adapter import MemoryAdapter
from hw.axi.port import AxiPort, axi_signals, channels, join_channel
from hw.layouts.ports import gnic_ack_layout, gnic_write_layout
from hw.params import TmaParams
from hw.top import Tma, tma_ports

TO_PORT = "gnic_request", "descriptor_request", "gnic_write"
FROM_PORT = "gnic_response", "descriptor_fill", "gnic_ack"
"""Ports of a unit that are behind its AXI4 port, by their direction."""


def _pass_port(m: Module, name: str, inner: Any, outer: wiring.Component) -> None:
    """Connect a port of a component inside to the port of the same name of the one around it."""
    member = outer.signature.members[name]
    inside, outside = getattr(inner, name), getattr(outer, name)
    if member.is_port:
        m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)
    elif member.flow is In:
        connect(m, flipped(outside), inside)
    else:
        connect(m, inside, flipped(outside))


class AxiTma(wiring.Component):
    """A unit that reads and writes global memory, and reads tensor maps, as a master of AXI4.

    Latency: three clocks more than ``Tma`` for a read, four if a line is not as wide as the port.
    Throughput: a beat read and a beat written a clock. Back-pressure and errors: those of
    ``AxiPort``, besides those of ``Tma``.

    The interconnect is to be reset with the unit, or when ``control.idle`` is high: AXI4 has no
    answers to what was asked before a reset.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.
    unit : callable
        Makes the unit, with the ports of ``Tma``.

    Members
    -------
    m_axi_arid, m_axi_araddr and so on :
        The signals of the channels AR, R, and with ``stores`` AW, W and B. See ``hw.layouts.axi``.
    reduction, reduction_ack : Out(stream), In(stream)
        Reductions, as at the ports ``gnic_write`` and ``gnic_ack`` of ``Tma``: AXI4 has none.
        Present with ``reductions``.
    request, control and so on :
        All other ports of ``Tma``.

    Raises
    ------
    ValueError
        If ``axi_data_bits`` is 0.
    """

    def __init__(
        self, params: TmaParams, unit: Callable[[TmaParams], wiring.Component] = Tma
    ) -> None:
        if not params.axi_data_bits:
            raise ValueError("axi_data_bits = 0: must be from 64 to 1024 in a unit with AXI4")
        self.params = params
        self._unit = unit
        members = tma_ports(params)
        self._outside = [name for name in members if name not in TO_PORT + FROM_PORT]
        ports = {name: members[name] for name in self._outside} | axi_signals(params)
        if params.reductions:
            ports |= {
                "reduction": Out(stream.Signature(gnic_write_layout(params))),
                "reduction_ack": In(stream.Signature(gnic_ack_layout(params))),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.unit = unit = self._unit(p)
        m.submodules.axi_port = axi_port = AxiPort(p)
        for name in tma_ports(p):
            if name in TO_PORT:
                connect(m, getattr(unit, name), getattr(axi_port, name))
            elif name in FROM_PORT:
                connect(m, getattr(axi_port, name), getattr(unit, name))
        for name in self.signature.members:
            _pass_port(m, name, unit if name in self._outside else axi_port, self)
        return m


class AxiLoop(wiring.Component):
    """A unit whose accesses to memory go out by AXI4, and back to the ports of the GNIC.

    It stands in for a ``Tma`` in simulations: every test of the unit is then one of its AXI4 port.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    request and so on : the ports of ``Tma``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.tma_axi = unit = AxiTma(p)
        m.submodules.memory_adapter = adapter = MemoryAdapter(p)
        for name, (flow, _) in channels(p).items():
            join_channel(m, unit, name, getattr(adapter, name), drives=flow is In)
        if p.reductions:
            connect(m, unit.reduction, adapter.reduction)
            connect(m, adapter.reduction_ack, unit.reduction_ack)
        for name in self.signature.members:
            _pass_port(m, name, adapter if name in TO_PORT + FROM_PORT else unit, self)
        return m
