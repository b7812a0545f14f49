// A small system: PicoRV32, a memory, the unit with its shared memory, and a console.
//
//   0x0000_0000  memory, MEMORY_BYTES; programs begin at 0x0080_0000
//   0x4000_0000  the unit: registers, and shared memory from 0x4010_0000 on
//   0x8000_0000  console: a write prints a byte
//   0x8000_0004  exit: a write ends the program with this status
//   0x8000_0008  clocks since the reset, read only
//
// One AXI4-Lite master drives the bus: the processor, or with `external` a master outside, such as a
// debugger. It has one access at a time, and keeps its address until the answer: the interconnect is
// a decoder. The unit reads and writes the memory by AXI4.

module soc #(
    parameter MEMORY_BYTES = 1 << 24
) (
    input clk,
    input rst,
    output trap,  // the processor met an illegal instruction or access

    input external,  // the bus has the master outside, and the processor is in reset
    input ext_awvalid,
    output ext_awready,
    input [31:0] ext_awaddr,
    input ext_wvalid,
    output ext_wready,
    input [31:0] ext_wdata,
    output ext_bvalid,
    output [1:0] ext_bresp,
    input ext_arvalid,
    output ext_arready,
    input [31:0] ext_araddr,
    output ext_rvalid,
    output [1:0] ext_rresp,
    output [31:0] ext_rdata,

    output unit_irq,
    output reg console_valid,
    output reg [7:0] console_byte,
    output reg exit_valid,
    output reg [31:0] exit_status
);
  wire irq;
  assign unit_irq = irq;

  // Processor. Its interrupt 3 is the unit's, and follows the level.
  wire cpu_awvalid, cpu_wvalid, cpu_bready, cpu_arvalid, cpu_rready;
  wire [31:0] cpu_awaddr, cpu_wdata, cpu_araddr;
  wire [3:0] cpu_wstrb;
  picorv32_axi #(
      .BARREL_SHIFTER(1),
      .COMPRESSED_ISA(1),
      .ENABLE_FAST_MUL(1),
      .ENABLE_DIV(1),
      .ENABLE_IRQ(1),
      .LATCHED_IRQ(32'h0000_0007),
      .REGS_INIT_ZERO(1),
      .PROGADDR_RESET(32'h0080_0000),
      .PROGADDR_IRQ(32'h0080_0010)
  ) cpu (
      .clk(clk),
      .resetn(!rst && !external),
      .trap(trap),
      .mem_axi_awvalid(cpu_awvalid),
      .mem_axi_awready(awready),
      .mem_axi_awaddr(cpu_awaddr),
      .mem_axi_awprot(),
      .mem_axi_wvalid(cpu_wvalid),
      .mem_axi_wready(wready),
      .mem_axi_wdata(cpu_wdata),
      .mem_axi_wstrb(cpu_wstrb),
      .mem_axi_bvalid(bvalid && !external),
      .mem_axi_bready(cpu_bready),
      .mem_axi_arvalid(cpu_arvalid),
      .mem_axi_arready(arready),
      .mem_axi_araddr(cpu_araddr),
      .mem_axi_arprot(),
      .mem_axi_rvalid(rvalid && !external),
      .mem_axi_rready(cpu_rready),
      .mem_axi_rdata(rdata),
      .pcpi_valid(),
      .pcpi_insn(),
      .pcpi_rs1(),
      .pcpi_rs2(),
      .pcpi_wr(1'b0),
      .pcpi_rd(32'b0),
      .pcpi_wait(1'b0),
      .pcpi_ready(1'b0),
      .irq({28'b0, irq, 3'b0}),
      .eoi(),
      .trace_valid(),
      .trace_data()
  );

  // Bus of the master that is chosen.
  wire awvalid = external ? ext_awvalid : cpu_awvalid;
  wire [31:0] awaddr = external ? ext_awaddr : cpu_awaddr;
  wire wvalid = external ? ext_wvalid : cpu_wvalid;
  wire [31:0] wdata = external ? ext_wdata : cpu_wdata;
  wire [3:0] wstrb = external ? 4'b1111 : cpu_wstrb;
  wire bready = external || cpu_bready;
  wire arvalid = external ? ext_arvalid : cpu_arvalid;
  wire [31:0] araddr = external ? ext_araddr : cpu_araddr;
  wire rready = external || cpu_rready;

  // Decoder: slaves are the memory, the unit and the devices of this module.
  localparam MEMORY = 0, UNIT = 1, DEVICES = 2;
  wire [2:0] aw_select = {awaddr[31], awaddr[31:30] == 2'b01, awaddr[31:30] == 2'b00};
  wire [2:0] ar_select = {araddr[31], araddr[31:30] == 2'b01, araddr[31:30] == 2'b00};
  wire [2:0] slave_awready, slave_wready, slave_bvalid, slave_arready, slave_rvalid;
  wire [31:0] memory_rdata, unit_rdata;
  wire [1:0] unit_bresp, unit_rresp;
  reg [31:0] device_rdata;
  wire awready = |(slave_awready & aw_select);
  wire wready = |(slave_wready & aw_select);
  wire bvalid = |(slave_bvalid & aw_select);
  wire arready = |(slave_arready & ar_select);
  wire rvalid = |(slave_rvalid & ar_select);
  wire [31:0] rdata =
      ar_select[MEMORY] ? memory_rdata : ar_select[UNIT] ? unit_rdata : device_rdata;

  assign ext_awready = awready;
  assign ext_wready = wready;
  assign ext_bvalid = bvalid;
  assign ext_bresp = aw_select[UNIT] ? unit_bresp : 2'b00;
  assign ext_arready = arready;
  assign ext_rvalid = rvalid;
  assign ext_rresp = ar_select[UNIT] ? unit_rresp : 2'b00;
  assign ext_rdata = rdata;

  // Console, exit and clocks: an access is answered one clock after its address and data.
  reg device_bvalid, device_rvalid;
  reg [31:0] clocks;
  wire device_write = awvalid && wvalid && aw_select[DEVICES] && !device_bvalid;
  wire device_read = arvalid && ar_select[DEVICES] && !device_rvalid;
  assign slave_awready[DEVICES] = device_write;
  assign slave_wready[DEVICES] = device_write;
  assign slave_bvalid[DEVICES] = device_bvalid;
  assign slave_arready[DEVICES] = device_read;
  assign slave_rvalid[DEVICES] = device_rvalid;
  always @(posedge clk) begin
    clocks <= rst ? 0 : clocks + 1;
    console_valid <= !rst && device_write && awaddr[3:0] == 4'h0;
    exit_valid <= !rst && device_write && awaddr[3:0] == 4'h4;
    if (device_write) begin
      console_byte <= wdata[7:0];
      exit_status <= wdata;
    end
    if (device_read) device_rdata <= clocks;
    device_bvalid <= !rst && (device_write || device_bvalid && !bready);
    device_rvalid <= !rst && (device_read || device_rvalid && !rready);
  end

  // The unit.
  wire [6:0] m_arid, m_rid;
  wire [5:0] m_awid, m_bid;
  wire [31:0] m_araddr, m_awaddr;
  wire [7:0] m_arlen, m_awlen, m_wstrb;
  wire [2:0] m_arsize, m_awsize;
  wire [1:0] m_arburst, m_awburst, m_rresp, m_bresp;
  wire [63:0] m_rdata, m_wdata;
  wire m_arvalid, m_arready, m_rlast, m_rvalid, m_rready;
  wire m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bvalid, m_bready;
  tma_host unit (
      .clk(clk),
      .rst(rst),
      .irq(irq),
      .s_axi_awvalid(awvalid && aw_select[UNIT]),
      .s_axi_awready(slave_awready[UNIT]),
      .s_axi_awaddr(awaddr[20:0]),
      .s_axi_awprot(3'b0),
      .s_axi_wvalid(wvalid && aw_select[UNIT]),
      .s_axi_wready(slave_wready[UNIT]),
      .s_axi_wdata(wdata),
      .s_axi_wstrb(wstrb),
      .s_axi_bvalid(slave_bvalid[UNIT]),
      .s_axi_bready(bready && aw_select[UNIT]),
      .s_axi_bresp(unit_bresp),
      .s_axi_arvalid(arvalid && ar_select[UNIT]),
      .s_axi_arready(slave_arready[UNIT]),
      .s_axi_araddr(araddr[20:0]),
      .s_axi_arprot(3'b0),
      .s_axi_rvalid(slave_rvalid[UNIT]),
      .s_axi_rready(rready && ar_select[UNIT]),
      .s_axi_rresp(unit_rresp),
      .s_axi_rdata(unit_rdata),
      .m_axi_arid(m_arid),
      .m_axi_araddr(m_araddr),
      .m_axi_arlen(m_arlen),
      .m_axi_arsize(m_arsize),
      .m_axi_arburst(m_arburst),
      .m_axi_arcache(),
      .m_axi_arprot(),
      .m_axi_aruser(),
      .m_axi_arvalid(m_arvalid),
      .m_axi_arready(m_arready),
      .m_axi_rid(m_rid),
      .m_axi_rdata(m_rdata),
      .m_axi_rresp(m_rresp),
      .m_axi_rlast(m_rlast),
      .m_axi_rvalid(m_rvalid),
      .m_axi_rready(m_rready),
      .m_axi_awid(m_awid),
      .m_axi_awaddr(m_awaddr),
      .m_axi_awlen(m_awlen),
      .m_axi_awsize(m_awsize),
      .m_axi_awburst(m_awburst),
      .m_axi_awcache(),
      .m_axi_awprot(),
      .m_axi_awuser(),
      .m_axi_awvalid(m_awvalid),
      .m_axi_awready(m_awready),
      .m_axi_wdata(m_wdata),
      .m_axi_wstrb(m_wstrb),
      .m_axi_wlast(m_wlast),
      .m_axi_wvalid(m_wvalid),
      .m_axi_wready(m_wready),
      .m_axi_bid(m_bid),
      .m_axi_bresp(m_bresp),
      .m_axi_bvalid(m_bvalid),
      .m_axi_bready(m_bready)
  );

  ram #(
      .BYTES(MEMORY_BYTES)
  ) memory (
      .clk(clk),
      .rst(rst),
      .arid(m_arid),
      .araddr(m_araddr),
      .arlen(m_arlen),
      .arsize(m_arsize),
      .arburst(m_arburst),
      .arvalid(m_arvalid),
      .arready(m_arready),
      .rid(m_rid),
      .rdata(m_rdata),
      .rresp(m_rresp),
      .rlast(m_rlast),
      .rvalid(m_rvalid),
      .rready(m_rready),
      .awid(m_awid),
      .awaddr(m_awaddr),
      .awlen(m_awlen),
      .awsize(m_awsize),
      .awburst(m_awburst),
      .awvalid(m_awvalid),
      .awready(m_awready),
      .wdata(m_wdata),
      .wstrb(m_wstrb),
      .wlast(m_wlast),
      .wvalid(m_wvalid),
      .wready(m_wready),
      .bid(m_bid),
      .bresp(m_bresp),
      .bvalid(m_bvalid),
      .bready(m_bready),
      .lite_awvalid(awvalid && aw_select[MEMORY]),
      .lite_awready(slave_awready[MEMORY]),
      .lite_awaddr(awaddr),
      .lite_wvalid(wvalid && aw_select[MEMORY]),
      .lite_wready(slave_wready[MEMORY]),
      .lite_wdata(wdata),
      .lite_wstrb(wstrb),
      .lite_bvalid(slave_bvalid[MEMORY]),
      .lite_bready(bready),
      .lite_arvalid(arvalid && ar_select[MEMORY]),
      .lite_arready(slave_arready[MEMORY]),
      .lite_araddr(araddr),
      .lite_rvalid(slave_rvalid[MEMORY]),
      .lite_rready(rready),
      .lite_rdata(memory_rdata)
  );
endmodule
