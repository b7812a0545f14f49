"""Walk generator: turns the jobs of all channels into walks, which wait in a queue per channel."""

from amaranth.hdl import Assert, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.generate.column_preparation import ColumnPreparation
from hw.generate.job_store import HEADS, JobStore
from hw.generate.odometer import Odometer
from hw.generate.row_preparation import RowPreparation
from hw.generate.walk_builder import WalkBuilder
from hw.layouts.jobs import (
    generator_job_layout,
    in_channel,
    prepared_walk_layout,
    slot_walk_layout,
)
from hw.lib.queue import Queue
from hw.params import TmaParams

WALKS_WAITING = 8
"""Walks of a channel behind the odometer: more than the clocks from its turn to a free place."""


class WalkGenerator(wiring.Component):
    """Turns jobs into walks. The walks of each channel wait in a queue of their own.

    With ``im2col``: column preparation, job store, odometer and walk builder, which all channels
    share. Without it each job is one walk. If the unit ``gathers_rows``, the row preparation looks
    at each walk on its way to its queue.

    Latency: a clock in the queue and one in the row preparation; with ``im2col`` ten or, if jobs
    wait in block memory, twelve clocks more. Throughput: a walk a clock, of all channels together.
    Back-pressure: none for jobs, as the request queue vouches that a channel has at most
    ``jobs_waiting`` jobs here; a channel whose walks wait holds up no other.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    load : In(stream) of ``generator_job_layout``; always ready
    store : In(stream) of ``generator_job_layout``; always ready
        Present with ``stores``. At most one of ``load`` and ``store`` is valid, and both carry the
        job of the dispatcher: all but the slot of a store is taken from ``load``.
    walk : Out(stream).array(streams) of ``prepared_walk_layout``; of the loads
    store_walk : Out(stream) of ``prepared_walk_layout`` of stores; present with ``stores``
    freed : Out(channels)
        A bit for each channel: the last job of a request leaves its place.
    busy : Out(1)
        The last walk of a request has not left.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        job = stream.Signature(generator_job_layout(params), always_ready=True)
        ports = {
            "load": In(job),
            "walk": Out(stream.Signature(prepared_walk_layout(params))).array(params.streams),
            "freed": Out(params.channels),
            "busy": Out(1),
        }
        if params.stores:
            store_walk = prepared_walk_layout(params)
            ports |= {"store": In(job), "store_walk": Out(stream.Signature(store_walk))}
        super().__init__(ports)

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        jobs = self._join(m)
        if p.im2col:
            walks, taken, depth = *self._walk(m, jobs), WALKS_WAITING
        else:
            walks = stream.Signature(in_channel(p, slot_walk_layout(p)), always_ready=True).create(
                path=("walks",)
            )
            taken, depth = self.freed, p.jobs_waiting
            m.d.comb += [
                walks.valid.eq(jobs.valid),
                *(walks.p[name].eq(jobs.p[name]) for name in walks.p.shape().members),
            ]
        if p.gathers_rows:
            m.submodules.row_preparation = row_preparation = RowPreparation(p)
            connect(m, walks, row_preparation.i)
            walks = row_preparation.o
        self._queue(m, walks, taken, depth)
        self._count(m, jobs)
        return m

    def _join(self, m: Module) -> stream.Interface:
        """Return the jobs of loads and stores as one stream."""
        if not self.params.stores:
            return flipped(self.load)
        jobs = stream.Signature(generator_job_layout(self.params), always_ready=True).create(
            path=("jobs",)
        )
        m.d.comb += [
            jobs.valid.eq(self.load.valid | self.store.valid),
            jobs.payload.eq(self.load.payload),
            jobs.p.slot.eq(Mux(self.store.valid, self.store.p.slot, self.load.p.slot)),
        ]
        m.d.sync += Assert(
            ~(self.load.valid & self.store.valid), "walk_generator: two jobs in one clock\n"
        )
        return jobs

    def _walk(self, m: Module, jobs) -> tuple[stream.Interface, Signal]:
        """Return the walks of the jobs, and the port that is told which walks leave their queue."""
        p = self.params
        m.submodules.column_preparation = preparation = ColumnPreparation(p)
        m.submodules.job_store = store = JobStore(p)
        m.submodules.odometer = odometer = Odometer(p, WALKS_WAITING)
        m.submodules.walk_builder = builder = WalkBuilder(p)
        connect(m, jobs, preparation.i)
        connect(m, preparation.o, store.i)
        connect(m, odometer.o, builder.i)
        m.d.comb += [
            odometer.waiting.eq(store.waiting),
            odometer.has_more_steps.eq(store.has_more_steps),
            odometer.first_valid.eq(store.first_valid),
            odometer.first.eq(store.first),
            store.channel.eq(odometer.channel),
            store.has_turn.eq(odometer.has_turn),
            store.done.eq(odometer.done),
            self.freed.eq(store.freed),
        ]
        return builder.o, odometer.taken

    def _queue(self, m: Module, walks, taken: Signal, depth: int) -> None:
        """Put each walk into the queue of its channel.

        ``taken``: a bit for each channel, to be set when a walk leaves the queue; where each job is
        one walk, that is when the last job of its request leaves.
        """
        p = self.params
        outputs = [*self.walk, *([self.store_walk] if p.stores else [])]
        for number, output in enumerate(outputs):
            layout = output.payload.shape()
            m.submodules[f"queue_{number}"] = queue = Queue(layout, depth)
            connect(m, queue.o, flipped(output))
            leaves = output.valid & output.ready
            m.d.comb += [
                queue.i.valid.eq(walks.valid & (walks.p.channel == number)),
                *(queue.i.p[name].eq(walks.p[name]) for name in layout.members),
                taken[number].eq(leaves if p.im2col else leaves & output.p.last),
            ]
            m.d.sync += Assert(
                ~queue.i.valid | queue.i.ready, "walk_generator: a queue has no room for a walk\n"
            )

    def _count(self, m: Module, jobs) -> None:
        """Count the requests whose last job is here."""
        p = self.params
        outputs = [*self.walk, *([self.store_walk] if p.stores else [])]
        behind_store = HEADS + 2 * WALKS_WAITING if p.im2col else 0
        requests = Signal(range(p.channels * (p.jobs_waiting + behind_store) + 1))
        came = Signal()  # in the clock before
        left = Signal(len(outputs))
        m.d.sync += [
            came.eq(jobs.valid & jobs.p.last),
            left.eq(Cat(output.valid & output.ready & output.p.last for output in outputs)),
            requests.eq(requests + came - sum(left)),
        ]
        m.d.comb += self.busy.eq(came | (requests != 0))
