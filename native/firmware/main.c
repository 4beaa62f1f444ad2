/* The firmware around a kernel: reads one launch from a file, executes it, and reports. */
#include "launch.h"
#include "part.h"
#include "semihost.h"

#include "kernloom/kernel.h"

#include <string.h>

#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)

/* Tells the engine which part an image is for. */
__attribute__((section(".kernloom"), used)) static const char part[] = TEXT_OF(KL_PART);

enum { COMMAND_LINE_BYTES = 256 };

static char command_line[COMMAND_LINE_BYTES];
static const char *report_path;
static uint64_t words[MOST_WORDS];
static struct report report;

static void leave(uint64_t status, const void *memory, size_t bytes) __attribute__((noreturn));

static void leave(uint64_t status, const void *memory, size_t bytes) {
    report.magic = LAUNCH_MAGIC;
    report.status = status;
    intptr_t file = report_path ? semihost_open(report_path, SEMIHOST_WRITE) : -1;
    if (file >= 0) {
        semihost_write(file, &report, sizeof report);
        semihost_write(file, memory, bytes);
        semihost_close(file);
    }
    semihost_exit(status == REPORT_DONE ? 0 : 1);
}

static void set_name(const char *name) {
    strncpy(report.name, name, sizeof report.name - 1);
}

static void refuse(const char *why) {
    set_name(why);
    leave(REPORT_REFUSED, 0, 0);
}

void firmware_fault(const char *name, bool has_address, uintptr_t address, bool has_pc,
                    uintptr_t pc) {
    set_name(name);
    report.has_address = has_address;
    report.address = address;
    report.has_pc = has_pc;
    report.pc = pc;
    leave(REPORT_FAULT, 0, 0);
}

void firmware_left(bool by_signal, int code) {
    report.code = (uint64_t)code;
    leave(by_signal ? REPORT_SIGNAL : REPORT_LEFT, 0, 0);
}

static void iterate(uint64_t calls, bool counted) {
    const uint64_t *at = words;
    for (uint64_t call = 0; call < calls; call++) {
        void *args[MOST_ARGUMENTS];
        kl_entry_function entry = (kl_entry_function)(uintptr_t)*at++;
        const uint64_t count = *at++;
        for (uint64_t i = 0; i < count; i++, at += 2)
            args[i] = at[0] == ARGUMENT_BUFFER ? (void *)(uintptr_t)at[1] : (void *)(at + 1);
        if (counted)
            part_begin();
        entry(args);
        if (counted)
            part_end();
    }
}

static void carry_out(intptr_t file) {
    struct launch launch;
    if (!semihost_read(file, &launch, sizeof launch) || launch.magic != LAUNCH_MAGIC)
        refuse("the launch is not one for this firmware");
    if (launch.words > MOST_WORDS)
        refuse("too many arguments");
    void *memory = (void *)(uintptr_t)launch.address;
    if (!semihost_read(file, words, launch.words * sizeof *words) ||
        !semihost_read(file, memory, launch.bytes))
        refuse("the launch is cut off");
    semihost_close(file);
    for (uint64_t i = 0; i < launch.warmup; i++)
        iterate(launch.calls, false);
    for (uint64_t i = 0; i < launch.inner; i++)
        iterate(launch.calls, true);
    leave(REPORT_DONE, memory, launch.bytes);
}

void firmware_start(void) {
    part_set_up();
    memcpy(kl_data_start, kl_data_from, (size_t)(kl_data_end - kl_data_start));
    memset(kl_bss_start, 0, (size_t)(kl_bss_end - kl_bss_start));
    char *space = 0;
    if (semihost_command_line(command_line, sizeof command_line))
        space = strchr(command_line, ' ');
    if (!space)
        refuse("no files are named");
    *space = '\0';
    report_path = space + 1;
    intptr_t file = semihost_open(command_line, SEMIHOST_READ);
    if (file < 0)
        refuse("the launch cannot be read");
    carry_out(file);
    __builtin_unreachable();
}

/* With one core, tasks run one after the other. */
void kl_parallel(int64_t tasks, int64_t threads, kl_task_function body, void *context) {
    (void)threads;
    for (int64_t task = 0; task < tasks; task++)
        body(context, task);
}
