// The bench around the unit: models, drivers and checks, with an interface to Python (bench_*, by
// ctypes) and one to tb_top.sv (tb_*, by DPI). All buffers belong to Python.
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "memory.hpp"
#include "ports.hpp"
#include "svdpi.h"

namespace bench {
namespace {

// The numbers below are shared with sim_tb/bridge.py and tb_top.sv.
enum Port : uint32_t {  // sources, then sinks
    kRequest, kPrefetch, kInvalidate, kFill, kResponse, kCommand, kData, kAck, kReduce,
    kError, kFetch, kLine, kWrite, kResult, kRead, kStore, kGroup, kReduced, kPorts
};
enum Event : uint32_t {
    kFailure, kAccepted, kRefused, kAnswered, kWaitDone, kPhase, kAlarm, kIdle, kFenced, kGroupDone
};
enum Log : uint32_t {
    kLogLine, kLogResponse, kLogBeat, kLogAccept, kLogWord, kLogFetch, kLogPrefetch, kLogHint,
    kLogRead, kLogStore, kLogPerformed, kLogs
};
enum Memory : uint32_t { kLines, kDescriptors, kSmem, kStores };

constexpr uint32_t kPieceBytes = 16, kSectorBytes = 32, kMapBytes = 64, kMaxLine = 128;
constexpr uint64_t kSlowPoll = 4096;  // clocks between polls of a barrier nobody has written
constexpr uint32_t kTestWaitParity = 6;
constexpr uint32_t kFailed = 1u << 31;  // beside the tag of a store

struct EventRecord {
    uint64_t cycle;
    uint32_t kind, id;
    uint64_t a, b, c;
};

struct LogRecord {
    uint64_t cycle, key, value;
};

struct Request {
    uint64_t global_address, cache_policy;
    int32_t coords[5];
    uint16_t im2col_info[4];
    uint32_t operation, request_id, size, mode, rank, smem_address, mbarrier;
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
    uint32_t op, address, count, id;
    bool poll;
};

struct Wait {
    enum State { kPoll, kSent, kSleep } state;
    uint32_t id, address, parity;
    bool again;         // the word was written while a poll was on its way
    uint64_t wake_at;
};

struct Alarm {
    uint64_t cycle;
    uint32_t id;
    bool operator>(const Alarm& other) const { return cycle > other.cycle; }
};

struct Bench {
    uint32_t line_bytes = kMaxLine;
    uint8_t* smem = nullptr;
    uint64_t smem_bytes = 0;
    GlobalMemory gmem;
    Schedule schedules[4];  // by Memory

    Source<Request> request;
    Source<Fence> prefetch, invalidate;
    Source<Fill> fill;
    Source<uint32_t> response;  // by tag
    Source<Command> command;
    Source<Beat> data;
    Source<uint32_t> ack;  // by tag
    Source<Sector> reduce;
    Sink error, fetch, line, write, result, read, store, group, reduced;

    std::vector<Line> lines;  // by tag
    std::vector<Store> stores;
    size_t lines_busy = 0, stores_busy = 0;
    std::deque<Beat> beats;                 // read, not answered
    std::deque<uint32_t> held_up;           // stores to sectors that are being reduced
    std::unordered_map<uint64_t, uint32_t> reducing;  // sectors
    std::deque<Fill> fetches;
    std::deque<std::pair<uint8_t, Command>> commands;  // sent, not answered
    uint8_t next_tag = 0;
    std::vector<Wait> waits;
    size_t next_wait = 0;
    std::unordered_set<uint32_t> watched;
    std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms;
    std::vector<Alarm> idles;  // cycle: the quiet clocks asked for

    uint64_t cycle = 0, active = 0;
    uint64_t beat = 0, beat_lanes = 0;
    uint64_t read_beat = 0, read_lanes = 0;
    Beat reading;
    std::vector<EventRecord> events;
    std::vector<LogRecord> logs[kLogs];
    uint32_t logged = 0, waking = 0;
    bool wake = false, alert = false;
    std::string failure, text;

    Stall* stall(uint32_t port) {
        Stall* const stalls[kPorts] = {
            &request.stall, &prefetch.stall, &invalidate.stall, &fill.stall, &response.stall,
            &command.stall, &data.stall, &ack.stall, &reduce.stall, &error.stall, &fetch.stall,
            &line.stall, &write.stall, &result.stall, &read.stall, &store.stall, &group.stall,
            &reduced.stall};
        return port < kPorts ? stalls[port] : nullptr;
    }

    void post(uint32_t kind, uint32_t id, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
        events.push_back({cycle, kind, id, a, b, c});
        alert |= kind == kFailure || (waking >> kind & 1);
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
        failure = "cycle " + std::to_string(cycle) + ": " + message;
        post(kFailure, 0);
    }

    // What the unit did

