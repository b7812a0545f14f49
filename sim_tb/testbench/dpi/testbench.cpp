// The bench around the units of up to 16 SMs: models, drivers and checks, with an interface to
// Python (bench_*, by ctypes) and one to tb_top.sv (tb_*, by DPI). All buffers belong to Python.
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "memory.hpp"
#include "ports.hpp"
#include "svdpi.h"

namespace bench {
namespace {

// The numbers below are shared with sim_tb/testbench/bridge.py and tb_top.sv.
enum Port : uint32_t {  // sources, then sinks
    kRequest, kPrefetch, kInvalidate, kFill, kResponse, kCommand, kData, kAck, kReduce,
    kRemoteCommand, kRemoteStore,
    kError, kFetch, kLine, kWrite, kResult, kRead, kStore, kGroup, kReduced, kWoken, kPorts
};
enum Event : uint32_t {
    kFailure, kAccepted, kRefused, kAnswered, kWaitOver, kPhase, kAlarm, kIdle, kFenced, kGroupDone
};
enum Log : uint32_t {
    kLogLine, kLogResponse, kLogBeat, kLogAccept, kLogWord, kLogFetch, kLogPrefetch, kLogHint,
    kLogRead, kLogStore, kLogPerformed, kLogs
};
enum Memory : uint32_t { kLines, kDescriptors, kSmem, kStores };

constexpr uint32_t kSms = 16;
constexpr uint32_t kPieceBytes = 16, kMapBytes = 64, kMaxLine = 128;
constexpr uint32_t kTryWaitParity = 8, kTryWait = 9;
constexpr uint32_t kStoreBit = 4, kCommitGroup = 8, kWaitGroupRead = 10;  // of hw's Operation
constexpr uint32_t kWarp = 32;
constexpr uint32_t kBarrierTags = 1u << 16;
constexpr uint32_t kFailed = 1u << 31;  // beside the tag of a store

struct EventRecord {
    uint64_t cycle;
    uint32_t kind, id;
    uint64_t a, b, c, d;
};

struct LogRecord {
    uint64_t cycle, key, value;
};

struct Request {
    uint64_t at, global_address, cache_policy;
    int32_t coords[5];
    uint16_t im2col_info[4];
    uint32_t operation, request_id, size, mode, rank, smem_address, mbarrier;
    uint32_t multicast, cta_mask, dst_cta, mbarrier_cta, cta_group_2;
    uint32_t reduction_op, element_type, byte_mask, thread, joins_group, groups;
};

struct Fence {
    uint64_t address;
    uint32_t id;
    bool all;
};

struct Line {
    bool busy = false, error = false;
    uint64_t line = 0, since = 0;
    uint8_t data[kMaxLine];
};

struct Store {
    bool busy = false, reduces = false;
    uint32_t op = 0, type = 0, sectors = 0;  // sectors: of a reduction, not done yet
    uint64_t line = 0, since = 0;
    uint8_t strobe[kMaxLine / 8], data[kMaxLine];
};

struct Sector {
    uint32_t tag, pieces, from;  // from: offset in the line
    uint64_t number;
};

struct Beat {
    uint8_t data[kMaxLine];
};

struct Fill {
    uint64_t address;
    bool error;
    uint8_t words[kMapBytes];
};

struct Command {
    uint64_t at, state;
    uint32_t op, address, count, time_limit, v1, quiet, id;
};

struct Wake {
    bool done;
    uint32_t fault;
};

struct Asked {
    uint32_t tag, id;
    bool may_wait, quiet;  // quiet: nobody waits for the result, unless it is a fault
    std::optional<Wake> wake;  // it came before the result
};

struct RemoteCommand {
    uint64_t at;
    uint32_t holder, op, address, count, request_id;
};

struct RemoteStore {
    uint32_t request_id, dst_cta, address, mbarrier, reduces, op, type, words;
    uint8_t data[kPieceBytes];
};

struct Alarm {
    uint64_t cycle;
    uint32_t id;
    bool operator>(const Alarm& other) const { return cycle > other.cycle; }
};

struct Idle {
    uint64_t clocks;
    uint32_t id;
    bool all;  // SMs
};

// What the SMs share.
struct Shared {
    uint32_t sms = 1;
    GlobalMemory gmem;
    Reducing reducing;
};

Shared shared;

struct Bench;
Bench& the(uint32_t sm);

// What is around one SM.
struct Bench {
    uint32_t sm = 0;
    uint32_t line_bytes = kMaxLine;
    uint8_t* smem = nullptr;
    uint64_t smem_bytes = 0;
    Schedule schedules[4];  // by Memory

