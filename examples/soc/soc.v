// A small system: PicoRV32, a memory, the unit with its shared memory, and a console.
//
//   0x0000_0000  memory, MEMORY_BYTES; programs begin at 0x0080_0000
//   0x4000_0000  the unit: registers, and shared memory from 0x4010_0000 on
//   0x8000_0000  console: a write prints a byte
//   0x8000_0004  exit: a write ends the program with this status
//   0x8000_0008  clocks since the reset, read only
//
// One AXI4-Lite master drives the bus: the processor, or with `external` a master outside, such as a
// debugger. The interconnect, of interconnect.py, brings its accesses to the memory, the unit and
// the devices of this module. The unit reads and writes the memory by AXI4.

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

  wire awready, wready, bvalid, arready, rvalid;
  wire [1:0] bresp, rresp;
  wire [31:0] rdata;
  assign ext_awready = awready;
  assign ext_wready = wready;
  assign ext_bvalid = bvalid;
  assign ext_bresp = bresp;
  assign ext_arready = arready;
  assign ext_rvalid = rvalid;
  assign ext_rresp = rresp;
  assign ext_rdata = rdata;

  // Buses of the interconnect.
  wire d_awvalid, d_wvalid, d_bready, d_arvalid, d_rready;  // of the devices
  wire [31:0] d_awaddr, d_wdata;
  wire u_awvalid, u_awready, u_wvalid, u_wready, u_bvalid, u_bready;  // of the unit's registers
  wire u_arvalid, u_arready, u_rvalid, u_rready;
  wire [31:0] u_awaddr, u_araddr, u_wdata, u_rdata;
  wire [3:0] u_wstrb;
  wire [1:0] u_bresp, u_rresp;
  wire [6:0] m_arid, m_rid, m_bid;  // from the unit
  wire [5:0] m_awid;
  wire [31:0] m_araddr, m_awaddr;
  wire [7:0] m_arlen, m_awlen, m_wstrb;
  wire [2:0] m_arsize, m_awsize;
  wire [1:0] m_arburst, m_awburst, m_rresp, m_bresp;
  wire [63:0] m_rdata, m_wdata;
  wire m_arvalid, m_arready, m_rlast, m_rvalid, m_rready;
  wire m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bvalid, m_bready;
  wire [6:0] r_arid, r_rid, r_awid, r_bid;  // of the memory
  wire [31:0] r_araddr, r_awaddr;
  wire [7:0] r_arlen, r_awlen, r_wstrb;
  wire [2:0] r_arsize, r_awsize;
  wire [1:0] r_arburst, r_awburst, r_rresp, r_bresp;
  wire [63:0] r_rdata, r_wdata;
  wire r_arvalid, r_arready, r_rlast, r_rvalid, r_rready;
  wire r_awvalid, r_awready, r_wlast, r_wvalid, r_wready, r_bvalid, r_bready;

  // Console, exit and clocks: an access is answered one clock after its address and data.
  reg device_bvalid, device_rvalid;
  reg [31:0] clocks;
  reg [31:0] device_rdata;
  wire device_write = d_awvalid && d_wvalid && !device_bvalid;
  wire device_read = d_arvalid && !device_rvalid;
  always @(posedge clk) begin
    clocks <= rst ? 0 : clocks + 1;
    console_valid <= !rst && device_write && d_awaddr[3:0] == 4'h0;
    exit_valid <= !rst && device_write && d_awaddr[3:0] == 4'h4;
    if (device_write) begin
      console_byte <= d_wdata[7:0];
      exit_status <= d_wdata;
    end
    if (device_read) device_rdata <= clocks;
    device_bvalid <= !rst && (device_write || device_bvalid && !d_bready);
    device_rvalid <= !rst && (device_read || device_rvalid && !d_rready);
  end

  // The unit.
  tma_host unit (
      .clk(clk),
      .rst(rst),
      .irq(irq),
      .s_axi_awvalid(u_awvalid),
      .s_axi_awready(u_awready),
      .s_axi_awaddr(u_awaddr[20:0]),
      .s_axi_awprot(3'b0),
      .s_axi_wvalid(u_wvalid),
      .s_axi_wready(u_wready),
      .s_axi_wdata(u_wdata),
      .s_axi_wstrb(u_wstrb),
      .s_axi_bvalid(u_bvalid),
      .s_axi_bready(u_bready),
      .s_axi_bresp(u_bresp),
      .s_axi_arvalid(u_arvalid),
      .s_axi_arready(u_arready),
      .s_axi_araddr(u_araddr[20:0]),
      .s_axi_arprot(3'b0),
      .s_axi_rvalid(u_rvalid),
      .s_axi_rready(u_rready),
      .s_axi_rresp(u_rresp),
      .s_axi_rdata(u_rdata),
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
      .m_axi_bid(m_bid[5:0]),
      .m_axi_bresp(m_bresp),
      .m_axi_bvalid(m_bvalid),
      .m_axi_bready(m_bready)
  );

  soc_interconnect buses (
      .sys_clk(clk),
      .sys_rst(rst),
      .cpu_awvalid(awvalid),
      .cpu_awready(awready),
      .cpu_awaddr(awaddr),
      .cpu_wvalid(wvalid),
      .cpu_wready(wready),
      .cpu_wdata(wdata),
      .cpu_wstrb(wstrb),
      .cpu_bvalid(bvalid),
      .cpu_bready(bready),
      .cpu_bresp(bresp),
      .cpu_arvalid(arvalid),
      .cpu_arready(arready),
      .cpu_araddr(araddr),
      .cpu_rvalid(rvalid),
      .cpu_rready(rready),
      .cpu_rdata(rdata),
      .cpu_rresp(rresp),
      .dma_awvalid(m_awvalid),
      .dma_awready(m_awready),
      .dma_awaddr(m_awaddr),
      .dma_awlen(m_awlen),
      .dma_awsize(m_awsize),
      .dma_awburst(m_awburst),
      .dma_awid({1'b0, m_awid}),
      .dma_wvalid(m_wvalid),
      .dma_wready(m_wready),
      .dma_wdata(m_wdata),
      .dma_wstrb(m_wstrb),
      .dma_wlast(m_wlast),
      .dma_bvalid(m_bvalid),
      .dma_bready(m_bready),
      .dma_bresp(m_bresp),
      .dma_bid(m_bid),
      .dma_arvalid(m_arvalid),
      .dma_arready(m_arready),
      .dma_araddr(m_araddr),
      .dma_arlen(m_arlen),
      .dma_arsize(m_arsize),
      .dma_arburst(m_arburst),
      .dma_arid(m_arid),
      .dma_rvalid(m_rvalid),
      .dma_rready(m_rready),
      .dma_rdata(m_rdata),
      .dma_rresp(m_rresp),
      .dma_rlast(m_rlast),
      .dma_rid(m_rid),
      .unit_awvalid(u_awvalid),
      .unit_awready(u_awready),
      .unit_awaddr(u_awaddr),
      .unit_wvalid(u_wvalid),
      .unit_wready(u_wready),
      .unit_wdata(u_wdata),
      .unit_wstrb(u_wstrb),
      .unit_bvalid(u_bvalid),
      .unit_bready(u_bready),
      .unit_bresp(u_bresp),
      .unit_arvalid(u_arvalid),
      .unit_arready(u_arready),
      .unit_araddr(u_araddr),
      .unit_rvalid(u_rvalid),
      .unit_rready(u_rready),
      .unit_rdata(u_rdata),
      .unit_rresp(u_rresp),
      .devices_awvalid(d_awvalid),
      .devices_awready(device_write),
      .devices_awaddr(d_awaddr),
      .devices_wvalid(d_wvalid),
      .devices_wready(device_write),
      .devices_wdata(d_wdata),
      .devices_wstrb(),
      .devices_bvalid(device_bvalid),
      .devices_bready(d_bready),
      .devices_bresp(2'b00),
      .devices_arvalid(d_arvalid),
      .devices_arready(device_read),
      .devices_araddr(),
      .devices_rvalid(device_rvalid),
      .devices_rready(d_rready),
      .devices_rdata(device_rdata),
      .devices_rresp(2'b00),
      .memory_awvalid(r_awvalid),
      .memory_awready(r_awready),
      .memory_awaddr(r_awaddr),
      .memory_awlen(r_awlen),
      .memory_awsize(r_awsize),
      .memory_awburst(r_awburst),
      .memory_awid(r_awid),
      .memory_wvalid(r_wvalid),
      .memory_wready(r_wready),
      .memory_wdata(r_wdata),
      .memory_wstrb(r_wstrb),
      .memory_wlast(r_wlast),
      .memory_bvalid(r_bvalid),
      .memory_bready(r_bready),
      .memory_bresp(r_bresp),
      .memory_bid(r_bid),
      .memory_arvalid(r_arvalid),
      .memory_arready(r_arready),
      .memory_araddr(r_araddr),
      .memory_arlen(r_arlen),
      .memory_arsize(r_arsize),
      .memory_arburst(r_arburst),
      .memory_arid(r_arid),
      .memory_rvalid(r_rvalid),
      .memory_rready(r_rready),
      .memory_rdata(r_rdata),
      .memory_rresp(r_rresp),
      .memory_rlast(r_rlast),
      .memory_rid(r_rid)
  );

  ram #(
      .BYTES(MEMORY_BYTES)
  ) memory (
      .clk(clk),
      .rst(rst),
      .awvalid(r_awvalid),
      .awready(r_awready),
      .awaddr(r_awaddr),
      .awlen(r_awlen),
      .awsize(r_awsize),
      .awburst(r_awburst),
      .awid(r_awid),
      .wvalid(r_wvalid),
      .wready(r_wready),
      .wdata(r_wdata),
      .wstrb(r_wstrb),
      .wlast(r_wlast),
      .bvalid(r_bvalid),
      .bready(r_bready),
      .bresp(r_bresp),
      .bid(r_bid),
      .arvalid(r_arvalid),
      .arready(r_arready),
      .araddr(r_araddr),
      .arlen(r_arlen),
      .arsize(r_arsize),
      .arburst(r_arburst),
      .arid(r_arid),
      .rvalid(r_rvalid),
      .rready(r_rready),
      .rdata(r_rdata),
      .rresp(r_rresp),
      .rlast(r_rlast),
      .rid(r_rid)
  );
endmodule
