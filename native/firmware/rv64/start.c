/* Start-up code of a 64-bit RISC-V part in machine mode: protection, floating point, faults. */
#include "part.h"

enum { TRAP_STACK_BYTES = 4096 };
enum { READ = 1, WRITE = 2, EXECUTE = 4, NATURAL = 3 << 3, LOCKED = 1 << 7 };

__attribute__((used, aligned(16))) static char trap_stack[TRAP_STACK_BYTES];

static const char *const causes[] = {
    "instruction address misaligned",
    "instruction access fault",
    "illegal instruction",
    "breakpoint",
    "load address misaligned",
    "load access fault",
    "store address misaligned",
    "store access fault",
    "environment call",
    "environment call",
    "environment call",
    "environment call",
    "instruction page fault",
    "load page fault",
    "unexpected exception",
    "store page fault",
};

extern char kl_stack_start[];

enum { BREAKPOINT = 3, STORE_ACCESS_FAULT = 7, OVERFLOW_BYTES = 64 << 10 };

__attribute__((used)) static void on_trap(uint64_t cause, uint64_t value, uint64_t pc) {
    const bool known = cause < sizeof causes / sizeof *causes;
    const char *name = known ? causes[cause] : "unexpected interrupt";
    const bool has_address = known && cause != 2 && cause != BREAKPOINT;
    /* Below the stack is the program, which is not writable. */
    const uint64_t bottom = (uint64_t)kl_stack_start;
    if (cause == STORE_ACCESS_FAULT && value < bottom && value >= bottom - OVERFLOW_BYTES)
        name = "store access fault (stack overflow)";
    firmware_fault(name, has_address, value, true, pc);
}

/* Traps use a separate stack: the kernel's may be the cause. */
__attribute__((naked, aligned(4))) static void trap(void) {
    __asm__ volatile("la sp, trap_stack + %0\n"
                     "csrr a0, mcause\n"
                     "csrr a1, mtval\n"
                     "csrr a2, mepc\n"
                     "j on_trap\n" ::"i"(TRAP_STACK_BYTES));
}

/* A request to the debugger: the three instructions must be uncompressed and on one page. */
__asm__(".section .text.part_semihost, \"ax\"\n"
        ".option push\n"
        ".option norvc\n"
        ".option norelax\n"
        ".balign 16\n"
        ".globl part_semihost\n"
        ".type part_semihost, @function\n"
        "part_semihost:\n"
        "slli x0, x0, 0x1f\n"
        "ebreak\n"
        "srai x0, x0, 7\n"
        "ret\n"
        ".option pop\n"
        ".text\n");

void reset(void);

__attribute__((naked, section(".vectors"), used)) void reset(void) {
    __asm__ volatile(".option push\n"
                     ".option norelax\n"
                     "la gp, __global_pointer$\n"
                     ".option pop\n"
                     "la sp, kl_stack_end\n"
                     "la tp, kl_thread_start\n"
                     "j firmware_start\n");
}

/* A protected region: its size is a power of two, and its base a multiple of the size. */
static uintptr_t region(const char *base, const char *size) {
    return (uintptr_t)base >> 2 | (((uintptr_t)size >> 3) - 1);
}

void part_set_up(void) {
    __asm__ volatile("csrw mtvec, %0" ::"r"(trap));
    /* Floating point on, rounding to nearest. */
    __asm__ volatile("csrs mstatus, %0\n"
                     "fscsr x0" ::"r"(1 << 13));
    /* Allowed, in machine mode too: reading and executing the program, reading and writing RAM. The
     * last region covers all addresses, and makes any other access a fault. */
    const uintptr_t rules = LOCKED | NATURAL | READ | EXECUTE |
                            (LOCKED | NATURAL | READ | WRITE) << 8 | (LOCKED | NATURAL) << 16;
    __asm__ volatile("csrw pmpaddr0, %0\n"
                     "csrw pmpaddr1, %1\n"
                     "csrw pmpaddr2, %2\n"
                     "csrw pmpcfg0, %3" ::"r"(region(kl_flash_base, kl_flash_size)),
                     "r"(region(kl_ram_base, kl_ram_size)), "r"(UINTPTR_MAX), "r"(rules)
                     : "memory");
}