    Source<Request> request;
    std::vector<Source<Request>> streams;  // what waits for the port, where there are several
    size_t stream = 0;                     // the last one that had the port
    uint32_t room = 0;                     // a bit for each channel
    Source<Fence> prefetch, invalidate;
    Source<Fill> fill;
    Source<uint32_t> response;  // by tag
    Source<Command> command;
    Source<Beat> data;
    Source<uint32_t> ack;  // by tag
    Source<Sector> reduce;
    Source<RemoteCommand> remote_command;
    Source<RemoteStore> remote_store;
    Sink error, fetch, line, write, result, read, store, group, reduced, woken;

    std::vector<Line> lines;  // by tag
    std::vector<Store> stores;
    size_t lines_busy = 0, stores_busy = 0;
    std::deque<Beat> beats;  // read, not answered
    std::deque<Fill> fetches;
    std::deque<Asked> commands;                    // sent, not answered
    std::unordered_map<uint32_t, uint32_t> waits;  // those that wait: tag to id
    std::unordered_set<uint32_t> tags;             // of both
    uint32_t next_tag = 0;
    std::unordered_map<uint32_t, bool> watched;  // whether a change is awaited
    std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms;
    std::vector<Idle> idles;

    uint64_t cycle = 0, active = 0;
    uint64_t beat = 0, beat_lanes = 0;
    uint64_t read_beat = 0, read_lanes = 0;
    Beat reading;
    std::vector<EventRecord> events, given;
    std::vector<LogRecord> logs[kLogs];
    uint32_t logged = 0, waking = 0;
    bool wake = false, alert = false;
    std::string failure, text;

    Stall* stall(uint32_t port) {
        Stall* const stalls[kPorts] = {
            &request.stall, &prefetch.stall, &invalidate.stall, &fill.stall, &response.stall,
            &command.stall, &data.stall, &ack.stall, &reduce.stall, &remote_command.stall,
            &remote_store.stall, &error.stall, &fetch.stall, &line.stall, &write.stall,
            &result.stall, &read.stall, &store.stall, &group.stall, &reduced.stall, &woken.stall};
        return port < kPorts ? stalls[port] : nullptr;
    }

    // Python takes it now, or without `awaited` with the next event that it is woken by.
    void post(uint32_t kind, uint32_t id, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
              uint64_t d = 0, bool awaited = true) {
        events.push_back({cycle, kind, id, a, b, c, d});
        alert |= kind == kFailure || (awaited && (waking >> kind & 1));
    }

    void log(uint32_t kind, uint64_t key, uint64_t value) {
        if (logged >> kind & 1) logs[kind].push_back({cycle, key, value});
    }

    // The first failure stands; afterwards the bench only waits for Python to end the test.
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
        post(kFailure, 0);
    }

    // The SM's issuers

    void issue(const Request& issued) {
        Source<Request>* source = &request;
        if (!streams.empty()) source = &streams[issued.thread / kWarp % streams.size()];
        source->put(issued, issued.at);
    }

    size_t requests() const {
        size_t waiting = request.pending();
        for (const auto& source : streams) waiting += source.pending();
        return waiting;
    }

    // Give the port to the next stream whose first request will not hold it up.
    void choose() {
        if (streams.empty() || request.pending()) return;
        for (size_t i = 1; i <= streams.size(); ++i) {
            const size_t next = (stream + i) % streams.size();
            Source<Request>& source = streams[next];
            if (source.queue.empty() || source.due.front() > cycle) continue;
            const uint32_t operation = source.queue.front().operation;
            const bool moves_data = operation < kCommitGroup || operation > kWaitGroupRead;
            const size_t channel = operation & kStoreBit ? streams.size() : next;
            if (moves_data && !(room >> channel & 1)) continue;
            request.queue.push_back(source.queue.front());
            source.queue.pop_front();
            source.due.pop_front();
            stream = next;
            return;
        }
    }

    // What the unit did

    void sample(uint32_t unit) {
        ++cycle;
        room = unit >> kPorts;
        const auto bit = [unit](Port port) { return (unit >> port & 1) != 0; };
        bool moved = false;
        if (request.sample(bit(kRequest))) {
            moved = true;
            log(kLogAccept, request.current.request_id, request.taken - 1);
            post(kAccepted, request.current.request_id, request.taken - 1);
        }
        if (prefetch.sample(bit(kPrefetch))) moved = true, post(kFenced, prefetch.current.id);
        if (invalidate.sample(bit(kInvalidate))) moved = true, post(kFenced, invalidate.current.id);
        moved |= fill.sample(bit(kFill));
        if (response.sample(bit(kResponse))) {
            moved = true;
            lines[response.current].busy = false;
            --lines_busy;
            log(kLogResponse, lines[response.current].line, response.current);
        }
        moved |= command.sample(bit(kCommand));
        moved |= data.sample(bit(kData));
        if (ack.sample(bit(kAck))) {
            moved = true;
            stores[ack.current & ~kFailed].busy = false;
            --stores_busy;
        }
        moved |= reduce.sample(bit(kReduce));
        moved |= remote_command.sample(bit(kRemoteCommand));
        moved |= remote_store.sample(bit(kRemoteStore));
        moved |= error.sample(bit(kError));
        moved |= fetch.sample(bit(kFetch));
        moved |= line.sample(bit(kLine));
        moved |= write.sample(bit(kWrite));
        moved |= result.sample(bit(kResult));
        moved |= read.sample(bit(kRead));
        moved |= store.sample(bit(kStore));
        moved |= group.sample(bit(kGroup));
        moved |= reduced.sample(bit(kReduced));
        moved |= woken.sample(bit(kWoken));
        if (moved) active = cycle;
    }

