// The unit in its bench. Every model is C++ behind DPI and every wire into the unit is a register,
// so that no Python and no combinational path through the bench runs in the clock loop. Python
// drives clk and rst, talks to the C++ side directly, and wakes when `wake` changes.

`include "tma_types.svh"  // written from tma.json: one packed struct per payload

// A stream keeps valid and payload until the transfer.
module stream_law #(
    parameter string NAME = "",
    parameter int WIDTH = 1
) (
    input logic clk,
    input logic rst,
    input logic valid,
    input logic ready,
    input logic [WIDTH-1:0] payload
);
  import "DPI-C" function void tb_violation(input string stream, input string what);

  logic waiting;
  logic [WIDTH-1:0] held;
  always_ff @(posedge clk) begin
    waiting <= !rst && valid && !ready;
    if (valid && !ready) held <= payload;
    if (!rst && waiting && !valid) tb_violation(NAME, "valid fell before the transfer");
    if (!rst && waiting && valid && payload != held)
      tb_violation(NAME, "the payload changed before the transfer");
  end
endmodule

`define WIRES(stream) logic stream``_valid, stream``_ready; stream``_t stream;
`define NO_SOURCE(stream) logic stream``_valid; wire stream``_ready = 0;
`define NO_SINK(stream) logic stream``_ready; wire stream``_valid = 0;
`define PORT(stream) \
  .stream``__valid(stream``_valid), .stream``__ready(stream``_ready), .stream``__payload(stream)
`define LAW(stream) \
  stream_law #(`"stream`", $bits(stream``_t)) law_``stream ( \
    .clk, .rst, .valid(stream``_valid), .ready(stream``_ready), .payload(stream));

module tb_top (
    input logic clk,
    input logic rst,
    output logic wake
);
  import "DPI-C" function void tb_sample(input int unsigned unit);
  import "DPI-C" function int unsigned tb_drive();
  import "DPI-C" function void tb_gnic_request(
      input int unsigned tag, input longint unsigned line, input bit prefetch,
      input int unsigned promotion, input longint unsigned policy);
  import "DPI-C" function void tb_descriptor_request(input longint unsigned address);
  import "DPI-C" function void tb_smem_write(
      input int unsigned lane, input int unsigned words, input int unsigned beat,
      input bit [127:0] data);
  import "DPI-C" function void tb_smem_read(input int unsigned lane, input int unsigned beat);
  import "DPI-C" function void tb_gnic_write(
      input int unsigned tag, input longint unsigned line, input int unsigned promotion,
      input longint unsigned policy, input bit reduces, input int unsigned op,
      input int unsigned kind, input bit [127:0] strobe, input bit [1023:0] data);
  import "DPI-C" function void tb_group_result(
      input int unsigned thread, input int unsigned request_id);
  import "DPI-C" function void tb_reduced(input int unsigned tag);
  import "DPI-C" function void tb_sector_read(
      input longint unsigned sector, output bit [255:0] data);
  import "DPI-C" function void tb_sector_write(
      input longint unsigned sector, input int unsigned pieces, input bit [255:0] data);
  import "DPI-C" function void tb_error(
      input int unsigned request_id, input int unsigned code, input int unsigned dim,
      input longint unsigned value);
  import "DPI-C" function void tb_barrier_result(
      input int unsigned tag, input bit done, input bit error, input longint unsigned state);
  import "DPI-C" function longint unsigned tb_barrier_read(input int unsigned word);
  import "DPI-C" function void tb_barrier_write(
      input int unsigned word, input longint unsigned value);
  import "DPI-C" function void tb_next_request(
      output int unsigned operation, output int unsigned request_id,
      output longint unsigned global_address, output int unsigned size, output int unsigned mode,
      output int unsigned rank, output bit [159:0] coords, output bit [63:0] im2col_info,
      output longint unsigned cache_policy, output int unsigned smem_address,
      output int unsigned mbarrier, output int unsigned reduction_op,
      output int unsigned element_type, output int unsigned byte_mask,
      output int unsigned thread, output bit joins_group, output int unsigned groups);
  import "DPI-C" function void tb_next_prefetch(output longint unsigned address);
  import "DPI-C" function void tb_next_invalidate(
      output longint unsigned address, output bit all);
  import "DPI-C" function void tb_next_fill(output bit [511:0] words, output bit error);
  import "DPI-C" function void tb_next_response(
      output int unsigned tag, output bit error, output bit [1023:0] data);
  import "DPI-C" function void tb_next_data(output bit [1023:0] data);
  import "DPI-C" function void tb_next_ack(output int unsigned tag, output bit error);
  import "DPI-C" function void tb_next_reduce(
      output int unsigned tag, output longint unsigned sector, output int unsigned op,
      output int unsigned kind, output int unsigned pieces, output bit [255:0] data);
  import "DPI-C" function void tb_next_command(
      output int unsigned op, output int unsigned address, output int unsigned count,
      output int unsigned tag);

  `WIRES(request)
  `WIRES(descriptor_prefetch)
  `WIRES(descriptor_invalidate)
  `WIRES(descriptor_fill)
  `WIRES(gnic_response)
  `WIRES(barrier_command)
  `WIRES(error)
  `WIRES(descriptor_request)
  `WIRES(gnic_request)
  `WIRES(smem_write)
  `WIRES(barrier_result)
`ifdef TMA_STORES
  `WIRES(smem_data)
  `WIRES(gnic_ack)
  `WIRES(smem_read)
  `WIRES(gnic_write)
  `WIRES(group_result)
`else
  `NO_SOURCE(smem_data)
  `NO_SOURCE(gnic_ack)
  `NO_SINK(smem_read)
  `NO_SINK(gnic_write)
  `NO_SINK(group_result)
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

  reduction_unit memory_side (
      .clk,
      .rst,
      .request__valid(reduction_request_valid),
      .request__ready(reduction_request_ready),
      .request__payload(reduction_request),
      .done__valid(reduction_done_valid),
      .done__ready(reduction_done_ready),
      .done__payload(reduction_done),
      .memory__read_en(sector_read_en),
      .memory__read_address(sector_read_address),
      .memory__read_data(sector_read_data),
      .memory__write_en(sector_write_en),
      .memory__write_address(sector_write_address),
      .memory__write_pieces(sector_write_pieces),
      .memory__write_data(sector_write_data)
  );
`else
  `NO_SOURCE(reduction_request)
  `NO_SINK(reduction_done)
