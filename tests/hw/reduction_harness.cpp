// Sends requests to a ReductionUnit and is the memory at its port. Standard input and output are
// binary; tests/hw/verilated.py writes and reads them.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "Vbench.h"

struct Header {
  uint64_t base;  // sector address of the memory
  uint32_t sectors, requests;
  uint32_t stall;  // share of the clocks in which a port stalls, in 1/256
  uint32_t seed;
};

struct Sector {
  uint8_t bytes[32];
};

struct Request {
  uint64_t sector;
  uint32_t tag;
  uint8_t op, element_type, pieces, reserved;
  Sector data;
};

struct Done {
  uint32_t tag, clock;
};

static void require(bool holds, const char* rule) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", rule);
  std::exit(3);
}

template <typename T>
static std::vector<T> read(size_t count) {
  std::vector<T> items(count);
  require(std::fread(items.data(), sizeof(T), count, stdin) == count, "the input is too short");
  return items;
}

template <typename T>
static void write(const std::vector<T>& items) {
  const size_t count = std::fwrite(items.data(), sizeof(T), items.size(), stdout);
  require(count == items.size(), "the output was not taken");
}

int main() {
  const Header header = read<Header>(1)[0];
  auto memory = read<Sector>(header.sectors);
  const auto requests = read<Request>(header.requests);
  std::vector<uint32_t> accepted;
  std::vector<Done> dones;

  uint64_t state = header.seed * 2654435761u + 1;
  auto stalls = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 32) % 256 < header.stall;
  };
  auto at = [&](uint64_t address) -> Sector& {
    require(address - header.base < header.sectors, "an address outside the memory");
    return memory[address - header.base];
  };

  Vbench bench;
  bench.clk = 0;
  bench.rst = 1;
  bench.eval();
  bench.clk = 1;
  bench.eval();
  bench.rst = 0;

  size_t next = 0, writes = 0;
  bool offered = false;  // done, in the clock before
  uint32_t offered_tag = 0;
  for (uint32_t clock = 0, quiet = 0; quiet < 50; clock++, quiet++) {
    if (!bench.request_valid && next < requests.size() && !stalls()) {
      const Request& request = requests[next];
      bench.request_valid = 1;
      bench.request_tag = request.tag;
      bench.request_sector = request.sector;
      bench.request_op = request.op;
      bench.request_element_type = request.element_type;
      bench.request_pieces = request.pieces;
      std::memcpy(bench.request_data.data(), request.data.bytes, sizeof(Sector));
    }
    bench.done_ready = !stalls();
    bench.clk = 0;
    bench.eval();

    const bool taken = bench.request_valid && bench.request_ready;
    if (taken) {
      accepted.push_back(clock);
      next++;
    }
    if (offered) {
      require(bench.done_valid && bench.done_payload == offered_tag, "done was withdrawn");
    }
    offered = bench.done_valid && !bench.done_ready;
    offered_tag = bench.done_payload;
    if (bench.done_valid) require(dones.size() < writes, "done before the write");
    if (bench.done_valid && bench.done_ready) {
      dones.push_back({offered_tag, clock});
      quiet = 0;
    }
    if (next < requests.size()) quiet = 0;
    require(clock < 1000 + 64 * requests.size(), "the unit hangs");

    // A read does not see the write of its clock, and its data are there for one clock.
    Sector data;
    std::memset(data.bytes, 0xA5 ^ clock, sizeof(Sector));
    if (bench.memory_read_en) data = at(bench.memory_read_address);
    if (bench.memory_write_en) {
      writes++;
      const auto* bytes = reinterpret_cast<const uint8_t*>(bench.memory_write_data.data());
      Sector& sector = at(bench.memory_write_address);
      for (unsigned piece = 0; piece < 2; piece++) {
        if (bench.memory_write_pieces >> piece & 1) {
          std::memcpy(sector.bytes + 16 * piece, bytes + 16 * piece, 16);
        }
      }
    }

    bench.clk = 1;
    bench.eval();
    std::memcpy(bench.memory_read_data.data(), data.bytes, sizeof(Sector));
    if (taken) bench.request_valid = 0;
  }
  bench.final();
  require(dones.size() == requests.size(), "not every request was done");
  write(memory);
  write(accepted);
  write(dones);
  return 0;
}
