// Memory models, stream drivers and checks around the unit of one SM.
#pragma once

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bridge.hpp"
#include "extents.hpp"
#include "memory.hpp"
#include "ports.hpp"
#include "svdpi.h"

namespace testbench {
namespace {

constexpr uint32_t kMapBytes = 64, kMaxLine = 128;
constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kBarrierTags = 1u << 16;
constexpr uint32_t kIdle = 1u << 31;     // bit of tb_sample's argument
constexpr uint64_t kQuietClocks = 1000;  // no prefetch waits that long at a port
constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint32_t kStoreFailed = 1u << 31;  // set in gnic_ack beside the tag of the store
constexpr uint32_t kStoreAbsent = 1u << 29;  // and this one, if no memory is there
constexpr uint32_t kStray = 1u << 30;  // set in gnic_response and gnic_ack beside a wrong tag

// A request to descriptor_prefetch or descriptor_invalidate.
struct Fence {
    uint64_t address;
    uint32_t id;
    bool all;
};

// A line read in flight.
struct LineRead {
    bool busy = false;
    Fault fault = Fault::NONE;
    uint64_t line = 0, begin_cycle = 0;
    uint8_t data[kMaxLine];
};

// A store or reduction of a line in flight.
struct LineStore {
    bool busy = false, reduces = false;
    uint32_t op = 0, type = 0;
    uint32_t sectors = 0;  // sectors of a reduction that are not done yet
    uint64_t line = 0, begin_cycle = 0;
    uint8_t strobe[kMaxLine / 8], data[kMaxLine];
};

// The part of a line's reduction that lies in one sector.
struct SectorReduction {
    uint32_t tag, pieces;
    uint32_t line_offset;  // first byte of the part in the line
    uint64_t sector;
};

struct Beat {
    uint8_t data[kMaxLine];
};

// The answer to the fetch of a tensor map.
struct DescriptorFill {
    uint64_t address;
    Fault fault;
    uint8_t words[kMapBytes];
};

// The end of a wait at a barrier.
struct WaitEnd {
    bool done;
    uint32_t fault;
};

// A barrier command whose result has not come yet.
struct UnansweredCommand {
    uint32_t tag, id;
    bool may_wait, quiet;
    std::optional<WaitEnd> wait_end;  // if barrier_wake came before barrier_result
};

// Answers of memory that belong to no access: to reads, or to writes.
struct Strays {
    std::deque<uint32_t> old;          // tags that were in flight at the last reset
    std::optional<uint32_t> offered;   // on the port, or waiting for it
    std::deque<uint32_t> unreported;   // taken by the unit, without an error record so far
    uint32_t last_answered = 0;        // tag of the last true answer

    bool pending() const { return !old.empty() || offered || !unreported.empty(); }
};

// An access whose answer a test delays: a tag of the reads or of the writes of lines.
struct LateAccess {
    uint64_t cycle;
    uint32_t kind, tag;
    bool operator>(const LateAccess& other) const { return cycle > other.cycle; }
};

struct Alarm {
    uint64_t cycle;
    uint32_t id;
    bool operator>(const Alarm& other) const { return cycle > other.cycle; }
};

// Python waits until the unit is idle for a number of clocks.
struct IdleWait {
    uint64_t clocks;
    uint32_t id;
    bool all_sms;
};

// State that all SMs share.
struct Shared {
    uint32_t sms = 1;
    GlobalMemory gmem;
    ReducedSectors reduced_sectors;
};

Shared shared;

struct SmModels;
SmModels& models_of(uint32_t sm);

struct SmModels {
    uint32_t sm = 0;
    uint32_t line_bytes = kMaxLine;
    uint8_t* smem = nullptr;
    uint64_t smem_bytes = 0;
    Schedule schedules[MemoryKind::count];

    // Ports
    Source<RequestRecord> request;
    Source<Fence> descriptor_prefetch, descriptor_invalidate;
    Source<DescriptorFill> descriptor_fill;
    Source<uint32_t> gnic_response;  // tag
    Source<BarrierCommandRecord> barrier_command;
    Source<Beat> smem_data;
    Source<uint32_t> gnic_ack;  // tag, kStoreFailed and kStoreAbsent
    Source<SectorReduction> reduction_request;
    Source<RemoteCommandRecord> remote_command;
    Source<RemoteStoreRecord> remote_store;
#define SINK(name) Sink name;
    SINKS(SINK)
#undef SINK