`endif

  logic barrier_read_en, barrier_write_en;
  logic [20:0] barrier_read_address, barrier_write_address;
  logic [63:0] barrier_read_data, barrier_write_data;

  tma dut (
      .clk,
      .rst,
      `PORT(request),
      `PORT(descriptor_prefetch),
      `PORT(descriptor_invalidate),
      `PORT(descriptor_fill),
      `PORT(gnic_response),
      `PORT(barrier_command),
      `PORT(error),
      `PORT(descriptor_request),
      `PORT(gnic_request),
      `PORT(smem_write),
      `PORT(barrier_result),
`ifdef TMA_STORES
      `PORT(smem_data),
      `PORT(gnic_ack),
      `PORT(smem_read),
      `PORT(gnic_write),
      `PORT(group_result),
`endif
      .barrier_memory__read_en(barrier_read_en),
      .barrier_memory__read_address(barrier_read_address),
      .barrier_memory__read_data(barrier_read_data),
      .barrier_memory__write_en(barrier_write_en),
      .barrier_memory__write_address(barrier_write_address),
      .barrier_memory__write_data(barrier_write_data)
  );

  `LAW(error)
  `LAW(descriptor_request)
  `LAW(gnic_request)
  `LAW(smem_write)
  `LAW(barrier_result)
`ifdef TMA_STORES
  `LAW(smem_read)
  `LAW(gnic_write)
  `LAW(group_result)
