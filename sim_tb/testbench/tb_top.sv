// Testbench of the units of up to 32 SMs. All models are C++ functions called through DPI. Every
// input of a unit is a register, so the testbench adds no combinational path, and no Python runs in
// the clock loop. Python drives reset and run, starts the clock, calls the C++ side directly, and
// wakes when `wake` changes.

// Generated from the design's JSON: macros of its features, a packed struct for each payload, and
// the interface unit_ports with the ports of one SM's unit.
`include "tma_types.svh"

// Check of a stream: valid and payload hold until the transfer.
module stream_law #(
    parameter string NAME = "",
    parameter int WIDTH = 1
) (
    input logic clk,
    input logic rst,
    input int unsigned sm,
    input logic valid,
    input logic ready,
    input logic [WIDTH-1:0] payload
);
  import "DPI-C" function void tb_violation(
      input int unsigned sm, input string stream, input string what);

  logic blocked_q;
  logic [WIDTH-1:0] payload_q;
  always_ff @(posedge clk) begin
    blocked_q <= !rst && valid && !ready;
    if (valid && !ready) payload_q <= payload;
    if (!rst && blocked_q && !valid) tb_violation(sm, NAME, "valid fell before the transfer");
    if (!rst && blocked_q && valid)
      if (payload != payload_q) tb_violation(sm, NAME, "the payload changed before the transfer");
  end
endmodule

`define SOURCE(stream) \
  logic stream``_valid; stream``_t stream; wire stream``_ready = unit.stream``__ready; \
  assign unit.stream``__valid = stream``_valid; \
  assign unit.stream``__payload = stream;
`define SINK(stream) \
  logic stream``_ready; wire stream``_valid = unit.stream``__valid; \
  wire stream``_t stream = unit.stream``__payload; \
  assign unit.stream``__ready = stream``_ready; \
  stream_law #(`"stream`", $bits(stream``_t)) law_``stream ( \
      .clk, .rst(off), .sm, .valid(stream``_valid), .ready(stream``_ready), .payload(stream));
`define NO_SOURCE(stream) logic stream``_valid; wire stream``_ready = 0;
`define NO_SINK(stream) logic stream``_ready; wire stream``_valid = 0;

