// Seeded random numbers of the testbench. They do not depend on the generator of any library.
#pragma once

#include <cstdint>

namespace testbench {

// SplitMix64 (Steele, Lea, Flood 2014): one addition and two multiplications for each number.
class Random {
  public:
    Random() = default;
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    // Return a uniform number in [0, count), for count > 0. The bias is below count / 2**64.
    uint64_t below(uint64_t count) {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * count) >> 64);
    }

    // Return true with probability threshold / 2**32.
    bool chance(uint64_t threshold) { return (next() >> 32) < threshold; }

  private:
    uint64_t state_ = 0;
};

// Return the argument of Random::chance for a probability.
inline uint64_t threshold(double probability) {
    return static_cast<uint64_t>((probability < 1 ? probability : 1) * 4294967296.0);
}

// Random back-pressure: a port that is closed for a share of the cycles, in runs of a mean length.
class Stall {
  public:
    // `share` is in [0, 1). `mean` is at least 1 clock, or 0 if each cycle is drawn independently,
    // which gives a mean of 1 / (1 - share).
    void configure(double share, double mean, uint64_t seed) {
        const double leave = mean > 0 ? 1 / mean : 1 - share;
        const double enter = leave * share / (1 - share);
        leave_ = threshold(leave);
        enter_ = threshold(enter);
        random_ = Random(seed);
        closed_ = false;
    }

    // Return whether the port is closed in the next cycle. Call it once per cycle.
    bool closed() {
        if (enter_ == 0) return false;
        closed_ = closed_ ? !random_.chance(leave_) : random_.chance(enter_);
        return closed_;
    }

  private:
    Random random_;
    uint64_t enter_ = 0, leave_ = 0;
    bool closed_ = false;
};

}  // namespace testbench
