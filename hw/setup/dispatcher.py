"""Dispatcher: joins jobs, separates stores from loads, and releases requests from bulk groups."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import group_layout, refusal_layout, walk_job_layout
from hw.layouts.ports import error_layout
from hw.lib.arbiter import Arbiter
from hw.lib.queue import Queue
from hw.lib.register_slice import PipelineRegister
from hw.params import TmaParams

QUEUE_DEPTH = 2
"""Depth of the queues of error records and of released groups."""


class Dispatcher(wiring.Component):
    """Joins the jobs of tensor requests and of bulk requests, sends them to loads or stores, and
    releases from their bulk groups the requests that no longer need them.

    All jobs of a request stay together. A load is released with its first job, because its tensor
    map is then read. A refused request is released with its error record. Stores stay in their
    group.

    A bulk job repeats no loop and has no column, so that the steps of its loops and the members of
    its column may have any value: they come from ``tensor``, without a multiplexer, but for
    ``column.enabled``.

    Latency: one clock; a job of the other input than the last one waits for one clock more.
    Throughput: a job and a refusal a clock; a released group a clock, of loads and of refusals in
    turn. Back-pressure: a job that waits holds up all jobs behind it, loads and stores; one job
    waits in the block, and its input is ready in the clock in which it leaves. The inputs of jobs
    take turns, request by request. A load waits while two released groups of loads wait; a refusal
    waits while two error records, or two released groups of refusals, wait.

    Parameters
    ----------
    params : TmaParams
        With ``stores`` or ``bulk``.

    Members
    -------
    tensor : In(stream.Signature(walk_job_layout(params)))
    bulk : In(stream.Signature(walk_job_layout(params)))
        Present with ``bulk``.
    load : Out(stream.Signature(walk_job_layout(params)))
    store : Out(stream.Signature(walk_job_layout(params)))
        This port and the following are present with ``stores``.
    refusal : In(stream.Signature(refusal_layout(params)))
    error : Out(stream.Signature(error_layout(params)))
    released : Out(stream.Signature(group_layout(params)))
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        job = stream.Signature(walk_job_layout(params))
        ports = {"tensor": In(job), "load": Out(job)}
        if params.bulk:
            ports["bulk"] = In(job)
        if params.stores:
            ports |= {
                "store": Out(job),
                "refusal": In(stream.Signature(refusal_layout(params))),
                "error": Out(stream.Signature(error_layout(params))),
                "released": Out(stream.Signature(group_layout(params))),
            }
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.jobs = jobs = PipelineRegister(walk_job_layout(self.params))
        if self.params.bulk:
            self._join(m, jobs.i)
        else:
            connect(m, flipped(self.tensor), jobs.i)
        if self.params.stores:
            self._separate(m, jobs.o)
        else:
            connect(m, jobs.o, flipped(self.load))
        return m

    def _join(self, m: Module, o: stream.Interface) -> None:
        """Take the jobs of both inputs in turn."""
        tensor, bulk = self.tensor, self.bulk
        takes_bulk = Signal()
        in_request = Signal()  # the last job taken was not the last one of its request
        other_waits = Mux(takes_bulk, tensor.valid, bulk.valid)
        fire = o.valid & o.ready
        m.d.comb += [
            o.valid.eq(Mux(takes_bulk, bulk.valid, tensor.valid)),
            tensor.ready.eq(o.ready & ~takes_bulk),
            bulk.ready.eq(o.ready & takes_bulk),
            o.p.eq(Mux(takes_bulk, bulk.p.as_value(), tensor.p.as_value())),
            *(
                loop[name].eq(tensor_loop[name])
                for loop, tensor_loop in zip(o.p.walk.loops, tensor.p.walk.loops, strict=True)
                for name in ("global_step", "smem_step")
            ),
        ]
        if self.params.im2col:
            is_column = tensor.p.column.enabled & ~takes_bulk
            m.d.comb += [o.p.column.eq(tensor.p.column), o.p.column.enabled.eq(is_column)]
        with m.If(fire):
            m.d.sync += in_request.eq(~o.p.last)
        with m.If(Mux(o.valid, o.ready & o.p.last, ~in_request) & other_waits):
            m.d.sync += takes_bulk.eq(~takes_bulk)

    def _separate(self, m: Module, jobs: stream.Interface) -> None:
        """Send jobs to loads or stores, and release requests from their groups."""
        p = self.params
        m.submodules.errors = errors = Queue(error_layout(p), QUEUE_DEPTH)
        m.submodules.refusal_groups = refusal_groups = Queue(group_layout(p), QUEUE_DEPTH)
        m.submodules.load_groups = load_groups = Queue(group_layout(p), QUEUE_DEPTH)
        m.submodules.released = released = Arbiter(group_layout(p), 2)
        connect(m, errors.o, flipped(self.error))
        connect(m, refusal_groups.o, released.i[0])
        connect(m, load_groups.o, released.i[1])
        connect(m, released.o, flipped(self.released))

        refusal = self.refusal
        m.d.comb += [
            refusal.ready.eq(errors.i.ready & refusal_groups.i.ready),
            errors.i.valid.eq(refusal.valid & refusal.ready),
            *(errors.i.p[name].eq(refusal.p[name]) for name in error_layout(p).members),
            refusal_groups.i.valid.eq(errors.i.valid),
            refusal_groups.i.p.eq(refusal.p.group),
        ]

        is_store = jobs.p.walk.store
        is_release = jobs.p.group.joined & jobs.p.first & ~is_store
        may_pass = ~is_release | load_groups.i.ready
        m.d.comb += [
            self.load.payload.eq(jobs.payload),
            self.store.payload.eq(jobs.payload),
            self.load.valid.eq(jobs.valid & ~is_store & may_pass),
            self.store.valid.eq(jobs.valid & is_store),
            jobs.ready.eq(Mux(is_store, self.store.ready, self.load.ready & may_pass)),
            load_groups.i.valid.eq(jobs.valid & jobs.ready & is_release),
            load_groups.i.p.eq(jobs.p.group),
        ]