    // Requests of each stream that wait for the request port, if the unit has several streams.
    std::vector<Source<RequestRecord>> streams;
    size_t last_stream = 0;     // stream that used the port last
    uint32_t request_room = 0;  // a bit for each channel of the unit that has room

    // Addresses that the requests in flight may access
    Extents extents;
    bool unit_idle = true;
    bool quiet = true;  // the unit is idle, and its ports were quiet for a while

    // Requests of the unit in flight
    std::vector<LineRead> line_reads;    // by tag
    std::vector<LineStore> line_stores;  // by tag
    size_t line_reads_busy = 0, line_stores_busy = 0;
    uint64_t stray_threshold = 0;  // for Random::chance; 0: no stray answers
    Random stray_random;
    Strays stray_reads, stray_writes;
    std::deque<Beat> smem_reads;
    std::deque<DescriptorFill> descriptor_fetches;
    uint64_t written_beat = 0, written_lanes = 0;  // write to shared memory in this clock
    uint64_t read_beat = 0, read_lanes = 0;        // read of shared memory in this clock
    Beat read_data;

    // Clocks that the answer to the next access to a line is late, by the line; kNever: it is lost.
    std::unordered_map<uint64_t, uint64_t> delays;
    std::priority_queue<LateAccess, std::vector<LateAccess>, std::greater<>> late;

    // Barrier commands
    std::deque<UnansweredCommand> unanswered;
    std::unordered_map<uint32_t, uint32_t> suspended;  // commands that wait at a barrier: tag to id
    std::unordered_set<uint32_t> tags;                 // tags of unanswered and suspended commands
    uint32_t next_tag = 0;
    std::unordered_map<uint32_t, bool> watched;  // barrier to: a change of its phase wakes Python

    // Time
    uint64_t cycle = 0, last_transfer = 0;
    std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms;
    std::vector<IdleWait> idle_waits;

    // What Python reads
    std::vector<EventRecord> events, delivered;
    std::vector<LogRecord> logs[LogKind::count];
    uint32_t logged_kinds = 0, waking_kinds = 0;  // a bit for each LogKind, each EventKind
    bool wake = false;                            // a change of this level wakes Python
    bool wake_needed = false;
    std::string failure, text;

    Stall* stall(uint32_t port) {
#define STALL(name) &name.stall,
        Stall* const stalls[] = {SOURCES(STALL) SINKS(STALL)};
#undef STALL
        return port < Port::count ? stalls[port] : nullptr;
    }

    // Record an event. It wakes Python if Python waits for its kind and `wakes` is set; otherwise
    // Python reads it with the next event that wakes it.
    void post(uint32_t kind, uint32_t id, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
              uint64_t d = 0, bool wakes = true) {
        events.push_back({cycle, kind, id, a, b, c, d});
        wake_needed |= kind == EventKind::FAILURE || (wakes && (waking_kinds >> kind & 1));
    }

    void log(uint32_t kind, uint64_t key, uint64_t value) {
        if (logged_kinds >> kind & 1) logs[kind].push_back({cycle, key, value});
    }

    // Record the first failure. The testbench then only waits for Python to end the test.
    [[gnu::format(printf, 2, 3)]] void fail(const char* format, ...) {
        if (!failure.empty()) return;
        char message[512];
        std::va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(message, sizeof message, format, arguments);
        va_end(arguments);
        failure = "cycle " + std::to_string(cycle) + ": ";
        if (shared.sms > 1) failure += "SM " + std::to_string(sm) + ": ";
        failure += message;
        post(EventKind::FAILURE, 0);
    }

    // Requests of the SM's threads

    void issue(const RequestRecord& issued) {
        Source<RequestRecord>* source = &request;
        if (!streams.empty()) source = &streams[issued.thread / kWarpThreads % streams.size()];
        source->put(issued, issued.not_before);
    }

    size_t queued_requests() const {
        size_t count = request.pending();
        for (const auto& source : streams) count += source.pending();
        return count;
    }

