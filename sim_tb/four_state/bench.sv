// Replays the instructions of a kernel on a unit whose registers and memories are X at power-up.
// Each clock from the end of reset on, it checks that no output has an X: `valid` and `ready`
// always, a payload while it is valid, but for bytes that nobody takes. Payloads of the inputs are
// X while they are not valid. Shared memory is X until it is written. For Icarus Verilog, which has
// no DPI. `replay.py` writes the files, and defines STEPS, DATA, GLOBAL and BASE.
`timescale 1ns / 1ns
`include "tma.vh"

module bench;
  // Numbers of the instructions; see `Opcode` in program.py. The rest of a word is the operand.
  localparam REQUEST = 0, GROUP_WAIT = 1, BARRIER = 2, WRITE = 3, CHECK = 4;
  localparam WORD = 4 + (`TMA_REQUEST_BITS > `TMA_BARRIER_COMMAND_BITS ?
      `TMA_REQUEST_BITS : `TMA_BARRIER_COMMAND_BITS);
  localparam LANES = `TMA_LANES, LATENCY = 40, SMEM_LATENCY = 5, TIMEOUT = 100000;

  reg clk = 0, rst = 1;
  always #5 clk = !clk;
  integer clock = 0, since = 0;  // since the end of reset, and since the last step

  // All memories have pieces of 16 bytes.
  reg [WORD-1:0] program_words[0:`STEPS-1];
  reg [127:0] data[0:`DATA-1];  // of the instructions WRITE and CHECK
  reg [127:0] memory[0:`GLOBAL-1];  // global memory, from piece BASE on
  reg [127:0] expected[0:`GLOBAL-1];  // at the end
  reg [127:0] shared[0:`TMA_SMEM_BYTES/16-1];

  // Ports of the unit. A payload that is not valid is X.
  wire control__drain = 0;
  wire control__idle;
  wire [`TMA_CHANNELS-1:0] request_room__channels;
  reg request__valid = 0, barrier_command__valid = 0;
  reg descriptor_fill__valid = 0, gnic_response__valid = 0;
  reg [`TMA_REQUEST_BITS-1:0] request__payload;
  reg [`TMA_BARRIER_COMMAND_BITS-1:0] barrier_command__payload;
  reg [`TMA_DESCRIPTOR_FILL_BITS-1:0] descriptor_fill__payload;
  reg [`TMA_GNIC_RESPONSE_BITS-1:0] gnic_response__payload;
  wire request__ready, barrier_command__ready, descriptor_fill__ready, gnic_response__ready;
  wire descriptor_prefetch__valid = 0, descriptor_invalidate__valid = 0;
  wire descriptor_prefetch__ready, descriptor_invalidate__ready;
  wire [`TMA_DESCRIPTOR_PREFETCH_BITS-1:0] descriptor_prefetch__payload = 'bx;
  wire [`TMA_DESCRIPTOR_INVALIDATE_BITS-1:0] descriptor_invalidate__payload = 'bx;
  wire error__valid, descriptor_request__valid, gnic_request__valid, smem_write__valid;
  wire barrier_result__valid, barrier_wake__valid;
  wire [`TMA_ERROR_BITS-1:0] error__payload;
  wire [`TMA_DESCRIPTOR_REQUEST_BITS-1:0] descriptor_request__payload;
  wire [`TMA_GNIC_REQUEST_BITS-1:0] gnic_request__payload;
  wire [`TMA_SMEM_WRITE_BITS-1:0] smem_write__payload;
  wire [`TMA_BARRIER_RESULT_BITS-1:0] barrier_result__payload;
  wire [`TMA_BARRIER_WAKE_BITS-1:0] barrier_wake__payload;
  reg gnic_request__ready = 0, smem_write__ready = 0;
  wire error__ready = 1, barrier_result__ready = 1, barrier_wake__ready = 1;
  wire descriptor_request__ready = !descriptor_fill__valid;
  wire barrier_memory__read_en, barrier_memory__write_en;
  wire [`TMA_BARRIER_MEMORY_READ_ADDRESS_BITS-1:0] barrier_memory__read_address;
  wire [`TMA_BARRIER_MEMORY_WRITE_ADDRESS_BITS-1:0] barrier_memory__write_address;
  wire [63:0] barrier_memory__write_data;
  reg [63:0] barrier_memory__read_data;
`ifdef TMA_STORES
  reg smem_data__valid = 0, gnic_ack__valid = 0, smem_read__ready = 0, gnic_write__ready = 0;
  wire smem_data__ready, gnic_ack__ready, smem_read__valid, gnic_write__valid, group_result__valid;
  wire group_result__ready = 1;
  reg [`TMA_SMEM_DATA_BITS-1:0] smem_data__payload;
  reg [`TMA_GNIC_ACK_BITS-1:0] gnic_ack__payload;
  wire [`TMA_SMEM_READ_BITS-1:0] smem_read__payload;
  wire [`TMA_GNIC_WRITE_BITS-1:0] gnic_write__payload;
  wire [`TMA_GROUP_RESULT_BITS-1:0] group_result__payload;
`else
  wire group_result__valid = 0;
`endif
  tma unit (.*);

  function void fail(input [8*64:1] text);
    $display("clock %0d: %0s", clock, text);
    $stop;
  endfunction

  function void defined(input parity, input [8*64:1] name);  // the parity of bits with an X is X
    if (parity === 1'bx) begin
      $display("clock %0d: %0s has X", clock, name);
      $stop;
    end
  endfunction

  // Checks of the outputs
  always @(posedge clk)
    if (!rst) begin : checks
      integer i, lane;
      reg [127:0] piece;
      reg [3:0] words;
      reg [8*`TMA_LINE_BYTES-1:0] line;
      reg [`TMA_LINE_BYTES-1:0] strobe;
      defined(control__idle, "control__idle");
      defined(^request_room__channels, "request_room__channels");
      defined(request__ready, "request__ready");
      defined(barrier_command__ready, "barrier_command__ready");
      defined(descriptor_fill__ready, "descriptor_fill__ready");
      defined(gnic_response__ready, "gnic_response__ready");
      defined(descriptor_prefetch__ready, "descriptor_prefetch__ready");
      defined(descriptor_invalidate__ready, "descriptor_invalidate__ready");
      defined(error__valid, "error__valid");
      if (error__valid) defined(^error__payload, "error__payload");
      defined(descriptor_request__valid, "descriptor_request__valid");
      if (descriptor_request__valid)
        defined(^descriptor_request__payload, "descriptor_request__payload");
      defined(gnic_request__valid, "gnic_request__valid");
      if (gnic_request__valid) defined(^gnic_request__payload, "gnic_request__payload");
      defined(barrier_result__valid, "barrier_result__valid");
      if (barrier_result__valid) begin
        defined(^barrier_result__payload[`TMA_BARRIER_RESULT_TAG], "barrier_result__payload: tag");
        defined(^barrier_result__payload[`TMA_BARRIER_RESULT_DONE], "barrier_result__payload: done");
        defined(^barrier_result__payload[`TMA_BARRIER_RESULT_WAITS],
                "barrier_result__payload: waits");
        defined(^barrier_result__payload[`TMA_BARRIER_RESULT_FAULT],
                "barrier_result__payload: fault");
        if (!initialises)  // its state is that of the old word
          defined(^barrier_result__payload[`TMA_BARRIER_RESULT_STATE],
                  "barrier_result__payload: state");
      end
      defined(barrier_wake__valid, "barrier_wake__valid");
      if (barrier_wake__valid) defined(^barrier_wake__payload, "barrier_wake__payload");
      defined(barrier_memory__read_en, "barrier_memory__read_en");
      if (barrier_memory__read_en)
        defined(^barrier_memory__read_address, "barrier_memory__read_address");
      defined(barrier_memory__write_en, "barrier_memory__write_en");
      if (barrier_memory__write_en) begin
        defined(^barrier_memory__write_address, "barrier_memory__write_address");
        defined(^barrier_memory__write_data, "barrier_memory__write_data");
      end
      defined(smem_write__valid, "smem_write__valid");
      if (smem_write__valid)
        for (lane = 0; lane < LANES; lane = lane + 1) begin
          defined(smem_write__payload[`TMA_SMEM_WRITE_VALID(lane)], "smem_write__payload: valid");
          if (smem_write__payload[`TMA_SMEM_WRITE_VALID(lane)]) begin
            defined(^smem_write__payload[`TMA_SMEM_WRITE_WORDS(lane)], "smem_write__payload: words");
            defined(^smem_write__payload[`TMA_SMEM_WRITE_BEAT(lane)], "smem_write__payload: beat");
            piece = smem_write__payload[`TMA_SMEM_WRITE_DATA(lane)];
            words = smem_write__payload[`TMA_SMEM_WRITE_WORDS(lane)];
            for (i = 0; i < 4; i = i + 1)
              if (words[i]) defined(^piece[32*i +: 32], "smem_write__payload: data");
          end
        end
