"""Ports of the monitor and their payloads: numbers of the counters, records of events."""

from functools import cache

from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hw.params import TmaParams

COUNT_BITS = 64
"""Width of a count, which wraps to 0 behind its largest value."""


class Counter(enum.Enum, shape=6):
    """Counters of a unit, by their numbers.

    A stream *waits* in a clock in which its payload is offered and not taken. The mean of what is
    summed up clock by clock is its counter divided by CYCLES.

    Members
    -------
    CYCLES : cycles
        Clocks in which the counters ran.
    BUSY : cycles
        Clocks in which a request, a tensor map, a thread that waits or an answer was pending.
    TENSOR_LOADS : requests
        Tensor loads accepted.
    BULK_LOADS : requests
        Bulk loads accepted.
    PREFETCHES : requests
        Tensor and bulk prefetches accepted.
    TENSOR_STORES : requests
        Tensor stores accepted.
    BULK_STORES : requests
        Bulk stores accepted.
    REDUCTIONS : requests
        Tensor and bulk reductions to global memory accepted.
    DSMEM_REQUESTS : requests
        Copies and reductions to the shared memory of other CTAs accepted.
    GROUP_OPERATIONS : requests
        Commits of bulk groups and waits for them accepted.
    REFUSED : requests
        Requests that setup refused.
    LOADS_ENDED : requests
        Loads that ended, those that failed included. Prefetches, and loads that move nothing, do
        not count.
    STORES_ENDED : requests
        Stores, reductions and DSMEM requests that ended, those that failed included.
    ERROR_RECORDS : records
        Error records taken.
    MAP_HITS : requests
        Tensor requests whose map was in the descriptor cache, or on its way, when it was looked up.
    MAP_MISSES : requests
        Tensor requests whose map was fetched for them.
    MAP_FETCHES : maps
        Tensor maps read from global memory: for misses, and for prefetches of maps.
    LINES_READ : lines
        Lines of global memory requested for loads.
    LINES_PREFETCHED : lines
        Lines of global memory requested for prefetches.
    LINES_WRITTEN : lines
        Lines written to global memory by stores.
    LINES_REDUCED : lines
        Lines sent to global memory by reductions.
    BEATS_WRITTEN : beats
        Clocks in which shared memory took a write.
    PIECES_WRITTEN : pieces
        Pieces of 16 bytes written to shared memory, those of fill included.
    FILL_PIECES : pieces
        Pieces of fill that were given to the lanes of shared memory.
    BEATS_READ : beats
        Clocks in which shared memory took a read.
    PIECES_READ : pieces
        Pieces of 16 bytes read from shared memory.
    BARRIER_OPERATIONS : operations
        mbarrier operations of the SM's threads taken.
    REQUEST_STALLS : cycles
        A request waits at the port.
    MAP_STALLS : cycles
        A tensor request waits for the fetch of its map.
    SETUP_STALLS : cycles
        A tensor request that has its map waits for setup.
    LOAD_SLOT_STALLS : cycles
        A job of a load waits: all requests in flight have their slots.
    STORE_SLOT_STALLS : cycles
        A job of a store waits: all requests in flight have their slots.
    READ_TAG_STALLS : cycles
        Lines to read wait in the generator: all tags are in flight.
    READ_PORT_STALLS : cycles
        The read of a line waits for global memory.
    RESPONSE_STALLS : cycles
        A line from global memory waits for the unit.
    LANE_STALLS : cycles
        A line that arrived waits for the lanes of shared memory.
    FILL_STALLS : cycles
        A beat of fill waits for the lanes of shared memory.
    SMEM_WRITE_STALLS : cycles
        A write waits for shared memory.
    STORE_LINE_STALLS : cycles
        A line of a store waits: as many as can be read wait for their bytes.
    SMEM_READ_STALLS : cycles
        A read waits for shared memory.
    WRITE_TAG_STALLS : cycles
        A line of a store has its bytes and waits: all tags are in flight.
    WRITE_PORT_STALLS : cycles
        The write of a line waits for global memory.
    COMPLETION_STALLS : cycles
        The completion of a load waits for the mbarrier unit.
    PACKET_STALLS : cycles
        A packet for other CTAs waits for the crossbar.
    REQUESTS_WAITING : requests, summed up
        Requests in the queue in front of the descriptor cache and of bulk setup.
    LOADS_IN_FLIGHT : requests, summed up
        Loads that have a slot: from setup to their end.
    STORES_IN_FLIGHT : requests, summed up
        Stores, reductions and DSMEM requests that have a slot: from setup to their end.
    READS_IN_FLIGHT : lines, summed up
        Lines from their request until their data leaves the port of global memory.
    WRITES_IN_FLIGHT : lines, summed up
        Lines from their write until its answer is counted.
    PACKETS_SENT : packets
        Packets of data sent to other CTAs.
    PACKETS_RECEIVED : packets
        Packets of data of other CTAs taken.
    EVENTS_LOST : events
        Events that are missing at the port ``trace``.
    """

    CYCLES = 0
    BUSY = 1
    TENSOR_LOADS = 2
    BULK_LOADS = 3
    PREFETCHES = 4
    TENSOR_STORES = 5
    BULK_STORES = 6
    REDUCTIONS = 7
    DSMEM_REQUESTS = 8
    GROUP_OPERATIONS = 9
    REFUSED = 10
    LOADS_ENDED = 11
    STORES_ENDED = 12
    ERROR_RECORDS = 13
    MAP_HITS = 14
    MAP_MISSES = 15
    MAP_FETCHES = 16
    LINES_READ = 17
    LINES_PREFETCHED = 18
    LINES_WRITTEN = 19
    LINES_REDUCED = 20
    BEATS_WRITTEN = 21
    PIECES_WRITTEN = 22
    FILL_PIECES = 23
    BEATS_READ = 24
    PIECES_READ = 25
    BARRIER_OPERATIONS = 26
    REQUEST_STALLS = 27
    MAP_STALLS = 28
    SETUP_STALLS = 29
    LOAD_SLOT_STALLS = 30
    STORE_SLOT_STALLS = 31
    READ_TAG_STALLS = 32
    READ_PORT_STALLS = 33
    RESPONSE_STALLS = 34
    LANE_STALLS = 35
    FILL_STALLS = 36
    SMEM_WRITE_STALLS = 37
    STORE_LINE_STALLS = 38
    SMEM_READ_STALLS = 39
    WRITE_TAG_STALLS = 40
    WRITE_PORT_STALLS = 41
    COMPLETION_STALLS = 42
    PACKET_STALLS = 43
    REQUESTS_WAITING = 44
    LOADS_IN_FLIGHT = 45
    STORES_IN_FLIGHT = 46
    READS_IN_FLIGHT = 47
    WRITES_IN_FLIGHT = 48
    PACKETS_SENT = 49
    PACKETS_RECEIVED = 50
    EVENTS_LOST = 51


