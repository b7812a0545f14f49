// The pieces of global memory, and the bytes of shared memory, that the box of a request has.
//
// It is written from the definition, as golden/definition.py is, and independent of the unit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "bridge.hpp"

namespace testbench {

using MapWords = std::array<uint32_t, 16>;

// A box of a tensor map, at the coordinates of a request.
class Box {
  public:
    Box(const MapWords& words, const RequestRecord& request) : words_(words), request_(request) {
        if (request.override_kind) replace();
    }

    // Return the rows of the box, inside the tensor or not.
    uint64_t rows() const {
        if (is_im2col()) return pixels();
        uint64_t rows = 1;
        for (uint32_t dim = is_interleaved() ? 0 : 1; dim < rank(); ++dim) rows *= steps(dim);
        return rows;
    }

    // Call `add` with the first address and the bytes, less one, of the pieces of each row that
    // have a byte inside the tensor. Addresses are modulo 2**64.
    template <typename Add>
    void pieces(const Add& add) const {
        Position at;
        std::copy_n(request_.coords, at.size(), at.begin());
        switch (request_.mode) {
            case AccessMode::TILE:
                if (!is_im2col()) tile(rank() - 1, at, add);
                break;
            case AccessMode::IM2COL:
                if (is_im2col() && rank() > 2) im2col(at, add);
                break;
            case AccessMode::IM2COL_W:
            case AccessMode::IM2COL_W_128:
                if (is_im2col() && rank() > 2) im2col_w(at, add);
                break;
            default:  // gather4 and scatter4
                for (uint32_t i = 1; i < at.size(); ++i) {
                    row({at[0], request_.coords[i]}, box(0), add);
                }
        }
    }

    // Return the bytes of shared memory from the first to the last one that the box spans. In a mode
    // that Hopper does not have, a box may write all of shared memory.
    uint64_t shared(uint64_t smem_bytes) const {
        const bool is_plain = (words_[2] >> 19 & 0xf) == 0 && format() <= 10 && request_.mode <= 1;
        if (!is_plain) return smem_bytes;
        const uint32_t swizzle = words_[2] >> 13 & 3;
        uint64_t pitch = unit_bits() / 8;
        if (!is_interleaved()) pitch = swizzle ? 16u << swizzle : box(0) * pitch;
        const uint64_t size = rows() * pitch;
        return swizzle ? (size + 127) / 128 * 128 : size;  // it moves pieces within 128 bytes
    }

  private:
    using Position = std::array<int64_t, 5>;

    bool is_im2col() const { return words_[2] & 1; }
    uint32_t rank() const { return std::min((words_[2] >> 4 & 7) + 1, 5u); }
    uint32_t format() const { return words_[2] >> 7 & 0xf; }
    uint32_t interleave() const { return words_[2] >> 11 & 3; }
    bool is_interleaved() const { return interleave() != 0; }
    uint32_t pixels() const { return (words_[15] & 0x3ff) + 1; }
    uint32_t element_stride(uint32_t dim) const { return (words_[13] >> 3 * dim & 7) + 1; }
    uint64_t stride(uint32_t dim) const {
        return (words_[3 + dim] | static_cast<uint64_t>(words_[7] >> 4 * dim & 0xf) << 32) << 4;
    }

    // Return the box in a dimension, of dimension 0 in units.
    uint32_t box(uint32_t dim) const {
        return ((dim ? words_[14] >> 8 * (dim - 1) : words_[13] >> 24) & 0xff) + 1;
    }

    // Return the steps of a tile in a dimension. The dimension of slices has one.
    uint32_t steps(uint32_t dim) const {
        if (is_interleaved() && dim == rank() - 2) return 1;
        return (box(dim) + element_stride(dim) - 1) / element_stride(dim);
    }

    // Return the bits of a unit of dimension 0: an element, or a slice.
    uint32_t unit_bits() const {
        static constexpr uint32_t kBits[] = {8,  16, 32, 32, 64, 64, 16, 32,
                                             32, 64, 16, 4,  4,  6,  8,  8};
        return is_interleaved() ? 128 * interleave() : kBits[format()];
    }