`ifdef TMA_STORES
      defined(smem_data__ready, "smem_data__ready");
      defined(gnic_ack__ready, "gnic_ack__ready");
      defined(smem_read__valid, "smem_read__valid");
      if (smem_read__valid)
        for (lane = 0; lane < LANES; lane = lane + 1) begin
          defined(smem_read__payload[`TMA_SMEM_READ_VALID(lane)], "smem_read__payload: valid");
          if (smem_read__payload[`TMA_SMEM_READ_VALID(lane)])
            defined(^smem_read__payload[`TMA_SMEM_READ_BEAT(lane)], "smem_read__payload: beat");
        end
      defined(gnic_write__valid, "gnic_write__valid");
      if (gnic_write__valid) begin
        defined(^gnic_write__payload[0 +: `TMA_GNIC_WRITE_BITS - 8*`TMA_LINE_BYTES],
                "gnic_write__payload");
        strobe = gnic_write__payload[`TMA_GNIC_WRITE_STROBE];
        line = gnic_write__payload[`TMA_GNIC_WRITE_DATA];
        for (i = 0; i < `TMA_LINE_BYTES; i = i + 1)
          if (strobe[i]) defined(^line[8*i +: 8], "gnic_write__payload: data");
      end
      defined(group_result__valid, "group_result__valid");
      if (group_result__valid) defined(^group_result__payload, "group_result__payload");
`endif
      if (error__valid) begin
        $display("clock %0d: error record: code %0d, value %0h", clock,
                 error__payload[`TMA_ERROR_CODE], error__payload[`TMA_ERROR_VALUE]);
        $stop;
      end
      if (gnic_request__valid && gnic_request__payload[`TMA_GNIC_REQUEST_PREFETCH])
        fail("gnic_request is a prefetch, which the program has not");
    end

  // The models of memory answer in order. Each pauses in one of four clocks.
  integer seed = 1;

  function takes(input unused);  // in this clock
    takes = $random(seed) % 4 != 0;
  endfunction

  function [63:0] place_of(input [63:0] number);  // index in `memory` of a piece of global memory
    place_of = number - `BASE;
    if (`TMA_ADDRESS_BITS < 64)
      place_of = place_of & ((64'd1 << `TMA_PIECE_ADDRESS_BITS) - 1);
    if (place_of >= `GLOBAL) begin
      $display("clock %0d: address %0h is outside of global memory", clock, number * 16);
      $stop;
    end
  endfunction

  reg [`TMA_GNIC_RESPONSE_BITS-1:0] reads[0:`TMA_TAGS-1];
  integer read_due[0:`TMA_TAGS-1], reads_in = 0, reads_out = 0;
  always @(posedge clk)
    if (rst) begin
      {descriptor_fill__valid, gnic_response__valid} <= 0;
      {gnic_request__ready, smem_write__ready} <= 0;
    end else begin : loads
      integer i, lane;
      reg [63:0] place;
      reg [127:0] piece;
      reg [3:0] words;
      reg [8*`TMA_LINE_BYTES-1:0] line;
      gnic_request__ready <= takes(0);
      smem_write__ready <= takes(0);
      if (descriptor_fill__valid && descriptor_fill__ready) begin
        descriptor_fill__valid <= 0;
        descriptor_fill__payload <= 'bx;
      end
      if (descriptor_request__valid && descriptor_request__ready) begin
        place = place_of(descriptor_request__payload >> 4);
        descriptor_fill__valid <= 1;
        descriptor_fill__payload[`TMA_DESCRIPTOR_FILL_ERROR] <= 0;
        for (i = 0; i < 4; i = i + 1) descriptor_fill__payload[128*i +: 128] <= memory[place + i];
      end
      if (gnic_request__valid && gnic_request__ready) begin
        place = place_of(gnic_request__payload[`TMA_GNIC_REQUEST_LINE] * LANES);
        for (i = 0; i < LANES; i = i + 1) line[128*i +: 128] = memory[place + i];
        reads[reads_in % `TMA_TAGS][`TMA_GNIC_RESPONSE_DATA] = line;
        reads[reads_in % `TMA_TAGS][`TMA_GNIC_RESPONSE_ERROR] = 0;
        reads[reads_in % `TMA_TAGS][`TMA_GNIC_RESPONSE_TAG] =
            gnic_request__payload[`TMA_GNIC_REQUEST_TAG];
        read_due[reads_in % `TMA_TAGS] = clock + LATENCY;
        reads_in = reads_in + 1;
      end
      if (gnic_response__ready || !gnic_response__valid) begin
        gnic_response__valid <= 0;
        gnic_response__payload <= 'bx;
        if (reads_out != reads_in && read_due[reads_out % `TMA_TAGS] <= clock && takes(0)) begin
          gnic_response__valid <= 1;
          gnic_response__payload <= reads[reads_out % `TMA_TAGS];
          reads_out = reads_out + 1;
        end
      end
      if (smem_write__valid && smem_write__ready)
        for (lane = 0; lane < LANES; lane = lane + 1)
          if (smem_write__payload[`TMA_SMEM_WRITE_VALID(lane)]) begin
            piece = smem_write__payload[`TMA_SMEM_WRITE_DATA(lane)];
            words = smem_write__payload[`TMA_SMEM_WRITE_WORDS(lane)];
            place = smem_write__payload[`TMA_SMEM_WRITE_BEAT(lane)] * LANES + lane;
            for (i = 0; i < 4; i = i + 1)
              if (words[i]) shared[place][32*i +: 32] = piece[32*i +: 32];
          end
      barrier_memory__read_data <= 'bx;
      if (barrier_memory__read_en)
        barrier_memory__read_data <=
            shared[barrier_memory__read_address / 2][64 * (barrier_memory__read_address % 2) +: 64];
      if (barrier_memory__write_en)
        shared[barrier_memory__write_address / 2][64 * (barrier_memory__write_address % 2) +: 64]
            <= barrier_memory__write_data;
    end

`ifdef TMA_STORES
  reg [`TMA_SMEM_DATA_BITS-1:0] beats[0:`TMA_SMEM_READS-1];
  reg [`TMA_GNIC_ACK_BITS-1:0] writes[0:`TMA_TAGS-1];
  integer beat_due[0:`TMA_SMEM_READS-1], beats_in = 0, beats_out = 0;
  integer write_due[0:`TMA_TAGS-1], writes_in = 0, writes_out = 0;
  always @(posedge clk)
    if (rst) {smem_data__valid, gnic_ack__valid, smem_read__ready, gnic_write__ready} <= 0;
    else begin : stores
      integer i, lane;
      reg [63:0] place;
      reg [`TMA_SMEM_DATA_BITS-1:0] beat;
      reg [8*`TMA_LINE_BYTES-1:0] line;
      reg [`TMA_LINE_BYTES-1:0] strobe;
      smem_read__ready <= takes(0);
      gnic_write__ready <= takes(0);
      if (smem_data__ready || !smem_data__valid) begin
        smem_data__valid <= 0;
        smem_data__payload <= 'bx;
        if (beats_out != beats_in && beat_due[beats_out % `TMA_SMEM_READS] <= clock) begin
          smem_data__valid <= 1;
          smem_data__payload <= beats[beats_out % `TMA_SMEM_READS];
          beats_out = beats_out + 1;
        end
      end
      if (smem_read__valid && smem_read__ready) begin
        beat = 'bx;
        for (lane = 0; lane < LANES; lane = lane + 1)
          if (smem_read__payload[`TMA_SMEM_READ_VALID(lane)])
            beat[128*lane +: 128] =
                shared[smem_read__payload[`TMA_SMEM_READ_BEAT(lane)] * LANES + lane];
        beats[beats_in % `TMA_SMEM_READS] = beat;
        beat_due[beats_in % `TMA_SMEM_READS] = clock + SMEM_LATENCY;
        beats_in = beats_in + 1;
      end
      if (gnic_ack__ready || !gnic_ack__valid) begin
        gnic_ack__valid <= 0;
        gnic_ack__payload <= 'bx;
        if (writes_out != writes_in && write_due[writes_out % `TMA_TAGS] <= clock) begin
          gnic_ack__valid <= 1;
          gnic_ack__payload <= writes[writes_out % `TMA_TAGS];
          writes_out = writes_out + 1;
        end
      end
      if (gnic_write__valid && gnic_write__ready) begin
        if (gnic_write__payload[`TMA_GNIC_WRITE_REDUCTION_ENABLED])
          fail("gnic_write is a reduction, which the program has not");
        place = place_of(gnic_write__payload[`TMA_GNIC_WRITE_LINE] * LANES);
        strobe = gnic_write__payload[`TMA_GNIC_WRITE_STROBE];
        line = gnic_write__payload[`TMA_GNIC_WRITE_DATA];
        for (i = 0; i < `TMA_LINE_BYTES; i = i + 1)
          if (strobe[i]) memory[place + i / 16][8 * (i % 16) +: 8] = line[8*i +: 8];
        writes[writes_in % `TMA_TAGS][`TMA_GNIC_ACK_TAG] =
            gnic_write__payload[`TMA_GNIC_WRITE_TAG];
        writes[writes_in % `TMA_TAGS][`TMA_GNIC_ACK_ERROR] = 0;
        write_due[writes_in % `TMA_TAGS] = clock + LATENCY;
        writes_in = writes_in + 1;
      end
    end
`endif

  // The thread: it changes its inputs at the falling edge.
  integer step, n, first, count, from, wrong = 0;
  reg [WORD-1:0] word;
  reg [`TMA_BARRIER_COMMAND_BITS-1:0] command;
  reg initialises = 0;

  task send_request;
    begin
      request__payload <= word >> 4;
      request__valid <= 1;
      @(posedge clk) while (!request__ready) @(posedge clk);
      @(negedge clk) request__valid <= 0;
      request__payload <= 'bx;
    end
  endtask

  task send_command;
    begin
      barrier_command__payload <= word >> 4;
      command = word >> 4;
      initialises = command[`TMA_BARRIER_COMMAND_OP] == `TMA_BARRIER_OP_INIT;
      barrier_command__valid <= 1;
      @(posedge clk) while (!barrier_command__ready) @(posedge clk);
      @(negedge clk) barrier_command__valid <= 0;
      barrier_command__payload <= 'bx;
      @(posedge clk) while (!barrier_result__valid) @(posedge clk);
      if (barrier_result__payload[`TMA_BARRIER_RESULT_FAULT] != 0)
        fail("an operation on a barrier fails");
      if (barrier_result__payload[`TMA_BARRIER_RESULT_WAITS]) begin
        while (!barrier_wake__valid) @(posedge clk);
        if (!barrier_wake__payload[`TMA_BARRIER_WAKE_DONE]) fail("a wait ends too early");
      end
    end
  endtask

  initial begin
    $readmemh("program.hex", program_words);
    $readmemh("data.hex", data);
    $readmemh("global.hex", memory);
    $readmemh("expected.hex", expected);
    @(negedge clk) rst <= 0;  // a reset of one clock is enough
    @(posedge clk) while (control__idle !== 1) @(posedge clk);
    for (step = 0; step < `STEPS; step = step + 1) begin
      @(negedge clk) word = program_words[step];
      since = 0;
      {from, count, first} = word >> 4;
      case (word[3:0])
        REQUEST: send_request;
        GROUP_WAIT: begin
          send_request;
          while (!group_result__valid) @(posedge clk);
        end
        BARRIER: send_command;
        WRITE: for (n = 0; n < count; n = n + 1) shared[first + n] = data[from + n];
        CHECK:
          for (n = 0; n < count; n = n + 1)
            if (shared[first + n] !== data[from + n]) begin
              if (wrong == 0)
                $display("clock %0d: shared memory at %0h: %032h, must be %032h", clock,
                         16 * (first + n), shared[first + n], data[from + n]);
              wrong = wrong + 1;
            end
      endcase
    end
    for (n = 0; n < `GLOBAL; n = n + 1)
      if (memory[n] !== expected[n]) begin
        if (wrong == 0)
          $display("clock %0d: global memory at %0h: %032h, must be %032h", clock,
                   16 * (n + `BASE), memory[n], expected[n]);
        wrong = wrong + 1;
      end
    $display("%0d clocks, %0d lines read, %0d lines written, %0d wrong pieces", clock, reads_in,
`ifdef TMA_STORES
             writes_in,
`else
             0,
`endif
             wrong);
    if (wrong != 0) $stop;
    $finish;
  end
  always @(posedge clk)
    if (!rst) begin
      clock <= clock + 1;
      since = since + 1;
      if (since > TIMEOUT) fail("the program does not go on");
    end
endmodule