    void sample(uint32_t unit) {
        ++cycle;
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
        if (command.sample(bit(kCommand))) moved |= !command.current.poll;
        moved |= data.sample(bit(kData));
        if (ack.sample(bit(kAck))) {
            moved = true;
            stores[ack.current & ~kFailed].busy = false;
            --stores_busy;
        }
        moved |= reduce.sample(bit(kReduce));
        moved |= error.sample(bit(kError));
        moved |= fetch.sample(bit(kFetch));
        moved |= line.sample(bit(kLine));
        moved |= write.sample(bit(kWrite));
        result.sample(bit(kResult));
        moved |= read.sample(bit(kRead));
        moved |= store.sample(bit(kStore));
        moved |= group.sample(bit(kGroup));
        moved |= reduced.sample(bit(kReduced));
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
        slot.error = gmem.read(number * line_bytes, line_bytes, slot.data);
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
        slot.error = gmem.read(address, kMapBytes, slot.words);
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
        if (!gmem.writable(address, line_bytes, slot.strobe)) {
            return ack.queue.push_back(tag | kFailed);
        }
        if (!slot.reduces) {
            for (uint64_t at = address; at < address + line_bytes; at += kSectorBytes) {
                if (reducing.count(at / kSectorBytes)) return held_up.push_back(tag);
            }
            gmem.write(address, line_bytes, slot.strobe, slot.data);
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
            ++reducing[number];
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
        gmem.write(number * kSectorBytes, kSectorBytes, strobe, data);
        const auto found = reducing.find(number);
        if (found == reducing.end()) {
            return fail("reduction_memory: sector 0x%" PRIx64 " is not reduced", number);
        }
        if (--found->second == 0) reducing.erase(found);
    }

    void take_error(uint32_t id, uint32_t code, uint32_t dim, uint64_t value) {
        post(kRefused, id, code, dim, value);
    }

    void take_result(uint32_t tag, bool done, bool refused, uint64_t state) {
        if (commands.empty()) return fail("barrier_result: no command is waiting for one");
        const auto [expected, asked] = commands.front();
        commands.pop_front();
        if (tag != expected) return fail("barrier_result: tag %u, expected %u", tag, expected);
        if (!asked.poll) {
            active = cycle;
            post(kAnswered, asked.id, done, refused, state);
            return;
        }
        for (size_t i = 0; i < waits.size(); ++i) {
            Wait& wait = waits[i];
            if (wait.id != asked.id) continue;
            if (done || refused) {
                post(kWaitDone, wait.id, done, refused, state);
                waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(i));
            } else {
                wait.state = wait.again ? Wait::kPoll : Wait::kSleep;
                wait.wake_at = cycle + kSlowPoll;
            }
            return;
        }
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
        if ((before ^ value) >> 63 && watched.count(address)) post(kPhase, address, value);
        for (Wait& wait : waits) {
            if (wait.address != address) continue;
            if (wait.state == Wait::kSleep) wait.state = Wait::kPoll;
            wait.again = true;
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
        for (size_t left = held_up.size(); left; --left) {
            const uint32_t tag = held_up.front();
            held_up.pop_front();
            perform(tag);
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
        if (command.idle()) poll();
        request.drive();
        prefetch.drive();
        invalidate.drive();
        fill.drive();
        response.drive();
        command.drive();
        data.drive();
        ack.drive();
        reduce.drive();
        error.drive();
        fetch.drive(schedules[kDescriptors].open(fetches.size()));
        line.drive(schedules[kLines].open(lines_busy));
        write.drive();
        result.drive();
        read.drive(schedules[kSmem].open(beats.size()));
        store.drive(schedules[kStores].open(stores_busy));
        group.drive();
        reduced.drive();
        while (!alarms.empty() && alarms.top().cycle <= cycle) {
            post(kAlarm, alarms.top().id);
            alarms.pop();
        }
        if (!idles.empty() && quiet()) {
            std::erase_if(idles, [this](const Alarm& idle) {
                if (cycle - active < idle.cycle) return false;
                post(kIdle, idle.id);
                return true;
            });
        }
    }

    void poll() {
        for (size_t i = 0; i < waits.size(); ++i) {
            Wait& wait = waits[next_wait++ % waits.size()];
            if (wait.state == Wait::kSleep && cycle >= wait.wake_at) wait.state = Wait::kPoll;
            if (wait.state != Wait::kPoll) continue;
            wait.state = Wait::kSent;
            wait.again = false;
            command.queue.push_back({kTestWaitParity, wait.address, wait.parity, wait.id, true});
            return;
        }
    }

    bool quiet() const {
        return request.idle() && prefetch.idle() && invalidate.idle() && lines_busy == 0 &&
               stores_busy == 0 && beats.empty() && data.idle() && fetches.empty() &&
               fill.idle() && (command.idle() || command.current.poll) &&
               (commands.empty() || commands.front().second.poll);
    }

    uint32_t controls() {
        wake ^= alert;
        alert = false;
        const bool run = failure.empty();
        const bool bits[] = {
            request.valid, prefetch.valid, invalidate.valid, fill.valid, response.valid,
            command.valid, data.valid, ack.valid, reduce.valid, error.ready, fetch.ready,
            line.ready, write.ready, result.ready, read.ready, store.ready, group.ready,
            reduced.ready, request.fresh, prefetch.fresh, invalidate.fresh, fill.fresh,
            response.fresh, command.fresh, data.fresh, ack.fresh, reduce.fresh};
        uint32_t word = 0;
        for (size_t i = 0; run && i < sizeof bits; ++i) word |= uint32_t{bits[i]} << i;
        return word | uint32_t{wake} << 31;
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
            request.pending(), request.valid ? " (one is offered and not taken)" : "");
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
        say("barrier commands: %zu to go, %zu without a result; errors: %" PRIu64 "\n",
            command.pending(), commands.size(), error.taken);
        const Sink* const sinks[] = {&error, &fetch, &line, &write, &result, &read, &store, &group};
        const char* const names[] = {"error", "descriptor_request", "gnic_request", "smem_write",
                                     "barrier_result", "smem_read", "gnic_write", "group_result"};
        for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
            if (sinks[i]->blocked) say("%s: offered for %" PRIu64 " clocks and not taken\n", names[i],
                                       sinks[i]->blocked);
        }
        return text.c_str();
    }
};

Bench the;

}  // namespace
}  // namespace bench