// Testbench around the unit of one SM. `sm` is a port and not a parameter, so that all SMs share
// one module. While `off` is set the C++ side is not called.
module tb_sm (
    input logic clk,
    input logic rst,
    input logic off,
    input int unsigned sm,
    output logic wake,
    unit_ports unit
);
  import "DPI-C" function void tb_sample(input int unsigned sm, input int unsigned unit);
  import "DPI-C" function longint unsigned tb_drive(input int unsigned sm);
  import "DPI-C" function void tb_gnic_request(
      input int unsigned sm, input int unsigned tag, input longint unsigned line,
      input bit prefetch, input int unsigned promotion, input longint unsigned policy);
  import "DPI-C" function void tb_descriptor_request(
      input int unsigned sm, input longint unsigned address);
  import "DPI-C" function void tb_smem_write(
      input int unsigned sm, input int unsigned lane, input int unsigned words,
      input int unsigned beat, input bit [127:0] data);
  import "DPI-C" function void tb_smem_read(
      input int unsigned sm, input int unsigned lane, input int unsigned beat);
  import "DPI-C" function void tb_gnic_write(
      input int unsigned sm, input int unsigned tag, input longint unsigned line,
      input int unsigned promotion, input longint unsigned policy, input bit reduces,
      input int unsigned op, input int unsigned kind, input bit [127:0] strobe,
      input bit [1023:0] data);
  import "DPI-C" function void tb_group_result(
      input int unsigned sm, input int unsigned thread, input int unsigned request_id);
  import "DPI-C" function void tb_reduction_done(input int unsigned sm, input int unsigned tag);
  import "DPI-C" function void tb_sector_read(
      input longint unsigned sector, output bit [255:0] data);
  import "DPI-C" function void tb_sector_write(
      input int unsigned sm, input longint unsigned sector, input int unsigned pieces,
      input bit [255:0] data);
  import "DPI-C" function void tb_error(
      input int unsigned sm, input int unsigned request_id, input int unsigned cta,
      input int unsigned code, input int unsigned dim, input longint unsigned value);
  import "DPI-C" function void tb_barrier_result(
      input int unsigned sm, input int unsigned tag, input bit done, input bit waits,
      input int unsigned fault, input longint unsigned state);
  import "DPI-C" function void tb_barrier_wake(
      input int unsigned sm, input int unsigned tag, input bit done, input int unsigned fault);
  import "DPI-C" function void tb_event(
      input int unsigned sm, input longint unsigned low, input longint unsigned high);
  import "DPI-C" function longint unsigned tb_barrier_read(
      input int unsigned sm, input int unsigned word);
  import "DPI-C" function void tb_barrier_write(
      input int unsigned sm, input int unsigned word, input longint unsigned value);
  import "DPI-C" function void tb_next_request(
      input int unsigned sm, output int unsigned operation, output int unsigned request_id,
      output longint unsigned global_address, output int unsigned size, output int unsigned mode,
      output int unsigned rank, output bit [159:0] coords, output bit [63:0] im2col_info,
      output longint unsigned cache_policy, output int unsigned smem_address,
      output int unsigned mbarrier, output bit multicast, output int unsigned cta_mask,
      output int unsigned dst_cta, output int unsigned mbarrier_cta, output bit cta_group_2,
      output int unsigned reduction_op, output int unsigned element_type,
      output int unsigned byte_mask, output int unsigned thread, output bit joins_group,
      output int unsigned groups);
  import "DPI-C" function void tb_next_ignored(
      input int unsigned sm, output int unsigned first, output int unsigned last);
  import "DPI-C" function void tb_next_report(input int unsigned sm, output int unsigned report);
  import "DPI-C" function void tb_next_override(
      input int unsigned sm, output int unsigned kind, output longint unsigned address,
      output bit [63:0] dim, output bit [127:0] lower, output int unsigned upper);
  import "DPI-C" function void tb_next_descriptor_prefetch(
      input int unsigned sm, output longint unsigned address);
  import "DPI-C" function void tb_next_descriptor_invalidate(
      input int unsigned sm, output longint unsigned address, output bit all);
  import "DPI-C" function void tb_next_descriptor_fill(
      input int unsigned sm, output bit [511:0] words, output bit error, output bit absent);
  import "DPI-C" function void tb_next_gnic_response(
      input int unsigned sm, output int unsigned tag, output bit error, output bit absent,
      output bit [1023:0] data);
  import "DPI-C" function void tb_next_smem_data(input int unsigned sm, output bit [1023:0] data);
  import "DPI-C" function void tb_next_gnic_ack(
      input int unsigned sm, output int unsigned tag, output bit error, output bit absent);
  import "DPI-C" function void tb_next_reduction_request(
      input int unsigned sm, output int unsigned tag, output longint unsigned sector,
      output int unsigned op, output int unsigned kind, output int unsigned pieces,
      output bit [255:0] data);
  import "DPI-C" function void tb_next_barrier_command(
      input int unsigned sm, output int unsigned op, output int unsigned address,
      output int unsigned count, output int unsigned lanes, output longint unsigned state,
      output int unsigned time_limit, output bit v1, output int unsigned tag);
  import "DPI-C" function void tb_next_remote_command(
      input int unsigned sm, output int unsigned holder, output int unsigned op,
      output int unsigned address, output int unsigned count, output int unsigned lanes,
      output int unsigned request_id);
  import "DPI-C" function void tb_next_remote_store(
      input int unsigned sm, output int unsigned request_id, output int unsigned dst_cta,
      output int unsigned address, output int unsigned mbarrier, output bit reduces,
      output int unsigned op, output int unsigned kind, output int unsigned words,
      output bit [127:0] data);

  `SOURCE(request)
  `SOURCE(descriptor_prefetch)
  `SOURCE(descriptor_invalidate)
  `SOURCE(descriptor_fill)
  `SOURCE(gnic_response)
  `SOURCE(barrier_command)
  `SINK(error)
  `SINK(descriptor_request)
  `SINK(gnic_request)
  `SINK(smem_write)
  `SINK(barrier_result)
  `SINK(barrier_wake)