    // Give the request port to the next stream, round robin, whose first request has room in the
    // unit, so that it does not block the port.
    void choose_stream() {
        if (streams.empty() || request.pending()) return;
        for (size_t i = 1; i <= streams.size(); ++i) {
            const size_t next = (last_stream + i) % streams.size();
            Source<RequestRecord>& source = streams[next];
            if (source.queue.empty() || source.not_before.front() > cycle) continue;
            const uint32_t operation = source.queue.front().operation;
            const bool moves_data =
                operation < Operation::COMMIT_GROUP || operation > Operation::WAIT_GROUP_READ;
            const bool reads_smem = operation & Operation::TENSOR_STORE;
            const size_t channel = reads_smem ? streams.size() : next;
            if (moves_data && !(request_room >> channel & 1)) continue;
            request.queue.push_back(source.queue.front());
            source.queue.pop_front();
            source.not_before.pop_front();
            last_stream = next;
            return;
        }
    }

    // Transfers in the cycle that ends

    // `unit` has a bit for each port, the unit's half of the handshake, and above them a bit for
    // each channel that has room for a request. Bit 31: the unit is idle.
    void sample(uint32_t unit) {
        ++cycle;
        request_room = (unit & ~kIdle) >> Port::count;
        unit_idle = unit & kIdle;
        quiet = unit_idle && cycle > last_transfer + kQuietClocks;
        if (quiet && all_quiet()) extents.end_requests();
        const auto bit = [unit](uint32_t port) { return (unit >> port & 1) != 0; };
        bool transfer = false;
        if (request.sample(bit(Port::request))) {
            transfer = true;
            accept(request.current);
            const uint64_t number = request.transfers - 1;
            log(LogKind::ACCEPT, request.current.request_id, number);
            post(EventKind::REQUEST_ACCEPTED, request.current.request_id, number);
        }
        if (descriptor_prefetch.sample(bit(Port::descriptor_prefetch))) {
            transfer = true;
            extents.read_map(descriptor_prefetch.current.address);
            post(EventKind::FENCE_ACCEPTED, descriptor_prefetch.current.id);
        }
        if (descriptor_invalidate.sample(bit(Port::descriptor_invalidate))) {
            transfer = true;
            post(EventKind::FENCE_ACCEPTED, descriptor_invalidate.current.id);
        }
        transfer |= descriptor_fill.sample(bit(Port::descriptor_fill));
        if (gnic_response.sample(bit(Port::gnic_response)) && !took(stray_reads)) {
            transfer = true;
            stray_reads.last_answered = gnic_response.current;
            LineRead& read = line_reads[gnic_response.current];
            read.busy = false;
            --line_reads_busy;
            log(LogKind::RESPONSE, read.line, gnic_response.current);
        }
        transfer |= barrier_command.sample(bit(Port::barrier_command));
        transfer |= smem_data.sample(bit(Port::smem_data));
        if (gnic_ack.sample(bit(Port::gnic_ack)) && !took(stray_writes)) {
            transfer = true;
            stray_writes.last_answered = gnic_ack.current & ~(kStoreFailed | kStoreAbsent);
            line_stores[stray_writes.last_answered].busy = false;
            --line_stores_busy;
        }
        transfer |= reduction_request.sample(bit(Port::reduction_request));
        transfer |= remote_command.sample(bit(Port::remote_command));
        if (remote_store.sample(bit(Port::remote_store))) {
            transfer = true;
            extents.accept(remote_store.current);
        }
        // Events say what the unit does, and are nothing that it has to do.
#define SAMPLE(name) transfer |= name.sample(bit(Port::name)) && Port::name != Port::trace;
        SINKS(SAMPLE)
#undef SAMPLE
        if (transfer) last_transfer = cycle;
    }

    // Return whether the answer that the unit took is a stray one.
    static bool took(Strays& strays) {
        if (!strays.offered) return false;
        strays.unreported.push_back(*strays.offered);
        strays.offered.reset();
        return true;
    }

