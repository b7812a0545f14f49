"""Job store: the jobs of each channel in order, none lost, none before it can be read."""

from functools import partial

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    Cat,
    Cover,
    Elaboratable,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.lib import data

from hw.generate.job_store import HEADS, JobStore
from hw.params import TmaParams
from tests.formal.inside import Inside, inside, row
from tests.formal.proof import Bug, Proof

COUNT = 5
"""Width of the transfer counters; fewer jobs wait than they count."""


class NarrowParams(TmaParams):
    """Parameters with short members of a job, on which the proof does not depend but its time."""

    piece_address_bits = smem_piece_bits = box_piece_bits = run_bits = pixel_bits = 1


def fields_of(job) -> Value:
    """Return the members of a job that are not 0: all members take the same way."""
    return Cat(job.slot, job.column.ends)


class JobSpec(Elaboratable):
    """Job n of any one channel that comes is job n of the channel that is offered and leaves.

    The solver chooses the channel and the job. As the request queue vouches, a channel has at most
    ``jobs_waiting`` requests here that are not ``freed``; each has one job. As the odometer does,
    the environment reads any channel, and says that its job is ``done`` a clock after it read it,
    or later.

    - ``first`` is the first job of the channel that ``channel`` was in the clock before, or the one
      behind it if that is done in this clock.
    - ``has_more_steps`` says whether the first job has more than one step.
    - ``waiting`` promises no job that cannot be read two clocks later.
    - Each job is ``freed`` once.
    """

    def __init__(self, jobs_waiting: int) -> None:
        self.params = NarrowParams(
            threads=2, streams=1, requests_in_flight=4, jobs_waiting=jobs_waiting, reductions=False
        )

    def elaborate(self, _platform) -> Module:
        m = Module()
        p = self.params
        depth, channels = p.jobs_waiting, p.channels
        has_backlog = depth > HEADS
        m.submodules.dut = dut = JobStore(p)
        here = inside(dut)
        job = dut.i.p
        m.d.comb += [
            dut.i.valid.eq(AnySeq(1)),
            job.channel.eq(AnySeq(p.channel_bits)),
            job.slot.eq(AnySeq(p.slot_bits)),
            job.column.ends.eq(AnySeq(1)),
            job.last.eq(1),
            dut.channel.eq(AnySeq(p.channel_bits)),
            Assume(job.channel < channels),
            Assume(dut.channel < channels),
            Assume(~ResetSignal()),
        ]
        # A job of one step that was fetched in the clock before is done, another one may be.
        was_fetched, has_one_step, last_read = Signal(), Signal(), Signal()
        offered, channel_read = Signal(p.channel_bits), Signal(p.channel_bits)
        m.d.comb += dut.has_turn.eq(AnySeq(1))
        m.d.sync += [
            was_fetched.eq(dut.has_turn & dut.first_valid),
            has_one_step.eq(dut.first.column.ends),
            offered.eq(dut.channel),
            channel_read.eq(offered),
            last_read.eq(dut.first.last),
        ]
        m.d.comb += [
            dut.done.valid.eq((AnySeq(1) | has_one_step) & was_fetched),
            dut.done.last.eq(last_read),
        ]

        # Transfers of the chosen channel.
        number = AnyConst(p.channel_bits)
        comes, goes = Signal(), Signal()
        m.d.comb += [
            Assume(number < channels),
            comes.eq(dut.i.valid & (job.channel == number)),
            goes.eq(dut.done.valid & (channel_read == number)),
        ]
        n, want = AnyConst(COUNT), AnyConst(len(fields_of(job)))
        ins, outs, freed = Signal(COUNT), Signal(COUNT), Signal(COUNT)
        is_freed = dut.freed.bit_select(number, 1)
        m.d.sync += [ins.eq(ins + comes), outs.eq(outs + goes), freed.eq(freed + is_freed)]
        held, waits = (ins - freed)[:COUNT], (ins - outs)[:COUNT]
        m.d.comb += [Assert(held <= depth), Assert(waits <= depth + HEADS)]
        with m.If(comes & (ins == n)):
            m.d.comb += Assume(fields_of(job) == want)
        with m.If(dut.first_valid & (offered == number)):
            m.d.comb += Assert(waits > goes)
            with m.If((outs + goes)[:COUNT] == n):
                m.d.comb += Assert(fields_of(dut.first) == want)
        with m.If((outs == n) & arrived_of(here, number, channels).any()):
            m.d.comb += Assert(dut.has_more_steps.bit_select(number, 1) == ~want[-1])

        # Jobs that wait can be read two clocks later, but for those that are done meanwhile.
        waiting = dut.waiting[number]
        promised = [Signal(range(HEADS + 1), name=f"promised_{n}") for n in range(2)]
        m.d.sync += [
            promised[0].eq(waiting - (goes & (waiting != 0))),
            promised[1].eq(Mux(goes & (promised[0] != 0), promised[0] - 1, promised[0])),
        ]
        with m.If((offered == number) & (promised[1] > goes)):
            m.d.comb += Assert(dut.first_valid)

        # Where the jobs are: at the heads, on their way there, or in the backlog.
        heads_layout = data.ArrayLayout(range(HEADS), channels)
        first_head = here.view("first_head", heads_layout)
        free_head = here.view("free_head", heads_layout)
        arrival = here.arrival
        rows = [
            [
                at * HEADS + (place + behind) % HEADS
                for at in range(channels)
                for place in range(HEADS)
            ]
            for behind in range(2)
        ]
        m.d.comb += [
            Assert(offered < channels),
            Assert(here.offered == offered),
            Assert(here.before == channel_read),
            Assert(here.is_same == (offered == channel_read)),
            *(
                Assert(
                    here.signal(f"row_{n}") == Array(rows[n])[offered * HEADS + first_head[offered]]
                )
                for n in range(2)
            ),
        ]
        if has_backlog:
            m.d.comb += Assert(sum(arrival) <= 1)
        age = (n - outs)[:COUNT]
        if has_backlog:
            place_bits = (depth - 1).bit_length()
            places = data.ArrayLayout(place_bits, channels)
            first_place = here.view("first_place", places)
            free_place = here.view("free_place", places)
            (read,) = here.backlog.read_ports
            m.d.comb += Assert(~inside(here.turns).locked)
        for at in range(channels):
            arrived, coming = here.signal(f"arrived_{at}"), here.signal(f"coming_{at}")
            marks = here.signal(f"marks_{at}")
            stored = here.signal(f"stored_{at}") if has_backlog else 0
            under_way = arrival[at] if has_backlog else 0
            is_chosen = number == at
            of_this = dut.i.valid & (job.channel == at)
            behind = first_head[at] + arrived
            m.d.comb += [
                # The request queue vouches for those that are not freed.
                Assume(~of_this | ((stored + under_way if has_backlog else arrived) < depth)),
                Assert(~(was_fetched & (channel_read == at)) | (arrived != 0)),
                Assert(coming == arrived + under_way),
                Assert(coming <= HEADS),
                Assert(first_head[at] < HEADS),
                Assert(free_head[at] == Mux(behind < HEADS, behind, behind - HEADS)),
                Assert(~is_chosen | (waits == arrived + under_way + stored)),
                Assert(~is_chosen | (held == (stored + under_way if has_backlog else arrived))),
            ]
            for place in range(HEADS):
                content = row(m, here.heads, at * HEADS + place)
                head_age = Signal(range(HEADS), name=f"head_age_{at}_{place}")
                m.d.comb += head_age.eq(
                    Mux(
                        place >= first_head[at],
                        place - first_head[at],
                        place + HEADS - first_head[at],
                    )
                )
                with m.If(head_age < arrived):
                    m.d.comb += [
                        Assert(content.last),
                        Assert(marks[place] == ~content.column.ends),
                    ]
                    with m.If(is_chosen & (age == head_age)):
                        m.d.comb += Assert(fields_of(content) == want)
            if not has_backlog:
                continue
            m.d.comb += [
                Assert(free_place[at] == (first_place[at] + stored)[:place_bits]),
                Assert(stored <= depth),
                Assert(here.signal(f"is_stored_{at}") == (stored != 0)),
                Assert(~here.signal(f"may_move_{at}") | (stored != 0)),
                Assert(
                    ~here.signal(f"may_move_{at}")
                    | (coming != HEADS)
                    | (was_fetched & has_one_step & (channel_read == at))
                ),
            ]
            with m.If(under_way):
                m.d.comb += Assert(read.data.last)
                with m.If(is_chosen & (age == arrived)):
                    m.d.comb += Assert(fields_of(read.data) == want)
            for place in range(1 << place_bits):
                content = row(m, here.backlog, at << place_bits | place)
                place_age = Signal(place_bits, name=f"place_age_{at}_{place}")
                m.d.comb += place_age.eq(place - first_place[at])
                with m.If(place_age < stored):
                    m.d.comb += Assert(content.last)
                    with m.If(is_chosen & (age == place_age + under_way + arrived)):
                        m.d.comb += Assert(fields_of(content) == want)
        m.d.comb += [
            Assert(promised[0] <= waiting),
            Assert(promised[1] <= arrived_of(here, number, channels)),
        ]

        # The assumptions can be met: the last job of a full store leaves.
        was_full = Signal()
        with m.If(waits == (depth + HEADS if has_backlog else depth)):
            m.d.sync += was_full.eq(1)
        m.d.comb += Cover(was_full & goes & (waits == 1) & want[-1] & (outs == n))
        return m


