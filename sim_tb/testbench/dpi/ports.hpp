// The two ends of a stream, as the bench plays them: registered, and free to stall.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "random.hpp"

namespace bench {

// Drives payloads into the unit in order; each one holds until it is taken.
template <typename T>
struct Source {
    std::deque<T> queue;
    std::deque<uint64_t> due;  // of each in the queue, if any of them has to wait
    Stall stall;
    T current{};
    bool valid = false, fresh = false;
    uint64_t taken = 0;

    // At the edge: true when `current` was transferred in the cycle that ends.
    bool sample(bool ready) {
        if (!valid || !ready) return false;
        valid = false;
        ++taken;
        return true;
    }

    // Not before cycle `at`, and behind all that come no later. For all payloads, or for none.
    void put(const T& payload, uint64_t at) {
        const auto place = std::upper_bound(due.begin(), due.end(), at) - due.begin();
        queue.insert(queue.begin() + place, payload);
        due.insert(due.begin() + place, at);
    }

    // After sample: what the port shows in the next cycle. `fresh`: a new payload.
    void drive(uint64_t now = 0) {
        fresh = !stall.closed() && !valid && !queue.empty() && (due.empty() || due.front() <= now);
        if (fresh) {
            current = std::move(queue.front());
            queue.pop_front();
            if (!due.empty()) due.pop_front();
            valid = true;
        }
    }

    bool idle() const { return !valid && queue.empty(); }
    size_t pending() const { return queue.size() + valid; }
};

// Takes payloads from the unit.
struct Sink {
    Stall stall;
    bool ready = false;
    uint64_t taken = 0, blocked = 0;  // blocked: clocks that the present payload has waited

    bool sample(bool valid) {
        const bool transfer = valid && ready;
        taken += transfer;
        blocked = valid && !ready ? blocked + 1 : 0;
        return transfer;
    }

    void drive(bool open = true) { ready = !stall.closed() && open; }
};

}  // namespace bench