    // Offer an answer with a tag that is not in flight, at random: of an access before the reset, or
    // while there are accesses in flight, of any tag. The unit issues no access until it is taken:
    // an answer whose tag is in flight again is a right one.
    template <typename Slot>
    void stray(Strays& strays, Source<uint32_t>& port, const std::vector<Slot>& slots, bool write) {
        const bool traffic = line_reads_busy + line_stores_busy > 0;
        // A unit without stores has no tags of stores.
        if (slots.empty() || !port.idle() || (strays.old.empty() && !traffic)) return;
        if (!stray_random.chance(stray_threshold)) return;
        uint32_t tag;
        if (!strays.old.empty()) {
            tag = strays.old.front();
            strays.old.pop_front();
        } else if (stray_random.below(2)) {
            tag = strays.last_answered;
        } else {
            tag = static_cast<uint32_t>(stray_random.below(slots.size()));
        }
        if (slots[tag].busy) return;
        port.queue.push_back(tag | kStray);
        strays.offered = tag;
        log(LogKind::STRAY, tag, write);
    }

    // Give `tag` to an access to `line`. Fail if the tag is in use.
    template <typename Slot>
    bool claim(const char* port, std::vector<Slot>& slots, uint32_t tag, uint64_t line) {
        if (tag >= slots.size()) {
            fail("%s: tag %u is out of range: there are %zu tags", port, tag, slots.size());
            return false;
        }
        Slot& slot = slots[tag];
        if (slot.busy) {
            fail("%s: tag %u is in flight since cycle %" PRIu64 " for line 0x%" PRIx64
                 ", and is used again for line 0x%" PRIx64,
                 port, tag, slot.begin_cycle, slot.line, line);
            return false;
        }
        slot.busy = true;
        slot.line = line;
        slot.begin_cycle = cycle;
        return true;
    }

    // Answer an access to a line after the latency of its memory, and later if a test wants that.
    void schedule(uint32_t kind, uint32_t tag, uint64_t line) {
        const auto delay = delays.find(line);
        if (delay == delays.end()) return schedules[kind].request(tag, cycle);
        if (delay->second != kNever) late.push({cycle + delay->second, kind, tag});
        delays.erase(delay);
    }

    bool all_quiet() const {
        for (uint32_t other = 0; other < shared.sms; ++other) {
            if (!models_of(other).quiet) return false;
        }
        return true;
    }

    // Return whether a request of some SM in flight may write the piece at `offset`.
    bool in_footprint(uint64_t offset) const {
        for (uint32_t other = 0; other < shared.sms; ++other) {
            if (models_of(other).extents.footprints[sm].meets(offset, offset)) return true;
        }
        return false;
    }

    // Note what a request that the unit takes may access.
    void accept(const RequestRecord& taken) {
        extents.accept(taken, smem_bytes);
        const bool has_map = taken.operation < Operation::COMMIT_GROUP && !(taken.operation & 1);
        if (!has_map || !extents.reads_maps()) return;
        MapWords words;
        uint8_t* const bytes = reinterpret_cast<uint8_t*>(words.data());
        extents.read_map(taken.global_address);
        if (shared.gmem.read(taken.global_address, sizeof words, bytes) != Fault::NONE) return;
        extents.fetch(taken.global_address, words, smem_bytes);
    }

    // Fail unless a line that is read has a piece inside the tensor and the box of some request.
    void check_read(uint64_t line) {
        const uint64_t first = line * line_bytes;
        if (extents.reads.meets(first, first + line_bytes - 1)) return;
        fail("gnic_request: no request in flight has a piece of line 0x%" PRIx64, line);
    }

    void take_gnic_request(uint32_t tag, uint64_t line, bool prefetch) {
        check_read(line);
        if (prefetch) return log(LogKind::PREFETCH, line, 0);
        if (!claim("gnic_request", line_reads, tag, line)) return;
        LineRead& read = line_reads[tag];
        read.fault = shared.gmem.read(line * line_bytes, line_bytes, read.data);
        ++line_reads_busy;
        schedule(MemoryKind::lines, tag, line);
        log(LogKind::LINE, line, tag);
    }

    void take_descriptor_request(uint64_t address) {
        if (address % kMapBytes) {
            return fail("descriptor_request: address 0x%" PRIx64 " is not a multiple of 64",
                        address);
        }
        DescriptorFill& fetch = descriptor_fetches.emplace_back();
        fetch.address = address;
        fetch.fault = shared.gmem.read(address, kMapBytes, fetch.words);
        MapWords words;
        std::memcpy(words.data(), fetch.words, sizeof words);
        if (fetch.fault == Fault::NONE) extents.fetch(address, words, smem_bytes);
        schedules[MemoryKind::descriptors].request(0, cycle);
        log(LogKind::FETCH, address, 0);
    }