using namespace bench;

extern "C" {

// From tb_top.sv: once per clock, sample first and drive last.

void tb_sample(uint32_t unit) { the.sample(unit); }

uint32_t tb_drive() {
    if (the.failure.empty()) the.drive();
    return the.controls();
}

void tb_gnic_request(
    uint32_t tag, uint64_t line, svBit prefetch, uint32_t promotion, uint64_t policy) {
    the.log(kLogHint, policy, promotion);
    the.take_line(tag, line, prefetch);
}
void tb_descriptor_request(uint64_t address) { the.take_fetch(address); }
void tb_smem_write(uint32_t lane, uint32_t words, uint32_t beat, const svBitVecVal* data) {
    the.take_write(lane, words, beat, data);
}
void tb_smem_read(uint32_t lane, uint32_t beat) { the.take_read(lane, beat); }
void tb_gnic_write(
    uint32_t tag, uint64_t line, uint32_t promotion, uint64_t policy, svBit reduces, uint32_t op,
    uint32_t type, const svBitVecVal* strobe, const svBitVecVal* data) {
    the.log(kLogHint, policy, promotion);
    the.take_store(tag, line, reduces, op, type, strobe, data);
}
void tb_group_result(uint32_t thread, uint32_t request_id) {
    the.post(kGroupDone, request_id, thread);
}
void tb_reduced(uint32_t tag) { the.take_reduced(tag); }
void tb_sector_read(uint64_t sector, svBitVecVal* data) {
    uint8_t bytes[kSectorBytes];
    the.gmem.read(sector * kSectorBytes, kSectorBytes, bytes);
    std::memcpy(data, bytes, sizeof bytes);
}
void tb_sector_write(uint64_t sector, uint32_t pieces, const svBitVecVal* data) {
    the.write_sector(sector, pieces, data);
}
void tb_error(uint32_t request_id, uint32_t code, uint32_t dim, uint64_t value) {
    the.take_error(request_id, code, dim, value);
}
void tb_barrier_result(uint32_t tag, svBit done, svBit error, uint64_t state) {
    the.take_result(tag, done, error, state);
}
uint64_t tb_barrier_read(uint32_t word) { return the.read_word(word); }
void tb_barrier_write(uint32_t word, uint64_t value) { the.write_word(word, value); }
void tb_violation(const char* stream, const char* what) { the.fail("%s: %s", stream, what); }

void tb_next_request(uint32_t* operation, uint32_t* request_id, uint64_t* global_address,
                     uint32_t* size, uint32_t* mode, uint32_t* rank, svBitVecVal* coords,
                     svBitVecVal* im2col_info, uint64_t* cache_policy, uint32_t* smem_address,
                     uint32_t* mbarrier, uint32_t* reduction_op, uint32_t* element_type,
                     uint32_t* byte_mask, uint32_t* thread, svBit* joins_group, uint32_t* groups) {
    const Request& request = the.request.current;
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
    *reduction_op = request.reduction_op;
    *element_type = request.element_type;
    *byte_mask = request.byte_mask;
    *thread = request.thread;
    *joins_group = request.joins_group != 0;
    *groups = request.groups;
}

void tb_next_prefetch(uint64_t* address) { *address = the.prefetch.current.address; }

void tb_next_invalidate(uint64_t* address, svBit* all) {
    *address = the.invalidate.current.address;
    *all = the.invalidate.current.all;
}

void tb_next_fill(svBitVecVal* words, svBit* error) {
    std::memcpy(words, the.fill.current.words, kMapBytes);
    *error = the.fill.current.error;
}

void tb_next_response(uint32_t* tag, svBit* error, svBitVecVal* data) {
    const Line& line = the.lines[the.response.current];
    *tag = the.response.current;
    *error = line.error;
    std::memcpy(data, line.data, kMaxLine);
}

void tb_next_data(svBitVecVal* data) { std::memcpy(data, the.data.current.data, kMaxLine); }

void tb_next_ack(uint32_t* tag, svBit* error) {
    *tag = the.ack.current & ~kFailed;
    *error = (the.ack.current & kFailed) != 0;
}

void tb_next_reduce(uint32_t* tag, uint64_t* sector, uint32_t* op, uint32_t* type,
                    uint32_t* pieces, svBitVecVal* data) {
    const Sector& part = the.reduce.current;
    const Store& store = the.stores[part.tag];
    *tag = part.tag;
    *sector = part.number;
    *op = store.op;
    *type = store.type;
    *pieces = part.pieces;
    uint8_t bytes[kSectorBytes] = {};
    const uint32_t size = std::min(the.line_bytes, kSectorBytes);
    const uint64_t base = (store.line * the.line_bytes + part.from) % kSectorBytes;
    std::memcpy(bytes + base, store.data + part.from, size);
    std::memcpy(data, bytes, sizeof bytes);
}

void tb_next_command(uint32_t* op, uint32_t* address, uint32_t* count, uint32_t* tag) {
    const Command& command = the.command.current;
    *op = command.op;
    *address = command.address;
    *count = command.count;
    *tag = the.next_tag;
    the.commands.emplace_back(the.next_tag++, command);
}

// From Python, between clocks.

void bench_reset(uint32_t line_bytes, uint32_t tags, uint8_t* smem, uint64_t smem_bytes,
                 uint32_t background) {
    const bool wake = the.wake;  // a level without meaning: keep it, a change would wake Python
    the = Bench{};
    the.wake = wake;
    the.line_bytes = line_bytes;
    the.lines.resize(tags);
    the.stores.resize(tags);
    the.smem = smem;
    the.smem_bytes = smem_bytes;
    the.gmem.set_background(background);
}

void bench_stall(uint32_t port, double share, double mean, uint64_t seed) {
    if (Stall* stall = the.stall(port)) stall->configure(share, mean, seed);
}

void bench_timing(uint32_t which, const Timing* timing, uint64_t seed) {
    the.schedules[which].configure(*timing, seed);
}

void bench_background(uint32_t background) { the.gmem.set_background(background); }
void bench_region(uint64_t base, uint64_t size, uint8_t* bytes) {
    the.gmem.add(base, size, bytes);
}
void bench_remove(uint64_t base) { the.gmem.remove(base); }

void bench_request(const Request* request) { the.request.queue.push_back(*request); }
void bench_prefetch(uint64_t address, uint32_t id) {
    the.prefetch.queue.push_back({address, id, false});
}
void bench_invalidate(uint64_t address, uint32_t all, uint32_t id) {
    the.invalidate.queue.push_back({address, id, all != 0});
}
void bench_command(uint32_t op, uint32_t address, uint32_t count, uint32_t id) {
    the.command.queue.push_back({op, address, count, id, false});
}
void bench_wait(uint32_t address, uint32_t parity, uint32_t id) {
    the.waits.push_back({Wait::kPoll, id, address, parity, false, 0});
}
void bench_watch(uint32_t address, uint32_t on) {
    if (on) the.watched.insert(address); else the.watched.erase(address);
}
void bench_alarm(uint64_t cycle, uint32_t id) { the.alarms.push({cycle, id}); }
void bench_idle(uint64_t quiet, uint32_t id) { the.idles.push_back({quiet, id}); }
void bench_wake_on(uint32_t kinds) { the.waking = kinds; }
void bench_log_kinds(uint32_t kinds) { the.logged = kinds; }

// Events since the last call; valid until the next clock.
uint64_t bench_events(const EventRecord** events) {
    static std::vector<EventRecord> given;
    given = std::move(the.events);
    the.events.clear();
    *events = given.data();
    return given.size();
}

uint64_t bench_log(uint32_t kind, const LogRecord** records) {
    *records = the.logs[kind].data();
    return the.logs[kind].size();
}
void bench_clear_log(uint32_t kind) { the.logs[kind].clear(); }

uint64_t bench_cycle() { return the.cycle; }
const char* bench_failure() { return the.failure.c_str(); }
const char* bench_ledger() { return the.ledger(); }
}
