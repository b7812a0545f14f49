"""Outcome queues: the jobs and refusals of a setup wait here, so that its stages need not wait."""

from amaranth.hdl import Assert, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.layouts.jobs import refusal_layout, steering_bits, walk_job_layout
from hw.lib.queue import Queue
from hw.params import TmaParams

DEPTH = 16
"""Jobs, and refusals, that can wait: the rows of distributed RAM."""

MOST_ADMITTED = 8
"""Jobs or refusals that wait while another batch is admitted."""

MOST_STAGES = DEPTH - MOST_ADMITTED - 2
"""Stages that a setup can have. The two other places are for what passes while ``admits_next`` is
computed and used."""


class OutcomeQueues(wiring.Component):
    """Holds what leaves the last stage of a setup, in order.

    Whatever is in the stages has a place here: a batch enters the first stage only in the clock
    behind ``admits_next``. The stages never wait, and no path leads from ``o.ready`` to them.

    Latency: one clock. Throughput: a job and a refusal a clock. Back-pressure: see above.

    Parameters
    ----------
    params : TmaParams
    stages : int
        Stages of the setup.

    Members
    -------
    job : In(stream.Signature(walk_job_layout(params), always_ready=True))
    error : In(stream.Signature(refusal_layout(params), always_ready=True))
    admits_next : Out(1)
        A batch may enter the first stage in the next clock.
    o : Out; the streams ``job`` and ``error``

    Raises
    ------
    ValueError
        If there are too many stages.
    """

    def __init__(self, params: TmaParams, stages: int) -> None:
        if stages > MOST_STAGES:
            raise ValueError(f"stages = {stages}: must be at most {MOST_STAGES}")
        self.params = params
        job = stream.Signature(walk_job_layout(params))
        error = stream.Signature(refusal_layout(params))
        super().__init__(
            {
                "job": In(stream.Signature(walk_job_layout(params), always_ready=True)),
                "error": In(stream.Signature(refusal_layout(params), always_ready=True)),
                "admits_next": Out(1),
                "o": Out(wiring.Signature({"job": Out(job), "error": Out(error)})),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.jobs = jobs = Queue(
            walk_job_layout(self.params), DEPTH, parts=[steering_bits(self.params)]
        )
        m.submodules.errors = errors = Queue(refusal_layout(self.params), DEPTH)
        connect(m, jobs.o, flipped(self.o.job))
        connect(m, errors.o, flipped(self.o.error))
        m.d.comb += self.admits_next.eq(
            (jobs.level <= MOST_ADMITTED) & (errors.level <= MOST_ADMITTED)
        )
        for port, queue in (self.job, jobs), (self.error, errors):
            m.d.comb += [queue.i.valid.eq(port.valid), queue.i.payload.eq(port.payload)]
            m.d.sync += Assert(
                ~queue.i.valid | queue.i.ready, "outcome_queues: there is no place for an outcome\n"
            )
        return m