    void take_smem_write(uint32_t lane, uint32_t words, uint64_t beat, const svBitVecVal* bytes) {
        const uint64_t offset = beat * line_bytes + lane * kPieceBytes;
        if (offset + kPieceBytes > smem_bytes) {
            return fail("smem_write: offset 0x%" PRIx64 " is beyond shared memory", offset);
        }
        if (!in_footprint(offset)) {
            return fail("smem_write: offset 0x%" PRIx64 " is in no box of a request in flight",
                        offset);
        }
        if (words == 0xf) {
            std::memcpy(smem + offset, bytes, kPieceBytes);
        } else {
            for (uint32_t word = 0; word < 4; ++word) {
                if (words >> word & 1) std::memcpy(smem + offset + 4 * word, bytes + word, 4);
            }
        }
        if (!written_lanes) written_beat = beat;
        written_lanes |= uint64_t{1} << lane;
    }

    void take_smem_read(uint32_t lane, uint64_t beat) {
        const uint64_t offset = beat * line_bytes + lane * kPieceBytes;
        if (offset + kPieceBytes > smem_bytes) {
            return fail("smem_read: offset 0x%" PRIx64 " is beyond shared memory", offset);
        }
        std::memcpy(read_data.data + lane * kPieceBytes, smem + offset, kPieceBytes);
        if (!read_lanes) read_beat = beat;
        read_lanes |= uint64_t{1} << lane;
    }

    void take_gnic_write(uint32_t tag, uint64_t line, bool reduces, uint32_t op, uint32_t type,
                         const svBitVecVal* strobe, const svBitVecVal* bytes) {
        if (!claim("gnic_write", line_stores, tag, line)) return;
        LineStore& store = line_stores[tag];
        store.reduces = reduces;
        store.op = op;
        store.type = type;
        std::memcpy(store.strobe, strobe, sizeof store.strobe);
        std::memcpy(store.data, bytes, sizeof store.data);
        uint32_t pieces = 0;
        for (uint32_t i = 0; i < line_bytes; i += kPieceBytes) {
            const uint32_t piece = store.strobe[i / 8] | store.strobe[i / 8 + 1] << 8;
            if (reduces && piece != 0 && piece != 0xffff) {
                return fail("gnic_write: line 0x%" PRIx64
                            ": a reduction must have all or none of each piece of 16 bytes",
                            line);
            }
            pieces += piece != 0;
            const uint64_t address = line * line_bytes + i;
            if (piece != 0 && !extents.writes.meets(address, address)) {
                return fail("gnic_write: no request in flight writes the piece at 0x%" PRIx64,
                            address);
            }
        }
        ++line_stores_busy;
        schedule(MemoryKind::stores, tag, line);
        log(LogKind::STORE, line, pieces);
    }

    // Perform a store whose latency is over, or give a reduction to the reduction unit. If one of
    // its sectors is not open, the store waits for that sector.
    void perform(uint32_t tag) {
        LineStore& store = line_stores[tag];
        const uint64_t address = store.line * line_bytes;
        const Fault fault = shared.gmem.write_fault(address, line_bytes, store.strobe);
        if (fault != Fault::NONE) {
            const uint32_t absent = fault == Fault::ABSENT ? kStoreAbsent : 0;
            return gnic_ack.queue.push_back(tag | kStoreFailed | absent);
        }
        for (uint64_t at = address; at < address + line_bytes; at += kSectorBytes) {
            const uint64_t sector = at / kSectorBytes;
            if (!shared.reduced_sectors.open(sector, sm, store.reduces)) {
                return shared.reduced_sectors.wait(sector, {sm, tag});
            }
        }
        if (!store.reduces) {
            shared.gmem.write(address, line_bytes, store.strobe, store.data);
            log(LogKind::PERFORMED, store.line, tag);
            return gnic_ack.queue.push_back(tag);
        }
        for (uint32_t offset = 0; offset < line_bytes; offset += kSectorBytes) {
            const uint32_t base = (address + offset) % kSectorBytes;  // a line may be shorter
            const uint32_t size = std::min(line_bytes, kSectorBytes);
            uint32_t pieces = 0;
            for (uint32_t at = 0; at < size; at += kPieceBytes) {
                if (store.strobe[(offset + at) / 8]) pieces |= 1u << (base + at) / kPieceBytes;
            }
            if (!pieces) continue;
            const uint64_t sector = (address + offset) / kSectorBytes;
            ++store.sectors;
            shared.reduced_sectors.begin(sector, sm);
            reduction_request.queue.push_back({tag, pieces, offset, sector});
        }
    }

