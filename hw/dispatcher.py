"""Dispatcher: sends each job its way, and tells bulk groups whom they need not wait for."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts import error_layout, group_layout, refusal_layout, walk_job_layout
from hw.params import TmaParams
from hw.queue import Queue

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
        m.submodules.groups = groups = Queue(group_layout(p), WAITING)
        m.submodules.errors = errors = Queue(error_layout(p), WAITING)
        connect(m, groups.o, flipped(self.released))
        connect(m, errors.o, flipped(self.error))

        # A refusal goes first: it is rare, and jobs behind it wait a clock.
        refusal, job = self.refusal, self.job
        refuses = refusal.valid & errors.i.ready & groups.i.ready
        leaves = job.p.group.joined & job.p.first & ~job.p.walk.store
        may_leave = ~leaves | (groups.i.ready & ~refusal.valid)
        m.d.comb += [
            *(errors.i.p[name].eq(refusal.p[name]) for name in error_layout(p).members),
            errors.i.valid.eq(refuses),
            refusal.ready.eq(refuses),
            self.load.payload.eq(job.payload),
            self.store.payload.eq(job.payload),
            self.load.valid.eq(job.valid & ~job.p.walk.store & may_leave),
            self.store.valid.eq(job.valid & job.p.walk.store),
        ]
        with m.If(job.p.walk.store):
            m.d.comb += job.ready.eq(self.store.ready)
        with m.Else():
            m.d.comb += job.ready.eq(self.load.ready & may_leave)
        with m.If(refusal.valid):
            m.d.comb += [groups.i.p.eq(refusal.p.group), groups.i.valid.eq(refuses)]
        with m.Else():
            m.d.comb += [
                groups.i.p.eq(job.p.group),
                groups.i.valid.eq(job.valid & job.ready & leaves),
            ]
        return m
