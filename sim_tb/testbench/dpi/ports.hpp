// The testbench's end of a stream: its outputs are registered, and it may stall at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "random.hpp"

namespace testbench {

// Drives payloads into the unit in order. A payload stays on the port until it is transferred.
template <typename T>
struct Source {
    std::deque<T> queue;
    std::deque<uint64_t> not_before;  // first cycle of each payload in `queue`, or empty
    Stall stall;
    T current{};
    bool valid = false;
    bool new_payload = false;  // `current` changed at the last edge
    uint64_t transfers = 0;

    // Call at the clock edge. Return true if `current` was transferred in the cycle that ends.
    bool sample(bool ready) {
        if (!valid || !ready) return false;
        valid = false;
        ++transfers;
        return true;
    }

    // Queue a payload that is driven in cycle `cycle` at the earliest, behind all payloads whose
    // cycle is not later. Use it for all payloads of a source, or for none.
    void put(const T& payload, uint64_t cycle) {
        const auto place =
            std::upper_bound(not_before.begin(), not_before.end(), cycle) - not_before.begin();
        queue.insert(queue.begin() + place, payload);
        not_before.insert(not_before.begin() + place, cycle);
    }

    // Call after sample(). Choose what the port shows in the next cycle.
    void drive(uint64_t now = 0) {
        const bool open = !stall.closed();
        new_payload = open && !valid && !queue.empty() &&
                      (not_before.empty() || not_before.front() <= now);
        if (new_payload) {
            current = std::move(queue.front());
            queue.pop_front();
            if (!not_before.empty()) not_before.pop_front();
            valid = true;
        }
    }

    bool idle() const { return !valid && queue.empty(); }
    size_t pending() const { return queue.size() + valid; }
};

// Receives payloads from the unit.
struct Sink {
    Stall stall;
    bool ready = false;
    uint64_t transfers = 0;
    uint64_t blocked = 0;  // clocks that the payload on the port has waited

    bool sample(bool valid) {
        const bool transfer = valid && ready;
        transfers += transfer;
        blocked = valid && !ready ? blocked + 1 : 0;
        return transfer;
    }

    void drive(bool open = true) { ready = !stall.closed() && open; }
};

}  // namespace testbench
