// Global memory: its contents, the sectors that are being reduced, and the timing of its answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "bridge.hpp"
#include "random.hpp"

namespace testbench {

constexpr uint32_t kSectorBytes = 32;

// Why an access fails: no memory is at its address, or the memory there refuses it.
enum class Fault { NONE, ABSENT, REFUSED };

// Regions, whose bytes belong to NumPy arrays, over a background. A region without bytes refuses
// each access that touches it. Addresses are modulo 2**64.
class GlobalMemory {
  public:
    void set_background(uint32_t background) { background_ = background; }

    // Add a region. Where regions overlap, the one added last is visible.
    void add(uint64_t base, uint64_t size, uint8_t* bytes) {
        regions_.push_back({base, size, bytes});
    }

    void remove(uint64_t base) {
        std::erase_if(regions_, [base](const Region& region) { return region.base == base; });
    }

    // Copy `size` bytes at `address` to `bytes`. They are absent if the background is FAULT and none
    // of them is in a region. If only some are in a region, the read succeeds, because memory is
    // accessed in whole lines, and the others read as 0xEE.
    Fault read(uint64_t address, uint32_t size, uint8_t* bytes) const {
        if (refuses(address, size)) return Fault::REFUSED;
        bool any = false, whole = false;  // some bytes, all bytes are in one region
        for (const Region& region : regions_) {
            const Overlap part = overlap(region, address, size);
            any |= part.count > 0;
            whole |= part.count == size;
        }
        if (!whole && background_ != Background::FAULT) {
            for (uint32_t i = 0; i < size; ++i) {
                bytes[i] = mix(static_cast<uint32_t>(address) + i);
            }
        } else if (!whole) {
            std::memset(bytes, 0xee, size);
        }
        if (any) {
            for (const Region& region : regions_) {
                const Overlap part = overlap(region, address, size);
                std::memcpy(bytes + part.to, region.bytes + part.from, part.count);
            }
        }
        return !any && background_ == Background::FAULT ? Fault::ABSENT : Fault::NONE;
    }

    // Return why the bytes at `address` whose `strobe` bit is set cannot be written: one of them is
    // in no region, and the background is not VOID, where writes are accepted and dropped.
    Fault write_fault(uint64_t address, uint32_t size, const uint8_t* strobe) const {
        if (refuses(address, size)) return Fault::REFUSED;
        if (background_ == Background::VOID || find_all(address, size)) return Fault::NONE;
        for (uint32_t i = 0; i < size; ++i) {
            if (strobe[i / 8] >> i % 8 & 1 && !find(address + i)) return Fault::ABSENT;
        }
        return Fault::NONE;
    }

    // Write the bytes whose `strobe` bit is set. The caller has checked write_fault().
    void write(uint64_t address, uint32_t size, const uint8_t* strobe, const uint8_t* bytes) {
        uint8_t* const all = find_all(address, size);
        for (uint32_t i = 0; i < size; ++i) {
            if (!(strobe[i / 8] >> i % 8 & 1)) continue;
            if (uint8_t* byte = all ? all + i : find(address + i)) *byte = bytes[i];
        }
    }

  private:
    struct Region {
        uint64_t base, size;
        uint8_t* bytes;
    };

    bool refuses(uint64_t address, uint32_t size) const {
        return std::ranges::any_of(regions_, [=](const Region& region) {
            return !region.bytes && overlap(region, address, size).count;
        });
    }

    // Return the byte that is visible at `address`, or null if no region has it.
    uint8_t* find(uint64_t address) const {
        for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
            if (address - region->base < region->size) {
                return region->bytes + (address - region->base);
            }
        }
        return nullptr;
    }

    // Return the first of `size` bytes at `address` if one region shows them all, else null.
    uint8_t* find_all(uint64_t address, uint32_t size) const {
        for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
            const Overlap part = overlap(*region, address, size);
            if (part.count == size) return region->bytes + part.from;
            if (part.count) break;
        }
        return nullptr;
    }

    struct Overlap {
        uint64_t from, to, count;  // offsets in the region and in the read
    };

    static Overlap overlap(const Region& region, uint64_t address, uint32_t size) {
        const uint64_t inside = address - region.base, before = region.base - address;
        if (inside < region.size) {
            return {inside, 0, std::min<uint64_t>(size, region.size - inside)};
        }
        if (before < size) return {0, before, std::min<uint64_t>(size - before, region.size)};
        return {0, 0, 0};
    }

    // Return the byte of the HASH background: the one that recorded test vectors assume.
    static uint8_t mix(uint32_t x) {
        x ^= x >> 16;
        x *= 0x7feb352d;
        x ^= x >> 15;
        x *= 0x846ca68b;
        x ^= x >> 16;
        return static_cast<uint8_t>(x);
    }

    std::vector<Region> regions_;
    uint32_t background_ = Background::HASH;
};