    // Whether `tag` is free; it is taken by the line then.
    template <typename Slot>
    bool claim(const char* port, std::vector<Slot>& slots, uint32_t tag, uint64_t number) {
        if (tag >= slots.size()) {
            fail("%s: tag %u of %zu", port, tag, slots.size());
            return false;
        }
        Slot& slot = slots[tag];
        if (slot.busy) {
            fail("%s: tag %u is in flight since cycle %" PRIu64 " (line 0x%" PRIx64
                 ", now 0x%" PRIx64 ")", port, tag, slot.since, slot.line, number);
            return false;
        }
        slot.busy = true;
        slot.line = number;
        slot.since = cycle;
        return true;
    }

    void take_line(uint32_t tag, uint64_t number, bool prefetch) {
        if (prefetch) return log(kLogPrefetch, number, 0);
        if (!claim("gnic_request", lines, tag, number)) return;
        Line& slot = lines[tag];
        slot.error = shared.gmem.read(number * line_bytes, line_bytes, slot.data);
        ++lines_busy;
        schedules[kLines].request(tag, cycle);
        log(kLogLine, number, tag);
    }

    void take_fetch(uint64_t address) {
        if (address % kMapBytes) {
            return fail("descriptor_request: address 0x%" PRIx64 " is no multiple of 64", address);
        }
        Fill& slot = fetches.emplace_back();
        slot.address = address;
        slot.error = shared.gmem.read(address, kMapBytes, slot.words);
        schedules[kDescriptors].request(0, cycle);
        log(kLogFetch, address, 0);
    }

    void take_write(uint32_t lane, uint32_t words, uint64_t number, const svBitVecVal* bytes) {
        const uint64_t offset = number * line_bytes + lane * kPieceBytes;
        if (offset + kPieceBytes > smem_bytes) {
            return fail("smem_write: offset 0x%" PRIx64 " is beyond shared memory", offset);
        }
        if (words == 0xf) {
            std::memcpy(smem + offset, bytes, kPieceBytes);
        } else {
            for (uint32_t word = 0; word < 4; ++word) {
                if (words >> word & 1) std::memcpy(smem + offset + 4 * word, bytes + word, 4);
            }
        }
        if (!beat_lanes) beat = number;
        beat_lanes |= uint64_t{1} << lane;
    }

    void take_read(uint32_t lane, uint64_t number) {
        const uint64_t offset = number * line_bytes + lane * kPieceBytes;
        if (offset + kPieceBytes > smem_bytes) {
            return fail("smem_read: offset 0x%" PRIx64 " is beyond shared memory", offset);
        }
        std::memcpy(reading.data + lane * kPieceBytes, smem + offset, kPieceBytes);
        if (!read_lanes) read_beat = number;
        read_lanes |= uint64_t{1} << lane;
    }

    void take_store(uint32_t tag, uint64_t number, bool reduces, uint32_t op, uint32_t type,
                    const svBitVecVal* strobe, const svBitVecVal* bytes) {
        if (!claim("gnic_write", stores, tag, number)) return;
        Store& slot = stores[tag];
        slot.reduces = reduces;
        slot.op = op;
        slot.type = type;
        std::memcpy(slot.strobe, strobe, sizeof slot.strobe);
        std::memcpy(slot.data, bytes, sizeof slot.data);
        uint32_t written = 0;
        for (uint32_t i = 0; i < line_bytes; i += kPieceBytes) {
            const uint32_t piece = slot.strobe[i / 8] | slot.strobe[i / 8 + 1] << 8;
            if (reduces && piece != 0 && piece != 0xffff) {
                return fail("gnic_write: line 0x%" PRIx64 ": a reduction of a part of 16 bytes",
                            number);
            }
            written += piece != 0;
        }
        ++stores_busy;
        schedules[kStores].request(tag, cycle);
        log(kLogStore, number, written);
    }

