"""Decode stage: decodes the tensor map of each request, and offers its batches of items."""

from functools import cache

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import AccessMode
from hw.layouts.jobs import request_with_map_layout
from hw.params import DIMS, TmaParams
from hw.setup.items import GATHERED_ROWS, batches, place_of
from hw.setup.map_decoder import MapDecoder, decoded_map_layout


@cache
def request_batch_layout(params: TmaParams) -> data.StructLayout:
    """A batch of the items of a request; see ``hw.setup.items``.

    Members
    -------
    decoded : what the tensor map ``words`` says
    gathers : the request gathers or scatters four rows; present with ``gather4``
    number : of the batch
    first, last : the batch is the first, the last one of its request

    The other members are those of ``request_with_map_layout``.
    """
    return data.StructLayout(
        {
            **request_with_map_layout(params).members,
            "decoded": decoded_map_layout(params),
            **({"gathers": 1} if params.gather4 else {}),
            "number": range(batches(params)),
            "first": 1,
            "last": 1,
        }
    )


def last_batch_of(m: Module, params: TmaParams, decoded, gathers: Value) -> Signal:
    """Return the number of the last batch of a request whose map is ``decoded``."""
    ways = params.setup_pipelines
    last_of_all = place_of(params, DIMS - 1)[0]
    last_batch = Signal(range(batches(params)))
    m.d.comb += last_batch.eq(last_of_all)
    # A tile has an item for each dimension above its row; a row of an interleaved map is a slice,
    # so that dimension 0 is an item, too.
    items = decoded.rank_less_one + decoded.interleaved
    for number in reversed(range(last_of_all)):
        fits = items <= ways * (number + 1)
        with m.If(fits & ~decoded.im2col if params.im2col else fits):
            m.d.comb += last_batch.eq(number)
    if params.gather4:
        with m.If(gathers):
            m.d.comb += last_batch.eq(GATHERED_ROWS - 1)
    return last_batch


class DecodeStage(wiring.Component):
    """Decodes the tensor map of each request, and offers the request batch by batch, in order.

    Latency: one clock. Throughput: a batch a clock. Back-pressure: a request waits in a register. A
    batch is offered in the clocks in which it is admitted, and always taken. Long paths begin and
    end here: ``i.ready`` comes from a register, which is computed a clock earlier. Errors: see
    ``MapDecoder``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream.Signature(request_with_map_layout(params)))
    o : Out(stream.Signature(request_batch_layout(params), always_ready=True))
    admits_next : In(1)
        A batch may be offered in the next clock.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(request_with_map_layout(params))),
                "o": Out(stream.Signature(request_batch_layout(params), always_ready=True)),
                "admits_next": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.map_decoder = decoder = MapDecoder(p)
        modes = AccessMode.TILE_GATHER4, AccessMode.TILE_SCATTER4
        gathers = self.i.p.request.mode.as_value().matches(*modes)
        new_last = last_batch_of(m, p, decoder.o, gathers)
        valid = Signal()
        # Registers of their own: in one, a simulator would see a loop from the map to what it says.
        request = Signal(request_with_map_layout(p), reset_less=True)
        decoded = Signal(decoded_map_layout(p), reset_less=True)
        gathers_q = Signal(reset_less=True)
        last_batch = Signal.like(new_last, reset_less=True)
        number = Signal.like(new_last)
        next_number = Signal.like(new_last)
        is_first = Signal(init=1)
        may_admit = Signal(init=1)
        advances = Signal(init=1)  # there is no request, or its last batch is offered
        batch = self.o.p
        m.d.comb += [
            decoder.words.eq(self.i.p.words),
            self.i.ready.eq(advances),
            self.o.valid.eq(valid & may_admit),
            *(batch[name].eq(request[name]) for name in request.shape().members),
            batch.decoded.eq(decoded),
            *([batch.gathers.eq(gathers_q)] if p.gather4 else ()),
            batch.number.eq(number),
            batch.first.eq(is_first),
            batch.last.eq(advances),
            next_number.eq(number + may_admit),
        ]
        m.d.sync += may_admit.eq(self.admits_next)
        with m.If(advances):
            m.d.sync += [
                valid.eq(self.i.valid),
                request.eq(self.i.p),
                decoded.eq(decoder.o),
                gathers_q.eq(gathers),
                last_batch.eq(new_last),
                number.eq(0),
                is_first.eq(1),
                advances.eq(~self.i.valid | (self.admits_next & (new_last == 0))),
            ]
        with m.Else():
            m.d.sync += [
                number.eq(next_number),
                is_first.eq(is_first & ~may_admit),
                advances.eq(self.admits_next & (next_number == last_batch)),
            ]
        return m
