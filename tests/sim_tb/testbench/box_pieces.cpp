// The box of dpi/box.hpp, for Python.
#include <cstddef>
#include <cstdint>

#include "box.hpp"

using testbench::Box;

extern "C" {

// Write the addresses of the pieces of 16 bytes to `pieces`, which has room for `room`; return their
// number, repeated ones included.
size_t box_pieces(const uint32_t* words, const testbench::RequestRecord* request, uint64_t* pieces,
                  size_t room) {
    testbench::MapWords map;
    std::copy_n(words, map.size(), map.begin());
    size_t count = 0;
    Box(map, *request).pieces([&](uint64_t first, uint64_t size_less_one) {
        for (uint64_t at = 0; at <= size_less_one; at += 16, ++count) {
            if (count < room) pieces[count] = first + at;
        }
    });
    return count;
}

uint64_t box_shared(const uint32_t* words, const testbench::RequestRecord* request) {
    testbench::MapWords map;
    std::copy_n(words, map.size(), map.begin());
    return Box(map, *request).shared(uint64_t{1} << 20);
}
}