    // The time of a store has come: it is performed, or handed to the reduction unit.
    void perform(uint32_t tag) {
        Store& slot = stores[tag];
        const uint64_t address = slot.line * line_bytes;
        if (!shared.gmem.writable(address, line_bytes, slot.strobe)) {
            return ack.queue.push_back(tag | kFailed);
        }
        for (uint64_t at = address; at < address + line_bytes; at += kSectorBytes) {
            const uint64_t number = at / kSectorBytes;
            if (!shared.reducing.open(number, sm, slot.reduces)) {
                return shared.reducing.wait(number, {sm, tag});
            }
        }
        if (!slot.reduces) {
            shared.gmem.write(address, line_bytes, slot.strobe, slot.data);
            log(kLogPerformed, slot.line, tag);
            return ack.queue.push_back(tag);
        }
        for (uint32_t from = 0; from < line_bytes; from += kSectorBytes) {
            const uint32_t base = (address + from) % kSectorBytes;  // lines may be shorter
            const uint32_t size = std::min(line_bytes, kSectorBytes);
            uint32_t pieces = 0;
            for (uint32_t at = 0; at < size; at += kPieceBytes) {
                if (slot.strobe[(from + at) / 8]) pieces |= 1u << (base + at) / kPieceBytes;
            }
            if (!pieces) continue;
            const uint64_t number = (address + from) / kSectorBytes;
            ++slot.sectors;
            shared.reducing.begin(number, sm);
            reduce.queue.push_back({tag, pieces, from, number});
        }
    }

    void take_reduced(uint32_t tag) {
        Store& slot = stores[tag];
        if (!slot.sectors) return fail("reduction_done: tag %u was not asked for", tag);
        if (--slot.sectors == 0) {
            log(kLogPerformed, slot.line, tag);
            ack.queue.push_back(tag);
        }
    }

    void write_sector(uint64_t number, uint32_t pieces, const svBitVecVal* bytes) {
        const uint8_t strobe[] = {
            uint8_t(pieces & 1 ? 0xff : 0), uint8_t(pieces & 1 ? 0xff : 0),
            uint8_t(pieces & 2 ? 0xff : 0), uint8_t(pieces & 2 ? 0xff : 0)};
        uint8_t data[kSectorBytes];
        std::memcpy(data, bytes, sizeof data);
        shared.gmem.write(number * kSectorBytes, kSectorBytes, strobe, data);
        const auto freed = shared.reducing.end(number, sm);
        if (!freed) return fail("reduction_memory: sector 0x%" PRIx64 " is not reduced", number);
        for (const Waiter& waiter : *freed) the(waiter.sm).perform(waiter.tag);
    }

    void take_error(uint32_t id, uint32_t cta, uint32_t code, uint32_t dim, uint64_t value) {
        post(kRefused, id, code, dim, value, cta);
    }

    // A tag for the command that goes to the unit now.
    uint32_t take_command() {
        if (tags.size() == kBarrierTags) {
            fail("barrier_command: %u operations have no answer", kBarrierTags);
            return 0;
        }
        uint32_t tag;
        do {
            tag = next_tag++ % kBarrierTags;
        } while (!tags.insert(tag).second);
        const Command& sent = command.current;
        const bool may_wait = sent.op == kTryWaitParity || sent.op == kTryWait;
        commands.push_back({tag, sent.id, may_wait, sent.quiet != 0, {}});
        return tag;
    }

    void take_result(uint32_t tag, bool done, bool waiting, uint32_t fault, uint64_t state) {
        if (commands.empty()) return fail("barrier_result: no command is waiting for one");
        const Asked asked = commands.front();
        commands.pop_front();
        if (tag != asked.tag) return fail("barrier_result: tag %u, expected %u", tag, asked.tag);
        if (waiting && (done || fault || !asked.may_wait)) {
            return fail("barrier_result: tag %u waits, but cannot", tag);
        }
        if (!waiting && asked.wake) return fail("barrier_wake: tag %u does not wait", tag);
        const bool awaited = fault || !(waiting || asked.quiet);
        post(kAnswered, asked.id, done, waiting, fault, state, awaited);
        if (!waiting) {
            tags.erase(tag);
        } else if (asked.wake) {
            end_wait(tag, asked.id, *asked.wake);
        } else {
            waits[tag] = asked.id;
        }
    }

    void take_wake(uint32_t tag, const Wake& wake) {
        if (wake.done && wake.fault) return fail("barrier_wake: tag %u is done, with a fault", tag);
        const auto found = waits.find(tag);
        if (found != waits.end()) {
            end_wait(tag, found->second, wake);
            waits.erase(found);
            return;
        }
        for (Asked& asked : commands) {
            if (asked.tag == tag && asked.may_wait && !asked.wake) {
                asked.wake = wake;
                return;
            }
        }
        fail("barrier_wake: tag %u does not wait", tag);
    }

