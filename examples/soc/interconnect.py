"""Interconnect of the example SoC, made of parts of LiteX: prints it as Verilog.

The processor has an AXI4-Lite bus, whose slaves are the unit, the devices, and a bridge to AXI4. An
arbiter gives the memory to the bridge and to the AXI4 port of the unit in turn. LiteX's own shared
interconnect of AXI4 keeps one bit of an id, and its RAM has a bridge that drops errors.
"""

from collections.abc import Iterator

from litex.gen import LiteXModule
from litex.soc.interconnect.axi import (
    AXIArbiter,
    AXIInterface,
    AXILite2AXI,
    AXILiteConverter,
    AXILiteInterconnectShared,
    AXILiteInterface,
)
from migen import ClockDomain, Signal
from migen.fhdl.verilog import convert

MODULE = "soc_interconnect"

ID_BITS = 7
"""Width of the unit's ids."""

ADDRESS = "valid", "ready", "addr", "len", "size", "burst", "id"
CHANNELS = {
    "aw": ADDRESS,
    "w": ("valid", "ready", "data", "strb", "last"),
    "b": ("valid", "ready", "resp", "id"),
    "ar": ADDRESS,
    "r": ("valid", "ready", "data", "resp", "last", "id"),
}
"""Signals of AXI4 that the system uses."""

LITE = {"valid", "ready", "addr", "data", "strb", "resp"}
"""Those that AXI4-Lite has, too."""


def channel_signals(bus: AXIInterface | AXILiteInterface) -> Iterator[tuple[str, Signal, bool]]:
    """Yield the signals of a bus: name, signal, and whether the master drives it."""
    for channel, names in CHANNELS.items():
        for name in names:
            if name in LITE or isinstance(bus, AXIInterface):
                is_answer = channel in ("b", "r")
                yield (
                    channel + name,
                    getattr(getattr(bus, channel), name),
                    is_answer == (name == "ready"),
                )


class Interconnect(LiteXModule):
    """Decoder, bridge and arbiter between two masters and three slaves.

    Members
    -------
    ports : set of Signal
        Ports of the module, such as ``cpu_awvalid``.
    """

    def __init__(self) -> None:
        self.clock_domains.cd_sys = ClockDomain()
        self.ports = {self.cd_sys.clk, self.cd_sys.rst}
        cpu, unit, devices, low = (AXILiteInterface() for _ in range(4))
        wide = AXILiteInterface(data_width=64)
        dma, bridged, memory = (AXIInterface(data_width=64, id_width=ID_BITS) for _ in range(3))
        slaves = [
            (lambda word: word[28:] == 0, low),
            (lambda word: word[28:] == 1, unit),
            (lambda word: word[29:] == 1, devices),
        ]
        self.decoder = AXILiteInterconnectShared([cpu], slaves, timeout_cycles=None)
        self.converter = AXILiteConverter(low, wide)
        self.bridge = AXILite2AXI(wide, bridged)
        self.arbiter = AXIArbiter([dma, bridged], memory)
        for name, bus, is_master in (
            ("cpu", cpu, True),
            ("dma", dma, True),
            ("unit", unit, False),
            ("devices", devices, False),
            ("memory", memory, False),
        ):
            self._add_ports(name, bus, is_master)

    def _add_ports(
        self, prefix: str, bus: AXIInterface | AXILiteInterface, is_master: bool
    ) -> None:
        """Add the signals of a bus as ports; ``is_master``: its master is outside."""
        for name, signal, from_master in channel_signals(bus):
            port = Signal(len(signal), name_override=f"{prefix}_{name}")
            self.comb += signal.eq(port) if from_master == is_master else port.eq(signal)
            self.ports.add(port)


if __name__ == "__main__":
    interconnect = Interconnect()
    print(convert(interconnect, interconnect.ports, name=MODULE))
