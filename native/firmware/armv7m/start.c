/* Start-up code of an ARMv7-M part: vectors, memory protection, floating point, named faults. */
#include "part.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define SHCSR REGISTER(0xe000ed24)
#define CCR REGISTER(0xe000ed14)
#define CFSR REGISTER(0xe000ed28)
#define MMFAR REGISTER(0xe000ed34)
#define BFAR REGISTER(0xe000ed38)
#define CPACR REGISTER(0xe000ed88)
#define MPU_CTRL REGISTER(0xe000ed94)
#define MPU_RNR REGISTER(0xe000ed98)
#define MPU_RBAR REGISTER(0xe000ed9c)
#define MPU_RASR REGISTER(0xe000eda0)

enum { OWN_FAULTS = 7 << 16, DIVIDE_BY_ZERO_TRAPS = 1 << 4, FULL_FPU = 0xf << 20 };
enum { MPU_ON = 1, NEVER_EXECUTED = 1 << 28, READ_WRITE = 3 << 24, READ_ONLY = 6 << 24 };
enum { NULL_BYTES = 1024, HANDLER_STACK_BYTES = 4096, VECTORS = 16 };
enum { MMFAR_VALID = 1 << 7, BFAR_VALID = 1 << 15 };

/* A breakpoint that the debugger takes as a request; the answer replaces the operation number. */
__attribute__((naked)) intptr_t part_semihost(intptr_t operation, void *block) {
    (void)operation, (void)block;
    __asm__ volatile("bkpt 0xab\n"
                     "bx lr\n");
}

extern char kl_stack_start[], kl_stack_end[];

/* Faults use a separate stack: the kernel's may be the cause. */
static uint64_t handler_stack[HANDLER_STACK_BYTES / 8];

/* Most informative first. */
static const struct {
    uint32_t bit;
    const char *name;
} causes[] = {
    {1u << 12, "BusFault (stack overflow)"},
    {1u << 4, "MemManage (stack overflow)"},
    {1u << 25, "UsageFault (divide by zero)"},
    {1u << 24, "UsageFault (unaligned access)"},
    {1u << 19, "UsageFault (no coprocessor)"},
    {1u << 18, "UsageFault (invalid return)"},
    {1u << 17, "UsageFault (not a Thumb instruction)"},
    {1u << 16, "UsageFault (undefined instruction)"},
    {1u << 9, "BusFault (data access)"},
    {1u << 10, "BusFault (data access, address unknown)"},
    {1u << 8, "BusFault (instruction fetch)"},
    {1u << 11, "BusFault (return from exception)"},
    {1u << 13, "BusFault (floating-point state)"},
    {1u << 1, "MemManage (data access)"},
    {1u << 0, "MemManage (instruction fetch)"},
    {1u << 3, "MemManage (return from exception)"},
    {1u << 5, "MemManage (floating-point state)"},
};

__attribute__((used)) static void on_fault(const uint32_t *frame, uint32_t exception) {
    const uint32_t status = CFSR;
    const char *name = exception == 3 ? "HardFault" : "unexpected exception";
    for (unsigned i = 0; i < sizeof causes / sizeof *causes; i++)
        if (status & causes[i].bit) {
            name = causes[i].name;
            break;
        }
    const bool has_address = status & (MMFAR_VALID | BFAR_VALID);
    const uint32_t address = status & BFAR_VALID ? BFAR : MMFAR;
    /* After a stack overflow there is no frame. */
    const bool has_frame =
        (const char *)frame >= kl_stack_start && (const char *)frame < kl_stack_end;
    firmware_fault(name, has_address, address, has_frame, has_frame ? frame[6] : 0);
}

__attribute__((naked)) static void fault(void) {
    __asm__ volatile("mrs r0, psp\n"
                     "mrs r1, ipsr\n"
                     "b on_fault\n");
}

void reset(void);

__attribute__((naked)) void reset(void) {
    __asm__ volatile("ldr r0, =kl_stack_end\n"
                     "msr psp, r0\n"
                     "movs r0, #2\n"
                     "msr control, r0\n"
                     "isb\n"
                     "b firmware_start\n");
}

__attribute__((section(".vectors"), used)) static const void *const vectors[VECTORS] = {
    handler_stack + HANDLER_STACK_BYTES / 8,
    reset,
    fault, /* NMI */
    fault, /* HardFault */
    fault, /* MemManage */
    fault, /* BusFault */
    fault, /* UsageFault */
    0,
    0,
    0,
    0,
    fault, /* SVCall */
    fault, /* DebugMonitor */
    0,
    fault, /* PendSV */
    fault, /* SysTick */
};

/* Region sizes are powers of two, and bases multiples of the size. */
static void allow(uint32_t region, uintptr_t base, uintptr_t bytes, uint32_t access) {
    const uint32_t log2 = 32 - (uint32_t)__builtin_clz(bytes - 1);
    MPU_RNR = region;
    MPU_RBAR = base;
    MPU_RASR = access | (log2 - 1) << 1 | 1;
}

void part_set_up(void) {
    CPACR |= FULL_FPU;
    __asm__ volatile("dsb\nisb" ::: "memory");
    SHCSR |= OWN_FAULTS;
    CCR |= DIVIDE_BY_ZERO_TRAPS;
    /* Any other access is a fault: writes to the program, null pointers, outside of RAM. */
    allow(0, (uintptr_t)kl_flash_base, (uintptr_t)kl_flash_size, READ_ONLY);
    allow(1, 0, NULL_BYTES, NEVER_EXECUTED);
    allow(2, (uintptr_t)kl_ram_base, (uintptr_t)kl_ram_size, READ_WRITE | NEVER_EXECUTED);
    MPU_CTRL = MPU_ON;
    __asm__ volatile("dsb\nisb" ::: "memory");
}
