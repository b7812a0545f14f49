"""Response path: converts an arrived line to the pieces that shared memory is to hold."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts.isa import Packing, ReportMechanism
from hw.layouts.jobs import remote_field
from hw.layouts.lines import line_arrival_layout, line_report_layout, rotated_line_layout
from hw.lib.permute import rotate
from hw.lib.piece_format import fill_piece
from hw.params import PIECE_BYTES, TmaParams

TF32_NAN = 0x7FFFE000
"""The only NaN that rounding to tf32 gives."""

TF32_DROPPED_BITS = 13
"""Bits of a binary32 fraction that tf32 does not have."""


def round_tf32(m: Module, word, name: str) -> Signal:
    """Return a binary32 word rounded to tf32, to nearest even.

    Infinities stay as they are; each NaN becomes ``TF32_NAN``.
    """
    half_less_one = (1 << (TF32_DROPPED_BITS - 1)) - 1
    tf32_bits = 32 - TF32_DROPPED_BITS
    total = Signal(32, name=f"{name}_sum")
    rounded = Signal(32, name=name)
    m.d.comb += [
        total.eq(word + half_less_one + word[TF32_DROPPED_BITS]),
        rounded.eq(Cat(Const(0, TF32_DROPPED_BITS), total[-tf32_bits:])),
    ]
    with m.If(word[23:31].all()):
        m.d.comb += rounded.eq(Mux(word[:23].any(), TF32_NAN, word))
    return rounded


def unpack(pieces: list, bytes_of_16: int) -> list:
    """Return the eight pieces of a packed row, each as its data and the validity of its words.

    Parameters
    ----------
    pieces : list
        The line's pieces, each with a bit above that says whether it is valid. The row begins at
        lane 0.
    bytes_of_16 : int
        Packed bytes that become one piece of 16 bytes: 8 or 12.
    """
    words = [
        Cat(piece.word_select(word, 32), piece[-1])
        for piece in pieces
        for word in range(PIECE_BYTES // 4)
    ]
    count = bytes_of_16 // 4
    unpacked = []
    for lane in range(8):
        piece_words = words[lane * count : (lane + 1) * count]
        valid = Cat(word[-1] for word in piece_words)
        data = Cat(word[:-1] for word in piece_words)
        unpacked.append((data, valid))
    return unpacked


PATTERNS = {
    ReportMechanism.PER_16BYTES_80000000: 0x80000000,
    ReportMechanism.PER_16BYTES_8000: 0x8000,
    ReportMechanism.PER_16BYTES_80: 0x80,
}
"""Pattern of the first whole bytes of each aligned 16 bytes."""


def matches(m: Module, report, piece, outside, name: str) -> Signal:
    """Return 1 if a piece has the pattern that a load reports.

    Parameters
    ----------
    m : Module
        Module to which the logic is added.
    report : Value
        The `ReportMechanism`.
    piece : Value
        The 16 bytes of global memory.
    outside : Value
        A bit for each byte: 1 if it is not read, because it is outside the tensor. The bytes inside
        are the first ones, at least one.
    name : str
        Name of the result.
    """
    result = Signal(name=name)
    with m.Switch(report):
        for mechanism, pattern in PATTERNS.items():
            bits = pattern.bit_length()
            with m.Case(mechanism):
                m.d.comb += result.eq((piece[:bits] == pattern) & ~outside[bits // 8 - 1])
        with m.Case(ReportMechanism.PER_16BYTES_8):
            m.d.comb += result.eq(piece[:4] == 8)
        with m.Case(ReportMechanism.PER_ELEMENT_FF):
            m.d.comb += result.eq(
                Cat(
                    piece.word_select(byte, 8).all() & ~outside[byte] for byte in range(PIECE_BYTES)
                ).any()
            )
    return result


class ResponsePath(wiring.Component):
    """Converts each line to the data and the lanes of shared memory.

    In this order: move gathered rows to their places and rotate the pieces to their lanes, round to
    tf32, fill the bytes of a row's tail that are outside the tensor, unpack packed elements. No
    piece of a ``failed`` line is valid. With ``report_mechanism`` the bytes inside the tensor are
    compared with the pattern that the load reports, as they come from memory.

    Latency: one clock. Throughput: one line a clock. Back-pressure: ``i.ready`` follows
    ``o.ready``.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``line_arrival_layout``
    o : Out(stream) of ``rotated_line_layout``
    report : Out of ``line_report_layout``; for the line at ``o``, while it is there; present with
        ``report_mechanism``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_arrival_layout(params))),
                "o": Out(stream.Signature(rotated_line_layout(params))),
                **({"report": Out(line_report_layout(params))} if params.report_mechanism else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        use = self.i.p.use

        outside = Signal(PIECE_BYTES)  # bytes of the tail piece that are fill
        m.d.comb += outside.eq(
            Cat((use.tail_bytes != 0) & (byte >= use.tail_bytes) for byte in range(PIECE_BYTES))
        )
        outside_bits = Cat(bit.replicate(8) for bit in outside)
        fill = fill_piece(use.style.fill)
        # Gathered rows: the number of each piece's lane is rotated, and not its data.
        boundary = use.origin[: p.lane_bits]
        lanes = use.source if p.gathers_rows else self.i.p.data
        places = rotate(
            m,
            [Cat(use.valid[lane], use.tail[lane], lanes[lane]) for lane in range(p.lanes)],
            boundary,
            "place",
        )
        rotated, reporting = [], []
        for lane, place in enumerate(places):
            valid, tail, raw = place[0], place[1], place[2:]
            if p.gathers_rows:
                source = raw
                raw = Signal(PIECE_BYTES * 8, name=f"moved_{lane}")
                with m.Switch(source):
                    for number in range(p.lanes):
                        with m.Case(number):
                            m.d.comb += raw.eq(self.i.p.data[number])
            rounded = Cat(
                round_tf32(m, raw.word_select(word, 32), f"tf32_{lane}_{word}")
                for word in range(PIECE_BYTES // 4)
            )
            converted = Signal(PIECE_BYTES * 8, name=f"converted_{lane}")
            filled = Signal(PIECE_BYTES * 8, name=f"filled_{lane}")
            fill_bits = outside_bits & tail.replicate(PIECE_BYTES * 8)
            m.d.comb += [
                converted.eq(Mux(use.style.round_tf32, rounded, raw)),
                filled.eq((converted & ~fill_bits) | (fill & fill_bits)),
            ]
            rotated.append(Cat(filled, valid & ~self.i.p.failed))
            if p.report_mechanism:
                unread = outside & tail.replicate(PIECE_BYTES)
                found = matches(m, use.style.report, raw, unread, f"matches_{lane}")
                reporting.append(found & rotated[-1][-1])

        line_valid = Signal()
        line = Signal(rotated_line_layout(p), reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~line_valid | self.o.ready),
            self.o.valid.eq(line_valid),
            self.o.p.eq(line),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                line_valid.eq(self.i.valid),
                line.slot.eq(use.slot),
                line.style.eq(use.style),
                line.beat.eq(use.origin[p.lane_bits :]),
                line.boundary.eq(boundary),
                line.pieces.eq(sum(use.valid)),
                line.valid.eq(Cat(piece[-1] for piece in rotated)),
                *(line.data[lane].eq(piece[:-1]) for lane, piece in enumerate(rotated)),
                *(line[name].eq(use[name]) for name in remote_field(p)),
            ]
            if p.report_mechanism:
                m.d.sync += line.reports.eq(Cat(reporting).any())
            if p.word_masks:
                m.d.sync += [words.eq(~0) for words in line.words]
            if p.sub_byte:
                self._unpack(m, use, line, rotated)
        if p.report_mechanism:
            m.d.comb += [
                self.report.valid.eq(line_valid & line.reports),
                self.report.slot.eq(line.slot),
            ]
        return m

    def _unpack(self, m: Module, use, line, rotated: list) -> None:
        """Unpack a packed row to all lanes.

        Such a row is one beat: all valid pieces of the line are on the same side of the boundary.
        """
        p = self.params
        piece_valid = Signal(p.lanes)
        boundary = use.origin[: p.lane_bits]
        m.d.comb += piece_valid.eq(Cat(piece[-1] for piece in rotated))
        in_next = Signal()
        m.d.comb += in_next.eq(
            Cat(piece_valid[lane] & (lane < boundary) for lane in range(p.lanes)).any()
        )
        with m.If(use.style.packing != Packing.NONE):
            m.d.sync += [
                line.boundary.eq(0),
                line.beat.eq(use.origin[p.lane_bits :] + in_next),
            ]
        for packing, count in ((Packing.BYTES_8, 8), (Packing.BYTES_12, 12)):
            with m.If(use.style.packing == packing):
                for lane, (data, words) in enumerate(unpack(rotated, count)):
                    m.d.sync += [
                        line.data[lane].eq(data),
                        line.words[lane].eq(words),
                        line.valid[lane].eq(words.any()),
                    ]
