// Global memory, who may write it, and when it answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "random.hpp"

namespace bench {

constexpr uint32_t kSectorBytes = 32;

// Buffers that belong to NumPy over a background. Addresses are modulo 2**64.
class GlobalMemory {
  public:
    enum Background : uint32_t { kHash = 0, kFault = 1, kVoid = 2 };

    void set_background(uint32_t background) { background_ = background; }

    // A later region hides an earlier one where they overlap.
    void add(uint64_t base, uint64_t size, uint8_t* bytes) {
        regions_.push_back({base, size, bytes});
    }

    void remove(uint64_t base) {
        std::erase_if(regions_, [base](const Region& region) { return region.base == base; });
    }

    // Copy `size` bytes at `address`; true: unreadable. Over kFault a read fails when no byte of it
    // is in a region (a line is the unit of access); stray bytes then read as 0xEE.
    bool read(uint64_t address, uint32_t size, uint8_t* bytes) const {
        bool any = false, whole = false;
        for (const Region& region : regions_) {
            const Overlap part = overlap(region, address, size);
            any |= part.count > 0;
            whole |= part.count == size;
        }
        if (!whole && background_ != kFault) {
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
        return !any && background_ == kFault;
    }

    // Whether all bytes at `address` whose `strobe` bit is set are in regions. Nothing else can be
    // written: a background has no place for it, but kVoid pretends.
    bool writable(uint64_t address, uint32_t size, const uint8_t* strobe) const {
        if (background_ == kVoid || find_all(address, size)) return true;
        for (uint32_t i = 0; i < size; ++i) {
            if (strobe[i / 8] >> i % 8 & 1 && !find(address + i)) return false;
        }
        return true;
    }

    // Write those bytes, which are writable.
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

    // The byte that is read at `address`, if it is in a region.
    uint8_t* find(uint64_t address) const {
        for (auto region = regions_.rbegin(); region != regions_.rend(); ++region) {
            if (address - region->base < region->size) {
                return region->bytes + (address - region->base);
            }
        }
        return nullptr;
    }

    // The first of `size` bytes that are read at `address`, if they are in one region.
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
        if (inside < region.size) return {inside, 0, std::min<uint64_t>(size, region.size - inside)};
        if (before < size) return {0, before, std::min<uint64_t>(size - before, region.size)};
        return {0, 0, 0};
    }

    // The byte that an address of recorded vectors holds unless they say otherwise.
    static uint8_t mix(uint32_t x) {
        x ^= x >> 16;
        x *= 0x7feb352d;
        x ^= x >> 15;
        x *= 0x846ca68b;
        x ^= x >> 16;
        return static_cast<uint8_t>(x);
    }

    std::vector<Region> regions_;
    uint32_t background_ = kHash;
};

// A store of an SM, by its tag.
struct Waiter {
    uint32_t sm, tag;
};

// Sectors that are being reduced. The reduction unit of an SM reads a sector before it writes it:
// nothing but itself may write it meanwhile.
class Reducing {
  public:
    // Whether a store, or with `reduces` a reduction, of `sm` may begin. Another SM that waits is
    // not overtaken.
    bool open(uint64_t sector, uint32_t sm, bool reduces) const {
        const auto found = sectors_.find(sector);
        if (found == sectors_.end()) return true;
        return reduces && found->second.sm == sm && !found->second.wanted;
    }

    // What waits for a sector that is not open.
    void wait(uint64_t sector, const Waiter& waiter) {
        Sector& busy = sectors_.at(sector);
        busy.wanted |= waiter.sm != busy.sm;
        busy.waiters.push_back(waiter);
    }

    void begin(uint64_t sector, uint32_t sm) {
        Sector& busy = sectors_[sector];
        busy.sm = sm;
        ++busy.reductions;
    }

    // One reduction is done; what waited and may ask again, or nothing if there was no reduction.
    std::optional<std::vector<Waiter>> end(uint64_t sector, uint32_t sm) {
        const auto found = sectors_.find(sector);
        if (found == sectors_.end() || found->second.sm != sm) return std::nullopt;
        std::vector<Waiter> waiters;
        if (--found->second.reductions == 0) {
            waiters = std::move(found->second.waiters);
            sectors_.erase(found);
        }
        return waiters;
    }

  private:
    struct Sector {
        uint32_t sm = 0, reductions = 0;
        bool wanted = false;  // by another SM
        std::vector<Waiter> waiters;
    };

    std::unordered_map<uint64_t, Sector> sectors_;
};

// Latency and order of the answers, by slot number. Cycle numbers are those of the clock edge.
struct Timing {
    uint32_t low = 1, high = 1;  // clocks from request to response, uniform
    uint32_t period = 1;         // answers become ready at multiples of it: bursts
    uint32_t window = 1;         // how many of the oldest ready answers the next is drawn from
    uint32_t in_order = 0;       // answers keep the order of the requests, whatever the latency
    uint32_t in_flight = ~0u;    // no further request is taken above so many unanswered ones
    double bandwidth = 1;        // requests taken per clock, on average
};

class Schedule {
  public:
    void configure(const Timing& timing, uint64_t seed) {
        *this = {};
        timing_ = timing;
        random_ = Random(seed);
    }

    size_t outstanding() const { return waiting_.size() + ready_.size(); }

    // Whether the memory takes a request in the next cycle. Call once per cycle.
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

    // The slot whose answer is on the port in the cycle after `now`, or -1.
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

    Timing timing_;
    Random random_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> waiting_;
    std::deque<uint32_t> ready_;
    uint64_t serial_ = 0, newest_ = 0;
    double credit_ = 0;
};

}  // namespace bench
