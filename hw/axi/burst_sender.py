"""Burst sender: sends the bytes of an access as the beats of R."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.axi import Response, beats_of, place_bits, r_layout
from hw.params import TmaParams


def response_of(error: Value, decode: Value) -> Value:
    """Return the response to an access."""
    return Mux(error, Mux(decode, Response.DECERR, Response.SLVERR), Response.OKAY)


class BurstSender(wiring.Component):
    """Sends the bytes of an access beat by beat, each in the lane of its address.

    Lanes that the access does not have get other bytes. Latency: one clock. Throughput: a beat a
    clock; one clock is lost for each access.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.
    size : int
        Bytes of an access.

    Members
    -------
    i : In(stream) of ``id``, ``error``, ``decode``, ``data`` and ``place``; see ``place_of``
    o : Out(stream) of ``r_layout``
    """

    def __init__(self, params: TmaParams, size: int) -> None:
        self.params = params
        self.size = size
        access = data.StructLayout(
            {
                "id": params.axi_read_id_bits,
                "error": 1,
                "decode": 1,
                "data": size * 8,
                "place": place_bits(params, size),
            }
        )
        super().__init__(
            {"i": In(stream.Signature(access)), "o": Out(stream.Signature(r_layout(params)))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        valid = Signal()
        access = Signal(self.i.p.shape(), reset_less=True)
        last, _ = beats_of(p, self.size)
        number = Signal(range(last + 1))
        beat = self.o.p
        m.d.comb += [
            self.i.ready.eq(~valid),
            self.o.valid.eq(valid),
            beat.id.eq(access.id),
            beat.resp.eq(response_of(access.error, access.decode)),
            beat.last.eq(number == last),
        ]
        if p.axi_bytes > self.size:
            places = p.axi_bytes // self.size
            m.d.comb += [
                beat.data.word_select(at, self.size * 8).eq(
                    Mux(access.place == at, access.data, ~access.data)
                )
                for at in range(places)
            ]
        else:
            m.d.comb += beat.data.eq(access.data.word_select(number, p.axi_data_bits))
        with m.If(~valid):
            m.d.sync += [valid.eq(self.i.valid), access.eq(self.i.payload), number.eq(0)]
        with m.Elif(self.o.ready):
            m.d.sync += [valid.eq(number != last), number.eq(number + 1)]
        return m