// A store that waits for a sector.
struct WaitingStore {
    uint32_t sm, tag;
};

// Sectors that are being reduced. The reduction unit of an SM reads a sector before it writes it,
// and only that unit may write the sector in between.
class ReducedSectors {
  public:
    // Return whether `sm` may begin a store, or with `reduces` a reduction, of `sector`. A further
    // reduction of the same SM may begin, unless another SM waits for the sector.
    bool open(uint64_t sector, uint32_t sm, bool reduces) const {
        const auto found = sectors_.find(sector);
        if (found == sectors_.end()) return true;
        return reduces && found->second.sm == sm && !found->second.wanted;
    }

    // Let `store` wait for a sector that is not open.
    void wait(uint64_t sector, const WaitingStore& store) {
        Sector& busy = sectors_.at(sector);
        busy.wanted |= store.sm != busy.sm;
        busy.waiting.push_back(store);
    }

    void begin(uint64_t sector, uint32_t sm) {
        Sector& busy = sectors_[sector];
        busy.sm = sm;
        ++busy.reductions;
    }

    // End one reduction of `sector` by `sm`. Return the stores that may try again, which are those
    // that waited if it was the last reduction. Return nullopt if no such reduction had begun.
    std::optional<std::vector<WaitingStore>> end(uint64_t sector, uint32_t sm) {
        const auto found = sectors_.find(sector);
        if (found == sectors_.end() || found->second.sm != sm) return std::nullopt;
        std::vector<WaitingStore> released;
        if (--found->second.reductions == 0) {
            released = std::move(found->second.waiting);
            sectors_.erase(found);
        }
        return released;
    }

  private:
    struct Sector {
        uint32_t sm = 0, reductions = 0;
        bool wanted = false;  // another SM waits for it
        std::vector<WaitingStore> waiting;
    };

    std::unordered_map<uint64_t, Sector> sectors_;
};

// Latency and order of a memory's answers. A request is known by its slot number. Cycle numbers are
// those of clock edges.
class Schedule {
  public:
    void configure(const TimingRecord& timing, uint64_t seed) {
        *this = {};
        timing_ = timing;
        random_ = Random(seed);
    }

    size_t outstanding() const { return waiting_.size() + ready_.size(); }

    // Return whether the memory accepts a request in the next cycle. Call it once per cycle.
    bool open(size_t unanswered) {
        credit_ = std::min(credit_ + timing_.bandwidth, 1 + timing_.bandwidth);
        return unanswered < timing_.in_flight && credit_ > 1 - 1e-9;
    }

    void request(uint32_t slot, uint64_t now) {
        credit_ -= 1;
        uint64_t due = now + timing_.low + random_.below(timing_.high - timing_.low + 1);
        due = (due + timing_.period - 1) / timing_.period * timing_.period;
        if (timing_.in_order) due = newest_ = std::max(due, newest_);
        waiting_.push({due, serial_++, slot});
    }

    // Return the slot whose answer is on the port in the cycle after `now`, or -1.
    int64_t answer(uint64_t now) {
        while (!waiting_.empty() && waiting_.top().due <= now + 1) {
            ready_.push_back(waiting_.top().slot);
            waiting_.pop();
        }
        if (ready_.empty()) return -1;
        const uint64_t choices = std::min<uint64_t>(timing_.window, ready_.size());
        const auto chosen = ready_.begin() + (choices > 1 ? random_.below(choices) : 0);
        const uint32_t slot = *chosen;
        ready_.erase(chosen);
        return slot;
    }

  private:
    struct Entry {
        uint64_t due, serial;
        uint32_t slot;
        bool operator>(const Entry& other) const {
            return due != other.due ? due > other.due : serial > other.serial;
        }
    };

    TimingRecord timing_;
    Random random_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting_;
    std::deque<uint32_t> ready_;
    uint64_t serial_ = 0, newest_ = 0;
    double credit_ = 0;
};

}  // namespace testbench
