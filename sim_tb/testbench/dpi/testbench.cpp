// The two interfaces of the testbench's C++ side: tb_* for tb_top.sv (DPI) and testbench_* for
// Python (ctypes). All arrays belong to Python.
#include <algorithm>
#include <cstring>

#include "bridge.hpp"
#include "sm_models.hpp"
#include "svdpi.h"

using namespace testbench;

// Return the tags of the accesses in flight.
template <typename Slot>
static std::deque<uint32_t> in_flight(const std::vector<Slot>& slots) {
    std::deque<uint32_t> tags;
    for (uint32_t tag = 0; tag < slots.size(); ++tag) {
        if (slots[tag].busy) tags.push_back(tag);
    }
    return tags;
}

extern "C" {

// Called from tb_top.sv, once per clock and SM: tb_sample first, tb_drive last.

void tb_sample(uint32_t sm, uint32_t unit) { models_of(sm).sample(unit); }

uint64_t tb_drive(uint32_t sm) {
    if (models_of(sm).failure.empty()) models_of(sm).drive();
    return models_of(sm).controls();
}

void tb_gnic_request(uint32_t sm, uint32_t tag, uint64_t line, svBit prefetch, uint32_t promotion,
                     uint64_t policy) {
    models_of(sm).log(LogKind::HINT, policy, promotion);
    models_of(sm).take_gnic_request(tag, line, prefetch);
}
void tb_descriptor_request(uint32_t sm, uint64_t address) {
    models_of(sm).take_descriptor_request(address);
}
void tb_smem_write(uint32_t sm, uint32_t lane, uint32_t words, uint32_t beat,
                   const svBitVecVal* data) {
    models_of(sm).take_smem_write(lane, words, beat, data);
}
void tb_smem_read(uint32_t sm, uint32_t lane, uint32_t beat) {
    models_of(sm).take_smem_read(lane, beat);
}
void tb_gnic_write(uint32_t sm, uint32_t tag, uint64_t line, uint32_t promotion, uint64_t policy,
                   svBit reduces, uint32_t op, uint32_t type, const svBitVecVal* strobe,
                   const svBitVecVal* data) {
    models_of(sm).log(LogKind::HINT, policy, promotion);
    models_of(sm).take_gnic_write(tag, line, reduces, op, type, strobe, data);
}
void tb_group_result(uint32_t sm, uint32_t thread, uint32_t request_id) {
    models_of(sm).post(EventKind::GROUP_RESULT, request_id, thread);
}
void tb_reduction_done(uint32_t sm, uint32_t tag) { models_of(sm).take_reduction_done(tag); }
void tb_sector_read(uint64_t sector, svBitVecVal* data) {
    uint8_t bytes[kSectorBytes];
    shared.gmem.read(sector * kSectorBytes, kSectorBytes, bytes);
    std::memcpy(data, bytes, sizeof bytes);
}
void tb_sector_write(uint32_t sm, uint64_t sector, uint32_t pieces, const svBitVecVal* data) {
    models_of(sm).write_sector(sector, pieces, data);
}
void tb_error(uint32_t sm, uint32_t request_id, uint32_t cta, uint32_t code, uint32_t dim,
              uint64_t value) {
    models_of(sm).take_error(request_id, cta, code, dim, value);
}
void tb_barrier_result(uint32_t sm, uint32_t tag, svBit done, svBit waits, uint32_t fault,
                       uint64_t state) {
    models_of(sm).take_barrier_result(tag, done, waits, fault, state);
}
void tb_barrier_wake(uint32_t sm, uint32_t tag, svBit done, uint32_t fault) {
    models_of(sm).take_barrier_wake(tag, {done != 0, fault});
}
void tb_event(uint32_t sm, uint64_t low, uint64_t high) {
    models_of(sm).log(LogKind::EVENT, low, high);
}
uint64_t tb_barrier_read(uint32_t sm, uint32_t word) { return models_of(sm).read_word(word); }
void tb_barrier_write(uint32_t sm, uint32_t word, uint64_t value) {
    models_of(sm).write_word(word, value);
}
void tb_violation(uint32_t sm, const char* stream, const char* what) {
    models_of(sm).fail("%s: %s", stream, what);
}

void tb_next_request(uint32_t sm, uint32_t* operation, uint32_t* request_id,
                     uint64_t* global_address, uint32_t* size, uint32_t* mode, uint32_t* rank,
                     svBitVecVal* coords, svBitVecVal* im2col_info, uint64_t* cache_policy,
                     uint32_t* smem_address, uint32_t* mbarrier, svBit* multicast,
                     uint32_t* cta_mask, uint32_t* dst_cta, uint32_t* mbarrier_cta,
                     svBit* cta_group_2, uint32_t* reduction_op, uint32_t* element_type,
                     uint32_t* byte_mask, uint32_t* thread, svBit* joins_group, uint32_t* groups) {
    const RequestRecord& request = models_of(sm).request.current;
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
void tb_next_ignored(uint32_t sm, uint32_t* first, uint32_t* last) {
    const RequestRecord& request = models_of(sm).request.current;
    *first = request.ignore_first;
    *last = request.ignore_last;
}
void tb_next_report(uint32_t sm, uint32_t* report) {
    *report = models_of(sm).request.current.report;
}
void tb_next_override(uint32_t sm, uint32_t* kind, uint64_t* address, svBitVecVal* dim,
                      svBitVecVal* lower, uint32_t* upper) {
    const RequestRecord& request = models_of(sm).request.current;
    *kind = request.override_kind;
    *address = request.override_address;
    std::memcpy(dim, request.override_dim, sizeof request.override_dim);
    std::memcpy(lower, request.override_lower, sizeof request.override_lower);
    *upper = request.override_upper;
}

void tb_next_descriptor_prefetch(uint32_t sm, uint64_t* address) {
    *address = models_of(sm).descriptor_prefetch.current.address;
}

void tb_next_descriptor_invalidate(uint32_t sm, uint64_t* address, svBit* all) {
    const Fence& fence = models_of(sm).descriptor_invalidate.current;
    *address = fence.address;
    *all = fence.all;
}

void tb_next_descriptor_fill(uint32_t sm, svBitVecVal* words, svBit* error, svBit* absent) {
    const DescriptorFill& fill = models_of(sm).descriptor_fill.current;
    std::memcpy(words, fill.words, kMapBytes);
    *error = fill.fault != Fault::NONE;
    *absent = fill.fault == Fault::ABSENT;
}

void tb_next_gnic_response(uint32_t sm, uint32_t* tag, svBit* error, svBit* absent,
                           svBitVecVal* data) {
    *tag = models_of(sm).gnic_response.current & ~kStray;
    const LineRead& read = models_of(sm).line_reads[*tag];
    *error = read.fault != Fault::NONE;
    *absent = read.fault == Fault::ABSENT;
    std::memcpy(data, read.data, kMaxLine);
}

void tb_next_smem_data(uint32_t sm, svBitVecVal* data) {
    std::memcpy(data, models_of(sm).smem_data.current.data, kMaxLine);
}

void tb_next_gnic_ack(uint32_t sm, uint32_t* tag, svBit* error, svBit* absent) {
    const uint32_t ack = models_of(sm).gnic_ack.current;
    *tag = ack & ~(kStoreFailed | kStoreAbsent | kStray);
    *error = (ack & kStoreFailed) != 0;
    *absent = (ack & kStoreAbsent) != 0;
}

void tb_next_reduction_request(uint32_t sm, uint32_t* tag, uint64_t* sector, uint32_t* op,
                               uint32_t* type, uint32_t* pieces, svBitVecVal* data) {
    const uint32_t line_bytes = models_of(sm).line_bytes;
    const SectorReduction& part = models_of(sm).reduction_request.current;
    const LineStore& store = models_of(sm).line_stores[part.tag];
    *tag = part.tag;
    *sector = part.sector;
    *op = store.op;
    *type = store.type;
    *pieces = part.pieces;
    uint8_t bytes[kSectorBytes] = {};
    const uint32_t size = std::min(line_bytes, kSectorBytes);
    const uint64_t base = (store.line * line_bytes + part.line_offset) % kSectorBytes;
    std::memcpy(bytes + base, store.data + part.line_offset, size);
    std::memcpy(data, bytes, sizeof bytes);
}

void tb_next_barrier_command(uint32_t sm, uint32_t* op, uint32_t* address, uint32_t* count,
                             uint32_t* lanes, uint64_t* state, uint32_t* time_limit, svBit* v1,
                             uint32_t* tag) {
    const BarrierCommandRecord& command = models_of(sm).barrier_command.current;
    *op = command.op;
    *address = command.address;
    *count = command.count;
    *lanes = command.lanes;
    *state = command.state;
    *time_limit = command.time_limit;
    *v1 = command.v1 != 0;
    *tag = models_of(sm).tag_command();
}

void tb_next_remote_command(uint32_t sm, uint32_t* holder, uint32_t* op, uint32_t* address,
                            uint32_t* count, uint32_t* lanes, uint32_t* request_id) {
    const RemoteCommandRecord& command = models_of(sm).remote_command.current;
    *holder = command.holder;
    *op = command.op;
    *address = command.address;
    *count = command.count;
    *lanes = command.lanes;
    *request_id = command.request_id;
}

void tb_next_remote_store(uint32_t sm, uint32_t* request_id, uint32_t* dst_cta, uint32_t* address,
                          uint32_t* mbarrier, svBit* reduces, uint32_t* op, uint32_t* type,
                          uint32_t* words, svBitVecVal* data) {
    const RemoteStoreRecord& store = models_of(sm).remote_store.current;
    *request_id = store.request_id;
    *dst_cta = store.dst_cta;
    *address = store.address;
    *mbarrier = store.mbarrier;
    *reduces = store.reduces != 0;
    *op = store.op;
    *type = store.element_type;
    *words = store.words;
    std::memcpy(data, store.data, sizeof store.data);
}

// Called from Python between clocks: functions of the whole testbench

// Return the layouts and numbers that Python compares with its own.
const char* testbench_layout_table() {
    static const std::string table = layout_table();
    return table.c_str();
}

// Remove all regions and use `sms` SMs. Python then resets each of them.
void testbench_start(uint32_t sms, uint32_t background) {
    shared = Shared{};
    shared.sms = sms;
    shared.gmem.set_background(background);
}

void testbench_background(uint32_t background) { shared.gmem.set_background(background); }
void testbench_region(uint64_t base, uint64_t size, uint8_t* bytes) {
    shared.gmem.add(base, size, bytes);
}
void testbench_remove(uint64_t base) { shared.gmem.remove(base); }

// Called from Python between clocks: functions of one SM

void testbench_reset(uint32_t sm, uint32_t line_bytes, uint32_t address_bits, uint32_t tags,
                     uint32_t streams, uint32_t reads_maps, uint32_t writes_lines, uint8_t* smem,
                     uint64_t smem_bytes) {
    const bool wake = models_of(sm).wake;  // kept, because a change of the level would wake Python
    const auto old_reads = in_flight(models_of(sm).line_reads);
    const auto old_stores = in_flight(models_of(sm).line_stores);
    models_of(sm) = SmModels{};
    models_of(sm).stray_reads.old = old_reads;
    models_of(sm).stray_writes.old = old_stores;
    models_of(sm).sm = sm;
    models_of(sm).wake = wake;
    models_of(sm).line_bytes = line_bytes;
    models_of(sm).extents = Extents(address_bits, reads_maps != 0);
    models_of(sm).line_reads.resize(tags);
    models_of(sm).line_stores.resize(writes_lines ? tags : 0);
    if (streams > 1) models_of(sm).streams.resize(streams);
    models_of(sm).smem = smem;
    models_of(sm).smem_bytes = smem_bytes;
}

void testbench_stall(uint32_t sm, uint32_t port, double share, double mean, uint64_t seed) {
    if (Stall* stall = models_of(sm).stall(port)) stall->configure(share, mean, seed);
}

// Let answers come that belong to no access, in a share of the clocks. Without a share, the answers
// to accesses before the reset do not come either.
void testbench_strays(uint32_t sm, double share, uint64_t seed) {
    SmModels& models = models_of(sm);
    models.stray_threshold = threshold(share);
    models.stray_random = Random(seed);
    if (share > 0) return;
    models.stray_reads.old.clear();
    models.stray_writes.old.clear();
}

// Let the answer to the next access to a line come later by so many clocks, or with 2**64 - 1 never.
void testbench_delay(uint32_t sm, uint64_t line, uint64_t clocks) {
    models_of(sm).delays[line] = clocks;
}

void testbench_timing(uint32_t sm, uint32_t which, const TimingRecord* timing, uint64_t seed) {
    models_of(sm).schedules[which].configure(*timing, seed);
}

void testbench_request(uint32_t sm, const RequestRecord* request) {
    models_of(sm).issue(*request);
}
void testbench_prefetch(uint32_t sm, uint64_t address, uint32_t id) {
    models_of(sm).descriptor_prefetch.queue.push_back({address, id, false});
}
void testbench_invalidate(uint32_t sm, uint64_t address, uint32_t all, uint32_t id) {
    models_of(sm).descriptor_invalidate.queue.push_back({address, id, all != 0});
}
void testbench_command(uint32_t sm, const BarrierCommandRecord* command) {
    models_of(sm).barrier_command.put(*command, command->not_before);
}
void testbench_remote_command(uint32_t sm, const RemoteCommandRecord* command) {
    models_of(sm).remote_command.put(*command, command->not_before);
}
void testbench_remote_store(uint32_t sm, const RemoteStoreRecord* store) {
    models_of(sm).remote_store.queue.push_back(*store);
}
void testbench_watch(uint32_t sm, uint32_t address, uint32_t wakes) {
    models_of(sm).watched[address] |= wakes != 0;
}
void testbench_alarm(uint32_t sm, uint64_t cycle, uint32_t id) {
    models_of(sm).alarms.push({cycle, id});
}
void testbench_idle(uint32_t sm, uint64_t clocks, uint32_t id, uint32_t all_sms) {
    models_of(sm).idle_waits.push_back({clocks, id, all_sms != 0});
}
void testbench_wake_on(uint32_t sm, uint32_t kinds) { models_of(sm).waking_kinds = kinds; }
void testbench_log_kinds(uint32_t sm, uint32_t kinds) { models_of(sm).logged_kinds = kinds; }

// Return the events since the last call. They stay valid until the next call.
uint64_t testbench_events(uint32_t sm, const EventRecord** events) {
    SmModels& models = models_of(sm);
    models.delivered = std::move(models.events);
    models.events.clear();
    *events = models.delivered.data();
    return models.delivered.size();
}

uint64_t testbench_log(uint32_t sm, uint32_t kind, const LogRecord** records) {
    *records = models_of(sm).logs[kind].data();
    return models_of(sm).logs[kind].size();
}
void testbench_clear_log(uint32_t sm, uint32_t kind) { models_of(sm).logs[kind].clear(); }

const uint64_t* testbench_cycle(uint32_t sm) { return &models_of(sm).cycle; }
const char* testbench_failure(uint32_t sm) { return models_of(sm).failure.c_str(); }
const char* testbench_ledger(uint32_t sm) { return models_of(sm).ledger(); }
}
