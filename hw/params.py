"""Parameters of the unit, the widths that follow from them, and the named presets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property

PIECE_BYTES = 16
"""Bytes of a piece. Base address, strides, box rows and shared-memory rows are multiples of it."""

SMEM_OFFSET_BITS = 24
"""Width of a shared-memory byte offset (PTX ``shared::cluster`` addresses, bits 23:0)."""

SMEM_BYTES_MIN = 2048
"""Largest row of a box in shared memory: widths of counters follow from the shared memory."""

SMEM_BYTES_MAX = (1 << 20) - 128
"""A barrier counts fewer than 2**20 bytes in one operation; a box that fills more would fault."""

TAGS_MAX = 4096
"""Most tags of accesses in flight at a memory port."""

DIMS = 5
"""Largest tensor rank."""

WARP = 32
"""Threads of a warp."""

HOST_ID_BITS = 15
"""Largest width of ``request_id`` behind a front end for hosts, whose records have 16 bits for it.

The bit above them tells whether a barrier operation is to be reported.
"""


def _require(name: str, value: int, rule: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name} = {value}: must be {rule}")


@dataclass(frozen=True)
class TmaParams:
    """Parameters of one instance of the unit.

    Parameters
    ----------
    line_bytes : int
        Width of the memory port and of the shared-memory port, in bytes: 16, 32, 64 or 128.
    address_bits : int
        Width of a global address, 32 to 64. Higher bits of 64-bit addresses are ignored.
    smem_bytes : int
        Bytes of shared memory that the CTA may use, from a row of a box, 2,048, to the most that a
        phase of a barrier counts. A footprint beyond them is refused.
    request_queue_depth : int
        Requests that can wait in each request queue in front of the descriptor cache, at least 2.
    descriptor_cache_entries : int
        Tensor maps in the fully associative descriptor cache, 2 to 64.
    setup_pipelines : int
        Dimensions of a request that setup takes in a clock, 1 to 5, each in a pipeline of its own.
        N pipelines set up a request of up to N dimensions above its rows every clock.
    tags : int
        Line requests in flight at the memory port; a power of two. A memory with a latency of L
        clocks needs L tags for a line a clock.
    requests_in_flight : int
        Requests between setup and their ``complete_tx``; a power of two. With as many as ``tags``,
        small boxes run at full rate.
    lane_depth : int
        Depth, in pieces, of each queue in front of a shared-memory lane; a power of two.
    request_id_bits : int
        Width of ``request_id``, which the issuer finds again in an error record.
    smem_reads : int
        Lines of stores in flight at the read port of shared memory; a power of two. A shared
        memory with a latency of L clocks needs a few more than L for a line a clock.
    threads : int
        Threads with bulk groups of their own; a power of two, at least 2.
    bulk_groups : int
        Bulk groups of a thread that can be counted at once; a power of two. All but one can be
        committed and pending; a further commit waits.
    barrier_waiters : int
        Threads that can wait in the mbarrier unit for phases to complete.
    completions_waiting : int
        Completions that can wait for the mbarrier unit; those of one barrier are added up while
        they wait. 0: none waits there, and none is added up.
    streams : int
        Streams of requests that share the memory port line by line; a power of two. The stream of a
        request is its warp modulo ``streams``: on an SM with four sub-cores, its sub-core.
    jobs_waiting : int
        Jobs of one channel (the loads of a stream, or all stores) that can wait between setup and
        their walk. Small boxes run at full rate if it is at least the latency of
        setup in clocks; a ``gather4`` request has four jobs.
    ctas : int
        Thread blocks of the cluster, up to 16, with ``multicast_32b`` up to 32, each on an SM with
        a unit of its own. Above 1, the unit has multicast, and access to shared memory and barriers
        of other SMs.
    contexts : int
        Contexts that share an SM without touching each other's memory, barriers and bulk groups: 1,
        2, 4 or 8. Above 1, ``hw.contexts_top`` has a unit for each; all other parameters are those
        of one unit, and ``smem_bytes`` is the window of a context. It needs a single thread block,
        and global memory at the ports of the GNIC.
    stores : bool
        Stores from shared to global memory, and bulk groups.
    reductions : bool
        Stores that memory combines with its old contents; needs ``stores``.
    short_rows : bool
        Rows of a few pieces that share a line are read with one request for the line, also where
        they are not contiguous, and written two by two. Without effect on lines of 16 bytes.
    im2col : bool
        im2col maps and access modes.
    bulk : bool
        Bulk copies, which need no tensor map, and DSMEM requests.
    gather4 : bool
        ``tile::gather4`` and, with ``stores``, ``tile::scatter4``: four rows of a matrix. This
        feature and the features below came after Hopper.
    scatter4_negative : bool
        Negative coordinates of ``tile::scatter4``, whose rows or columns outside the tensor are not
        written; needs ``gather4`` and ``stores``.
    im2col_w : bool
        ``im2col::w`` and ``im2col::w::128``; needs ``im2col``.
    swizzle_atoms : bool
        The 128-byte swizzles that exchange units of 32 or 64 bytes.
    swizzle_96b : bool
        The swizzle for rows of 96 bytes.
    sub_byte : bool
        Elements of 4 and 6 bits; needs lines of 128 bytes, and ``swizzle_atoms``, which their maps
        may have.
    b6p2x16_64 : bool
        Stores of 6-bit elements (``.b6p2x16``) with rows, extents and starts of multiples of 64
        instead of 128; needs ``sub_byte`` and ``stores``.
    cp_mask : bool
        Bulk stores with a byte mask (``.cp_mask``); needs ``stores`` and ``bulk``.
    ignore_oob : bool
        Bulk loads whose first and last bytes need not exist (``.ignore_oob``); needs ``bulk``.
    override : bool
        Tensor requests with an address, extents and strides of their own
        (``.override::global_address``, ``.override_attribute``).
    multicast_32b : bool
        Multicast masks of 32 bits (``.multicast::cluster::32b``); needs ``ctas`` above 1.
    cta_group_2 : bool
        ``.cta_group::2``: the barrier may be in the peer CTA of a pair; needs ``ctas`` above 1.
    mbarrier_v1 : bool
        Barriers of layout v1 besides those of layout v0: they have a report, and a phase that
        depends on it.
    report_mechanism : bool
        Loads that report to their barriers that their data has a pattern
        (``.mbarrier::report::validity``); needs ``mbarrier_v1``.
    axi_data_bits : int
        Width of the data of the AXI4 port: a power of two from 64 to 1024. 0: there is no AXI4
        port; global memory has the ports of the GNIC.
    axi_prefetch : bool
        A prefetch is a read at the AXI4 port, whose data is dropped. Otherwise no prefetch gets
        there.
    axi_cache : int
        AxCACHE of all accesses.
    axi_prot : int
        AxPROT of all accesses.
    axi_atomics : bool
        Reductions of integers, but for INC and DEC, are AtomicStores of AXI5; needs
        ``axi_data_bits`` and ``reductions``. Others are a read and a write of a line.
    tlb_entries : int
        Pages whose translation the TLB holds, 2 to 32; all addresses of requests, also those of
        tensor maps, are then virtual. 0: there is no TLB; addresses are physical. It works with
        every other parameter. With ``axi_data_bits`` it is in front of the AXI4 port, and with
        ``host`` it does not translate what the front end itself accesses. Each unit of a cluster
        has its own.
    tlb_page_bits : int
        Width of an address in a page: 12, pages of 4 KiB, to 21, pages of 2 MiB. Without effect
        without TLB.
    host : bool
        Front end for hosts without an SM: registers, rings of records in memory, shared memory
        beside the unit; needs ``axi_data_bits``, ``stores`` and a single thread block.
    counters : bool
        Counters of requests, lines, stalls and more, and a stream of events.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or needs another parameter.
    """

    line_bytes: int = 128
    address_bits: int = 64
    smem_bytes: int = 228 * 1024
    request_queue_depth: int = 8
    descriptor_cache_entries: int = 8
    setup_pipelines: int = 5
    tags: int = 512
    requests_in_flight: int = 512
    lane_depth: int = 16
    request_id_bits: int = 16
    smem_reads: int = 32
    threads: int = 1024
    bulk_groups: int = 8
    barrier_waiters: int = 64
    completions_waiting: int = 4
    streams: int = 4
    jobs_waiting: int = 20
    ctas: int = 1
    contexts: int = 1
    stores: bool = True
    reductions: bool = True
    short_rows: bool = True
    im2col: bool = True
    bulk: bool = True
    gather4: bool = False
    scatter4_negative: bool = False
    im2col_w: bool = False
    swizzle_atoms: bool = False
    swizzle_96b: bool = False
    sub_byte: bool = False
    b6p2x16_64: bool = False
    cp_mask: bool = False
    ignore_oob: bool = False
    override: bool = False
    multicast_32b: bool = False
    cta_group_2: bool = False
    mbarrier_v1: bool = False
    report_mechanism: bool = False
    axi_data_bits: int = 0
    axi_prefetch: bool = False
    axi_cache: int = 0b1111
    axi_prot: int = 0b010
    axi_atomics: bool = False
    tlb_entries: int = 0
    tlb_page_bits: int = 12
    host: bool = False
    counters: bool = False

    def __post_init__(self) -> None:
        def power_of_two(value: int, low: int, high: int) -> bool:
            return low <= value <= high and value & (value - 1) == 0

        for name, low, high in (
            ("line_bytes", PIECE_BYTES, 128),
            ("tags", 2, TAGS_MAX),
            ("requests_in_flight", 2, 4096),
            ("lane_depth", 2, 32),
            ("smem_reads", 2, 256),
            ("threads", 2, 2048),
            ("bulk_groups", 4, 64),
            ("streams", 1, 8),
            ("contexts", 1, 8),
        ):
            value = getattr(self, name)
            rule = f"a power of two from {low} to {high}"
            _require(name, value, rule, power_of_two(value, low, high))
        for name, low, high in (
            ("address_bits", 32, 64),
            ("request_queue_depth", 2, 1024),
            ("descriptor_cache_entries", 2, 64),
            ("setup_pipelines", 1, DIMS),
            ("request_id_bits", 1, 32),
            ("barrier_waiters", 1, 256),
            ("jobs_waiting", 4 if self.gather4 else 1, 128),
            ("ctas", 1, self.mask_bits),
            ("axi_cache", 0, 15),
            ("axi_prot", 0, 7),
            ("tlb_page_bits", 12, 21),
        ):
            value = getattr(self, name)
            _require(name, value, f"from {low} to {high}", low <= value <= high)
        holds = self.completions_waiting in (0, *range(2, 9))
        _require("completions_waiting", self.completions_waiting, "0, or from 2 to 8", holds)
        holds = self.axi_data_bits == 0 or power_of_two(self.axi_data_bits, 64, 1024)
        rule = "0, or a power of two from 64 to 1024"
        _require("axi_data_bits", self.axi_data_bits, rule, holds)
        holds = self.tlb_entries in (0, *range(2, 33))
        _require("tlb_entries", self.tlb_entries, "0, or from 2 to 32", holds)
        warps = max(1, self.threads // WARP)
        rule = f"at most {warps}, the warps of threads = {self.threads}"
        _require("streams", self.streams, rule, self.streams <= warps)
        holds = SMEM_BYTES_MIN <= self.smem_bytes <= SMEM_BYTES_MAX and self.smem_bytes % 128 == 0
        rule = f"a multiple of 128 from {SMEM_BYTES_MIN} to {SMEM_BYTES_MAX}"
        _require("smem_bytes", self.smem_bytes, rule, holds)
        self._check_features()

    def _check_features(self) -> None:
        """Refuse a feature without the features and widths that it needs."""
        holds = self.im2col or not self.im2col_w
        _require("im2col_w", self.im2col_w, "False without im2col", holds)
        for name in "reductions", "cp_mask":
            value = getattr(self, name)
            _require(name, value, "False without stores", self.stores or not value)
        for name in "cp_mask", "ignore_oob":
            value = getattr(self, name)
            _require(name, value, "False without bulk", self.bulk or not value)
        for name, needs in (
            ("scatter4_negative", ("gather4", "stores")),
            ("sub_byte", ("swizzle_atoms",)),
            ("b6p2x16_64", ("sub_byte", "stores")),
            ("report_mechanism", ("mbarrier_v1",)),
        ):
            value = getattr(self, name)
            for needed in needs:
                holds = getattr(self, needed) or not value
                _require(name, value, f"False without {needed}", holds)
        for name in "multicast_32b", "cta_group_2":
            value = getattr(self, name)
            holds = self.ctas > 1 or not value
            _require(name, value, "False with a single thread block", holds)
        for needed, holds in (
            ("axi_data_bits", self.axi_data_bits > 0),
            ("reductions", self.reductions),
        ):
            value = self.axi_atomics
            _require("axi_atomics", value, f"False without {needed}", holds or not value)
        for needed, holds in (
            ("axi_data_bits", self.axi_data_bits > 0),
            ("stores", self.stores),
            ("a single thread block", self.ctas == 1),
            ("request_id_bits of at most 15", self.request_id_bits <= HOST_ID_BITS),
        ):
            _require("host", self.host, f"False without {needed}", holds or not self.host)
        self._check_contexts()
        holds = self.line_bytes == 128 or not self.sub_byte
        _require("sub_byte", self.sub_byte, "False with lines of less than 128 bytes", holds)

    def _check_contexts(self) -> None:
        """Refuse contexts whose units cannot share an SM."""
        for rule, holds in (
            ("1 in a cluster", self.ctas == 1),
            ("1 with axi_data_bits", self.axi_data_bits == 0),
            (f"at most {SMEM_BYTES_MAX} / smem_bytes",
             self.contexts * self.smem_bytes <= SMEM_BYTES_MAX),
            (f"at most {TAGS_MAX} / tags", self.contexts * self.tags <= TAGS_MAX),
        ):  # fmt: skip
            _require("contexts", self.contexts, rule, self.contexts == 1 or holds)

    @property
    def of_all_contexts(self) -> "TmaParams":
        """Parameters of the ports that all contexts share: all tags, and all shared memory."""
        return replace(
            self,
            contexts=1,
            tags=self.tags * self.contexts,
            smem_bytes=self.smem_bytes * self.contexts,
        )

    @cached_property
    def lanes(self) -> int:
        """Pieces in a line."""
        return self.line_bytes // PIECE_BYTES

    @cached_property
    def lane_bits(self) -> int:
        """Width of the number of a piece in its line; 0 if a line is one piece."""
        return (self.lanes - 1).bit_length()

    @cached_property
    def piece_address_bits(self) -> int:
        """Width of a global address in pieces."""
        return self.address_bits - 4

    @cached_property
    def line_address_bits(self) -> int:
        """Width of a global address in lines."""
        return self.piece_address_bits - self.lane_bits

    @cached_property
    def smem_piece_bits(self) -> int:
        """Width of a shared-memory offset in pieces, behind the checks of setup.

        Sums go up to twice the shared memory. The accesses of other CTAs are not checked by setup.
        """
        return SMEM_OFFSET_BITS - 4 if self.ctas > 1 else self.box_piece_bits + 1

    @cached_property
    def smem_beat_bits(self) -> int:
        """Width of a shared-memory offset in beats of ``line_bytes``."""
        return self.smem_piece_bits - self.lane_bits

    @cached_property
    def tag_bits(self) -> int:
        """Width of a tag of the memory port."""
        return (self.tags - 1).bit_length()

    @cached_property
    def slot_bits(self) -> int:
        """Width of the number of a request in flight."""
        return (self.requests_in_flight - 1).bit_length()

    @cached_property
    def thread_bits(self) -> int:
        """Width of the number of a thread."""
        return (self.threads - 1).bit_length()

    @cached_property
    def axi_bytes(self) -> int:
        """Bytes of a beat at the AXI4 port."""
        return self.axi_data_bits // 8

    @cached_property
    def axi_reductions(self) -> int:
        """Reductions in flight at the AXI4 port."""
        return min(8, self.tags) if self.reductions else 0

    @cached_property
    def axi_lines(self) -> int:
        """Lines that can be read at once at the AXI4 port: of loads, and behind them reductions."""
        return self.tags + self.axi_reductions

    @cached_property
    def axi_line_bits(self) -> int:
        """Width of the number of a line that is read at the AXI4 port."""
        return (self.axi_lines - 1).bit_length()

    @cached_property
    def axi_read_id_bits(self) -> int:
        """Width of ARID: the number of a line, or above these a tensor map or a prefetch."""
        return self.axi_line_bits + 1

    @cached_property
    def axi_write_id_bits(self) -> int:
        """Width of AWID: the tag of a line, or above these a completion record."""
        return self.tag_bits + self.host

    @cached_property
    def page_number_bits(self) -> int:
        """Width of the number of a page."""
        return self.address_bits - self.tlb_page_bits

    @cached_property
    def page_line_bits(self) -> int:
        """Width of the number of a line in its page."""
        return self.tlb_page_bits - 4 - self.lane_bits

    @cached_property
    def tlb_entry_bits(self) -> int:
        """Width of the number of an entry of the TLB; 0 without TLB."""
        return max(self.tlb_entries - 1, 0).bit_length()

    @cached_property
    def tlb_reads_waiting(self) -> int:
        """Reads that can wait for the walk of their page: with a tag each, at most 32."""
        return min(self.tags, 32)

    @cached_property
    def stream_bits(self) -> int:
        """Width of the number of a stream; 0 if there is one stream."""
        return (self.streams - 1).bit_length()

    @cached_property
    def channels(self) -> int:
        """Channels, which do not wait for each other: the loads of each stream, and all stores."""
        return self.streams + self.stores

    @cached_property
    def channel_bits(self) -> int:
        """Width of the number of a channel; 0 if there is one channel."""
        return (self.channels - 1).bit_length()

    @cached_property
    def gathers_rows(self) -> bool:
        """True if short rows that share a line are read with one request, and written in pairs."""
        return self.lanes > 1 and self.short_rows

    @cached_property
    def requests_waiting(self) -> int:
        """Requests of a channel whose jobs certainly fit in ``jobs_waiting``; one may have four."""
        return self.jobs_waiting // (4 if self.gather4 else 1)

    @cached_property
    def run_bits(self) -> int:
        """Width of a count of pieces in a run; a bulk prefetch may be 1 MiB long."""
        return max(16, self.box_piece_bits) if self.bulk else self.box_piece_bits

    @cached_property
    def group_bits(self) -> int:
        """Width of the number of a bulk group among the groups of its thread."""
        return (self.bulk_groups - 1).bit_length()

    @cached_property
    def mask_bits(self) -> int:
        """Width of the mask of a multicast."""
        return 32 if self.multicast_32b else 16

    @cached_property
    def cta_bits(self) -> int:
        """Width of a CTA's rank in its cluster; 0 if the cluster is one CTA."""
        return (self.ctas - 1).bit_length()

    @cached_property
    def word_masks(self) -> bool:
        """True if a write to shared memory may write only some words of a piece."""
        return self.sub_byte or self.ctas > 1

    @cached_property
    def pixel_bits(self) -> int:
        """Width of a count of pixels: 1024 of a column, and 511 of a halo with ``im2col_w``."""
        return 11

    @cached_property
    def row_mask_bits(self) -> int:
        """Pieces of shared memory after which the pattern of rows and gaps repeats."""
        return 24 if self.swizzle_96b else 8

    @cached_property
    def box_piece_bits(self) -> int:
        """Width of a count of pieces, up to all of the CTA's shared memory."""
        return (self.smem_bytes // PIECE_BYTES).bit_length()


PRESETS = {
    "default": TmaParams(),
    "full": TmaParams(
        address_bits=32,
        descriptor_cache_entries=4,
        setup_pipelines=2,
        request_id_bits=8,
        smem_reads=16,
        threads=128,
        jobs_waiting=16,
        bulk_groups=4,
        barrier_waiters=8,
        completions_waiting=0,
        short_rows=False,
    ),
    "fpga": TmaParams(
        line_bytes=64,
        address_bits=32,
        tags=32,
        requests_in_flight=32,
        request_queue_depth=4,
        descriptor_cache_entries=2,
        setup_pipelines=1,
        request_id_bits=8,
        smem_reads=16,
        threads=32,
        streams=1,
        jobs_waiting=2,
        bulk_groups=4,
        barrier_waiters=4,
        completions_waiting=0,
        short_rows=False,
    ),
    "tiny": TmaParams(
        line_bytes=16,
        address_bits=32,
        tags=8,
        requests_in_flight=4,
        request_queue_depth=2,
        descriptor_cache_entries=2,
        setup_pipelines=1,
        request_id_bits=8,
        lane_depth=4,
        smem_reads=4,
        threads=4,
        streams=1,
        jobs_waiting=2,
        bulk_groups=4,
        barrier_waiters=4,
        completions_waiting=0,
        stores=False,
        reductions=False,
        short_rows=False,
        im2col=False,
        bulk=False,
    ),
    "cluster": TmaParams(ctas=4),
    "sm_100a": TmaParams(
        jobs_waiting=80,
        gather4=True,
        im2col_w=True,
        swizzle_atoms=True,
        swizzle_96b=True,
        sub_byte=True,
        cp_mask=True,
        mbarrier_v1=True,
    ),
}
PRESETS["sm_107a"] = replace(
    PRESETS["sm_100a"],
    scatter4_negative=True,
    b6p2x16_64=True,
    ignore_oob=True,
    override=True,
    report_mechanism=True,
)
PRESETS["axi"] = replace(PRESETS["fpga"], axi_data_bits=64)
PRESETS["host"] = replace(PRESETS["axi"], host=True)
"""Named parameter sets of the command line.

``full`` has the port, the tags, the streams and the features of ``default``, with fewer threads and
shorter addresses: it fits an FPGA. ``axi`` is ``fpga`` with an AXI4 port, and ``host`` is ``axi``
with a front end for hosts.
"""


def preset_of(params: TmaParams) -> str | None:
    """Return the name of a parameter set of ``PRESETS``; None for other parameters."""
    return next((name for name, preset in PRESETS.items() if preset == params), None)


def parameters(preset: str, settings: Sequence[str]) -> TmaParams:
    """Return the parameters of ``preset`` with ``name=value`` settings applied.

    Raises
    ------
    ValueError
        For an unknown preset or parameter, and for an illegal value.
    """
    if preset not in PRESETS:
        raise ValueError(f"no preset {preset!r}: must be one of {', '.join(PRESETS)}")
    known = {field.name for field in fields(TmaParams)}
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if name not in known or not equals:
            names = ", ".join(sorted(known))
            raise ValueError(f"{setting!r}: expected name=value, with a name of {names}")
        changes[name] = _number(setting, value, isinstance(getattr(PRESETS["default"], name), bool))
    return replace(PRESETS[preset], **changes)


def _number(setting: str, text: str, is_switch: bool) -> int:
    if is_switch:
        if (value := {"0": False, "False": False, "1": True, "True": True}.get(text)) is None:
            raise ValueError(f"{setting!r}: the value must be 0, 1, False or True")
        return value
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{setting!r}: the value must be a number") from None


def options_of(params: TmaParams) -> list[str]:
    """Return the options of a command line that give ``params``: a preset, or settings."""
    preset = preset_of(params)
    if preset is not None:
        return [] if preset == "default" else ["--preset", preset]
    default = asdict(PRESETS["default"])
    changes = (item for item in asdict(params).items() if item not in default.items())
    return [word for name, value in changes for word in ("--set", f"{name}={value:d}")]