def arrived_of(here: Inside, number: Value, channels: int) -> Value:
    """Return the jobs at the head of the channel of this number."""
    counts = here.array("arrived_{}", channels)
    found = counts[0]
    for at in range(1, channels):
        found = Mux(number == at, counts[at], found)
    return found


def _offers_the_job_that_leaves(store: JobStore, inner: Inside) -> None:
    first = inner.view("first_head", data.ArrayLayout(range(HEADS), store.params.channels))
    inner.module.d.comb += inner.heads.read_ports[0].addr.eq(
        inner.offered * HEADS + first[inner.offered]
    )


def _promises_jobs_of_the_backlog(store: JobStore, inner: Inside) -> None:
    inner.module.d.comb += store.waiting[0].eq(Mux(inner.stored_0 != 0, HEADS, inner.coming_0))


def _marks_the_wrong_job(_store: JobStore, inner: Inside) -> None:
    inner.module.d.sync += inner.marks_0[0].eq(inner.marks_0[1])


PROOFS = [
    Proof(
        f"job store of {depth}: order, nothing lost, jobs where they were promised",
        partial(JobSpec, depth),
        depth=2,
        cover=cover,
        bugs=bugs,
        unbounded=True,
    )
    for depth, cover, bugs in (
        (
            2,
            10,
            (
                Bug("a job that is offered again", JobStore, _offers_the_job_that_leaves, depth=6),
                Bug("a column that is no column", JobStore, _marks_the_wrong_job, depth=6),
            ),
        ),
        (
            4,
            24,
            (Bug("a job promised early", JobStore, _promises_jobs_of_the_backlog, depth=8),),
        ),
    )
]