    void end_wait(uint32_t tag, uint32_t id, const Wake& wake) {
        post(kWaitOver, id, wake.done, wake.fault);
        tags.erase(tag);
    }

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
        const uint64_t before = read_word(word);
        const uint32_t address = static_cast<uint32_t>(word * 8);
        std::memcpy(smem + address, &value, 8);
        active = cycle;
        log(kLogWord, address, value);
        const auto found = watched.find(address);
        if ((before ^ value) >> 63 && found != watched.end()) {
            post(kPhase, address, value, 0, 0, 0, found->second);
        }
    }

    // What the unit sees next

    void drive() {
        if (beat_lanes) {
            log(kLogBeat, beat, beat_lanes);
            beat_lanes = 0;
        }
        if (read_lanes) {
            log(kLogRead, read_beat, read_lanes);
            beats.push_back(reading);
            schedules[kSmem].request(0, cycle);
            read_lanes = 0;
        }
        if (data.idle() && schedules[kSmem].answer(cycle) >= 0) {
            data.queue.push_back(beats.front());
            beats.pop_front();
        }
        if (ack.idle()) {
            const int64_t tag = schedules[kStores].answer(cycle);
            if (tag >= 0) perform(static_cast<uint32_t>(tag));
        }
        if (response.idle()) {
            const int64_t tag = schedules[kLines].answer(cycle);
            if (tag >= 0) response.queue.push_back(static_cast<uint32_t>(tag));
        }
        if (fill.idle() && schedules[kDescriptors].answer(cycle) >= 0) {
            fill.queue.push_back(fetches.front());
            fetches.pop_front();
        }
        choose();
        request.drive(cycle);
        prefetch.drive();
        invalidate.drive();
        fill.drive();
        response.drive();
        command.drive(cycle);
        data.drive();
        ack.drive();
        reduce.drive();
        remote_command.drive(cycle);
        remote_store.drive();
        error.drive();
        fetch.drive(schedules[kDescriptors].open(fetches.size()));
        line.drive(schedules[kLines].open(lines_busy));
        write.drive();
        result.drive();
        read.drive(schedules[kSmem].open(beats.size()));
        store.drive(schedules[kStores].open(stores_busy));
        group.drive();
        reduced.drive();
        woken.drive();
        while (!alarms.empty() && alarms.top().cycle <= cycle) {
            post(kAlarm, alarms.top().id);
            alarms.pop();
        }
        if (!idles.empty()) {
            std::erase_if(idles, [this](const Idle& idle) {
                if (!quiet_for(idle.clocks)) return false;
                for (uint32_t other = 0; idle.all && other < shared.sms; ++other) {
                    if (!the(other).quiet_for(idle.clocks)) return false;
                }
                post(kIdle, idle.id);
                return true;
            });
        }
    }

    bool quiet_for(uint64_t clocks) const {
        return cycle - active >= clocks && requests() == 0 && prefetch.idle() &&
               invalidate.idle() && lines_busy == 0 && stores_busy == 0 && beats.empty() &&
               data.idle() && fetches.empty() && fill.idle() && command.idle() &&
               commands.empty() && remote_command.idle() && remote_store.idle();
    }

    uint64_t controls() {
        wake ^= alert;
        alert = false;
        const bool run = failure.empty();
        const bool bits[] = {
            request.valid, prefetch.valid, invalidate.valid, fill.valid, response.valid,
            command.valid, data.valid, ack.valid, reduce.valid, remote_command.valid,
            remote_store.valid, error.ready, fetch.ready, line.ready, write.ready, result.ready,
            read.ready, store.ready, group.ready, reduced.ready, woken.ready,
            request.fresh, prefetch.fresh, invalidate.fresh, fill.fresh, response.fresh,
            command.fresh, data.fresh, ack.fresh, reduce.fresh, remote_command.fresh,
            remote_store.fresh};
        uint64_t word = 0;
        for (size_t i = 0; run && i < sizeof bits; ++i) word |= uint64_t{bits[i]} << i;
        return word | uint64_t{wake} << 63;
    }

    // What is outstanding, in words

    [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) {
        char row[256];
        std::va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(row, sizeof row, format, arguments);
        va_end(arguments);
        text += row;
    }