`ifdef TMA_STORES
  `SOURCE(smem_data)
  `SOURCE(gnic_ack)
  `SINK(smem_read)
  `SINK(gnic_write)
  `SINK(group_result)
`else
  `NO_SOURCE(smem_data)
  `NO_SOURCE(gnic_ack)
  `NO_SINK(smem_read)
  `NO_SINK(gnic_write)
  `NO_SINK(group_result)
`endif
`ifdef TMA_CLUSTER
  `SOURCE(remote_command)
  `SOURCE(remote_store)
  wire [31:0] error_cta = 32'(error.cta);
`else
  `NO_SOURCE(remote_command)
  `NO_SOURCE(remote_store)
  wire [31:0] error_cta = 0;
`endif
`ifdef TMA_COUNTERS
  `SINK(trace)
`else
  `NO_SINK(trace)
`endif
`ifdef TMA_REDUCTIONS
  logic reduction_request_valid, reduction_request_ready;
  logic reduction_done_valid, reduction_done_ready;
  reduction_unit_request_t reduction_request;
  reduction_unit_done_t reduction_done;
  logic sector_read_en, sector_write_en;
  logic [63:0] sector_read_address, sector_write_address;
  logic [1:0] sector_write_pieces;
  logic [255:0] sector_read_data, sector_write_data;

  // The reduction unit is a quarter of the design and has no request most of the time. Its clock
  // stops while it has none, which changes nothing at its ports.
  logic [15:0] reductions;
  logic reducing;
  always_ff @(posedge clk)
    if (rst) reductions <= 0;
    else
      reductions <= reductions + 16'(reduction_request_valid && reduction_request_ready)
          - 16'(reduction_done_valid && reduction_done_ready);
  always_ff @(negedge clk) reducing <= rst || reduction_request_valid || reductions != 0;
  wire reducing_clk = clk && reducing;
  logic [255:0] reducing_data;
  always_ff @(negedge reducing_clk) reducing_data <= sector_read_data;

  reduction_unit memory_side (
      .clk(reducing_clk),
      .rst,
      .request__valid(reduction_request_valid),
      .request__ready(reduction_request_ready),
      .request__payload(reduction_request),
      .done__valid(reduction_done_valid),
      .done__ready(reduction_done_ready),
      .done__payload(reduction_done),
      .memory__read_en(sector_read_en),
      .memory__read_address(sector_read_address),
      .memory__read_data(reducing_data),
      .memory__write_en(sector_write_en),
      .memory__write_address(sector_write_address),
      .memory__write_pieces(sector_write_pieces),
      .memory__write_data(sector_write_data)
  );
