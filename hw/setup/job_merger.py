"""Job merger: joins the jobs of tensor requests and of bulk requests."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import walk_job_layout
from hw.lib.arbiter import Arbiter
from hw.params import TmaParams


class JobMerger(wiring.Component):
    """Joins the jobs of the setup block and of the bulk setup to one stream.

    All jobs of a request stay together. Latency: none. Throughput: one job a clock. Back-pressure:
    a job waits while the other side delivers a request.

    A bulk job repeats no loop and has no column, so that the steps of its loops and the members of
    its column may have any value. These members are therefore those of ``tensor``, without a
    multiplexer, but for ``column.enabled``; they may change while a bulk job waits.

    Parameters
    ----------
    params : TmaParams
        With ``bulk``.

    Members
    -------
    tensor : In(stream) of ``walk_job_layout``
    bulk : In(stream) of ``walk_job_layout``
    o : Out(stream) of ``walk_job_layout``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        job = walk_job_layout(params)
        super().__init__(
            {
                "tensor": In(stream.Signature(job)),
                "bulk": In(stream.Signature(job)),
                "o": Out(stream.Signature(job)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.jobs = jobs = Arbiter(walk_job_layout(self.params), 2, packets=True)
        connect(m, flipped(self.tensor), jobs.i[0])
        connect(m, flipped(self.bulk), jobs.i[1])
        merged, tensor, o = jobs.o, self.tensor.p, self.o.p
        m.d.comb += [
            self.o.valid.eq(merged.valid),
            merged.ready.eq(self.o.ready),
            o.eq(merged.p),
            *(
                loop[name].eq(tensor_loop[name])
                for loop, tensor_loop in zip(o.walk.loops, tensor.walk.loops, strict=True)
                for name in ("global_step", "smem_step")
            ),
        ]
        if self.params.im2col:
            m.d.comb += [
                o.column.eq(tensor.column),
                o.column.enabled.eq(merged.p.column.enabled),
            ]
        return m
