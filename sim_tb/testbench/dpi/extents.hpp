// Addresses that the requests in flight may access: a check of each access of the unit.
//
// A line that is read must have a piece of the box of some request that is inside its tensor; each
// piece that is written must be such a piece. A write to shared memory must lie in what some box
// spans. A request is in flight from its acceptance until the units of all SMs are idle and their
// ports are quiet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <unordered_map>
#include <vector>

#include "box.hpp"
#include "bridge.hpp"

namespace testbench {

constexpr uint32_t kSms = 32, kPieceBytes = 16;

// Ranges of addresses; those that meet or overlap are one.
class Ranges {
  public:
    void clear() { ends_.clear(); }
    bool empty() const { return ends_.empty(); }

    // Add the addresses from `first` to `last`, which do not wrap.
    void add(uint64_t first, uint64_t last) {
        auto next = ends_.upper_bound(first);
        if (next != ends_.begin()) {
            const auto before = std::prev(next);
            if (before->second >= first || before->second + 1 == first) {
                first = before->first;
                last = std::max(last, before->second);
                next = ends_.erase(before);
            }
        }
        while (next != ends_.end() && (next->first <= last || next->first == last + 1)) {
            last = std::max(last, next->second);
            next = ends_.erase(next);
        }
        ends_[first] = last;
    }

    // Return whether one of the addresses from `first` to `last`, which do not wrap, is in a range.
    bool meets(uint64_t first, uint64_t last) const {
        const auto next = ends_.upper_bound(last);
        return next != ends_.begin() && std::prev(next)->second >= first;
    }

  private:
    std::map<uint64_t, uint64_t> ends_;  // first address of each range to its last one
};

// The requests of one SM in flight. Addresses are modulo 2**`address_bits`. `reads_maps`: tensor
// maps are read as lines, so that the words that the unit reads are not known.
class Extents {
  public:
    Extents() : Extents(64, false) {}
    Extents(uint32_t address_bits, bool reads_maps)
        : mask_(~uint64_t{0} >> (64 - address_bits)), reads_maps_(reads_maps) {}

    bool reads_maps() const { return reads_maps_; }

    void accept(const RequestRecord& request, uint64_t smem_bytes) {
        if (request.operation == Operation::DSMEM_COPY ||
            request.operation == Operation::DSMEM_REDUCE) {
            const uint64_t size = request.size & kBulkSizes;
            return add_footprint(request.global_address, size, bit_of(request.dst_cta));
        }
        if (request.operation >= Operation::COMMIT_GROUP) return;
        if (request.operation & 1) {
            const uint64_t size = request.size & kBulkSizes;
            if (!size) return;
            add(request, request.global_address, size - 1);
            add_footprint(request, size);
            return;
        }
        requests_.push_back(request);
        for (const MapWords& words : maps_[request.global_address]) {
            add(request, words, smem_bytes);
        }
    }

    // A store of a thread to another CTA is in flight. It writes words of one piece.
    void accept(const RemoteStoreRecord& store) {
        add_footprint(store.address, kPieceBytes, bit_of(store.dst_cta));
    }

    // A tensor map is fetched: requests of its address use these words, or older ones.
    void fetch(uint64_t address, const MapWords& words, uint64_t smem_bytes) {
        read_map(address);
        std::vector<MapWords>& versions = maps_[address];
        const bool is_new = std::erase(versions, words) == 0;
        versions.push_back(words);  // the newest version is the last one
        if (!is_new) return;
        for (const RequestRecord& request : requests_) {
            if (request.global_address == address) add(request, words, smem_bytes);
        }
    }

    // Note that a tensor map may be read.
    void read_map(uint64_t address) {
        if (reads_maps_) add(reads, address, kMapSize - 1);
    }

    // No request is in flight. Those to come use the words that were fetched last, or newer ones.
    void end_requests() {
        if (requests_.empty() && reads.empty() && writes.empty()) return;
        for (auto& [address, versions] : maps_) {
            if (!reads_maps_ && !versions.empty()) versions = {versions.back()};
        }
        requests_.clear();
        reads.clear();
        writes.clear();
        for (Ranges& ranges : footprints) ranges.clear();
    }

    Ranges reads, writes;
    std::array<Ranges, kSms> footprints;  // in the shared memory of each CTA

  private:
    static constexpr uint64_t kMapSize = 128;
    static constexpr uint32_t kBulkSizes = 0xffff0;  // bits of the size of a bulk copy that count
    // Rows of the largest box that the driver encodes, of 16 bytes each. Larger ones are unchecked.
    static constexpr uint64_t kMostRows = 233472 / kPieceBytes;

    // Return the bit of a CTA; none if there is no such CTA.
    static uint32_t bit_of(uint32_t cta) { return cta < kSms ? 1u << cta : 0; }

    void add(const RequestRecord& request, const MapWords& words, uint64_t smem_bytes) {
        const Box box(words, request);
        if (box.rows() > kMostRows) {
            add(request, 0, mask_);
        } else {
            box.pieces([&](uint64_t first, uint64_t size_less_one) {
                add(request, first, size_less_one);
            });
        }
        add_footprint(request, box.shared(smem_bytes));
    }

    void add(const RequestRecord& request, uint64_t first, uint64_t size_less_one) {
        if (!(request.operation & Operation::TENSOR_STORE)) return add(reads, first, size_less_one);
        add(writes, first, size_less_one);
        if (request.operation & 2) add(reads, first, size_less_one);  // a reduction may read
    }

    void add(Ranges& ranges, uint64_t first, uint64_t size_less_one) const {
        if (size_less_one >= mask_) return ranges.add(0, mask_);
        first &= mask_;
        const uint64_t last = (first + size_less_one) & mask_;
        if (last >= first) return ranges.add(first, last);
        ranges.add(first, mask_);
        ranges.add(0, last);
    }

    void add_footprint(const RequestRecord& request, uint64_t size) {
        if (request.operation >= Operation::TENSOR_PREFETCH) return;
        const uint32_t receivers = request.multicast ? request.cta_mask : bit_of(request.dst_cta);
        add_footprint(request.smem_address, size, receivers);
    }

    // `receivers` has a bit for each CTA.
    void add_footprint(uint64_t address, uint64_t size, uint32_t receivers) {
        for (uint32_t cta = 0; size && cta < kSms; ++cta) {
            if (receivers >> cta & 1) footprints[cta].add(address, address + size - 1);
        }
    }

    uint64_t mask_;
    bool reads_maps_;
    std::vector<RequestRecord> requests_;                       // those of tensors
    std::unordered_map<uint64_t, std::vector<MapWords>> maps_;  // by address, the newest one last
};

}  // namespace testbench
