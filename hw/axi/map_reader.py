"""Map reader: takes the words of tensor maps out of the beats of an AXI4 port."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import place_bits
from hw.layouts.ports import descriptor_fill_layout
from hw.lib.queue import Queue
from hw.params import TmaParams

MAP_BYTES = 64
"""Bytes of a tensor map that are read."""

MAPS = 4
"""Reads of tensor maps in flight at a port that is wider than one."""


def map_beat_layout(params: TmaParams) -> data.StructLayout:
    """Beat of a tensor map.

    Members
    -------
    error : 1 if the beat could not be read
    decode : the response was DECERR
    data : as in ``r_layout``
    """
    return data.StructLayout({"error": 1, "decode": 1, "data": params.axi_data_bits})


class MapReader(wiring.Component):
    """Puts the beats of a tensor map together, or takes it out of a beat that is wider.

    All tensor maps are read with one id, so that they come in order, each as a whole.

    Latency: one clock from the last beat. Throughput: a beat a clock, but one clock is lost for
    each tensor map. Back-pressure: beats wait while a tensor map waits at ``o``; with a port wider
    than a tensor map, ``place`` waits while ``MAPS`` are in flight.

    Errors: SLVERR or DECERR of any beat marks the tensor map; DECERR of any beat is its cause.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    place : In(stream) of the place of a tensor map in its beat, when it is read
        Present if the port is wider than a tensor map.
    i : In(stream) of ``map_beat_layout``
    o : Out(stream) of ``descriptor_fill_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self.place_bits = place_bits(params, MAP_BYTES)
        ports = {
            "i": In(stream.Signature(map_beat_layout(params))),
            "o": Out(stream.Signature(descriptor_fill_layout(params))),
        }
        if self.place_bits:
            ports["place"] = In(stream.Signature(self.place_bits))
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        valid = Signal()
        fill = Signal(descriptor_fill_layout(p), reset_less=True)
        fire = self.i.valid & self.i.ready
        beat = self.i.p
        m.d.comb += [
            self.i.ready.eq(~valid),
            self.o.valid.eq(valid),
            self.o.p.eq(fill),
        ]
        if self.place_bits:
            m.submodules.places = places = Queue(self.place_bits, MAPS)
            m.d.comb += [
                places.i.valid.eq(self.place.valid),
                places.i.payload.eq(self.place.payload),
                self.place.ready.eq(places.i.ready),
                places.o.ready.eq(fire),
            ]
            words = beat.data.word_select(places.o.payload, MAP_BYTES * 8)
        else:
            words = Cat(fill.words, beat.data)[-MAP_BYTES * 8 :]
        beats = max(MAP_BYTES // p.axi_bytes, 1)
        count = Signal(range(beats))
        is_last = count == beats - 1
        with m.If(fire):
            m.d.sync += [
                fill.words.eq(words),
                *(
                    fill[name].eq(beat[name] | Mux(count == 0, 0, fill[name]))
                    for name in ("error", "decode")
                ),
                count.eq(Mux(is_last, 0, count + 1)),
                valid.eq(is_last),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += valid.eq(0)
        return m
