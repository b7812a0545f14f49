// Runs a program in the simulated system: on its processor, or natively on this one.
//
//   soc --program FILE | --native LIBRARY  [--load ADDRESS FILE]... [--dump ADDRESS BYTES FILE]...
//       [--limit CLOCKS]
//
// A native program is a shared library with the function `program`. Its accesses to the bus go
// through the port `ext`, clock by clock; the memory is that of the model. The status of the program
// is the exit status; the clocks are printed at the end.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "Vsoc.h"
#include "Vsoc___024root.h"
#include "verilated.h"

namespace {
constexpr uint32_t kProgram = 0x00800000, kUnit = 0x40000000;
constexpr int kFailed = 124;

VerilatedContext context;
Vsoc *soc;
uint64_t clocks, limit = 2'000'000'000;
int status = -1;

[[noreturn]] void fail(const std::string &text) {
  std::fflush(stdout);
  std::fprintf(stderr, "soc: %s, after %llu clocks\n", text.c_str(),
               static_cast<unsigned long long>(clocks));
  std::exit(kFailed);
}

void tick() {
  soc->clk = 0;
  soc->eval();
  soc->clk = 1;
  soc->eval();
  context.timeInc(1);
  if (++clocks > limit) fail("the program does not end");
  if (soc->trap) fail("trap");
  if (context.gotFinish()) fail("the simulation stopped");
  if (soc->console_valid) std::putchar(soc->console_byte);
  if (soc->exit_valid) status = static_cast<int>(soc->exit_status);
}

uint8_t *memory() {
  return reinterpret_cast<uint8_t *>(&soc->rootp->soc__DOT__memory__DOT__words[0]);
}

size_t memory_bytes() { return sizeof soc->rootp->soc__DOT__memory__DOT__words; }

uint8_t *range(uint32_t address, size_t bytes) {
  if (address > memory_bytes() || bytes > memory_bytes() - address) fail("outside of the memory");
  return memory() + address;
}

void load(uint32_t address, const char *name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) fail(std::string("cannot read ") + name);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::memcpy(range(address, bytes.size()), bytes.data(), bytes.size());
}

void bus_write(uint32_t address, uint32_t value) {
  soc->ext_awaddr = address;
  soc->ext_wdata = value;
  soc->ext_awvalid = soc->ext_wvalid = 1;
  for (bool done = false; !done;) {
    soc->clk = 0;
    soc->eval();
    const bool aw = soc->ext_awvalid && soc->ext_awready, w = soc->ext_wvalid && soc->ext_wready;
    done = soc->ext_bvalid;
    tick();
    if (aw) soc->ext_awvalid = 0;
    if (w) soc->ext_wvalid = 0;
  }
}

uint32_t bus_read(uint32_t address) {
  soc->ext_araddr = address;
  soc->ext_arvalid = 1;
  for (;;) {
    soc->clk = 0;
    soc->eval();
    const bool ar = soc->ext_arvalid && soc->ext_arready, done = soc->ext_rvalid;
    const uint32_t data = soc->ext_rdata;
    tick();
    if (ar) soc->ext_arvalid = 0;
    if (done) return data;
  }
}
}  // namespace

// What a native program calls.
extern "C" {
uint8_t *soc_memory(void) { return memory(); }
uint32_t tma_read(uintptr_t registers, uint32_t offset) {
  return bus_read(static_cast<uint32_t>(registers) + offset);
}
void tma_write(uintptr_t registers, uint32_t offset, uint32_t value) {
  bus_write(static_cast<uint32_t>(registers) + offset, value);
}
void soc_clock(void) { tick(); }
uint32_t soc_clocks(void) { return static_cast<uint32_t>(clocks); }
int soc_interrupt(void) { return soc->unit_irq; }
void soc_put(char byte) { std::putchar(byte); }
}

int main(int count, char **words) {
  struct Dump {
    uint32_t address;
    size_t bytes;
    const char *file;
  };
  std::vector<Dump> dumps;
  const char *library = nullptr, *program = nullptr;
  auto number = [](const char *text) { return std::strtoull(text, nullptr, 0); };

  context.randReset(0);
  soc = new Vsoc(&context);
  for (int i = 1; i < count; i++) {
    const std::string option = words[i];
    auto next = [&] {
      if (++i >= count) fail(option + " needs another word");
      return words[i];
    };
    if (option == "--program") {
      program = next();
    } else if (option == "--native") {
      library = next();
    } else if (option == "--load") {
      const uint32_t address = number(next());
      load(address, next());
    } else if (option == "--dump") {
      const uint32_t address = number(next());
      const size_t bytes = number(next());
      range(address, bytes);
      dumps.push_back({address, bytes, next()});
    } else if (option == "--limit") {
      limit = number(next());
    } else {
      fail("unknown option " + option);
    }
  }
  if (!library == !program) fail("either --program or --native is needed");

  if (program) load(kProgram, program);
  soc->external = library != nullptr;
  soc->rst = 1;
  for (int i = 0; i < 4; i++) tick();
  soc->rst = 0;
  if (library) {
    void *handle = dlopen(library, RTLD_NOW);
    if (!handle) fail(dlerror());
    const auto run = reinterpret_cast<int (*)()>(dlsym(handle, "program"));
    if (!run) fail(dlerror());
    status = run();
  } else {
    while (status < 0) tick();
  }
  std::fflush(stdout);
  std::fprintf(stderr, "clocks: %llu\n", static_cast<unsigned long long>(clocks));
  for (const Dump &dump : dumps) {
    std::ofstream file(dump.file, std::ios::binary);
    file.write(reinterpret_cast<char *>(range(dump.address, dump.bytes)),
               static_cast<std::streamsize>(dump.bytes));
    if (!file) fail(std::string("cannot write ") + dump.file);
  }
  soc->final();
  delete soc;
  return status;
}