`endif

  // Bits of tb_sample and tb_drive: port i at bit i, a new payload of source i at bit PORTS + i.
  localparam int PORTS = 18;
  wire [PORTS-1:0] unit = {
      reduction_done_valid, group_result_valid, gnic_write_valid, smem_read_valid,
      barrier_result_valid, smem_write_valid, gnic_request_valid, descriptor_request_valid,
      error_valid, reduction_request_ready, gnic_ack_ready, smem_data_ready,
      barrier_command_ready, gnic_response_ready, descriptor_fill_ready,
      descriptor_invalidate_ready, descriptor_prefetch_ready, request_ready};

  // DPI takes variables of the exact type; the structs are as wide as the parameters say.
  bit [31:0] drive, id, mode, rank, smem_address, mbarrier, op, count, tag;
  bit [31:0] kind, mask, thread, groups, pieces;
  bit [63:0] address, info, policy;
  bit [255:0] sector;
  bit [159:0] coords;
  bit [511:0] words;
  bit [1023:0] data;
  bit fault, all, joins;

  always @(posedge clk) begin
    drive = 0;
    if (!rst) begin
      tb_sample(32'(unit));
      if (gnic_request_valid && gnic_request_ready)
        tb_gnic_request(32'(gnic_request.tag), 64'(gnic_request.line), gnic_request.prefetch,
                        32'(gnic_request.attributes.l2_promotion),
                        gnic_request.attributes.cache_policy);
      if (descriptor_request_valid && descriptor_request_ready)
        tb_descriptor_request(descriptor_request);
      if (smem_write_valid && smem_write_ready)
        for (int lane = 0; lane < $bits(smem_write_t) / $bits(smem_write_element_t); lane++)
          if (smem_write[lane].valid)
            tb_smem_write(lane, 32'(smem_write[lane].words), 32'(smem_write[lane].beat),
                          smem_write[lane].data);
      if (error_valid && error_ready)
        tb_error(32'(error.request_id), 32'(error.code), 32'(error.dim), error.value);
      if (barrier_result_valid && barrier_result_ready)
        tb_barrier_result(32'(barrier_result.tag), barrier_result.done, barrier_result.error,
                          barrier_result.state);
      // A read next to a write of the same word returns the old one.
      if (barrier_read_en) barrier_read_data <= tb_barrier_read(32'(barrier_read_address));
      if (barrier_write_en) tb_barrier_write(32'(barrier_write_address), barrier_write_data);
`ifdef TMA_STORES
      if (smem_read_valid && smem_read_ready)
        for (int lane = 0; lane < $bits(smem_read_t) / $bits(smem_read_element_t); lane++)
          if (smem_read[lane].valid) tb_smem_read(lane, 32'(smem_read[lane].beat));
      if (gnic_write_valid && gnic_write_ready)
        tb_gnic_write(32'(gnic_write.tag), 64'(gnic_write.line),
                      32'(gnic_write.attributes.l2_promotion),
                      gnic_write.attributes.cache_policy, gnic_write.reduction.enabled,
                      32'(gnic_write.reduction.op), 32'(gnic_write.reduction.element_type),
                      128'(gnic_write.strobe), 1024'(gnic_write.data));
      if (group_result_valid && group_result_ready)
        tb_group_result(32'(group_result.thread), 32'(group_result.request_id));
`endif
`ifdef TMA_REDUCTIONS
      // A read next to a write of the same sector returns the old one.
      if (sector_read_en) begin
        tb_sector_read(sector_read_address, sector);
        sector_read_data <= sector;
      end
      if (sector_write_en)
        tb_sector_write(sector_write_address, 32'(sector_write_pieces), sector_write_data);
      if (reduction_done_valid && reduction_done_ready) tb_reduced(32'(reduction_done));
`endif
      drive = tb_drive();
    end

    {reduction_done_ready, group_result_ready, gnic_write_ready, smem_read_ready,
     barrier_result_ready, smem_write_ready, gnic_request_ready, descriptor_request_ready,
     error_ready, reduction_request_valid, gnic_ack_valid, smem_data_valid,
     barrier_command_valid, gnic_response_valid, descriptor_fill_valid,
     descriptor_invalidate_valid, descriptor_prefetch_valid, request_valid} <= drive[PORTS-1:0];
    if (!rst) wake <= drive[31];

    if (drive[PORTS+0]) begin
      tb_next_request(op, id, address, count, mode, rank, coords, info, policy, smem_address,
                      mbarrier, tag, kind, mask, thread, joins, groups);
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
      request.reduction_op <= tag;
      request.element_type <= kind;
      request.byte_mask <= mask;
      request.thread <= thread;
      request.joins_group <= joins;
      request.groups <= groups;
    end
    if (drive[PORTS+1]) begin
      tb_next_prefetch(address);
      descriptor_prefetch <= address;
    end
    if (drive[PORTS+2]) begin
      tb_next_invalidate(address, all);
      descriptor_invalidate.address <= address;
      descriptor_invalidate.all <= all;
    end
    if (drive[PORTS+3]) begin
      tb_next_fill(words, fault);
      descriptor_fill.words <= words;
      descriptor_fill.error <= fault;
    end
    if (drive[PORTS+4]) begin
      tb_next_response(tag, fault, data);
      gnic_response.tag <= tag;
      gnic_response.error <= fault;
      gnic_response.data <= data;
    end
    if (drive[PORTS+5]) begin
      tb_next_command(op, smem_address, count, tag);
      barrier_command.op <= op;
      barrier_command.address <= smem_address;
      barrier_command.count <= count;
      barrier_command.tag <= tag;
    end
`ifdef TMA_STORES
    if (drive[PORTS+6]) begin
      tb_next_data(data);
      smem_data <= data;
    end
    if (drive[PORTS+7]) begin
      tb_next_ack(tag, fault);
      gnic_ack.tag <= tag;
      gnic_ack.error <= fault;
    end
`endif
`ifdef TMA_REDUCTIONS
    if (drive[PORTS+8]) begin
      tb_next_reduce(tag, address, op, kind, pieces, sector);
      reduction_request.tag <= tag;
      reduction_request.sector <= address;
      reduction_request.op <= op;
      reduction_request.element_type <= kind;
      reduction_request.pieces <= pieces;
      reduction_request.data <= sector;
    end
`endif
  end
endmodule
