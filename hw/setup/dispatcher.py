"""Dispatcher: sends each job its way, and tells bulk groups whom they need not wait for."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import group_layout, refusal_layout, walk_job_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams

WAITING = 2
"""Groups, and error records, that can wait."""


class Dispatcher(wiring.Component):
    """Parts stores from loads, and lets go of requests that leave their bulk group here.

    Those are loads, whose tensor map is read, with their first job, and refused requests, with
    their error record. Jobs pass in the same clock, one a clock; error records and groups take one.
    A job that has to wait holds back all that come behind it, whatever their direction.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    job : In(stream) of ``walk_job_layout``
    refusal : In(stream) of ``refusal_layout``
    load : Out(stream) of ``walk_job_layout``
    store : Out(stream) of ``walk_job_layout``
    error : Out(stream) of ``error_layout``
    released : Out(stream) of ``group_layout``
    """

    def __init__(self, params: TmaParams):
        self.params = params
        job = stream.Signature(walk_job_layout(params))
        super().__init__(
            {
                "job": In(job),
                "refusal": In(stream.Signature(refusal_layout(params))),
                "load": Out(job),
                "store": Out(job),
                "error": Out(stream.Signature(error_layout(params))),
                "released": Out(stream.Signature(group_layout(params))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = self.params
        m.submodules.errors = errors = Queue(error_layout(p), WAITING)
        m.submodules.of_refusals = of_refusals = Queue(group_layout(p), WAITING)
        m.submodules.of_loads = of_loads = Queue(group_layout(p), WAITING)
        m.submodules.released = released = Arbiter(group_layout(p), 2)
        connect(m, errors.o, flipped(self.error))
        connect(m, of_refusals.o, released.i[0])
        connect(m, of_loads.o, released.i[1])
        connect(m, released.o, flipped(self.released))

        refusal, job = self.refusal, self.job
        m.d.comb += [
            refusal.ready.eq(errors.i.ready & of_refusals.i.ready),
            errors.i.valid.eq(refusal.valid & refusal.ready),
            *(errors.i.p[name].eq(refusal.p[name]) for name in error_layout(p).members),
            of_refusals.i.valid.eq(errors.i.valid),
            of_refusals.i.p.eq(refusal.p.group),
        ]

        is_store = job.p.walk.store
        leaves = job.p.group.joined & job.p.first & ~is_store
        may_leave = ~leaves | of_loads.i.ready
        m.d.comb += [
            self.load.payload.eq(job.payload),
            self.store.payload.eq(job.payload),
            self.load.valid.eq(job.valid & ~is_store & may_leave),
            self.store.valid.eq(job.valid & is_store),
            job.ready.eq(Mux(is_store, self.store.ready, self.load.ready & may_leave)),
            of_loads.i.valid.eq(job.valid & job.ready & leaves),
            of_loads.i.p.eq(job.p.group),
        ]
        return m
