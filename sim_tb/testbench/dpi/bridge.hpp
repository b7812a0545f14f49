// Records and numbers that Python (sim_tb/testbench/bridge.py) and C++ share.
//
// Each is listed once here. The struct or enumeration and its rows in layout_table() are made from
// the same list. Python compares the table with its own definitions when a simulation starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace testbench {

// Ports

// Streams that the testbench drives.
#define SOURCES(X)                                                                            \
    X(request) X(descriptor_prefetch) X(descriptor_invalidate) X(descriptor_fill)             \
    X(gnic_response) X(barrier_command) X(smem_data) X(gnic_ack) X(reduction_request)         \
    X(remote_command) X(remote_store)

// Streams that the testbench receives.
#define SINKS(X)                                                                              \
    X(error) X(descriptor_request) X(gnic_request) X(smem_write) X(barrier_result)            \
    X(smem_read) X(gnic_write) X(group_result) X(reduction_done) X(barrier_wake)            \
    X(trace)

// Enumerations

#define EVENT_KINDS(X)                                                                        \
    X(FAILURE) X(REQUEST_ACCEPTED) X(ERROR_RECORD) X(BARRIER_RESULT) X(WAIT_END)              \
    X(PHASE_CHANGE) X(ALARM) X(IDLE) X(FENCE_ACCEPTED) X(GROUP_RESULT)

#define LOG_KINDS(X)                                                                          \
    X(LINE) X(RESPONSE) X(BEAT) X(ACCEPT) X(WORD) X(FETCH) X(PREFETCH) X(HINT) X(READ)        \
    X(STORE) X(PERFORMED) X(STRAY) X(EVENT)

// Memories with a timing of their own.
#define MEMORY_KINDS(X) X(lines) X(descriptors) X(smem) X(stores)

// What global memory returns outside all regions.
#define BACKGROUNDS(X) X(HASH) X(FAULT) X(VOID)

#define ENUMERATOR(name) name,
struct Port {
    enum : uint32_t { SOURCES(ENUMERATOR) SINKS(ENUMERATOR) count };
};
struct EventKind {
    enum : uint32_t { EVENT_KINDS(ENUMERATOR) count };
};
struct LogKind {
    enum : uint32_t { LOG_KINDS(ENUMERATOR) count };
};
struct MemoryKind {
    enum : uint32_t { MEMORY_KINDS(ENUMERATOR) count };
};
struct Background {
    enum : uint32_t { BACKGROUNDS(ENUMERATOR) count };
};
#undef ENUMERATOR

// Numbers of the design's enumerations that the C++ side depends on. bit 2 of an operation that
// moves data: it reads shared memory.
#define OPERATIONS(X)                                                                         \
    X(TENSOR_PREFETCH, 2) X(TENSOR_STORE, 4) X(COMMIT_GROUP, 8) X(WAIT_GROUP, 9)              \
    X(WAIT_GROUP_READ, 10) X(DSMEM_COPY, 13) X(DSMEM_REDUCE, 15)
#define ACCESS_MODES(X) X(TILE, 0) X(IM2COL, 1) X(IM2COL_W, 4) X(IM2COL_W_128, 5)
#define BARRIER_OPS(X) X(TRY_WAIT_PARITY, 8) X(TRY_WAIT, 9)
#define ERROR_CODES(X) X(WRONG_TAG, 17)

#define ENUMERATOR(name, value) name = value,
struct Operation {
    enum : uint32_t { OPERATIONS(ENUMERATOR) };
};
struct AccessMode {
    enum : uint32_t { ACCESS_MODES(ENUMERATOR) };
};
struct BarrierOp {
    enum : uint32_t { BARRIER_OPS(ENUMERATOR) };
};
struct ErrorCode {
    enum : uint32_t { ERROR_CODES(ENUMERATOR) };
};
#undef ENUMERATOR

// Records: X(type, name, array length or default value). `not_before` is the first cycle in which
// the request or operation may go to the unit.

#define EVENT_RECORD(X)                                                                       \
    X(uint64_t, cycle, ) X(uint32_t, kind, ) X(uint32_t, id, )                                \
    X(uint64_t, a, ) X(uint64_t, b, ) X(uint64_t, c, ) X(uint64_t, d, )

#define LOG_RECORD(X) X(uint64_t, cycle, ) X(uint64_t, key, ) X(uint64_t, value, )

// Latency and order of a memory's answers; see Timing in sim_tb/testbench/models.py.
#define TIMING_RECORD(X)                                                                      \
    X(uint32_t, low, = 1) X(uint32_t, high, = 1) X(uint32_t, period, = 1)                     \
    X(uint32_t, window, = 1) X(uint32_t, in_order, = 0) X(uint32_t, in_flight, = ~0u)         \
    X(double, bandwidth, = 1)

