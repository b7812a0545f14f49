// Drives a toy with the same inputs in every run, and prints its output in each clock.
#include <cstdio>

#include "Vtoy.h"
#include "verilated.h"

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    Vtoy top;
    unsigned state = 1;
    for (int clock = 0; clock < 500; ++clock) {
        state = state * 1103515245u + 12345u;
        top.rst = clock < 2;
        top.i = state >> 16 & 15;
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        std::printf("%x ", top.o);
    }
}
