// Loads a tile that is half outside its tensor, and checks every byte of it. Plain Verilog-2005.
`timescale 1ns / 1ns
`include "tma.vh"

module load_tile;
  // Words w15 to w0 of the tensor map, as CUDA's driver writes them. The tensor has 8 rows of 16
  // integers of 32 bits, from TENSOR on; a box has 4 rows of 16 integers.
  localparam [511:0] WORDS = {
      32'h0, 32'h3, 32'hf000000, 32'h0, 32'h0, 32'h0, 32'h7, 32'hf,
      32'h0, 32'h0, 32'h0, 32'h0, 32'h4, 32'h110, 32'h0, 32'h1000};
  localparam MAP = 0, TENSOR = 'h1000, TILE = 'h400, BARRIER = 8;  // addresses
  localparam [63:0] ONE_ARRIVAL = 64'h7ffff800_001ffffe;  // a barrier that expects one arrival
  localparam X = 8, Y = 6, ROWS = 4, ROW = 64;  // the box begins at integer 8 of row 6

  reg clk = 0, rst = 1;
  always #5 clk = !clk;
  reg [7:0] memory[0:'h1fff];  // global memory
  reg [7:0] shared[0:'hfff];  // shared memory, also of the barrier

  // Inputs of the unit depend on registers only. The memories answer in the next clock. The thread
  // changes its inputs at the falling edge.
  reg request_valid = 0, fill_valid = 0, line_valid = 0, command_valid = 0;
  reg [`TMA_REQUEST_BITS-1:0] request;
  reg [`TMA_DESCRIPTOR_FILL_BITS-1:0] fill;
  reg [`TMA_GNIC_RESPONSE_BITS-1:0] line;
  reg [`TMA_BARRIER_COMMAND_BITS-1:0] command;
  reg [63:0] word;
  wire request_ready, fill_ready, line_ready, command_ready;
  wire error_valid, map_valid, read_valid, write_valid, result_valid, wake_valid, word_en, word_we;
  wire idle;
  wire [`TMA_ERROR_BITS-1:0] error;
  wire [`TMA_DESCRIPTOR_REQUEST_BITS-1:0] map;
  wire [`TMA_GNIC_REQUEST_BITS-1:0] read;
  wire [`TMA_SMEM_WRITE_BITS-1:0] write;
  wire [`TMA_BARRIER_RESULT_BITS-1:0] result;
  wire [`TMA_BARRIER_WAKE_BITS-1:0] wake;
  wire [`TMA_BARRIER_MEMORY_READ_ADDRESS_BITS-1:0] word_address, word_write_address;
  wire [63:0] word_write_data;
  wire map_ready = !fill_valid, read_ready = !line_valid;  // not while an answer waits

  tma unit (
      .clk(clk), .rst(rst), .control__drain(1'b0), .control__idle(idle), .request__payload(request),
      .request__valid(request_valid), .request__ready(request_ready),
      .error__valid(error_valid), .error__ready(1'b1), .error__payload(error),
      .descriptor_prefetch__valid(1'b0), .descriptor_invalidate__valid(1'b0),
      .descriptor_request__valid(map_valid), .descriptor_request__ready(map_ready),
      .descriptor_request__payload(map), .descriptor_fill__payload(fill),
      .descriptor_fill__valid(fill_valid), .descriptor_fill__ready(fill_ready),
      .gnic_request__valid(read_valid), .gnic_request__ready(read_ready),
      .gnic_request__payload(read), .gnic_response__payload(line),
      .gnic_response__valid(line_valid), .gnic_response__ready(line_ready),
      .smem_write__valid(write_valid), .smem_write__ready(1'b1), .smem_write__payload(write),
`ifdef TMA_STORES
      .smem_read__ready(1'b0), .smem_data__valid(1'b0), .gnic_write__ready(1'b0),
      .gnic_ack__valid(1'b0), .group_result__ready(1'b1),
`endif
      .barrier_command__valid(command_valid), .barrier_command__ready(command_ready),
      .barrier_command__payload(command), .barrier_result__payload(result),
      .barrier_result__valid(result_valid), .barrier_result__ready(1'b1),
      .barrier_wake__valid(wake_valid), .barrier_wake__ready(1'b1), .barrier_wake__payload(wake),
      .barrier_memory__read_en(word_en), .barrier_memory__read_address(word_address),
      .barrier_memory__read_data(word), .barrier_memory__write_en(word_we),
      .barrier_memory__write_address(word_write_address),
      .barrier_memory__write_data(word_write_data)
  );

  integer i, lane;
  reg [8*`TMA_LINE_BYTES-1:0] bytes;
  reg [127:0] piece;
  reg [3:0] words;
  always @(posedge clk)
    if (rst) {fill_valid, line_valid} <= 0;  // outputs mean nothing yet
    else begin
      fill_valid <= fill_valid ? !fill_ready : map_valid;  // tensor maps
      if (map_valid && map_ready) begin
        fill[`TMA_DESCRIPTOR_FILL_ERROR] <= 0;
        for (i = 0; i < 64; i = i + 1) fill[8*i +: 8] <= memory[map + i];
      end
      line_valid <= line_valid ? !line_ready : read_valid;  // lines of global memory
      if (read_valid && read_ready) begin
        for (i = 0; i < `TMA_LINE_BYTES; i = i + 1)
          bytes[8*i +: 8] = memory[read[`TMA_GNIC_REQUEST_LINE] * `TMA_LINE_BYTES + i];
        line[`TMA_GNIC_RESPONSE_TAG] <= read[`TMA_GNIC_REQUEST_TAG];
        line[`TMA_GNIC_RESPONSE_ERROR] <= 0;
        line[`TMA_GNIC_RESPONSE_DATA] <= bytes;
      end
      for (lane = 0; lane < `TMA_LANES; lane = lane + 1)  // shared memory
        if (write_valid && write[`TMA_SMEM_WRITE_VALID(lane)]) begin
          piece = write[`TMA_SMEM_WRITE_DATA(lane)];
          words = write[`TMA_SMEM_WRITE_WORDS(lane)];
          for (i = 0; i < 16; i = i + 1)
            if (words[i / 4])
              shared[write[`TMA_SMEM_WRITE_BEAT(lane)] * `TMA_LINE_BYTES + 16 * lane + i]
                  <= piece[8*i +: 8];
        end
      for (i = 0; i < 8; i = i + 1) begin  // words of barriers
        if (word_en) word[8*i +: 8] <= shared[8 * word_address + i];
        if (word_we) shared[8 * word_write_address + i] <= word_write_data[8*i +: 8];
      end
      if (error_valid) $display("error record: code %0d", error[`TMA_ERROR_CODE]);
    end

  task barrier(input [3:0] op, input [20:0] count);  // an mbarrier operation of a thread
    begin
      @(negedge clk) command <= 0;
      command[`TMA_BARRIER_COMMAND_OP] <= op;
      command[`TMA_BARRIER_COMMAND_ADDRESS] <= BARRIER;
      command[`TMA_BARRIER_COMMAND_COUNT] <= count;
      command[`TMA_BARRIER_COMMAND_LANES] <= 1;
      command[`TMA_BARRIER_COMMAND_STATE] <= ONE_ARRIVAL;  // of INIT
      command[`TMA_BARRIER_COMMAND_TIME_LIMIT] <= 10000;
      command_valid <= 1;
      @(posedge clk) while (!command_ready) @(posedge clk);
      @(negedge clk) command_valid <= 0;
      while (!result_valid) @(posedge clk);
      if (result[`TMA_BARRIER_RESULT_FAULT] != 0) begin
        $display("operation %0d on the barrier fails", op);
        $stop;
      end
    end
  endtask

  integer n, row, wrong;
  reg [7:0] expected;
  initial begin
    for (n = 0; n < 8 * ROW; n = n + 1) memory[TENSOR + n] = n ^ n >> 8 ^ 'h5a;
    for (n = 0; n < 64; n = n + 1) memory[MAP + n] = WORDS[8*n +: 8];
    repeat (4) @(negedge clk);
    rst <= 0;
    @(posedge clk) while (!idle) @(posedge clk);  // the unit clears its memories first
    barrier(`TMA_BARRIER_OP_INIT, 0);
    barrier(`TMA_BARRIER_OP_ARRIVE_EXPECT_TX, ROWS * ROW);
    @(negedge clk) request <= 0;
    request[`TMA_REQUEST_OPERATION] <= `TMA_OPERATION_TENSOR_LOAD;
    request[`TMA_REQUEST_GLOBAL_ADDRESS] <= MAP;
    request[`TMA_REQUEST_RANK] <= 2;
    request[`TMA_REQUEST_COORDS(0)] <= X;
    request[`TMA_REQUEST_COORDS(1)] <= Y;
    request[`TMA_REQUEST_SMEM_ADDRESS] <= TILE;
    request[`TMA_REQUEST_MBARRIER] <= BARRIER;
    request_valid <= 1;
    @(posedge clk) while (!request_ready) @(posedge clk);
    @(negedge clk) request_valid <= 0;
    barrier(`TMA_BARRIER_OP_TRY_WAIT_PARITY, 0);
    if (result[`TMA_BARRIER_RESULT_WAITS]) while (!wake_valid) @(posedge clk);

    wrong = 0;
    for (row = 0; row < ROWS; row = row + 1)
      for (n = 0; n < ROW; n = n + 1) begin
        expected = 0;  // outside the tensor
        if (Y + row < 8 && 4 * X + n < ROW) expected = memory[TENSOR + (Y + row) * ROW + 4 * X + n];
        if (shared[TILE + row * ROW + n] !== expected) wrong = wrong + 1;
      end
    $display("%0d of %0d bytes are wrong", wrong, ROWS * ROW);
    if (wrong != 0) $stop;
    $finish;
  end
  initial begin
    #1000000 $display("the load does not end");
    $stop;
  end
endmodule