STALLS = tuple(counter for counter in Counter if counter.name.endswith("_STALLS"))
"""Counters of stalls, in order."""


class CounterPort(wiring.Signature):
    """Port by which the owner of a unit reads its counters.

    All counters run and stop together. While they are stopped, their values are of one moment.

    Members
    -------
    select : In
        Number of a counter.
    value : Out
        Count of the counter that was selected in the clock before; 0 if the unit has no such
        counter. While the counters run, events of the last ``EventCounters.settle_clocks`` clocks
        may be missing.
    freeze : In
        The counters stop. Events do not count from the clock behind its rise on, up to the clock of
        its fall.
    clear : In
        All counts become 0. Events of this clock do not count, those of the next one do.
    settled : Out
        The counters have stopped, and nothing is missing in any value.
    """

    def __init__(self, numbers: type = Counter, bits: int = COUNT_BITS) -> None:
        super().__init__(
            {
                "select": In(numbers),
                "value": Out(bits),
                "freeze": In(1),
                "clear": In(1),
                "settled": Out(1),
            }
        )


class EventKind(enum.Enum, shape=6):
    """Kinds of events: milestones of requests, and samples of the whole unit.

    Members
    -------
    ACCEPTED : a request was accepted; ``argument`` is its `Operation`
    MAP_HIT : a tensor request leaves the descriptor cache, which had its map; ``argument`` is bits
        37:6 of the map's address
    MAP_MISS : the same, and the map was fetched for it
    REFUSED : setup refused a request; ``argument`` is the `ErrorCode`
    OPENED : a request leaves setup and gets ``slot``; ``argument`` is its pieces of shared memory
    FIRST_LINE : the generator gives the first line of the request in ``slot``; ``argument`` is bits
        31:0 of the line's number
    LAST_LINE : the same for the last line; it is missing if the last step of a box has no data
    ONLY_LINE : the same for a line that is first and last
    SOURCE_READ : the last byte of a store was read from shared memory
    ENDED : a load gives its last signal, or the last line of a store is performed; ``slot`` is free
    FAILED : the same with an error record in place of the signal
    SAMPLE : ``SAMPLE_CLOCKS`` clocks have passed in which something was pending. Bit i of
        ``request_id``: ``STALLS[i]`` has counted. ``slot``: loads and stores in flight.
        ``argument``: reads in flight in bits 15:0, writes in flight in bits 31:16
    """

    ACCEPTED = 0
    MAP_HIT = 1
    MAP_MISS = 2
    REFUSED = 3
    OPENED = 4
    FIRST_LINE = 5
    LAST_LINE = 6
    ONLY_LINE = 7
    SOURCE_READ = 8
    ENDED = 9
    FAILED = 10
    SAMPLE = 11


