#define _GNU_SOURCE 1

#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "channel.h"
#include "gate.h"
#include "memory.h"
#include "sandbox.h"
#include "sanitizer.h"

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code of SIGSYS */
#endif

enum { EXIT_OUT_OF_BOUNDS = 4, EXIT_OUT_OF_MEMORY = 5, EXIT_FORBIDDEN = 7 };

static atomic_flag reported = ATOMIC_FLAG_INIT;

/* printf is not safe in a signal handler. */
static void append_text(char *detail, const char *text) {
    size_t length = strnlen(detail, DETAIL_BYTES);
    while (*text && length < DETAIL_BYTES - 1)
        detail[length++] = *text++;
    detail[length] = '\0';
}

static void append_number(char *detail, int64_t number) {
    char digits[24];
    size_t at = sizeof digits - 1;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0)
        digits[--at] = '-';
    append_text(detail, digits + at);
}

static void describe(char *detail, const struct buffer *buffer, const void *address) {
    int64_t offset = (int64_t)((uintptr_t)address - (uintptr_t)buffer->data);
    append_text(detail, buffer->freed ? "the kernel used freed buffer '"
                                      : "the kernel reached outside buffer '");
    append_text(detail, buffer->label);
    append_text(detail, "' of ");
    append_number(detail, (int64_t)buffer->bytes);
    append_text(detail, " bytes, at byte offset ");
    append_number(detail, offset);
}

/* Two threads may fault at once; only the first one responds. */
static void respond(struct reply *reply, uint32_t status) {
    if (atomic_flag_test_and_set(&reported))
        for (;;)
            pause();
    reply->status = status;
    channel_respond(reply);
}

#ifdef THREAD_SANITIZED

__attribute__((visibility("default"))) const char *__tsan_default_options(void);

/* Signals of kernels keep their names: TSan would end with an exit code of its own. */
const char *__tsan_default_options(void) {
    return "halt_on_error=1:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
           "handle_abort=0";
}

#endif

static void die_by(int number) {
    sigset_t set;
    gate_reset_signal(number);
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* QEMU 7.2 misaligns a handler's stack by eight bytes, where aligned vectors fault again. */
#if defined(__aarch64__)
#define ON_ANY_STACK
#elif defined(__x86_64__)
#define ON_ANY_STACK __attribute__((force_align_arg_pointer))
#else
#define ON_ANY_STACK
#endif

static struct reply forbidden;

static void append_forbidden(const char *text) {
    append_text(forbidden.detail, text);
}

static void append_forbidden_number(int64_t number) {
    append_number(forbidden.detail, number);
}

/* The sandbox refused a system call. */
ON_ANY_STACK static void on_system_call(int number, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code != SYS_SECCOMP) {
        die_by(number);
        return;
    }
    if (atomic_flag_test_and_set(&reported))
        for (;;)
            pause();
    sandbox_describe(info->si_errno, info->si_syscall, append_forbidden, append_forbidden_number);
    forbidden.status = KL_STATUS_FORBIDDEN;
    channel_respond(&forbidden);
    _exit(EXIT_FORBIDDEN);
}

static void install(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

#ifdef ADDRESS_SANITIZED

void *__asan_get_report_address(void);
void __asan_set_error_report_callback(void (*callback)(const char *report));
__attribute__((visibility("default"))) const char *__asan_default_options(void);

/* Handle only signals where ASan adds information; no leak check: the runner never cleans up. */
const char *__asan_default_options(void) {
    return "exitcode=4:detect_leaks=0:handle_sigfpe=0:handle_sigill=0:"
           "handle_abort=0:handle_sigbus=0:print_legend=0";
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* A plain crash: ASan has printed the location, the engine only needs the signal. */
static bool is_signal(const char *error) {
    return starts_with(error, "AddressSanitizer: SEGV") ||
           starts_with(error, "AddressSanitizer: stack-overflow");
}

/* A failed allocation is reported at once: by the time of a later crash, errno has another
 * value. */
static bool is_shortage(const char *error) {
    return starts_with(error, "AddressSanitizer: requested allocation size") ||
           starts_with(error, "AddressSanitizer: allocator is out of memory");
}

static void on_report(const char *report) {
    struct reply reply = {0};
    const void *address = __asan_get_report_address();
    const struct buffer *buffer = memory_owner(address);
    const char *error = strstr(report, "AddressSanitizer: ");
    if (error && !buffer && is_signal(error))
        die_by(SIGSEGV);
    if (buffer) {
        describe(reply.detail, buffer, address);
        append_text(reply.detail, ": ");
    }
    append_text(reply.detail, error ? error : report);
    reply.detail[strcspn(reply.detail, "\n")] = '\0';
    respond(&reply,
            error && is_shortage(error) ? KL_STATUS_OUT_OF_MEMORY : KL_STATUS_OUT_OF_BOUNDS);
}

/* ASan keeps its own handler, which reports more than this one could. */
void guard_install(void) {
    __asan_set_error_report_callback(on_report);
    install(SIGSYS, on_system_call);
}

void guard_thread(void) {
}

#else

/* A kernel that uses the result of a failed allocation crashes with ENOMEM still in errno. */
static void respond_if_out_of_memory(void) {
    if (errno != ENOMEM)
        return;
    struct reply reply = {0};
    append_text(reply.detail, "the kernel asked for memory that it could not have, and crashed");
    respond(&reply, KL_STATUS_OUT_OF_MEMORY);
    _exit(EXIT_OUT_OF_MEMORY);
}

ON_ANY_STACK static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    /* si_code <= 0: the signal was sent by a process, there is no address. */
    const struct buffer *buffer = info->si_code > 0 ? memory_owner(info->si_addr) : NULL;
    if (!buffer) {
        respond_if_out_of_memory();
        die_by(number);
        return;
    }
    struct reply reply = {0};
    describe(reply.detail, buffer, info->si_addr);
    respond(&reply, KL_STATUS_OUT_OF_BOUNDS);
    _exit(EXIT_OUT_OF_BOUNDS);
}

void guard_install(void) {
    install(SIGSEGV, on_fault);
    install(SIGBUS, on_fault);
    install(SIGABRT, on_fault);
    install(SIGSYS, on_system_call);
    guard_thread();
}

void guard_thread(void) {
    /* SIGSTKSZ is too small for large vector registers. */
    size_t bytes = 64 << 10;
    void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack != MAP_FAILED)
        sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = bytes}, NULL);
}

#endif
