// The simulator's main program, which replaces cocotb's. It runs the same regions in each time
// step, and it drives the clock itself: a clock that cocotb drives costs a callback and a write of
// a net at every edge.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_vpi.h"

#if VM_TRACE_FST
#include "verilated_fst_c.h"
using Trace = VerilatedFstC;
#elif VM_TRACE
#include "verilated_vcd_c.h"
using Trace = VerilatedVcdC;
#endif

extern "C" void vlog_startup_routines_bootstrap();

namespace {

constexpr uint64_t kNever = ~uint64_t{0};
constexpr uint64_t kHalfPeriod = 1000;  // in picoseconds, as --timescale says

uint64_t now = 0, next_edge = kNever;  // next_edge: time of the next clock edge

// Call value-change callbacks until none is left: a callback may change further values.
void settle() {
    while (VerilatedVpi::callValueCbs()) {
    }
}

void settle_puts() {
    VerilatedVpi::doInertialPuts();
    settle();
}

// Simulate the present time step.
void step(Vtop& top) {
    do {
        do {
            top.eval_step();
            VerilatedVpi::clearEvalNeeded();
            settle_puts();
        } while (VerilatedVpi::evalNeeded());
        VerilatedVpi::callCbs(cbReadWriteSynch);
        settle_puts();
    } while (VerilatedVpi::evalNeeded());
    top.eval_end_step();
    VerilatedVpi::callCbs(cbReadOnlySynch);
}

}  // namespace

double sc_time_stamp() { return static_cast<double>(now); }

// Called from Python: start the clock.
extern "C" void testbench_clock() {
    if (next_edge == kNever) next_edge = now + kHalfPeriod;
}

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    const auto top = std::make_unique<Vtop>("");
    Verilated::fatalOnVpiError(false);  // cocotb asks for objects that may not exist
#if VM_TRACE
    Verilated::traceEverOn(true);
    Trace* const trace = new Trace;  // never deleted: Verilator's destructor would wait for itself
    for (int i = 1; i + 1 < argc; ++i) {
        if (std::string(argv[i]) != "--trace-file") continue;
        top->trace(trace, 99);
        trace->open(argv[i + 1]);
    }
#endif
    vlog_startup_routines_bootstrap();
    Verilated::addExitCb([](void*) { VerilatedVpi::callCbs(cbEndOfSimulation); }, nullptr);
    VerilatedVpi::callCbs(cbStartOfSimulation);
    settle();
    while (!Verilated::gotFinish()) {
        step(*top);
#if VM_TRACE
        if (trace->isOpen()) trace->dump(now);
#endif
        now = std::min(next_edge, uint64_t{VerilatedVpi::cbNextDeadline()});
        if (now == kNever) break;
        VerilatedVpi::callCbs(cbNextSimTime);
        settle();
        VerilatedVpi::callTimedCbs();
        settle();
        if (now == next_edge) {
            top->clk = !top->clk;
            next_edge += kHalfPeriod;
        }
    }
    top->final();
    VerilatedVpi::callCbs(cbEndOfSimulation);
#if VM_TRACE
    trace->close();
#endif
#if VM_COVERAGE
    VerilatedCov::write();
#endif
    return Verilated::threadContextp()->errorCount() > 0;
}
