"""Response path: converts an arrived line to the pieces that shared memory is to hold."""

from amaranth.hdl import Assert, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.isa import Packing, ReportMechanism
from hw.layouts.jobs import remote_field
from hw.layouts.lines import line_arrival_layout, line_report_layout, rotated_line_layout
from hw.layouts.ports import lanes_layout
from hw.lib.permute import rotate
from hw.lib.piece_format import fill_piece
from hw.lib.queue import Queue
from hw.params import PIECE_BYTES, TmaParams

LINES_WAITING = 8
"""Lines that can wait in the queue behind the last stage."""

LINES_IN_STAGES = 4
"""Lines that can come after no further one is admitted: two in the stages, and those of the clock
in which this is decided and of the next one."""

PASSED_ON = "slot", "style", "beat", "next_beat", "boundary", "pieces"
"""Members of a line that the last stage passes on."""

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
        unpacked.append((Cat(word[:-1] for word in piece_words), valid))
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

    Latency: two clocks. Throughput: one line a clock. Back-pressure: the stages never wait, because
    whatever is in them has a place in the queue behind them: a line is offered at ``i`` in the
    second clock behind ``admits_next``. That is high while at most ``LINES_WAITING`` less
    ``LINES_IN_STAGES`` lines wait at ``o``, and no path leads from ``o.ready`` to it.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``line_arrival_layout``; always ready
    admits_next : Out(1)
        A line may be offered in the second clock from now.
    o : Out(stream) of ``rotated_line_layout``
    report : Out of ``line_report_layout``; for the line at ``o``, while it is there; present with
        ``report_mechanism``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(
            {
                "i": In(stream.Signature(line_arrival_layout(params), always_ready=True)),
                "admits_next": Out(1),
                "o": Out(stream.Signature(rotated_line_layout(params))),
                **({"report": Out(line_report_layout(params))} if params.report_mechanism else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        arrival_valid, arrival = self._rotate_places(m)
        outside_bits = Cat(bit.replicate(8) for bit in arrival.outside)
        fill = fill_piece(arrival.style.fill)
        pieces, reporting = [], []
        for lane, place in enumerate(arrival.places):
            raw = arrival.data[lane]
            if p.gathers_rows:
                raw = Signal(PIECE_BYTES * 8, name=f"moved_{lane}")
                with m.Switch(place.source):
                    for number in range(p.lanes):
                        with m.Case(number):
                            m.d.comb += raw.eq(arrival.data[number])
            rounded = Cat(
                round_tf32(m, raw.word_select(word, 32), f"tf32_{lane}_{word}")
                for word in range(PIECE_BYTES // 4)
            )
            converted = Signal(PIECE_BYTES * 8, name=f"converted_{lane}")
            filled = Signal(PIECE_BYTES * 8, name=f"filled_{lane}")
            fill_bits = outside_bits & place.tail.replicate(PIECE_BYTES * 8)
            m.d.comb += [
                converted.eq(Mux(arrival.style.round_tf32, rounded, raw)),
                filled.eq((converted & ~fill_bits) | (fill & fill_bits)),
            ]
            pieces.append(Cat(filled, place.valid))
            if p.report_mechanism:
                unread = arrival.outside & place.tail.replicate(PIECE_BYTES)
                found = matches(m, arrival.style.report, raw, unread, f"matches_{lane}")
                reporting.append(found & place.valid)

        layout = rotated_line_layout(p)
        # Each lane leaves for a queue of its own; what is in front of them steers them all.
        lanes = [PIECE_BYTES * 8] * (p.lanes - 1)
        parts = [layout["data"].offset, *lanes] if lanes else []
        m.submodules.lines = lines = Queue(layout, LINES_WAITING, parts=parts)
        connect(m, lines.o, flipped(self.o))
        line = lines.i.p
        m.d.comb += [
            self.admits_next.eq(lines.level <= LINES_WAITING - LINES_IN_STAGES),
            lines.i.valid.eq(arrival_valid),
            *(line[name].eq(arrival[name]) for name in (*PASSED_ON, *remote_field(p))),
            line.valid.eq(Cat(piece[-1] for piece in pieces)),
            *(line.data[lane].eq(piece[:-1]) for lane, piece in enumerate(pieces)),
        ]
        m.d.sync += Assert(
            ~lines.i.valid | lines.i.ready, "response_path: there is no place for a line\n"
        )
        if p.report_mechanism:
            m.d.comb += [
                line.reports.eq(Cat(reporting).any()),
                self.report.valid.eq(lines.o.valid & lines.o.p.reports),
                self.report.slot.eq(lines.o.p.slot),
            ]
        if p.word_masks:
            m.d.comb += [words.eq(~0) for words in line.words]
        if p.sub_byte:
            self._unpack(m, arrival, line, pieces)
        return m

    def _rotate_places(self, m: Module) -> tuple[Signal, Signal]:
        """Move each place of the line to its lane, and find the bytes of a tail that are outside.

        Return whether there is such a line, and the line, from registers. Of gathered rows, the
        number of each lane's piece is moved, and not its data.
        """
        p = self.params
        use = self.i.p.use
        place = data.StructLayout(
            {"valid": 1, "tail": 1, **({"source": p.lane_bits} if p.gathers_rows else {})}
        )
        names = *PASSED_ON, *remote_field(p)
        arrival = Signal(
            data.StructLayout(
                {
                    **{name: rotated_line_layout(p).members[name] for name in names},
                    "outside": PIECE_BYTES,
                    "places": data.ArrayLayout(place, p.lanes),
                    "data": lanes_layout(p),
                }
            ),
            reset_less=True,
        )
        valid = Signal(name="arrival_valid")
        boundary = use.origin[: p.lane_bits]
        moved = use.source if p.gathers_rows else self.i.p.data
        places = rotate(
            m,
            [Cat(use.valid[lane], use.tail[lane], moved[lane]) for lane in range(p.lanes)],
            boundary,
            "place",
        )
        beat = use.origin[p.lane_bits :]
        m.d.sync += [
            valid.eq(self.i.valid),
            arrival.slot.eq(use.slot),
            arrival.style.eq(use.style),
            arrival.beat.eq(beat),
            arrival.next_beat.eq(beat + 1),
            arrival.boundary.eq(boundary),
            arrival.pieces.eq(sum(use.valid)),
            *(arrival[name].eq(use[name]) for name in remote_field(p)),
            arrival.outside.eq(
                Cat((use.tail_bytes != 0) & (byte >= use.tail_bytes) for byte in range(PIECE_BYTES))
            ),
        ]
        for lane, rotated in enumerate(places):
            m.d.sync += [
                arrival.places[lane].valid.eq(rotated[0] & ~self.i.p.failed),
                arrival.places[lane].tail.eq(rotated[1]),
            ]
            if p.gathers_rows:
                m.d.sync += [
                    arrival.places[lane].source.eq(rotated[2:]),
                    arrival.data[lane].eq(self.i.p.data[lane]),
                ]
            else:
                m.d.sync += arrival.data[lane].eq(rotated[2:])
        return valid, arrival

    def _unpack(self, m: Module, arrival, line, pieces: list) -> None:
        """Unpack a packed row to all lanes.

        Such a row is one beat: all valid pieces of the line are on the same side of the boundary.
        """
        in_next = Signal()
        m.d.comb += in_next.eq(
            Cat(piece[-1] & (lane < arrival.boundary) for lane, piece in enumerate(pieces)).any()
        )
        with m.If(arrival.style.packing != Packing.NONE):
            m.d.comb += [
                line.boundary.eq(0),
                line.beat.eq(Mux(in_next, arrival.next_beat, arrival.beat)),
            ]
        for packing, count in ((Packing.BYTES_8, 8), (Packing.BYTES_12, 12)):
            with m.If(arrival.style.packing == packing):
                for lane, (unpacked, words) in enumerate(unpack(pieces, count)):
                    m.d.comb += [
                        line.data[lane].eq(unpacked),
                        line.words[lane].eq(words),
                        line.valid[lane].eq(words.any()),
                    ]
