// Addresses that the requests in flight may access: a check of each access of the unit.
//
// A line that is read must have a piece from the first to the last one of the box of some request,
// where the box is cut off at the ends of its tensor; each piece that is written must be such a
// piece. A write to shared memory must lie in what some box spans. A request is in flight from its
// acceptance until the unit is idle and its ports are quiet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge.hpp"

namespace testbench {

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

using MapWords = std::array<uint32_t, 16>;

// A box of a tensor map: what a request of the map may access.
class Box {
  public:
    Box(const MapWords& words, const RequestRecord& request) : words_(words), request_(request) {
        if (request.override_kind) replace();
    }

    // Return the pieces from the first to the last byte of the box that is inside, as the first
    // address and the bytes, less one, up to 2**64; nullopt if it is outside. A column may reach all
    // positions of the dimensions that it walks.
    std::optional<std::pair<uint64_t, uint64_t>> global() const {
        __int128 low = 0, high = 0;  // bits behind the base
        for (uint32_t dim = 0; dim < rank(); ++dim) {
            int64_t from = 0, to = words_[8 + dim];
            const bool is_channel = dim == 0 && !is_interleaved();
            if (request_.mode == 0 || is_channel) {
                const int64_t coord = request_.coords[dim];
                from = std::max(from, coord);
                to = std::min(to, coord + box(dim) - 1);
                if (from > to) return std::nullopt;
            }
            const __int128 step = dim ? static_cast<__int128>(8) * stride(dim - 1) : unit_bits();
            low += step * from;
            high += step * to;
        }
        const __int128 begin = low / 128 * 16, end = (high + unit_bits() - 1) / 128 * 16 + 15;
        const uint64_t base = words_[0] | static_cast<uint64_t>(words_[1]) << 32;
        const uint64_t most = ~uint64_t{0};
        const uint64_t size = end - begin > most ? most : static_cast<uint64_t>(end - begin);
        return std::pair{base + static_cast<uint64_t>(begin), size};
    }

    // Return the bytes of shared memory from the first to the last one that the box spans. In a mode
    // that Hopper does not have, a box may write all of shared memory.
    uint64_t shared(uint64_t smem_bytes) const {
        const bool is_plain = (words_[2] >> 19 & 0xf) == 0 && format() <= 10 && request_.mode <= 1;
        if (!is_plain) return smem_bytes;
        uint64_t rows = 1;
        for (uint32_t dim = is_interleaved() ? 0 : 1; dim < rank() && !is_im2col(); ++dim) {
            const uint32_t by = (words_[13] >> 3 * dim & 7) + 1;
            if (!is_interleaved() || dim != rank() - 2) rows *= (box(dim) + by - 1) / by;
        }
        if (is_im2col()) rows = (words_[15] & 0x3ff) + 1;
        const uint32_t swizzle = words_[2] >> 13 & 3;
        uint64_t pitch = unit_bits() / 8;
        if (!is_interleaved()) pitch = swizzle ? 16u << swizzle : box(0) * pitch;
        const uint64_t size = rows * pitch;
        return swizzle ? (size + 127) / 128 * 128 : size;  // it moves pieces within 128 bytes
    }

  private:
    bool is_im2col() const { return words_[2] & 1; }
    uint32_t rank() const { return std::min((words_[2] >> 4 & 7) + 1, 5u); }
    uint32_t format() const { return words_[2] >> 7 & 0xf; }
    uint32_t interleave() const { return words_[2] >> 11 & 3; }
    bool is_interleaved() const { return interleave() != 0; }
    uint64_t stride(uint32_t dim) const {
        return (words_[3 + dim] | static_cast<uint64_t>(words_[7] >> 4 * dim & 0xf) << 32) << 4;
    }

    // Return the box in a dimension. The dimension of slices has one position.
    uint32_t box(uint32_t dim) const {
        if (is_interleaved() && dim == rank() - 2) return 1;
        return ((dim ? words_[14] >> 8 * (dim - 1) : words_[13] >> 24) & 0xff) + 1;
    }

    // Return the bits of a unit of dimension 0: an element, or a slice.
    uint32_t unit_bits() const {
        static constexpr uint32_t kBits[] = {8,  16, 32, 32, 64, 64, 16, 32,
                                             32, 64, 16, 4,  4,  6,  8,  8};
        return is_interleaved() ? 128 * interleave() : kBits[format()];
    }

    // Apply the override of the request to the map.
    void replace() {
        words_[0] = static_cast<uint32_t>(request_.override_address);
        words_[1] = static_cast<uint32_t>(request_.override_address >> 32);
        if (request_.override_kind != 2) return;
        words_[7] = request_.override_upper;
        for (uint32_t dim = 0; dim < rank(); ++dim) {
            words_[8 + dim] = request_.override_dim[dim] - 1u;
            if (dim) words_[2 + dim] = request_.override_lower[dim - 1];
        }
    }

    MapWords words_;
    RequestRecord request_;
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
        if (request.operation >= Operation::COMMIT_GROUP) return;  // groups, and DSMEM
        if (request.operation & 1) {
            const uint64_t size = request.size & 0xffff0;
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
        footprints.clear();
    }

    Ranges reads, writes, footprints;

  private:
    static constexpr uint64_t kMapSize = 128;

    void add(const RequestRecord& request, const MapWords& words, uint64_t smem_bytes) {
        const Box box(words, request);
        if (const auto part = box.global()) add(request, part->first, part->second);
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
        const bool loads = request.operation < 2;
        if (loads) footprints.add(request.smem_address, request.smem_address + size - 1);
    }

    uint64_t mask_;
    bool reads_maps_;
    std::vector<RequestRecord> requests_;                       // those of tensors
    std::unordered_map<uint64_t, std::vector<MapWords>> maps_;  // by address, the newest one last
};

}  // namespace testbench