`else
  `NO_SOURCE(reduction_request)
  `NO_SINK(reduction_done)
`endif

  // Bit i of tb_sample's argument and of tb_drive's result belongs to port i, in the order of
  // dpi/bridge.hpp. Bits from PORTS on are, for tb_sample, the channels that have room for a
  // request, and for tb_drive, the sources that have a new payload. Bit 31 of tb_sample says that
  // the unit is idle, and bit 63 of tb_drive is `wake`.
  localparam int PORTS = 22;
  wire [PORTS-1:0] unit_handshakes = {
      trace_valid, barrier_wake_valid, reduction_done_valid, group_result_valid, gnic_write_valid,
      smem_read_valid, barrier_result_valid, smem_write_valid, gnic_request_valid,
      descriptor_request_valid, error_valid,
      remote_store_ready, remote_command_ready, reduction_request_ready, gnic_ack_ready,
      smem_data_ready, barrier_command_ready, gnic_response_ready, descriptor_fill_ready,
      descriptor_invalidate_ready, descriptor_prefetch_ready, request_ready};

  // Variables of the exact types of the DPI functions. The widths of struct fields depend on the
  // design's parameters.
  bit [63:0] drive, address, info, policy, state;
  bit [31:0] id, mode, rank, smem_address, mbarrier, cta_mask, cta, mbarrier_cta, op, count, tag;
  bit [31:0] kind, mask, thread, groups, pieces, time_limit, lanes;
  bit [127:0] piece;
  bit [255:0] sector;
  bit [159:0] coords;
  bit [511:0] words;
  bit [1023:0] data;
  bit fault, absent, all, joins, multicast, pair, v1, reduces;

  always @(posedge clk) begin
    drive = 0;
    if (!off) begin
      tb_sample(sm, {unit.control__idle, 31'({unit.request_room__channels, unit_handshakes})});
      if (gnic_request_valid && gnic_request_ready)
        tb_gnic_request(sm, 32'(gnic_request.tag), 64'(gnic_request.line), gnic_request.prefetch,
                        32'(gnic_request.attributes.l2_promotion),
                        gnic_request.attributes.cache_policy);
      if (descriptor_request_valid && descriptor_request_ready)
        tb_descriptor_request(sm, descriptor_request);
      if (smem_write_valid && smem_write_ready)
        for (int lane = 0; lane < $bits(smem_write_t) / $bits(smem_write_element_t); lane++)
          if (smem_write[lane].valid)
            tb_smem_write(sm, lane, 32'(smem_write[lane].words), 32'(smem_write[lane].beat),
                          smem_write[lane].data);
      if (error_valid && error_ready)
        tb_error(sm, 32'(error.request_id), error_cta, 32'(error.code), 32'(error.dim),
                 error.value);
      if (barrier_result_valid && barrier_result_ready)
        tb_barrier_result(sm, 32'(barrier_result.tag), barrier_result.done, barrier_result.waits,
                          32'(barrier_result.fault), barrier_result.state);
      if (barrier_wake_valid && barrier_wake_ready)
        tb_barrier_wake(sm, 32'(barrier_wake.tag), barrier_wake.done, 32'(barrier_wake.fault));
      // A read beside a write of the same word returns the old value.
      if (unit.barrier_memory__read_en)
        unit.barrier_memory__read_data <=
            tb_barrier_read(sm, 32'(unit.barrier_memory__read_address));
      if (unit.barrier_memory__write_en)
        tb_barrier_write(sm, 32'(unit.barrier_memory__write_address),
                         unit.barrier_memory__write_data);
`ifdef TMA_STORES
      if (smem_read_valid && smem_read_ready)
        for (int lane = 0; lane < $bits(smem_read_t) / $bits(smem_read_element_t); lane++)
          if (smem_read[lane].valid) tb_smem_read(sm, lane, 32'(smem_read[lane].beat));
      if (gnic_write_valid && gnic_write_ready)
        tb_gnic_write(sm, 32'(gnic_write.tag), 64'(gnic_write.line),
                      32'(gnic_write.attributes.l2_promotion),
                      gnic_write.attributes.cache_policy, gnic_write.reduction.enabled,
                      32'(gnic_write.reduction.op), 32'(gnic_write.reduction.element_type),
                      128'(gnic_write.strobe), 1024'(gnic_write.data));
      if (group_result_valid && group_result_ready)
        tb_group_result(sm, 32'(group_result.thread), 32'(group_result.request_id));
`endif
`ifdef TMA_REDUCTIONS
      // A read beside a write of the same sector returns the old value.
      if (sector_read_en) begin
        tb_sector_read(sector_read_address, sector);
        sector_read_data <= sector;
      end
      if (sector_write_en)
        tb_sector_write(sm, sector_write_address, 32'(sector_write_pieces), sector_write_data);
      if (reduction_done_valid && reduction_done_ready) tb_reduction_done(sm, 32'(reduction_done));
`endif
`ifdef TMA_COUNTERS
      if (trace_valid && trace_ready) tb_event(sm, 64'(trace), 64'(trace >> 64));
`endif
      drive = tb_drive(sm);
    end

    {trace_ready, barrier_wake_ready, reduction_done_ready, group_result_ready, gnic_write_ready,
     smem_read_ready, barrier_result_ready, smem_write_ready, gnic_request_ready,
     descriptor_request_ready, error_ready,
     remote_store_valid, remote_command_valid, reduction_request_valid, gnic_ack_valid,
     smem_data_valid, barrier_command_valid, gnic_response_valid, descriptor_fill_valid,
     descriptor_invalidate_valid, descriptor_prefetch_valid, request_valid} <= drive[PORTS-1:0];
    if (!off) wake <= drive[63];

    if (drive[PORTS+0]) begin
      tb_next_request(sm, op, id, address, count, mode, rank, coords, info, policy, smem_address,
                      mbarrier, multicast, cta_mask, cta, mbarrier_cta, pair, tag, kind, mask,
                      thread, joins, groups);
      request.operation <= op;
      request.request_id <= id;
      request.global_address <= address;
      request.size <= count;
      request.mode <= mode;
      request.rank <= rank;
      request.coords <= coords;
      request.im2col_info <= info;
      request.cache_policy <= policy;
      request.smem_address <= smem_address;
      request.mbarrier <= mbarrier;
      request.multicast <= multicast;
      request.cta_mask <= cta_mask;
      request.dst_cta <= cta;
      request.mbarrier_cta <= mbarrier_cta;
      request.cta_group_2 <= pair;
      request.reduction_op <= tag;
      request.element_type <= kind;
      request.byte_mask <= mask;
      request.thread <= thread;
      request.joins_group <= joins;
      request.groups <= groups;
`ifdef TMA_IGNORE_OOB
      tb_next_ignored(sm, count, tag);
      request.ignore_first <= count;
      request.ignore_last <= tag;
`endif
`ifdef TMA_REPORT_MECHANISM
      tb_next_report(sm, kind);
      request.report <= kind;
`endif
`ifdef TMA_OVERRIDE
      tb_next_override(sm, kind, address, state, piece, count);
      request.map_override.enabled <= kind != 0;
      request.map_override.has_extents <= kind == 2;
      request.map_override.global_address <= address;
      request.map_override.global_dim <= state;
      request.map_override.lower_strides <= piece;
      request.map_override.upper_strides <= count;
`endif
    end
    if (drive[PORTS+1]) begin
      tb_next_descriptor_prefetch(sm, address);
      descriptor_prefetch <= address;
    end
    if (drive[PORTS+2]) begin
      tb_next_descriptor_invalidate(sm, address, all);
      descriptor_invalidate.address <= address;
      descriptor_invalidate.all <= all;
    end
    if (drive[PORTS+3]) begin
      tb_next_descriptor_fill(sm, words, fault, absent);
      descriptor_fill.words <= words;
      descriptor_fill.error <= fault;
`ifdef TMA_AXI_DATA_BITS
      descriptor_fill.decode <= absent;
`endif
    end
    if (drive[PORTS+4]) begin
      tb_next_gnic_response(sm, tag, fault, absent, data);
      gnic_response.tag <= tag;
      gnic_response.error <= fault;
`ifdef TMA_AXI_DATA_BITS
      gnic_response.decode <= absent;
`endif
      gnic_response.data <= data;
    end
    if (drive[PORTS+5]) begin
      tb_next_barrier_command(sm, op, smem_address, count, lanes, state, time_limit, v1, tag);
      barrier_command.op <= op;
      barrier_command.address <= smem_address;
      barrier_command.count <= count;
      barrier_command.lanes <= lanes;
      barrier_command.state <= state;
      barrier_command.time_limit <= time_limit;
      barrier_command.v1 <= v1;
      barrier_command.tag <= tag;
    end
`ifdef TMA_STORES
    if (drive[PORTS+6]) begin
      tb_next_smem_data(sm, data);
      smem_data <= data;
    end
    if (drive[PORTS+7]) begin
      tb_next_gnic_ack(sm, tag, fault, absent);
      gnic_ack.tag <= tag;
      gnic_ack.error <= fault;
`ifdef TMA_AXI_DATA_BITS
      gnic_ack.decode <= absent;
`endif
    end
`endif
`ifdef TMA_REDUCTIONS
    if (drive[PORTS+8]) begin
      tb_next_reduction_request(sm, tag, address, op, kind, pieces, sector);
      reduction_request.tag <= tag;
      reduction_request.sector <= address;
      reduction_request.op <= op;
      reduction_request.element_type <= kind;
      reduction_request.pieces <= pieces;
      reduction_request.data <= sector;
    end
`endif
`ifdef TMA_CLUSTER
    if (drive[PORTS+9]) begin
      tb_next_remote_command(sm, cta, op, smem_address, count, lanes, id);
      remote_command.holder <= cta;
      remote_command.update.op <= op;
      remote_command.update.address <= smem_address;
      remote_command.update.count <= count;
      remote_command.update.lanes <= lanes;
      remote_command.update.request_id <= id;
      remote_command.update.cta <= sm;
`ifdef TMA_REPORT_MECHANISM
      remote_command.update.reports <= 0;
`endif
    end
    if (drive[PORTS+10]) begin
      tb_next_remote_store(sm, id, cta, smem_address, mbarrier, reduces, op, kind, mask, piece);
      remote_store.request_id <= id;
      remote_store.dst_cta <= cta;
      remote_store.address <= smem_address;
      remote_store.mbarrier <= mbarrier;
      remote_store.reduction.enabled <= reduces;
      remote_store.reduction.op <= op;
      remote_store.reduction.element_type <= kind;
      remote_store.words <= mask;
      remote_store.data <= piece;
    end
`endif
  end
endmodule

module tb_top (
    input logic clk,
    input logic reset,
    input logic [`TMA_SMS-1:0] run,
    input logic [`TMA_SMS-1:0] drain,
    input logic early,
    input logic [5:0] counter,
    input logic freeze,
    input logic clear,
    output logic [`TMA_SMS-1:0] settled,
    output logic [`TMA_SMS-1:0][63:0] counts,
    output logic [`TMA_SMS-1:0] idle,
    output logic [`TMA_SMS-1:0] wake
);
  // Inputs of the top are registered. Verilator evaluates logic that depends on an input of the top
  // at every change of the clock, and the whole unit depends on its reset.
  // The models begin when all units are ready after their reset, or with `early`, at its end.
  logic rst = 1;
  logic starts;
  logic [`TMA_SMS-1:0] running, drains;
  always_ff @(posedge clk) begin
    rst <= reset;
    running <= run;
    drains <= drain;
    starts <= rst || reset || (starts && !early && !(&idle));
  end

  unit_ports units[`TMA_SMS] ();

  for (genvar i = 0; i < `TMA_SMS; i++) begin : sms
    tb_sm models (
        .clk, .rst, .off(rst || reset || starts), .sm(i), .wake(wake[i]), .unit(units[i]));
    assign units[i].control__drain = drains[i];
    assign idle[i] = units[i].control__idle;
`ifdef TMA_COUNTERS
    always_ff @(posedge clk) begin
      units[i].counters__select <= counter;
      units[i].counters__freeze <= freeze;
      units[i].counters__clear <= clear;
    end
    assign settled[i] = units[i].counters__settled;
    assign counts[i] = units[i].counters__value;
`else
    assign settled[i] = 0;
    assign counts[i] = 0;
`endif
  end

`include "tma_instance.svh"  // generated: the design as `dut`, connected to units and running
endmodule
