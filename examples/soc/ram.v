// Memory with an AXI4 port of 64 bits, for simulation.
//
// The port takes bursts of whole beats (INCR), a read and a write at a time, and answers addresses
// beyond the memory with DECERR. A beat is read in a clock, LATENCY clocks after its address.

module ram #(
    parameter BYTES = 1 << 24,
    parameter LATENCY = 2
) (
    input clk,
    input rst,

    input [6:0] arid,
    input [31:0] araddr,
    input [7:0] arlen,
    input [2:0] arsize,
    input [1:0] arburst,
    input arvalid,
    output arready,
    output reg [6:0] rid,
    output reg [63:0] rdata,
    output reg [1:0] rresp,
    output reg rlast,
    output reg rvalid,
    input rready,
    input [6:0] awid,
    input [31:0] awaddr,
    input [7:0] awlen,
    input [2:0] awsize,
    input [1:0] awburst,
    input awvalid,
    output awready,
    input [63:0] wdata,
    input [7:0] wstrb,
    input wlast,
    input wvalid,
    output wready,
    output reg [6:0] bid,
    output reg [1:0] bresp,
    output reg bvalid,
    input bready
);
  localparam WORDS = BYTES / 8;
  localparam OKAY = 2'd0, DECERR = 2'd3, INCR = 2'd1;
  reg [63:0] words[0:WORDS-1];
  integer i;

  // Reads.
  reg reads;
  reg [6:0] read_id;
  reg [31:0] read_address;
  reg [7:0] read_beats;  // that are left, less 1
  reg [7:0] read_wait;
  wire read_beat = reads && read_wait == 0 && (!rvalid || rready);
  assign arready = !reads;
  always @(posedge clk) begin
    if (rvalid && rready) rvalid <= 0;
    if (reads && read_wait != 0) read_wait <= read_wait - 1;
    if (arvalid && arready) begin
      reads <= 1;
      read_id <= arid;
      read_address <= araddr;
      read_beats <= arlen;
      read_wait <= LATENCY;
      if (arsize != 3 || arburst != INCR || araddr[2:0] != 0) begin
        $display("ram: a read is no burst of whole beats");
        $stop;
      end
    end
    if (read_beat) begin
      rvalid <= 1;
      rid <= read_id;
      rdata <= words[read_address[31:3]%WORDS];
      rresp <= read_address < BYTES ? OKAY : DECERR;
      rlast <= read_beats == 0;
      read_address <= read_address + 8;
      read_beats <= read_beats - 1;
      reads <= read_beats != 0;
    end
    if (rst) {reads, rvalid} <= 0;
  end

  // Writes.
  reg writes;
  reg [6:0] write_id;
  reg [31:0] write_address;
  reg write_fails;
  assign awready = !writes && !bvalid;
  assign wready = writes && !bvalid;
  always @(posedge clk) begin
    if (bvalid && bready) bvalid <= 0;
    if (awvalid && awready) begin
      writes <= 1;
      write_id <= awid;
      write_address <= awaddr;
      write_fails <= 0;
      if (awsize != 3 || awburst != INCR || awaddr[2:0] != 0) begin
        $display("ram: a write is no burst of whole beats");
        $stop;
      end
    end
    if (wvalid && wready) begin
      if (write_address < BYTES) begin
        for (i = 0; i < 8; i = i + 1)
          if (wstrb[i]) words[write_address[31:3]][8*i+:8] <= wdata[8*i+:8];
      end else write_fails <= 1;
      write_address <= write_address + 8;
      if (wlast) begin
        writes <= 0;
        bvalid <= 1;
        bid <= write_id;
        bresp <= write_fails || write_address >= BYTES ? DECERR : OKAY;
      end
    end
    if (rst) {writes, bvalid} <= 0;
  end
endmodule
