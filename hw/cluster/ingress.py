"""Ingress: turns packets of other CTAs into lines, and their receipts into completions."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.cluster.smem_reduction import SmemReduction
from hw.layouts.barriers import barrier_completion_layout
from hw.layouts.cluster import packet_layout
from hw.layouts.jobs import holder_of
from hw.layouts.lines import rotated_line_layout, written_layout
from hw.layouts.ports import holder_field, lanes_layout, reports_field, smem_read_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams


class Ingress(wiring.Component):
    """Turns each packet into a line for the lane network, and its receipt into a ``complete_tx``.

    A packet with a reduction is first combined with the data in shared memory; other packets may
    overtake it. Each packet gives one completion for its own bytes, after they are written. PTX
    does not define into how many ``complete_tx`` the bytes of a request are split, so no table of
    requests is needed here.

    Latency: none for packets without a reduction; `SmemReduction` gives that of the others.
    Throughput: one packet and one receipt per clock. Back-pressure: packets wait for ``line``,
    receipts for ``completion``. Errors: none.

    Parameters
    ----------
    params : TmaParams
        ``ctas`` must be above 1.

    Members
    -------
    cta_rank : In(params.cta_bits)
        Rank of this SM's CTA.
    packet : In(stream.Signature(packet_layout(params)))
        Packets for this SM.
    line : Out(stream.Signature(rotated_line_layout(params)))
        Lines for shared memory.
    written : In(stream.Signature(written_layout(params)))
        Receipts of the lines, when they are written.
    completion : Out(stream.Signature(barrier_completion_layout(params)))
        Completions of the packets.
    smem_read : Out(stream.Signature(smem_read_layout(params)))
        Reads of shared memory for reductions; present with ``reductions``.
    smem_data : In(stream.Signature(lanes_layout(params)))
        Data of these reads, in order; present with ``reductions``.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        ports = {
            "cta_rank": In(params.cta_bits),
            "packet": In(stream.Signature(packet_layout(params))),
            "line": Out(stream.Signature(rotated_line_layout(params))),
            "written": In(stream.Signature(written_layout(params))),
            "completion": Out(stream.Signature(barrier_completion_layout(params))),
        }
        if params.reductions:
            ports |= {
                "smem_read": Out(stream.Signature(smem_read_layout(params))),
                "smem_data": In(stream.Signature(lanes_layout(params))),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.lines = lines = Arbiter(rotated_line_layout(p), 2 if p.reductions else 1)
        connect(m, lines.o, flipped(self.line))
        plain = lines.i[0]
        self._make_line(m, self.packet.p, plain.p, reduced=0)
        m.d.comb += [plain.valid.eq(self.packet.valid), self.packet.ready.eq(plain.ready)]

        receipt = self.written.p.receipt
        if p.reductions:
            m.submodules.smem_reduction = reduction = SmemReduction(p)
            connect(m, reduction.smem_read, flipped(self.smem_read))
            connect(m, flipped(self.smem_data), reduction.smem_data)
            combined = lines.i[1]
            self._make_line(m, reduction.o.p, combined.p, reduced=1)
            m.d.comb += [
                combined.valid.eq(reduction.o.valid),
                reduction.o.ready.eq(combined.ready),
                reduction.i.payload.eq(self.packet.payload),
                reduction.done.eq(self.written.valid & self.written.ready & receipt.reduced),
            ]
            with m.If(self.packet.p.reduction.enabled):
                m.d.comb += [
                    reduction.i.valid.eq(self.packet.valid),
                    plain.valid.eq(0),
                    self.packet.ready.eq(reduction.i.ready),
                ]

        completion = self.completion
        m.d.comb += [
            completion.valid.eq(self.written.valid),
            self.written.ready.eq(completion.ready),
            *(
                completion.p[name].eq(receipt[name])
                for name in ("request_id", "cta", *holder_field(p), *reports_field(p))
            ),
            completion.p.address.eq(receipt.mbarrier),
            completion.p.tx_bytes.eq(receipt.tx_words << 2),
        ]
        return m

    def _make_line(self, m: Module, packet, line, *, reduced: int) -> None:
        """Make ``line`` of ``packet``; ``reduced``: 1 if the packet was combined."""
        receipt = line.receipt
        m.d.comb += [
            *(
                line[name].eq(packet[name])
                for name in ("style", "beat", "boundary", "valid", "words", "data")
            ),
            line.next_beat.eq(packet.beat + 1),
            receipt.received.eq(1),
            *(
                receipt[name].eq(packet[name])
                for name in (
                    *("request_id", "cta", "mbarrier", "tx_words"),
                    *reports_field(self.params),
                )
            ),
            *(
                receipt[name].eq(holder_of(self.params, packet, self.cta_rank))
                for name in holder_field(self.params)
            ),
            receipt.reduced.eq(reduced),
        ]
