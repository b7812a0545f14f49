"""AXI top: a unit whose global memory is behind an AXI4 port."""

from collections.abc import Callable

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, connect

from hw.axi.memory_adapter import MemoryAdapter
from hw.axi.port import PREFIX, AxiPort, axi_signals, channels, streams_of
from hw.axi.signals import join_channel
from hw.lib.pass_port import pass_port
from hw.params import TmaParams
from hw.top import Tma, tma_ports

BEHIND_PORT = (
    *("gnic_request", "gnic_response", "descriptor_request", "descriptor_fill"),
    *("gnic_write", "gnic_ack"),
)
"""Ports of a unit that are behind its AXI4 port."""


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
        ports = {name: port for name, port in tma_ports(params).items() if name not in BEHIND_PORT}
        super().__init__(ports | axi_signals(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.unit = unit = self._unit(p)
        m.submodules.axi_port = axi_port = AxiPort(p)
        for name in streams_of(p):
            connect(m, getattr(unit, name), getattr(axi_port, name))
        signals = axi_signals(p)
        for name in self.signature.members:
            pass_port(m, name, axi_port if name in signals else unit, self)
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
            join_channel(m, unit, PREFIX, name, getattr(adapter, name), drives=flow is In)
        for name in self.signature.members:
            pass_port(m, name, adapter if name in BEHIND_PORT else unit, self)
        return m