    void take_reduction_done(uint32_t tag) {
        LineStore& store = line_stores[tag];
        if (!store.sectors) return fail("reduction_done: tag %u has no reduction in flight", tag);
        if (--store.sectors == 0) {
            log(LogKind::PERFORMED, store.line, tag);
            gnic_ack.queue.push_back(tag);
        }
    }

    void write_sector(uint64_t sector, uint32_t pieces, const svBitVecVal* bytes) {
        const uint8_t strobe[] = {
            uint8_t(pieces & 1 ? 0xff : 0), uint8_t(pieces & 1 ? 0xff : 0),
            uint8_t(pieces & 2 ? 0xff : 0), uint8_t(pieces & 2 ? 0xff : 0)};
        uint8_t data[kSectorBytes];
        std::memcpy(data, bytes, sizeof data);
        shared.gmem.write(sector * kSectorBytes, kSectorBytes, strobe, data);
        const auto released = shared.reduced_sectors.end(sector, sm);
        if (!released) {
            return fail("reduction_memory: sector 0x%" PRIx64 " has no reduction in flight",
                        sector);
        }
        for (const WaitingStore& store : *released) models_of(store.sm).perform(store.tag);
    }

    void take_error(uint32_t request_id, uint32_t cta, uint32_t code, uint32_t dim,
                    uint64_t value) {
        std::deque<uint32_t>& unreported = (dim ? stray_writes : stray_reads).unreported;
        if (code == ErrorCode::WRONG_TAG && !unreported.empty()) {
            if (unreported.front() != value || request_id != 0 || dim > 1) {
                fail("error: wrong tag %" PRIu64 " of request %u is reported, not tag %u", value,
                     request_id, unreported.front());
            }
            return unreported.pop_front();
        }
        post(EventKind::ERROR_RECORD, request_id, code, dim, value, cta);
    }

    // Choose the tag of the barrier command that is driven next.
    uint32_t tag_command() {
        if (tags.size() == kBarrierTags) {
            fail("barrier_command: %u operations have no answer", kBarrierTags);
            return 0;
        }
        uint32_t tag;
        do {
            tag = next_tag++ % kBarrierTags;
        } while (!tags.insert(tag).second);
        const BarrierCommandRecord& command = barrier_command.current;
        const bool may_wait =
            command.op == BarrierOp::TRY_WAIT_PARITY || command.op == BarrierOp::TRY_WAIT;
        unanswered.push_back({tag, command.id, may_wait, command.quiet != 0, {}});
        return tag;
    }

    void take_barrier_result(uint32_t tag, bool done, bool waits, uint32_t fault, uint64_t state) {
        if (unanswered.empty()) return fail("barrier_result: no command is unanswered");
        const UnansweredCommand command = unanswered.front();
        unanswered.pop_front();
        if (tag != command.tag) {
            return fail("barrier_result: tag %u, expected %u", tag, command.tag);
        }
        if (waits && (done || fault || !command.may_wait)) {
            return fail("barrier_result: tag %u waits, but cannot", tag);
        }
        if (!waits && command.wait_end) return fail("barrier_wake: tag %u does not wait", tag);
        const bool wakes = fault || !(waits || command.quiet);
        post(EventKind::BARRIER_RESULT, command.id, done, waits, fault, state, wakes);
        if (!waits) {
            tags.erase(tag);
        } else if (command.wait_end) {
            end_wait(tag, command.id, *command.wait_end);
        } else {
            suspended[tag] = command.id;
        }
    }

    void take_barrier_wake(uint32_t tag, const WaitEnd& end) {
        if (end.done && end.fault) {
            return fail("barrier_wake: tag %u is done and has a fault", tag);
        }
        const auto found = suspended.find(tag);
        if (found != suspended.end()) {
            end_wait(tag, found->second, end);
            suspended.erase(found);
            return;
        }
        for (UnansweredCommand& command : unanswered) {
            if (command.tag == tag && command.may_wait && !command.wait_end) {
                command.wait_end = end;
                return;
            }
        }
        fail("barrier_wake: tag %u does not wait", tag);
    }