    // Return a corner, of W for `number` 0; its bits begin at bit `base`.
    int64_t corner(uint32_t base, uint32_t number) const {
        const bool is_wide = request_.mode != AccessMode::IM2COL;  // Hopper ignores bit 22
        const uint32_t bits = is_wide || rank() == 3 ? 16 : rank() == 4 ? 8 : 5;
        const uint32_t raw = words_[14] >> (base + bits * number) << (32 - bits);
        return static_cast<int32_t>(raw) >> (32 - bits);
    }
    int64_t lower_corner(uint32_t number) const { return corner(0, number); }
    int64_t upper_corner(uint32_t number) const { return corner(16, number); }

    bool is_inside(uint32_t dim, int64_t position) const {
        return position >= 0 && position <= words_[8 + dim];
    }

    // Add the pieces of `count` units from the position `at` on.
    template <typename Add>
    void row(const Position& at, uint32_t count, const Add& add) const {
        __int128 outer = 0;  // bits behind the base
        for (uint32_t dim = 1; dim < rank(); ++dim) {
            if (!is_inside(dim, at[dim])) return;
            outer += static_cast<__int128>(8) * stride(dim - 1) * at[dim];
        }
        const int64_t first = std::max<int64_t>(at[0], 0);
        const int64_t last = std::min<int64_t>(at[0] + count - 1, words_[8]);
        if (first > last) return;
        const __int128 unit = unit_bits();
        const __int128 begin = (outer + unit * first) / 128 * 16;
        const __int128 end = (outer + unit * (last + 1) - 1) / 128 * 16 + 15;
        const uint64_t base = words_[0] | static_cast<uint64_t>(words_[1]) << 32;
        add(base + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin));
    }

    // Add the steps of a tile in the dimensions from 0 to `dim`.
    template <typename Add>
    void tile(uint32_t dim, Position& at, const Add& add) const {
        if (dim == 0 && !is_interleaved()) return row(at, box(0), add);
        for (uint32_t step = 0; step < steps(dim); ++step) {
            at[dim] = request_.coords[dim] + static_cast<int64_t>(step) * element_stride(dim);
            if (!is_inside(dim, at[dim])) continue;
            if (dim == 0) {
                row(at, 1, add);
            } else {
                tile(dim - 1, at, add);
            }
        }
    }

    template <typename Add>
    void im2col(Position& at, const Add& add) const {
        const uint32_t first = is_interleaved() ? 0 : 1, levels = rank() - 2;
        for (uint32_t pixel = 0; pixel < pixels(); ++pixel) {
            Position read = at;
            for (uint32_t j = 0; j < levels; ++j) read[first + j] += request_.im2col_info[j];
            row(read, is_interleaved() ? 1 : box(0), add);
            uint32_t level = 0;
            for (; level < levels; ++level) {
                const uint32_t dim = first + level;
                at[dim] += element_stride(dim);
                if (at[dim] <= words_[8 + dim] + upper_corner(level)) break;
                at[dim] = lower_corner(level);
            }
            if (level == levels) at[rank() - 1] += element_stride(rank() - 1);
        }
    }

    template <typename Add>
    void im2col_w(Position& at, const Add& add) const {
        const uint32_t halo = request_.im2col_info[0], offset = request_.im2col_info[1];
        const uint32_t columns = request_.mode == AccessMode::IM2COL_W_128 ? 128 : pixels();
        const uint32_t last = rank() - 1;
        at[1] += offset;
        for (uint32_t column = 0; column < columns + halo; ++column) {
            row(at, box(0), add);
            at[1] += element_stride(1);
            if (at[1] > words_[9] + upper_corner(0) + offset) {
                at[1] = lower_corner(0) + offset;
                at[last] += element_stride(last);
            }
        }
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

}  // namespace testbench
