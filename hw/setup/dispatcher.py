"""Dispatcher: separates stores from loads, and releases requests from their bulk groups."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import group_layout, refusal_layout, walk_job_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.params import TmaParams

QUEUE_DEPTH = 2
"""Depth of the queues of error records and of released groups."""


class Dispatcher(wiring.Component):
    """Sends jobs to loads or stores, and releases from their bulk groups the requests that no
    longer need them.

    A load is released with its first job, because its tensor map is then read. A refused request is
    released with its error record. Stores stay in their group.

    Latency: none for jobs, one clock for error records and released groups. Throughput: a job and a
    refusal a clock; a released group a clock, of loads and of refusals in turn. Back-pressure: a
    job that waits holds up all jobs behind it, loads and stores. A load waits while two released
    groups of loads wait; a refusal waits while two error records, or two released groups of
    refusals, wait.

    Parameters
    ----------
    params : TmaParams
        With ``stores``.

    Members
    -------
    job : In(stream.Signature(walk_job_layout(params)))
    refusal : In(stream.Signature(refusal_layout(params)))
    load : Out(stream.Signature(walk_job_layout(params)))
    store : Out(stream.Signature(walk_job_layout(params)))
    error : Out(stream.Signature(error_layout(params)))
    released : Out(stream.Signature(group_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
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

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.errors = errors = Queue(error_layout(p), QUEUE_DEPTH)
        m.submodules.refusal_groups = refusal_groups = Queue(group_layout(p), QUEUE_DEPTH)
        m.submodules.load_groups = load_groups = Queue(group_layout(p), QUEUE_DEPTH)
        m.submodules.released = released = Arbiter(group_layout(p), 2)
        connect(m, errors.o, flipped(self.error))
        connect(m, refusal_groups.o, released.i[0])
        connect(m, load_groups.o, released.i[1])
        connect(m, released.o, flipped(self.released))

        refusal, job = self.refusal, self.job
        m.d.comb += [
            refusal.ready.eq(errors.i.ready & refusal_groups.i.ready),
            errors.i.valid.eq(refusal.valid & refusal.ready),
            *(errors.i.p[name].eq(refusal.p[name]) for name in error_layout(p).members),
            refusal_groups.i.valid.eq(errors.i.valid),
            refusal_groups.i.p.eq(refusal.p.group),
        ]

        is_store = job.p.walk.store
        is_release = job.p.group.joined & job.p.first & ~is_store
        may_pass = ~is_release | load_groups.i.ready
        m.d.comb += [
            self.load.payload.eq(job.payload),
            self.store.payload.eq(job.payload),
            self.load.valid.eq(job.valid & ~is_store & may_pass),
            self.store.valid.eq(job.valid & is_store),
            job.ready.eq(Mux(is_store, self.store.ready, self.load.ready & may_pass)),
            load_groups.i.valid.eq(job.valid & job.ready & is_release),
            load_groups.i.p.eq(job.p.group),
        ]
        return m
