"""Contexts loop: a unit that shares its ports with hostile neighbours."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.contexts_top import Contexts, context_signature
from hw.layouts.barriers import BarrierCommand
from hw.layouts.contexts import (
    RANGE_BYTES,
    address_range_layout,
    granule_of_line,
    granule_of_map,
    is_in_range,
)
from hw.layouts.isa import Operation
from hw.layouts.ports import (
    assign_lanes,
    descriptor_fill_layout,
    gnic_ack_layout,
    gnic_response_layout,
    is_unanswered,
    lanes_layout,
    request_layout,
)
from hw.lib.arbiter import Arbiter
from hw.lib.pass_port import pass_port
from hw.lib.queue import Queue
from hw.params import TmaParams
from hw.top import tma_ports

NEIGHBOUR_BASE = 0xA5C3_7E91_5A00_0000
"""Address of the global memory of the neighbours, cut to the bits of an address."""

NEIGHBOUR_BYTES = 1 << 20
"""Bytes of the global memory of the neighbours."""

OPERATIONS = (
    *(Operation.TENSOR_LOAD, Operation.TENSOR_LOAD, Operation.BULK_LOAD, Operation.TENSOR_PREFETCH),
    *(Operation.TENSOR_STORE, Operation.BULK_STORE, Operation.TENSOR_REDUCE),
    Operation.COMMIT_GROUP,
)
"""Operations of a neighbour, a power of two. No thread of it waits for its groups."""

COMMANDS = 8
"""Operations on barriers of a neighbour: the first ones, which do not wait."""

ANSWERS = 16
"""Answers to a neighbour that memory has at once."""

LONG = 11
"""Bit of a counter: a neighbour takes nothing for ``2**LONG`` clocks, and then for as many all."""


class Noise(wiring.Component):
    """Random bits, new ones each clock.

    Parameters
    ----------
    width : int
        Bits.
    seed : int
        Other than 0.

    Members
    -------
    o : Out(width)
    """

    def __init__(self, width: int, seed: int) -> None:
        self.seed = seed
        super().__init__({"o": Out(width)})

    def elaborate(self, platform) -> Module:
        m = Module()
        # Marsaglia's xorshift with 64 bits of state; older states fill the width.
        state = Signal(64, init=(self.seed * 0x9E37_79B9_7F4A_7C15) % (1 << 64))
        older = Signal(max(len(self.o), 64))
        first = state ^ (state << 13)[:64]
        second = first ^ (first >> 7)
        m.d.sync += [state.eq(second ^ (second << 17)[:64]), older.eq(Cat(state, older))]
        m.d.comb += self.o.eq(older)
        return m


def neighbour_range(params: TmaParams) -> dict[str, int]:
    """Return the address range of the neighbours; see ``address_range_layout``."""
    base = NEIGHBOUR_BASE % (1 << params.address_bits)
    return {
        "first": base // RANGE_BYTES,
        "last": (base + NEIGHBOUR_BYTES) // RANGE_BYTES - 1,
    }


def is_neighbours(params: TmaParams, granule: Value) -> Value:
    """Return 1 if a granule of ``RANGE_BYTES`` is in the range of the neighbours."""
    return is_in_range(Const(neighbour_range(params), address_range_layout(params)), granule)


class Neighbour(wiring.Component):
    """Stands in for the SM of a context: requests and commands of random bits.

    Half of the addresses are in its own memory, and half of the offsets in its window. It takes no
    result and no error record for ``2**LONG`` clocks at a time. Any word that its unit reads as
    that of a barrier is random.

    Parameters
    ----------
    params : TmaParams
    seed : int
        Of the random bits.

    Members
    -------
    request, error, barrier_command and so on : the ports of ``Tma`` to an SM, from the other side
    """

    def __init__(self, params: TmaParams, seed: int) -> None:
        self.params = params
        self.seed = seed
        super().__init__(context_signature(params).flip())

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        layout = request_layout(p)
        m.submodules.noise = noise = Noise(layout.size + BarrierCommand.as_shape().size, self.seed)
        clocks = Signal(LONG + 1)
        m.d.sync += clocks.eq(clocks + 1)
        takes = clocks[LONG]
        for name, member in self.signature.members.items():
            is_stream = member.is_signature and isinstance(member.signature, stream.Signature)
            if is_stream and member.flow is In:
                m.d.comb += getattr(self, name).ready.eq(takes)

        drawn = data.View(layout, noise.o[: layout.size])
        request = Signal(layout, reset_less=True)
        offered = Signal()
        # The bits of a request change each clock; those of an offered one are held.
        with m.If(~offered | self.request.ready):
            m.d.sync += [
                offered.eq(noise.o[0]),
                request.eq(drawn),
                request.operation.eq(Array(OPERATIONS)[noise.o[1:4]]),
                request.size.eq(Mux(noise.o[4], drawn.size[:12], drawn.size)),
                request.smem_address.eq(
                    Mux(noise.o[5], drawn.smem_address[:14] << 4, drawn.smem_address)
                ),
                request.mbarrier.eq(Mux(noise.o[6], drawn.mbarrier[:8] << 3, drawn.mbarrier)),
            ]
            with m.If(noise.o[7]):
                own = NEIGHBOUR_BASE + (drawn.global_address[:10] << 6)
                m.d.sync += request.global_address.eq(own)
            with m.If(noise.o[8]):
                m.d.sync += [request.mode.eq(0), request.rank.eq(2)]
                m.d.sync += [
                    coord.eq(drawn.coords[i][:5]) for i, coord in enumerate(request.coords)
                ]
        m.d.comb += [self.request.valid.eq(offered), self.request.p.eq(request)]

        command = Signal(BarrierCommand, reset_less=True)
        commands = Signal()
        random = data.View(BarrierCommand, noise.o[layout.size :])
        with m.If(~commands | self.barrier_command.ready):
            m.d.sync += [
                commands.eq(noise.o[9:12] == 0),
                command.eq(random),
                command.op.eq(random.op.as_value()[: (COMMANDS - 1).bit_length()]),
                command.time_limit.eq(0),
            ]
        m.d.comb += [
            self.barrier_command.valid.eq(commands),
            self.barrier_command.p.eq(command),
            self.barrier_memory.read_data.eq(noise.o[64:128]),
        ]
        return m


class NeighbourMemory(wiring.Component):
    """Stands in for the memory of the neighbours: random data, and now and then an error.

    Tensor maps are those of matrices in it, of which one in four has a random word. Answers come in
    order, after any time.

    Parameters
    ----------
    params : TmaParams
        With ``contexts``.

    Members
    -------
    read, write : In(stream of tags)
        Reads and writes of lines. ``write`` is present with ``stores``.
    response, ack : Out(stream) of ``gnic_response_layout`` and ``gnic_ack_layout``
        Their answers.
    map_read : In(stream of 0 bits)
        Reads of tensor maps.
    map : Out(stream) of ``descriptor_fill_layout``
        Tensor maps.
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        shared = params.of_all_contexts
        super().__init__(
            {
                "read": In(stream.Signature(shared.tag_bits)),
                "response": Out(stream.Signature(gnic_response_layout(shared))),
                "write": In(stream.Signature(shared.tag_bits)),
                "ack": Out(stream.Signature(gnic_ack_layout(shared))),
                "map_read": In(stream.Signature(0)),
                "map": Out(stream.Signature(descriptor_fill_layout(params))),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.noise = noise = Noise(256 + 8 * self.params.line_bytes, 99)
        for number, (tags, answer) in enumerate(
            ((self.read, self.response), (self.write, self.ack))
        ):
            queue = Queue(tags.p.shape(), ANSWERS)
            m.submodules[f"answers_{number}"] = queue
            connect(m, flipped(tags), queue.i)
            payload = Signal(answer.p.shape(), name=f"answer_{number}", reset_less=True)
            valid = Signal(name=f"answers_{number}_valid")
            bits = noise.o[8 * number : 8 * number + 8]
            m.d.comb += [
                queue.o.ready.eq((~valid | answer.ready) & bits[0]),
                answer.valid.eq(valid),
                answer.p.eq(payload),
            ]
            with m.If(~valid | answer.ready):
                m.d.sync += [
                    valid.eq(queue.o.valid & queue.o.ready),
                    payload.eq(noise.o[256:]),
                    payload.tag.eq(queue.o.p),
                    payload.error.eq(bits[1:] == 0),
                ]
        m.submodules.maps = maps = Queue(1, ANSWERS)
        words = Signal(data.ArrayLayout(32, 16), reset_less=True)
        valid = Signal()
        base = NEIGHBOUR_BASE % (1 << self.params.address_bits)
        matrix = {0: base & 0xFFFF_FFFF, 1: base >> 32, 2: 0x10, 3: 4, 8: 63, 9: 15}
        matrix |= {13: 15 << 24, 14: 3}
        m.d.comb += [
            maps.i.valid.eq(self.map_read.valid),
            self.map_read.ready.eq(maps.i.ready),
            maps.o.ready.eq((~valid | self.map.ready) & noise.o[16]),
            self.map.valid.eq(valid),
            self.map.p.words.eq(words),
        ]
        with m.If(~valid | self.map.ready):
            m.d.sync += valid.eq(maps.o.valid & maps.o.ready)
            m.d.sync += [words[i].eq(matrix.get(i, 0)) for i in range(16)]
            with m.If(noise.o[17:19] == 0):
                m.d.sync += words[noise.o[19:23]].eq(noise.o[32:64])
        return m


class ContextsLoop(wiring.Component):
    """A unit that shares its ports with the units of random neighbours.

    It stands in for a ``Tma`` in simulations: every test of the unit is then one of its isolation.
    The unit is context 0 and may access all addresses. What the neighbours access in their own
    memory and in their windows stays inside; if they get at anything else, it is seen at the ports
    of the unit, as an access that no request has asked for.

    Parameters
    ----------
    params : TmaParams
        With ``contexts`` above 1.

    Members
    -------
    request and so on : the ports of ``Tma``
    """

    def __init__(self, params: TmaParams) -> None:
        self.params = params
        super().__init__(tma_ports(params))

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self.params
        m.submodules.contexts = contexts = Contexts(p)
        m.submodules.memory = memory = NeighbourMemory(p)
        for name in contexts.context_0.signature.members:
            pass_port(m, name, contexts.context_0, self)
        everything = {"first": 0, "last": (1 << address_range_layout(p).members["first"]) - 1}
        m.d.comb += contexts.allowed[0].eq(Const(everything, address_range_layout(p)))
        for number in range(1, p.contexts):
            m.submodules[f"neighbour_{number}"] = neighbour = Neighbour(p, number)
            connect(m, getattr(contexts, f"context_{number}"), neighbour)
            own = Const(neighbour_range(p), address_range_layout(p))
            m.d.comb += contexts.allowed[number].eq(own)
        lines = [("gnic_request", "gnic_response", memory.read, memory.response)]
        if p.stores:
            lines.append(("gnic_write", "gnic_ack", memory.write, memory.ack))
        for access, answer, asked, answered in lines:
            self._split_lines(m, access, answer, asked, answered)
        self._split_maps(m, memory)
        self._split_smem(m)
        return m

    def _split_lines(self, m: Module, access: str, answer: str, asked, answered) -> None:
        """Part lines of the unit from those that neighbours access in their own memory."""
        p, contexts = self.params, m.submodules.contexts
        shared, own = getattr(contexts, access), getattr(self, access)
        is_its = is_neighbours(p, granule_of_line(p, shared.p.line))
        stays = (shared.p.tag >> p.tag_bits != 0) & is_its
        is_prefetch = is_unanswered(shared.p)
        m.d.comb += [
            *(own.p[name].eq(shared.p[name]) for name, _ in own.p.shape()),
            own.valid.eq(shared.valid & ~stays),
            asked.p.eq(shared.p.tag),
            asked.valid.eq(shared.valid & stays & ~is_prefetch),
            shared.ready.eq(Mux(stays, asked.ready | is_prefetch, own.ready)),
        ]
        answers = Arbiter(answered.p.shape(), 2)
        m.submodules[f"{answer}s"] = answers
        connect(m, answered, answers.i[1])
        own = getattr(self, answer)
        m.d.comb += [
            *(answers.i[0].p[name].eq(own.p[name]) for name, _ in own.p.shape()),
            answers.i[0].valid.eq(own.valid),
            own.ready.eq(answers.i[0].ready),
        ]
        connect(m, answers.o, getattr(contexts, answer))

    def _split_maps(self, m: Module, memory: NeighbourMemory) -> None:
        """Part tensor maps of the unit from those that neighbours read in their own memory."""
        p, contexts = self.params, m.submodules.contexts
        shared = contexts.descriptor_request
        granule = granule_of_map(p, shared.payload)
        m.d.comb += [
            self.descriptor_request.payload.eq(shared.payload),
        ]
        self._split_in_order(
            m,
            "maps",
            (shared, self.descriptor_request, memory.map_read, is_neighbours(p, granule)),
            (contexts.descriptor_fill, self.descriptor_fill, memory.map),
        )

    def _split_smem(self, m: Module) -> None:
        """Part accesses to shared memory from those of neighbours in their windows."""
        p, contexts = self.params, m.submodules.contexts
        beats = p.smem_bytes // p.line_bytes

        def is_outside(lanes) -> Value:
            return Cat(lane.valid & (lane.beat >= beats) for lane in lanes).any()

        write = contexts.smem_write
        stays = is_outside(write.p)
        m.d.comb += [
            *assign_lanes(self.smem_write.p, write.p),
            self.smem_write.valid.eq(write.valid & ~stays),
            write.ready.eq(stays | self.smem_write.ready),
        ]
        if not p.stores:
            return
        nobody = stream.Signature(0).create(path=("smem_reads",))
        nothing = stream.Signature(lanes_layout(p)).create(path=("smem_noise",))
        m.d.comb += [
            nobody.ready.eq(1),
            nothing.valid.eq(1),
            *assign_lanes(self.smem_read.p, contexts.smem_read.p),
        ]
        self._split_in_order(
            m,
            "smem_reads",
            (contexts.smem_read, self.smem_read, nobody, is_outside(contexts.smem_read.p)),
            (contexts.smem_data, self.smem_data, nothing),
        )

    @staticmethod
    def _split_in_order(m: Module, name: str, accesses: tuple, answers: tuple) -> None:
        """Part accesses that are answered in order; payloads of accesses are not connected.

        ``accesses`` are the streams of all, of those of the unit and of those that stay, and which
        stay. ``answers`` are the streams of all, of those to the unit and of those to what stays.
        """
        shared, own, inner, stays = accesses
        owners = Queue(1, 4 * ANSWERS)
        m.submodules[f"owners_of_{name}"] = owners
        m.d.comb += [
            own.valid.eq(shared.valid & ~stays & owners.i.ready),
            inner.valid.eq(shared.valid & stays & owners.i.ready),
            shared.ready.eq(owners.i.ready & Mux(stays, inner.ready, own.ready)),
            owners.i.valid.eq(shared.valid & shared.ready),
            owners.i.payload.eq(stays),
        ]
        shared, own, inner = answers
        m.d.comb += owners.o.ready.eq(shared.valid & shared.ready)
        for number, answer in enumerate((own, inner)):
            with m.If(owners.o.valid & (owners.o.payload == number)):
                m.d.comb += [
                    shared.valid.eq(answer.valid),
                    shared.payload.eq(answer.payload),
                    answer.ready.eq(shared.ready),
                ]
