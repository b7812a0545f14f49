"""Shared memory: the memory beside a unit, which its host reads and writes, too."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import ReadPort, WritePort
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.barrier.mbarrier_unit import BarrierMemory
from hw.layouts.host import BUS_BITS, BusAccess, BusAnswer
from hw.layouts.isa import PIECE_WORDS
from hw.layouts.ports import lanes_layout, smem_read_layout, smem_write_layout
from hw.lib.memory import RowMemory
from hw.lib.queue import Queue
from hw.params import TmaParams

BARRIER_WORDS = 2
"""Words of 4 bytes in the word of a barrier."""

READS = 2
"""Beats of a store that were read, and wait until they are taken."""


class SharedMemory(wiring.Component):
    """Shared memory of ``smem_bytes``, in a bank for each word of 4 bytes of a beat.

    Latency: a beat that is read is offered in the next clock; so is the word of a barrier. An
    access of the host is answered two clocks later, or three for a write. Throughput: a beat
    written and a beat read a clock, but for the clocks in which a barrier or the host uses the
    banks. Back-pressure: barriers never wait. The host waits for barriers, and the unit's reads and
    writes for both: for one clock in which a barrier is read or written, and for two of each access
    of the host, which has at most two in four clocks. Reads also wait while ``READS`` beats are not
    taken.

    A write of some bytes of a word by the host leaves its other bytes as the unit writes them. If
    several ports write a word at once, a barrier's write stays, then the host's. If the unit reads
    a word that is written in the same clock, what is read has no meaning; the host always reads a
    word as it was written last. The unit's writes beyond ``smem_bytes``, and those of barriers, do
    nothing, and what is read there has no meaning. The host has no accesses there.

    Parameters
    ----------
    params : TmaParams

    Members
    -------
    smem_write : In(stream) of ``smem_write_layout``
    smem_read : In(stream) of ``smem_read_layout``
    smem_data : Out(stream) of ``lanes_layout``
        Beats that were read, in order.
    barrier_memory : In(BarrierMemory)
    access : In(stream) of ``BusAccess``
        Accesses of the host, by byte offset in shared memory.
    answer : Out(stream) of ``BusAnswer``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        self.rows = -(-params.smem_bytes // params.line_bytes)
        super().__init__(
            {
                "smem_write": In(stream.Signature(smem_write_layout(params))),
                "smem_read": In(stream.Signature(smem_read_layout(params))),
                "smem_data": Out(stream.Signature(lanes_layout(params))),
                "barrier_memory": In(BarrierMemory()),
                "access": In(stream.Signature(BusAccess)),
                "answer": Out(stream.Signature(BusAnswer)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        reads: list[ReadPort] = []
        writes: list[WritePort] = []
        for number in range(p.lanes * PIECE_WORDS):
            bank = RowMemory(BUS_BITS, self.rows)
            m.submodules[f"bank_{number}"] = bank
            writes.append(bank.write_port())
            reads.append(bank.read_port())

        host_reads = Signal()
        host_writes = Signal()
        barrier = self.barrier_memory
        self._serve_unit(
            m,
            reads,
            writes,
            may_read=~(barrier.read_en | host_reads),
            may_write=~(barrier.write_en | host_reads | host_writes),
        )
        self._serve_host(m, reads, writes, host_reads, host_writes)
        self._serve_barriers(m, reads, writes)
        return m

    def _serve_unit(
        self,
        m: Module,
        reads: list[ReadPort],
        writes: list[WritePort],
        *,
        may_read: Value,
        may_write: Value,
    ) -> None:
        """Read and write beats."""
        p = self.params
        m.submodules.beats = beats = Queue(lanes_layout(p), READS, latency=0)
        connect(m, beats.o, flipped(self.smem_data))
        was_read = Signal()
        m.d.comb += [
            self.smem_write.ready.eq(may_write),
            self.smem_read.ready.eq(may_read & (beats.level + was_read < READS)),
            beats.i.valid.eq(was_read),
            beats.i.payload.eq(Cat(port.data for port in reads)),
        ]
        fires = self.smem_read.valid & self.smem_read.ready
        m.d.sync += was_read.eq(fires)
        for number, (read, write) in enumerate(zip(reads, writes, strict=True)):
            lane, word = divmod(number, PIECE_WORDS)
            asked, written = self.smem_read.p[lane], self.smem_write.p[lane]
            is_written = written.valid & written.words[word] & (written.beat < self.rows)
            m.d.comb += [
                read.en.eq(fires),
                read.addr.eq(asked.beat),
                write.en.eq(self.smem_write.valid & may_write & is_written),
                write.addr.eq(written.beat),
                write.data.eq(written.data.word_select(word, BUS_BITS)),
            ]

    def _serve_host(
        self,
        m: Module,
        reads: list[ReadPort],
        writes: list[WritePort],
        host_reads: Signal,
        host_writes: Signal,
    ) -> None:
        """Read a word, and write it with the bytes that the host gives in place of those read."""
        access = self.access.p
        barrier = self.barrier_memory
        bank = Signal(range(len(reads)))
        row = Signal(range(self.rows))
        m.d.comb += Cat(bank, row).eq(access.address >> (BUS_BITS // 8 - 1).bit_length())
        was_read = Signal()
        is_answered = Signal()
        is_done = Signal()
        word = Signal(BUS_BITS)
        old = Signal(BUS_BITS)
        m.d.comb += [
            host_reads.eq(
                self.access.valid
                & ~was_read
                & ~is_answered
                & ~barrier.read_en
                & ~barrier.write_en  # which may be of the word that is read
            ),
            host_writes.eq(was_read & access.is_write),
            is_done.eq(was_read & ~(access.is_write & barrier.write_en)),
            self.access.ready.eq(is_done),
            old.eq(Array(port.data for port in reads)[bank]),
            word.eq(
                Cat(
                    Mux(access.strobe[n], access.data.word_select(n, 8), old.word_select(n, 8))
                    for n in range(BUS_BITS // 8)
                )
            ),
            self.answer.valid.eq(is_answered),
        ]
        # A write that a barrier holds up begins again: its word may be read anew.
        m.d.sync += was_read.eq(host_reads)
        with m.If(is_done):
            m.d.sync += [is_answered.eq(1), self.answer.p.data.eq(old)]
        with m.Elif(self.answer.ready):
            m.d.sync += is_answered.eq(0)
        for number, (read, write) in enumerate(zip(reads, writes, strict=True)):
            is_bank = bank == number
            with m.If(host_reads & is_bank):
                m.d.comb += [read.en.eq(1), read.addr.eq(row)]
            with m.If(host_writes & is_bank):
                m.d.comb += [write.en.eq(1), write.addr.eq(row), write.data.eq(word)]

    def _serve_barriers(self, m: Module, reads: list[ReadPort], writes: list[WritePort]) -> None:
        """Read and write the words of barriers."""
        barrier = self.barrier_memory
        pairs = len(reads) // BARRIER_WORDS
        bank_bits = (pairs - 1).bit_length()
        read_bank, read_row = barrier.read_address[:bank_bits], barrier.read_address >> bank_bits
        write_bank = barrier.write_address[:bank_bits]
        write_row = barrier.write_address >> bank_bits
        last_bank = Signal(bank_bits)  # of the word that is at the outputs
        with m.If(barrier.read_en):
            m.d.sync += last_bank.eq(read_bank)
        words = [Cat(port.data for port in reads[n : n + 2]) for n in range(0, len(reads), 2)]
        m.d.comb += barrier.read_data.eq(Array(words)[last_bank])
        for number, (read, write) in enumerate(zip(reads, writes, strict=True)):
            pair, half = divmod(number, BARRIER_WORDS)
            with m.If(barrier.read_en & (read_bank == pair)):
                m.d.comb += [read.en.eq(1), read.addr.eq(read_row)]
            with m.If(barrier.write_en):
                m.d.comb += [
                    write.en.eq((write_bank == pair) & (write_row < self.rows)),
                    write.addr.eq(write_row),
                    write.data.eq(barrier.write_data.word_select(half, BUS_BITS)),
                ]