    const char* ledger() {
        text.clear();
        say("cycle %" PRIu64 ", last transfer in cycle %" PRIu64 "\n", cycle, active);
        say("requests: %" PRIu64 " taken by the unit, %zu to go%s\n", request.taken,
            requests(), request.valid ? " (one is offered and not taken)" : "");
        say("lines: %" PRIu64 " requested, %zu unanswered", line.taken, lines_busy);
        size_t shown = 0;
        for (size_t tag = 0; tag < lines.size() && shown < 4; ++tag) {
            if (!lines[tag].busy) continue;
            say("%s tag %zu line 0x%" PRIx64 " since cycle %" PRIu64, shown++ ? "," : ":", tag,
                lines[tag].line, lines[tag].since);
        }
        say("%s\n", response.valid ? "; a response is offered and not taken" : "");
        say("stores: %" PRIu64 " lines written, %zu unanswered%s; shared memory: %" PRIu64
            " beats read, %zu unanswered\n", store.taken, stores_busy,
            ack.valid ? " (an answer is offered and not taken)" : "", read.taken, beats.size());
        say("descriptors: %" PRIu64 " fetches, %zu unanswered%s\n", fetch.taken,
            fetches.size() + fill.pending(), fill.valid ? "; a fill is offered and not taken" : "");
        say("shared memory: %" PRIu64 " beats written\n", write.taken);
        say("barrier commands: %zu to go, %zu without a result, %zu waiting; errors: %" PRIu64 "\n",
            command.pending(), commands.size(), waits.size(), error.taken);
        if (shared.sms > 1) {
            say("other SMs: %zu barrier operations and %zu stores to go\n",
                remote_command.pending(), remote_store.pending());
        }
        const Sink* const sinks[] = {&error, &fetch, &line, &write, &result,
                                     &read, &store, &group, &woken};
        const char* const names[] = {"error", "descriptor_request", "gnic_request", "smem_write",
                                     "barrier_result", "smem_read", "gnic_write", "group_result",
                                     "barrier_wake"};
        for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
            if (sinks[i]->blocked) say("%s: offered for %" PRIu64 " clocks and not taken\n", names[i],
                                       sinks[i]->blocked);
        }
        return text.c_str();
    }
};

Bench benches[kSms];

Bench& the(uint32_t sm) { return benches[sm]; }

}  // namespace
}  // namespace bench

using namespace bench;