#define REQUEST_RECORD(X)                                                                     \
    X(uint64_t, not_before, ) X(uint64_t, global_address, ) X(uint64_t, cache_policy, )       \
    X(int32_t, coords, [5]) X(uint16_t, im2col_info, [4])                                     \
    X(uint32_t, operation, ) X(uint32_t, request_id, ) X(uint32_t, size, )                    \
    X(uint32_t, mode, ) X(uint32_t, rank, ) X(uint32_t, smem_address, )                       \
    X(uint32_t, mbarrier, ) X(uint32_t, multicast, ) X(uint32_t, cta_mask, )                  \
    X(uint32_t, dst_cta, ) X(uint32_t, mbarrier_cta, ) X(uint32_t, cta_group_2, )             \
    X(uint32_t, reduction_op, ) X(uint32_t, element_type, ) X(uint32_t, byte_mask, )          \
    X(uint32_t, thread, ) X(uint32_t, joins_group, ) X(uint32_t, groups, )                    \
    X(uint32_t, ignore_first, ) X(uint32_t, ignore_last, ) X(uint32_t, report, )              \
    X(uint64_t, override_address, ) X(uint32_t, override_kind, )                              \
    X(uint32_t, override_upper, ) X(uint32_t, override_lower, [4]) X(uint8_t, override_dim, [8])

// `quiet`: nobody waits for the result unless it is a fault.
#define BARRIER_COMMAND_RECORD(X)                                                             \
    X(uint64_t, not_before, ) X(uint64_t, state, ) X(uint32_t, op, ) X(uint32_t, address, )   \
    X(uint32_t, count, ) X(uint32_t, lanes, ) X(uint32_t, time_limit, ) X(uint32_t, v1, )     \
    X(uint32_t, quiet, ) X(uint32_t, id, )

#define REMOTE_COMMAND_RECORD(X)                                                              \
    X(uint64_t, not_before, ) X(uint32_t, holder, ) X(uint32_t, op, ) X(uint32_t, address, )  \
    X(uint32_t, count, ) X(uint32_t, lanes, ) X(uint32_t, request_id, )

#define REMOTE_STORE_RECORD(X)                                                                \
    X(uint32_t, request_id, ) X(uint32_t, dst_cta, ) X(uint32_t, address, )                   \
    X(uint32_t, mbarrier, ) X(uint32_t, reduces, ) X(uint32_t, op, )                          \
    X(uint32_t, element_type, ) X(uint32_t, words, ) X(uint8_t, data, [16])

#define RECORDS(X)                                                                            \
    X(EventRecord, EVENT_RECORD) X(LogRecord, LOG_RECORD) X(TimingRecord, TIMING_RECORD)      \
    X(RequestRecord, REQUEST_RECORD) X(BarrierCommandRecord, BARRIER_COMMAND_RECORD)          \
    X(RemoteCommandRecord, REMOTE_COMMAND_RECORD) X(RemoteStoreRecord, REMOTE_STORE_RECORD)

#define MEMBER(type, name, suffix) type name suffix;
#define DECLARE(record, members) \
    struct record {              \
        members(MEMBER)          \
    };
RECORDS(DECLARE)
#undef DECLARE
#undef MEMBER

// One row for each number that Python compares, such as "offset of RequestRecord.coords 24".
inline std::string layout_table() {
    std::string text;
    const auto row = [&text](const char* what, size_t number) {
        text += what;
        text += ' ' + std::to_string(number) + '\n';
    };
#define PORT(name) row("number of Port." #name, Port::name);
    SOURCES(PORT)
    SINKS(PORT)
#undef PORT
#define KIND(name) row("number of EventKind." #name, EventKind::name);
    EVENT_KINDS(KIND)
#undef KIND
#define KIND(name) row("number of LogKind." #name, LogKind::name);
    LOG_KINDS(KIND)
#undef KIND
#define KIND(name) row("number of MemoryKind." #name, MemoryKind::name);
    MEMORY_KINDS(KIND)
#undef KIND
#define KIND(name) row("number of Background." #name, Background::name);
    BACKGROUNDS(KIND)
#undef KIND
#define MEMBER(name, value) row("number of Operation." #name, value);
    OPERATIONS(MEMBER)
#undef MEMBER
#define MEMBER(name, value) row("number of AccessMode." #name, value);
    ACCESS_MODES(MEMBER)
#undef MEMBER
#define MEMBER(name, value) row("number of BarrierOp." #name, value);
    BARRIER_OPS(MEMBER)
#undef MEMBER
#define MEMBER(name, value) row("number of ErrorCode." #name, value);
    ERROR_CODES(MEMBER)
#undef MEMBER
    // The member lists do not name their record, so `Record` is an alias in each block.
#define MEMBER(type, name, suffix)                                                            \
    row(("offset of " + record + "." #name).c_str(), offsetof(Record, name));                 \
    row(("size of " + record + "." #name).c_str(), sizeof(Record::name));
#define ROWS(type, members)                                                                   \
    {                                                                                         \
        using Record = type;                                                                  \
        const std::string record = #type;                                                     \
        row("size of " #type, sizeof(Record));                                                \
        members(MEMBER)                                                                       \
    }
    RECORDS(ROWS)
#undef ROWS
#undef MEMBER
    return text;
}

}  // namespace testbench