    void end_wait(uint32_t tag, uint32_t id, const WaitEnd& end) {
        post(EventKind::WAIT_END, id, end.done, end.fault);
        tags.erase(tag);
    }

    // Barrier memory is shared memory in words of 8 bytes.
    bool word_in_range(const char* port, uint64_t word) {
        if (word * 8 + 8 <= smem_bytes) return true;
        fail("%s: offset 0x%" PRIx64 " is beyond shared memory", port, word * 8);
        return false;
    }

    uint64_t read_word(uint64_t word) {
        uint64_t value = 0;
        if (word_in_range("barrier_memory read", word)) std::memcpy(&value, smem + word * 8, 8);
        return value;
    }

    void write_word(uint64_t word, uint64_t value) {
        if (!word_in_range("barrier_memory write", word)) return;
        const uint64_t old_value = read_word(word);
        const uint32_t address = static_cast<uint32_t>(word * 8);
        std::memcpy(smem + address, &value, 8);
        last_transfer = cycle;
        log(LogKind::WORD, address, value);
        const auto found = watched.find(address);
        if ((old_value ^ value) >> 63 && found != watched.end()) {
            post(EventKind::PHASE_CHANGE, address, value, 0, 0, 0, found->second);
        }
    }

    // Ports in the next cycle

    void drive() {
        if (written_lanes) {
            log(LogKind::BEAT, written_beat, written_lanes);
            written_lanes = 0;
        }
        if (read_lanes) {
            log(LogKind::READ, read_beat, read_lanes);
            smem_reads.push_back(read_data);
            schedules[MemoryKind::smem].request(0, cycle);
            read_lanes = 0;
        }
        if (smem_data.idle() && schedules[MemoryKind::smem].answer(cycle) >= 0) {
            smem_data.queue.push_back(smem_reads.front());
            smem_reads.pop_front();
        }
        while (!late.empty() && late.top().cycle <= cycle) {
            schedules[late.top().kind].request(late.top().tag, cycle);
            late.pop();
        }
        if (gnic_ack.idle()) {
            const int64_t tag = schedules[MemoryKind::stores].answer(cycle);
            if (tag >= 0) perform(static_cast<uint32_t>(tag));
        }
        if (gnic_response.idle()) {
            const int64_t tag = schedules[MemoryKind::lines].answer(cycle);
            if (tag >= 0) gnic_response.queue.push_back(static_cast<uint32_t>(tag));
        }
        if (descriptor_fill.idle() && schedules[MemoryKind::descriptors].answer(cycle) >= 0) {
            descriptor_fill.queue.push_back(descriptor_fetches.front());
            descriptor_fetches.pop_front();
        }
        if (stray_threshold) {
            stray(stray_reads, gnic_response, line_reads, false);
            stray(stray_writes, gnic_ack, line_stores, true);
        }
        choose_stream();
#define DRIVE(name) name.drive(cycle);
        SOURCES(DRIVE)
#undef DRIVE
        error.drive();
        descriptor_request.drive(
            schedules[MemoryKind::descriptors].open(descriptor_fetches.size()));
        gnic_request.drive(schedules[MemoryKind::lines].open(line_reads_busy) &&
                           !stray_reads.offered);
        smem_write.drive();
        barrier_result.drive();
        smem_read.drive(schedules[MemoryKind::smem].open(smem_reads.size()));
        gnic_write.drive(schedules[MemoryKind::stores].open(line_stores_busy) &&
                         !stray_writes.offered);
        group_result.drive();
        reduction_done.drive();
        barrier_wake.drive();
        trace.drive();
        while (!alarms.empty() && alarms.top().cycle <= cycle) {
            post(EventKind::ALARM, alarms.top().id);
            alarms.pop();
        }
        if (!idle_waits.empty()) {
            std::erase_if(idle_waits, [this](const IdleWait& wait) {
                if (!idle_for(wait.clocks)) return false;
                for (uint32_t other = 0; wait.all_sms && other < shared.sms; ++other) {
                    if (!models_of(other).idle_for(wait.clocks)) return false;
                }
                post(EventKind::IDLE, wait.id);
                return true;
            });
        }
    }

