"""Memory side: what is around the RTL in a run of recorded cases."""

from dataclasses import dataclass, replace

from hw.params import TmaParams

PORTS = {
    "gnic": {},
    "axi": {"axi_data_bits": 512},
    "tlb": {"tlb_entries": 16},
    "contexts": {"contexts": 2},
}
"""Ways to global memory, and the parameters of a unit that has them."""


@dataclass(frozen=True)
class MemorySide:
    """Memories and stalls around the RTL, and the port of the unit that leads to them.

    Parameters
    ----------
    models : str
        Preset of ``sim_tb.testbench.models``, such as ``fixed`` or ``rough``.
    port : str
        A name of ``PORTS``. With ``axi`` all accesses to global memory go through an AXI4 master,
        and an adapter behind it (``hw.axi_top.AxiLoop``); with ``tlb`` through a TLB between
        permuted pages (``hw.page_loop.PageLoop``); with ``contexts`` through ports that the unit
        shares with one of random requests (``hw.contexts_loop.ContextsLoop``).
    """

    models: str = "fixed"
    port: str = "gnic"

    def of(self, params: TmaParams) -> TmaParams:
        """Return the parameters of a unit with this port."""
        return replace(params, **PORTS[self.port])


DEFAULT = MemorySide()