extern "C" {

// From tb_top.sv: once per clock and SM, sample first and drive last.

void tb_sample(uint32_t sm, uint32_t unit) { the(sm).sample(unit); }

uint64_t tb_drive(uint32_t sm) {
    if (the(sm).failure.empty()) the(sm).drive();
    return the(sm).controls();
}

void tb_gnic_request(uint32_t sm, uint32_t tag, uint64_t line, svBit prefetch, uint32_t promotion,
                     uint64_t policy) {
    the(sm).log(kLogHint, policy, promotion);
    the(sm).take_line(tag, line, prefetch);
}
void tb_descriptor_request(uint32_t sm, uint64_t address) { the(sm).take_fetch(address); }
void tb_smem_write(uint32_t sm, uint32_t lane, uint32_t words, uint32_t beat,
                   const svBitVecVal* data) {
    the(sm).take_write(lane, words, beat, data);
}
void tb_smem_read(uint32_t sm, uint32_t lane, uint32_t beat) { the(sm).take_read(lane, beat); }
void tb_gnic_write(uint32_t sm, uint32_t tag, uint64_t line, uint32_t promotion, uint64_t policy,
                   svBit reduces, uint32_t op, uint32_t type, const svBitVecVal* strobe,
                   const svBitVecVal* data) {
    the(sm).log(kLogHint, policy, promotion);
    the(sm).take_store(tag, line, reduces, op, type, strobe, data);
}
void tb_group_result(uint32_t sm, uint32_t thread, uint32_t request_id) {
    the(sm).post(kGroupDone, request_id, thread);
}
void tb_reduced(uint32_t sm, uint32_t tag) { the(sm).take_reduced(tag); }
void tb_sector_read(uint64_t sector, svBitVecVal* data) {
    uint8_t bytes[kSectorBytes];
    shared.gmem.read(sector * kSectorBytes, kSectorBytes, bytes);
    std::memcpy(data, bytes, sizeof bytes);
}
void tb_sector_write(uint32_t sm, uint64_t sector, uint32_t pieces, const svBitVecVal* data) {
    the(sm).write_sector(sector, pieces, data);
}
void tb_error(uint32_t sm, uint32_t request_id, uint32_t cta, uint32_t code, uint32_t dim,
              uint64_t value) {
    the(sm).take_error(request_id, cta, code, dim, value);
}
void tb_barrier_result(uint32_t sm, uint32_t tag, svBit done, svBit waits, uint32_t fault,
                       uint64_t state) {
    the(sm).take_result(tag, done, waits, fault, state);
}
void tb_barrier_wake(uint32_t sm, uint32_t tag, svBit done, uint32_t fault) {
    the(sm).take_wake(tag, {done != 0, fault});
}
uint64_t tb_barrier_read(uint32_t sm, uint32_t word) { return the(sm).read_word(word); }
void tb_barrier_write(uint32_t sm, uint32_t word, uint64_t value) {
    the(sm).write_word(word, value);
}
void tb_violation(uint32_t sm, const char* stream, const char* what) {
    the(sm).fail("%s: %s", stream, what);
}

void tb_next_request(uint32_t sm, uint32_t* operation, uint32_t* request_id,
                     uint64_t* global_address, uint32_t* size, uint32_t* mode, uint32_t* rank,
                     svBitVecVal* coords, svBitVecVal* im2col_info, uint64_t* cache_policy,
                     uint32_t* smem_address, uint32_t* mbarrier, svBit* multicast,
                     uint32_t* cta_mask, uint32_t* dst_cta, uint32_t* mbarrier_cta,
                     svBit* cta_group_2, uint32_t* reduction_op, uint32_t* element_type,
                     uint32_t* byte_mask, uint32_t* thread, svBit* joins_group, uint32_t* groups) {
    const Request& request = the(sm).request.current;
    *operation = request.operation;
    *request_id = request.request_id;
    *global_address = request.global_address;
    *size = request.size;
    *mode = request.mode;
    *rank = request.rank;
    std::memcpy(coords, request.coords, sizeof request.coords);
    std::memcpy(im2col_info, request.im2col_info, sizeof request.im2col_info);
    *cache_policy = request.cache_policy;
    *smem_address = request.smem_address;
    *mbarrier = request.mbarrier;
    *multicast = request.multicast != 0;
    *cta_mask = request.cta_mask;
    *dst_cta = request.dst_cta;
    *mbarrier_cta = request.mbarrier_cta;
    *cta_group_2 = request.cta_group_2 != 0;
    *reduction_op = request.reduction_op;
    *element_type = request.element_type;
    *byte_mask = request.byte_mask;
    *thread = request.thread;
    *joins_group = request.joins_group != 0;
    *groups = request.groups;
}

void tb_next_prefetch(uint32_t sm, uint64_t* address) {
    *address = the(sm).prefetch.current.address;
}

void tb_next_invalidate(uint32_t sm, uint64_t* address, svBit* all) {
    const Fence& fence = the(sm).invalidate.current;
    *address = fence.address;
    *all = fence.all;
}

void tb_next_fill(uint32_t sm, svBitVecVal* words, svBit* error) {
    const Fill& fill = the(sm).fill.current;
    std::memcpy(words, fill.words, kMapBytes);
    *error = fill.error;
}

void tb_next_response(uint32_t sm, uint32_t* tag, svBit* error, svBitVecVal* data) {
    *tag = the(sm).response.current;
    const Line& line = the(sm).lines[*tag];
    *error = line.error;
    std::memcpy(data, line.data, kMaxLine);
}

void tb_next_data(uint32_t sm, svBitVecVal* data) {
    std::memcpy(data, the(sm).data.current.data, kMaxLine);
}

void tb_next_ack(uint32_t sm, uint32_t* tag, svBit* error) {
    const uint32_t ack = the(sm).ack.current;
    *tag = ack & ~kFailed;
    *error = (ack & kFailed) != 0;
}

void tb_next_reduce(uint32_t sm, uint32_t* tag, uint64_t* sector, uint32_t* op, uint32_t* type,
                    uint32_t* pieces, svBitVecVal* data) {
    const uint32_t line_bytes = the(sm).line_bytes;
    const Sector& part = the(sm).reduce.current;
    const Store& store = the(sm).stores[part.tag];
    *tag = part.tag;
    *sector = part.number;
    *op = store.op;
    *type = store.type;
    *pieces = part.pieces;
    uint8_t bytes[kSectorBytes] = {};
    const uint32_t size = std::min(line_bytes, kSectorBytes);
    const uint64_t base = (store.line * line_bytes + part.from) % kSectorBytes;
    std::memcpy(bytes + base, store.data + part.from, size);
    std::memcpy(data, bytes, sizeof bytes);
}

void tb_next_command(uint32_t sm, uint32_t* op, uint32_t* address, uint32_t* count,
                     uint64_t* state, uint32_t* time_limit, svBit* v1, uint32_t* tag) {
    const Command& command = the(sm).command.current;
    *op = command.op;
    *address = command.address;
    *count = command.count;
    *state = command.state;
    *time_limit = command.time_limit;
    *v1 = command.v1 != 0;
    *tag = the(sm).take_command();
}

void tb_next_remote_command(uint32_t sm, uint32_t* holder, uint32_t* op, uint32_t* address,
                            uint32_t* count, uint32_t* request_id) {
    const RemoteCommand& command = the(sm).remote_command.current;
    *holder = command.holder;
    *op = command.op;
    *address = command.address;
    *count = command.count;
    *request_id = command.request_id;
}

void tb_next_remote_store(uint32_t sm, uint32_t* request_id, uint32_t* dst_cta, uint32_t* address,
                          uint32_t* mbarrier, svBit* reduces, uint32_t* op, uint32_t* type,
                          uint32_t* words, svBitVecVal* data) {
    const RemoteStore& store = the(sm).remote_store.current;
    *request_id = store.request_id;
    *dst_cta = store.dst_cta;
    *address = store.address;
    *mbarrier = store.mbarrier;
    *reduces = store.reduces != 0;
    *op = store.op;
    *type = store.type;
    *words = store.words;
    std::memcpy(data, store.data, sizeof store.data);
}

// From Python, between clocks: of global memory.

// Nothing is placed; so many SMs are used. All of them are reset then.
void bench_start(uint32_t sms, uint32_t background) {
    shared = Shared{};
    shared.sms = sms;
    shared.gmem.set_background(background);
}

void bench_background(uint32_t background) { shared.gmem.set_background(background); }
void bench_region(uint64_t base, uint64_t size, uint8_t* bytes) {
    shared.gmem.add(base, size, bytes);
}
void bench_remove(uint64_t base) { shared.gmem.remove(base); }

// And of one SM.

void bench_reset(uint32_t sm, uint32_t line_bytes, uint32_t tags, uint32_t streams, uint8_t* smem,
                 uint64_t smem_bytes) {
    const bool wake = the(sm).wake;  // a level without meaning: a change would wake Python
    the(sm) = Bench{};
    the(sm).sm = sm;
    the(sm).wake = wake;
    the(sm).line_bytes = line_bytes;
    the(sm).lines.resize(tags);
    the(sm).stores.resize(tags);
    if (streams > 1) the(sm).streams.resize(streams);
    the(sm).smem = smem;
    the(sm).smem_bytes = smem_bytes;
}

void bench_stall(uint32_t sm, uint32_t port, double share, double mean, uint64_t seed) {
    if (Stall* stall = the(sm).stall(port)) stall->configure(share, mean, seed);
}

void bench_timing(uint32_t sm, uint32_t which, const Timing* timing, uint64_t seed) {
    the(sm).schedules[which].configure(*timing, seed);
}

void bench_request(uint32_t sm, const Request* request) {
    the(sm).issue(*request);
}
void bench_prefetch(uint32_t sm, uint64_t address, uint32_t id) {
    the(sm).prefetch.queue.push_back({address, id, false});
}
void bench_invalidate(uint32_t sm, uint64_t address, uint32_t all, uint32_t id) {
    the(sm).invalidate.queue.push_back({address, id, all != 0});
}
void bench_command(uint32_t sm, const Command* command) {
    the(sm).command.put(*command, command->at);
}
void bench_remote_command(uint32_t sm, const RemoteCommand* command) {
    the(sm).remote_command.put(*command, command->at);
}
void bench_remote_store(uint32_t sm, const RemoteStore* store) {
    the(sm).remote_store.queue.push_back(*store);
}
void bench_watch(uint32_t sm, uint32_t address, uint32_t awaited) {
    the(sm).watched[address] |= awaited != 0;
}
void bench_alarm(uint32_t sm, uint64_t cycle, uint32_t id) { the(sm).alarms.push({cycle, id}); }
void bench_idle(uint32_t sm, uint64_t clocks, uint32_t id, uint32_t all) {
    the(sm).idles.push_back({clocks, id, all != 0});
}
void bench_wake_on(uint32_t sm, uint32_t kinds) { the(sm).waking = kinds; }
void bench_log_kinds(uint32_t sm, uint32_t kinds) { the(sm).logged = kinds; }

// Events since the last call; valid until the next one.
uint64_t bench_events(uint32_t sm, const EventRecord** events) {
    Bench& bench = the(sm);
    bench.given = std::move(bench.events);
    bench.events.clear();
    *events = bench.given.data();
    return bench.given.size();
}

uint64_t bench_log(uint32_t sm, uint32_t kind, const LogRecord** records) {
    *records = the(sm).logs[kind].data();
    return the(sm).logs[kind].size();
}
void bench_clear_log(uint32_t sm, uint32_t kind) { the(sm).logs[kind].clear(); }

const uint64_t* bench_cycle(uint32_t sm) { return &the(sm).cycle; }  // read between clocks
const char* bench_failure(uint32_t sm) { return the(sm).failure.c_str(); }
const char* bench_ledger(uint32_t sm) { return the(sm).ledger(); }
}
