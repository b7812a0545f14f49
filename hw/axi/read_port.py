"""Read port: reads lines and tensor maps by AXI4."""

from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.axi.line_assembler import LineAssembler
from hw.axi.line_selector import LineSelector
from hw.axi.map_reader import MAP_BYTES, MapReader
from hw.layouts.axi import (
    Burst,
    Response,
    ar_layout,
    axi_line_layout,
    beats_of,
    is_error,
    map_id,
    place_of,
    prefetch_id,
    r_layout,
    reduced_line_layout,
    reduction_read_layout,
)
from hw.layouts.isa import GLOBAL_ADDRESS_BITS
from hw.layouts.ports import (
    descriptor_fill_layout,
    gnic_request_layout,
    gnic_response_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.register_slice import DoubleBuffer
from hw.params import TmaParams


class ReadPort(wiring.Component):
    """Reads each line with its tag as its id, and all tensor maps with one id above the tags.

    A line, and a tensor map, is a burst of as many beats as it needs, or one beat of a part of the
    port's width. Both are aligned to their size, so that no burst leaves its 4 KiB. Reads of
    different ids may be answered in any order, beat by beat. A prefetch is dropped, or with
    ``axi_prefetch`` it is a read of another id, whose data is dropped.

    Latency: one clock from a request to ``ar``; two clocks from ``r`` to an answer, one more for
    lines that are not as wide as the port. Throughput: a request and a beat a clock. Back-pressure:
    a beat whose receiver waits holds up all beats behind it. ``ar`` and ``r.ready`` come from
    registers.

    Errors: SLVERR and DECERR of any beat mark the line, or the tensor map. An answer with an id
    that is not in flight goes on to the unit, which reports the tag.

    Parameters
    ----------
    params : TmaParams
        With ``axi_data_bits``.

    Members
    -------
    gnic_request : In(stream) of ``gnic_request_layout``
    gnic_response : Out(stream) of ``gnic_response_layout``
    descriptor_request : In(stream) of 64 bits
    descriptor_fill : Out(stream) of ``descriptor_fill_layout``
    ar : Out(stream) of ``ar_layout``
    r : In(stream) of ``r_layout``
    reduction_read : In(stream) of ``reduction_read_layout``
        Lines that are to be reduced. This port and the following exist with ``reductions``.
    reduced_line : Out(stream) of ``reduced_line_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = {
            "gnic_request": In(stream.Signature(gnic_request_layout(params))),
            "gnic_response": Out(stream.Signature(gnic_response_layout(params))),
            "descriptor_request": In(stream.Signature(GLOBAL_ADDRESS_BITS)),
            "descriptor_fill": Out(stream.Signature(descriptor_fill_layout(params))),
            "ar": Out(stream.Signature(ar_layout(params))),
            "r": In(stream.Signature(r_layout(params))),
        }
        if params.reductions:
            ports |= {
                "reduction_read": In(stream.Signature(reduction_read_layout(params))),
                "reduced_line": Out(stream.Signature(reduced_line_layout(params))),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.requests = requests = Arbiter(ar_layout(p), 2 + p.reductions)
        m.submodules.ar_slice = ar_slice = DoubleBuffer(ar_layout(p))
        m.submodules.r_slice = r_slice = DoubleBuffer(r_layout(p))
        m.submodules.map_reader = map_reader = MapReader(p)
        connect(m, requests.o, ar_slice.i)
        connect(m, ar_slice.o, flipped(self.ar))
        connect(m, flipped(self.r), r_slice.i)
        connect(m, map_reader.o, flipped(self.descriptor_fill))
        maps, lines, *reductions = requests.i
        self._ask_for_maps(m, maps, map_reader)
        self._ask_for_lines(m, lines)
        for reduction in reductions:
            self._ask_for_reductions(m, reduction)
        beats, answers = self._line_receiver(m, requests.o)
        self._bring(m, r_slice.o, beats, map_reader.i)
        self._answer(m, answers)
        return m

    def _line_receiver(self, m: Module, asked) -> tuple[stream.Interface, stream.Interface]:
        """Return the stream that takes the beats of lines, and that of the lines.

        ``asked`` is the stream of the reads.
        """
        p = self.params
        if p.axi_bytes == p.line_bytes:
            lines = stream.Signature(axi_line_layout(p)).create(path=("lines",))
            return lines, lines
        if p.axi_bytes < p.line_bytes:
            m.submodules.line_assembler = lines = LineAssembler(p)
        else:
            m.submodules.line_selector = lines = LineSelector(p)
            place = place_of(p, asked.p.addr, p.line_bytes)
            m.d.comb += [
                lines.opened.valid.eq(asked.valid & ~asked.p.id[-1]),
                lines.opened.payload.eq(Cat(asked.p.id[:-1], place)),
            ]
        return lines.i, lines.o

    def _assign(self, request, size: int, number, address) -> list:
        """Return the assignments to a request for ``size`` bytes."""
        p = self.params
        length, beat = beats_of(p, size)
        return [
            request.id.eq(number),
            request.addr.eq(address),
            request.len.eq(length),
            request.size.eq(beat),
            request.burst.eq(Burst.INCR),
            request.cache.eq(p.axi_cache),
            request.prot.eq(p.axi_prot),
        ]

    def _ask_for_maps(self, m: Module, maps, map_reader: MapReader) -> None:
        """Ask for tensor maps. At a wide port, note where in its beat each of them is."""
        address = self.descriptor_request.payload
        may_pass = Const(1)
        if map_reader.place_bits:
            may_pass = map_reader.place.ready
            place = place_of(self.params, address, MAP_BYTES)
            m.d.comb += [
                map_reader.place.valid.eq(maps.valid & maps.ready),
                map_reader.place.payload.eq(place),
            ]
        m.d.comb += [
            maps.valid.eq(self.descriptor_request.valid & may_pass),
            self.descriptor_request.ready.eq(maps.ready & may_pass),
            *self._assign(maps.p, MAP_BYTES, map_id(self.params), address),
        ]

    def _ask_for_lines(self, m: Module, lines) -> None:
        """Ask for lines, and for prefetches if they are not dropped."""
        p = self.params
        request = self.gnic_request.p
        is_dropped = request.prefetch & (not p.axi_prefetch)
        number = Mux(request.prefetch, prefetch_id(p), request.tag)
        address = Cat(Const(0, p.lane_bits + 4), request.line)
        m.d.comb += [
            lines.valid.eq(self.gnic_request.valid & ~is_dropped),
            self.gnic_request.ready.eq(lines.ready | is_dropped),
            *self._assign(lines.p, p.line_bytes, number, address),
            lines.p.user.eq(request.attributes),
        ]

    def _ask_for_reductions(self, m: Module, reductions) -> None:
        """Ask for lines that are to be reduced."""
        p = self.params
        request = self.reduction_read.p
        address = Cat(Const(0, p.lane_bits + 4), request.line)
        m.d.comb += [
            reductions.valid.eq(self.reduction_read.valid),
            self.reduction_read.ready.eq(reductions.ready),
            *self._assign(reductions.p, p.line_bytes, p.tags + request.number, address),
            reductions.p.user.eq(request.attributes),
        ]

    def _bring(self, m: Module, beats, lines, maps) -> None:
        """Bring each beat to the line, or the tensor map, that it belongs to."""
        beat = beats.p
        is_line = ~beat.id[-1]
        is_map = ~is_line & ~beat.id[0]
        m.d.comb += lines.p.id.eq(beat.id)
        for receiver, is_receiver in (lines, is_line), (maps, is_map):
            m.d.comb += [
                receiver.valid.eq(beats.valid & is_receiver),
                receiver.p.error.eq(is_error(beat.resp)),
                receiver.p.decode.eq(beat.resp == Response.DECERR),
                receiver.p.data.eq(beat.data),
            ]
        m.d.comb += beats.ready.eq(
            Mux(is_line, lines.ready, ~is_map | maps.ready)  # data of a prefetch is dropped
        )

    def _answer(self, m: Module, lines) -> None:
        """Give each line to the load, or to the reduction, that asked for it."""
        p = self.params
        is_reduced = lines.p.id >= p.tags if p.reductions else Const(0)
        m.d.comb += [
            self.gnic_response.valid.eq(lines.valid & ~is_reduced),
            self.gnic_response.p.tag.eq(lines.p.id),
            self.gnic_response.p.error.eq(lines.p.error),
            self.gnic_response.p.decode.eq(lines.p.decode),
            self.gnic_response.p.data.eq(lines.p.data),
            lines.ready.eq(self.gnic_response.ready),
        ]
        if p.reductions:
            reduced = self.reduced_line
            m.d.comb += [
                reduced.valid.eq(lines.valid & is_reduced),
                reduced.p.number.eq(lines.p.id),
                reduced.p.error.eq(lines.p.error),
                reduced.p.decode.eq(lines.p.decode),
                reduced.p.data.eq(lines.p.data),
            ]
            with m.If(is_reduced):
                m.d.comb += lines.ready.eq(reduced.ready)
