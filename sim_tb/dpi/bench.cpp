// The bench around the unit: models, drivers and checks, with an interface to Python (bench_*, by
// ctypes) and one to tb_top.sv (tb_*, by DPI). All buffers belong to Python.
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "memory.hpp"
#include "ports.hpp"
#include "svdpi.h"

namespace bench {
namespace {

// The numbers below are shared with sim_tb/bridge.py and tb_top.sv.
enum Port : uint32_t {  // sources, then sinks
    kRequest, kPrefetch, kInvalidate, kFill, kResponse, kCommand,
    kError, kFetch, kLine, kWrite, kResult, kPorts
};
enum Event : uint32_t {
    kFailure, kAccepted, kRefused, kAnswered, kWaitDone, kPhase, kAlarm, kIdle, kFenced
};
enum Log : uint32_t {
    kLogLine, kLogResponse, kLogBeat, kLogAccept, kLogWord, kLogFetch, kLogPrefetch, kLogHint, kLogs
};

constexpr uint32_t kPieceBytes = 16, kMapBytes = 64, kMaxLine = 128;
constexpr uint64_t kSlowPoll = 4096;  // clocks between polls of a barrier nobody has written
constexpr uint32_t kTestWaitParity = 6;

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
    Schedule line_schedule, fetch_schedule;

    Source<Request> request;
    Source<Fence> prefetch, invalidate;
    Source<Fill> fill;
    Source<uint32_t> response;  // by tag
    Source<Command> command;
    Sink error, fetch, line, write, result;

    std::vector<Line> lines;  // by tag
    size_t lines_busy = 0;
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
    std::vector<EventRecord> events;
    std::vector<LogRecord> logs[kLogs];
    uint32_t logged = 0, waking = 0;
    bool wake = false, alert = false;
    std::string failure, text;

    Stall* stall(uint32_t port) {
        Stall* const stalls[kPorts] = {
            &request.stall, &prefetch.stall, &invalidate.stall, &fill.stall, &response.stall,
            &command.stall, &error.stall, &fetch.stall, &line.stall, &write.stall, &result.stall};
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
        moved |= error.sample(bit(kError));
        moved |= fetch.sample(bit(kFetch));
        moved |= line.sample(bit(kLine));
        moved |= write.sample(bit(kWrite));
        result.sample(bit(kResult));
        if (moved) active = cycle;
    }

    void take_line(uint32_t tag, uint64_t number, bool prefetch) {
        if (prefetch) return log(kLogPrefetch, number, 0);
        if (tag >= lines.size()) return fail("gnic_request: tag %u of %zu", tag, lines.size());
        Line& slot = lines[tag];
        if (slot.busy) {
            return fail("gnic_request: tag %u is in flight since cycle %" PRIu64 " (line 0x%" PRIx64
                        ", now 0x%" PRIx64 ")", tag, slot.since, slot.line, number);
        }
        slot.busy = true;
        slot.line = number;
        slot.since = cycle;
        slot.error = gmem.read(number * line_bytes, line_bytes, slot.data);
        ++lines_busy;
        line_schedule.request(tag, cycle);
        log(kLogLine, number, tag);
    }

    void take_fetch(uint64_t address) {
        if (address % kMapBytes) {
            return fail("descriptor_request: address 0x%" PRIx64 " is no multiple of 64", address);
        }
        Fill& slot = fetches.emplace_back();
        slot.address = address;
        slot.error = gmem.read(address, kMapBytes, slot.words);
        fetch_schedule.request(0, cycle);
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
        if (response.idle()) {
            const int64_t tag = line_schedule.answer(cycle);
            if (tag >= 0) response.queue.push_back(static_cast<uint32_t>(tag));
        }
        if (fill.idle() && fetch_schedule.answer(cycle) >= 0) {
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
        error.drive();
        fetch.drive(fetch_schedule.open(fetches.size()));
        line.drive(line_schedule.open(lines_busy));
        write.drive();
        result.drive();
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
               fetches.empty() && fill.idle() && (command.idle() || command.current.poll) &&
               (commands.empty() || commands.front().second.poll);
    }

    uint32_t controls() {
        wake ^= alert;
        alert = false;
        const bool run = failure.empty();
        const bool bits[] = {
            request.valid, prefetch.valid, invalidate.valid, fill.valid, response.valid,
            command.valid, error.ready, fetch.ready, line.ready, write.ready, result.ready,
            request.fresh, prefetch.fresh, invalidate.fresh, fill.fresh, response.fresh,
            command.fresh};
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
        say("descriptors: %" PRIu64 " fetches, %zu unanswered%s\n", fetch.taken,
            fetches.size() + fill.pending(), fill.valid ? "; a fill is offered and not taken" : "");
        say("shared memory: %" PRIu64 " beats written\n", write.taken);
        say("barrier commands: %zu to go, %zu without a result; errors: %" PRIu64 "\n",
            command.pending(), commands.size(), error.taken);
        const Sink* const sinks[] = {&error, &fetch, &line, &write, &result};
        const char* const names[] = {
            "error", "descriptor_request", "gnic_request", "smem_write", "barrier_result"};
        for (size_t i = 0; i < 5; ++i) {
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
                     uint32_t* mbarrier) {
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
    the.smem = smem;
    the.smem_bytes = smem_bytes;
    the.gmem.set_background(background);
}

void bench_stall(uint32_t port, double share, double mean, uint64_t seed) {
    if (Stall* stall = the.stall(port)) stall->configure(share, mean, seed);
}

void bench_timing(uint32_t which, const Timing* timing, uint64_t seed) {
    (which ? the.fetch_schedule : the.line_schedule).configure(*timing, seed);
}

void bench_background(uint32_t background) { the.gmem.set_background(background); }
void bench_region(uint64_t base, uint64_t size, const uint8_t* bytes) {
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
