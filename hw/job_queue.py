"""Job queue: jobs that wait for their lane of a generator."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.layouts import generator_job_layout
from hw.params import TmaParams
from hw.queue import Queue


class JobQueue(wiring.Component):
    """Keeps ``jobs_waiting`` jobs, in order.

    A walk that finds the queue empty passes without latency; a column of pixels waits for a clock
    at least. A job a clock. Back-pressure: takes jobs while there is room, whatever ``o`` does. Of
    the ``column`` that comes with a walk only ``enabled`` holds; the rest may change.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    i : In(stream) of ``generator_job_layout``
    o : Out(stream) of ``generator_job_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        job = stream.Signature(generator_job_layout(params))
        super().__init__({"i": In(job), "o": Out(job)})

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.queue = queue = Queue(generator_job_layout(p), p.jobs_waiting, prompt=True)
        waits = queue.o.valid
        passes = ~waits
        if p.im2col:
            passes &= ~self.i.p.column.enabled
        m.d.comb += [
            self.i.ready.eq(queue.i.ready),
            queue.i.p.eq(self.i.p),
            queue.i.valid.eq(self.i.valid & ~(passes & self.o.ready)),
            queue.o.ready.eq(self.o.ready),
            self.o.valid.eq(queue.o.valid | (self.i.valid & passes)),
            *(
                self.o.p[name].eq(Mux(waits, queue.o.p[name], self.i.p[name]))
                for name in self.o.p.shape().members
                if name != "column"
            ),
        ]
        if p.im2col:
            m.d.comb += [
                self.o.p.column.eq(queue.o.p.column),
                self.o.p.column.enabled.eq(queue.o.valid & queue.o.p.column.enabled),
            ]
        return m