SAMPLE_CLOCKS = 256
"""Clocks from one sample to the next."""

CLOCK_BITS = 32
"""Width of the number of the clock of an event, which wraps."""


class EventRecord(data.Struct):
    """Event, of 16 bytes: a host keeps it as it is. Fields that a kind does not need are 0.

    Members
    -------
    clock : clocks since the reset
    kind : see `EventKind`
    store : the request is a store, reduction or DSMEM request
    gap : events are missing in front of this one
    stream : of the request; ACCEPTED, MAP_HIT, MAP_MISS, REFUSED and OPENED have it
    slot : of the request, among the loads or among the stores; from OPENED to its end
    request_id : of the request; the kinds from FIRST_LINE to SOURCE_READ do not have it
    argument : as `EventKind` says
    """

    clock: CLOCK_BITS
    kind: EventKind
    store: 1
    gap: 1
    stream: 8
    slot: 16
    request_id: 32
    argument: 32


@cache
def ended_layout(params: TmaParams) -> data.StructLayout:
    """A request that gives its slot back in this clock.

    Members
    -------
    valid : a request ends; otherwise the other members have no meaning
    failed : it ends with an error record
    slot : its slot
    request_id : of the request
    """
    return data.StructLayout(
        {
            "valid": 1,
            "failed": 1,
            "slot": params.slot_bits,
            "request_id": params.request_id_bits,
        }
    )


@cache
def slot_use_layout(params: TmaParams) -> data.StructLayout:
    """Use of the slots of a tracker, for the monitor.

    Members
    -------
    in_flight : requests that have a slot
    ended : see ``ended_layout``
    """
    in_flight = range(params.requests_in_flight + 1)
    return data.StructLayout({"in_flight": in_flight, "ended": ended_layout(params)})


class MapUse(data.Struct):
    """Use of the descriptor cache, for the monitor.

    Members
    -------
    waits : a tensor request waits for the fetch of its map
    missed : the map of the request that is offered was fetched for it
    """

    waits: 1
    missed: 1


def marks_field(params: TmaParams) -> dict[str, data.StructLayout]:
    """Return the field ``marks`` of the runs and lines of a request, for the monitor.

    It is present with ``counters``.

    Members of ``marks``
    --------------------
    first : first run or line of the request
    last : run or line of the last step of the request; there is none if that step has no data
    """
    return {"marks": data.StructLayout({"first": 1, "last": 1})} if params.counters else {}