    // Return whether nothing is queued or in flight and no port had a transfer for `clocks`. A
    // command that waits at a barrier does not count; the unit is not idle before it ends.
    bool idle_for(uint64_t clocks) const {
        return cycle - last_transfer >= clocks && (unit_idle || !suspended.empty()) &&
               queued_requests() == 0 &&
               descriptor_prefetch.idle() && descriptor_invalidate.idle() &&
               line_reads_busy == 0 && line_stores_busy == 0 && smem_reads.empty() &&
               !stray_reads.pending() && !stray_writes.pending() &&
               smem_data.idle() && descriptor_fetches.empty() && descriptor_fill.idle() &&
               barrier_command.idle() && unanswered.empty() && remote_command.idle() &&
               remote_store.idle();
    }

    // Return the outputs to tb_top.sv: bit i is the testbench's half of the handshake of port i,
    // bit Port::count + i says that source i has a new payload, and bit 63 is `wake`. After a
    // failure all ports are closed.
    uint64_t controls() {
        wake ^= wake_needed;
        wake_needed = false;
        const bool run = failure.empty();
#define VALID(name) name.valid,
#define READY(name) name.ready,
#define NEW_PAYLOAD(name) name.new_payload,
        const bool bits[] = {SOURCES(VALID) SINKS(READY) SOURCES(NEW_PAYLOAD)};
#undef NEW_PAYLOAD
#undef READY
#undef VALID
        uint64_t word = 0;
        for (size_t i = 0; run && i < sizeof bits; ++i) word |= uint64_t{bits[i]} << i;
        return word | uint64_t{wake} << 63;
    }

    // Ledger: everything that is outstanding, as text

    [[gnu::format(printf, 2, 3)]] void append(const char* format, ...) {
        char row[256];
        std::va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(row, sizeof row, format, arguments);
        va_end(arguments);
        text += row;
    }

    const char* ledger() {
        text.clear();
        append("cycle %" PRIu64 ", last transfer in cycle %" PRIu64 "\n", cycle, last_transfer);
        append("requests: %" PRIu64 " accepted by the unit, %zu queued%s\n", request.transfers,
               queued_requests(), request.valid ? " (one is offered and not accepted)" : "");
        append("lines: %" PRIu64 " requested, %zu unanswered", gnic_request.transfers,
               line_reads_busy);
        size_t shown = 0;
        for (size_t tag = 0; tag < line_reads.size() && shown < 4; ++tag) {
            if (!line_reads[tag].busy) continue;
            append("%s tag %zu line 0x%" PRIx64 " since cycle %" PRIu64, shown++ ? "," : ":", tag,
                   line_reads[tag].line, line_reads[tag].begin_cycle);
        }
        append("%s\n", gnic_response.valid ? "; a response is offered and not accepted" : "");
        append("stores: %" PRIu64 " lines written, %zu unanswered%s; shared memory: %" PRIu64
               " beats read, %zu unanswered\n", gnic_write.transfers, line_stores_busy,
               gnic_ack.valid ? " (an answer is offered and not accepted)" : "",
               smem_read.transfers, smem_reads.size());
        append("descriptors: %" PRIu64 " fetches, %zu unanswered%s\n",
               descriptor_request.transfers, descriptor_fetches.size() + descriptor_fill.pending(),
               descriptor_fill.valid ? "; a fill is offered and not accepted" : "");
        append("shared memory: %" PRIu64 " beats written\n", smem_write.transfers);
        append("barrier commands: %zu queued, %zu without a result, %zu waiting; errors: %" PRIu64
               "\n", barrier_command.pending(), unanswered.size(), suspended.size(),
               error.transfers);
        if (shared.sms > 1) {
            append("to other SMs: %zu barrier operations and %zu stores queued\n",
                   remote_command.pending(), remote_store.pending());
        }
#define BLOCKED(name)                                                                         \
    if (name.blocked) {                                                                       \
        append("%s: offered for %" PRIu64 " clocks and not accepted\n", #name, name.blocked); \
    }
        SINKS(BLOCKED)
#undef BLOCKED
        return text.c_str();
    }
};

SmModels all_models[kSms];

SmModels& models_of(uint32_t sm) { return all_models[sm]; }

}  // namespace
}  // namespace testbench
