/* Reset, interrupt and end of a program on PicoRV32. */

/* Instructions of PicoRV32 for its interrupts; q0 to q3 are its registers for them. */
.macro getq rd, q
    .insn r 0x0b, 0, 0, \rd, x\q, x0
.endm
.macro setq q, rs
    .insn r 0x0b, 0, 1, x\q, \rs, x0
.endm
.macro retirq
    .insn r 0x0b, 0, 2, x0, x0, x0
.endm
.macro maskirq rd, rs
    .insn r 0x0b, 0, 3, \rd, \rs, x0
.endm
.macro waitirq rd
    .insn r 0x0b, 0, 4, \rd, x0, x0
.endm

.equ DEVICES, 0x80000000

    .section .start, "ax"
    .global reset
    .option norvc
reset:
    j begin
    .balign 16

/* Interrupt at 0x10: q0 is the address of the return, q1 the interrupts. The handler is in C, so
 * that the registers which a function may change are saved. */
interrupt:
    setq 2, ra
    setq 3, sp
    addi sp, sp, -64
    sw t0, 0(sp)
    sw t1, 4(sp)
    sw t2, 8(sp)
    sw a0, 12(sp)
    sw a1, 16(sp)
    sw a2, 20(sp)
    sw a3, 24(sp)
    sw a4, 28(sp)
    sw a5, 32(sp)
    sw a6, 36(sp)
    sw a7, 40(sp)
    sw t3, 44(sp)
    sw t4, 48(sp)
    sw t5, 52(sp)
    sw t6, 56(sp)
    getq a0, 1
    andi a0, a0, 8
    beqz a0, fault
    call soc_handler
    lw t0, 0(sp)
    lw t1, 4(sp)
    lw t2, 8(sp)
    lw a0, 12(sp)
    lw a1, 16(sp)
    lw a2, 20(sp)
    lw a3, 24(sp)
    lw a4, 28(sp)
    lw a5, 32(sp)
    lw a6, 36(sp)
    lw a7, 40(sp)
    lw t3, 44(sp)
    lw t4, 48(sp)
    lw t5, 52(sp)
    lw t6, 56(sp)
    getq sp, 3
    getq ra, 2
    retirq

/* The processor itself asked for the interrupt: an illegal instruction or a misaligned access. */
fault:
    li a0, 123
    j end

begin:
    la sp, stack_end
    la t0, bss_begin
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
end:
    li t0, DEVICES
    sw a0, 4(t0)
1:  j 1b

    .text
    .global soc_wait
soc_wait:
    li t0, -1
    maskirq t1, t0
    lw t2, 0(a0)
    bnez t2, 1f
    waitirq t2
1:  maskirq zero, t1
    ret

    .global soc_mask
soc_mask:
    maskirq a0, a0
    ret
