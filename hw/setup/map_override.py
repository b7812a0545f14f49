"""Map override: replaces fields of a tensor map by those that a request gives."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.jobs import request_with_map_layout
from hw.layouts.ports import OVERRIDE_STRIDES
from hw.params import DIMS, TmaParams
from hw.setup.map_decoder import MapFormat

ADDRESS_WORD, STRIDE_WORD, UPPER_STRIDES_WORD, DIM_WORD = 0, 3, 7, 8
"""First words of a tensor map that an override replaces."""


class MapOverride(wiring.Component):
    """Applies ``.override::global_address`` and ``.override_attribute`` to the map of a request.

    The address replaces that of the map. Extents and strides replace those of the dimensions that
    the map has. PTX allows them for tiled maps and coordinates 0 only; the block does not check it.

    Latency: none; the block is combinational. Throughput: a request a clock. Back-pressure:
    ``i.ready`` is ``o.ready``. Errors: none; setup checks the map that results.

    Parameters
    ----------
    params : TmaParams
        With ``override``.

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    o : Out(stream.Signature(request_with_map_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        signature = stream.Signature(request_with_map_layout(params))
        super().__init__({"i": In(signature), "o": Out(signature)})

    def elaborate(self, platform) -> Module:
        m = Module()
        override, words = self.i.p.request.map_override, self.o.p.words
        rank_less_one = data.View(MapFormat, self.i.p.words[2]).rank_less_one
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            self.o.payload.eq(self.i.payload),
        ]
        with m.If(override.enabled):
            m.d.comb += [
                words[ADDRESS_WORD].eq(override.global_address[:32]),
                words[ADDRESS_WORD + 1].eq(override.global_address[32:]),
            ]
            with m.If(override.has_extents):
                m.d.comb += words[UPPER_STRIDES_WORD].eq(override.upper_strides)
                for dim in range(DIMS):
                    with m.If(dim <= rank_less_one):
                        m.d.comb += words[DIM_WORD + dim].eq(override.global_dim[dim] - 1)
                for number in range(OVERRIDE_STRIDES):
                    with m.If(number < rank_less_one):
                        m.d.comb += words[STRIDE_WORD + number].eq(override.lower_strides[number])
        return m
