/* The runner: a separate process that loads and runs kernels for the engine, controlled over a
 * socket. A crash of a kernel ends this process and not the engine. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accelerator.h"
#include "channel.h"
#include "guard.h"
#include "kernels.h"
#include "kernloom/supervisor.h"
#include "launch.h"
#include "memory.h"
#include "parallel.h"
#include "process.h"
#include "sandbox.h"
#include "thread_state.h"
#include "vary.h"
#include "watch.h"

enum { EXIT_USAGE = 2 };

struct options {
    int channel;
    int window;
    uint64_t window_bytes;
    uint64_t memory_limit;
    uint64_t data_limit;
    int scratch;
    int pin;
    int counter;
    bool fixed_addresses;
    bool emulated;
    bool no_sandbox;
    uint32_t allowed;
    const char **libraries;
    size_t library_count;
    struct accelerator_paths accelerator;
};

static void usage(const char *why) {
    fprintf(stderr,
            "runner: %s\n"
            "usage: runner --channel FD --window FD --window-bytes N [--pin CPU]"
            " [--memory-limit BYTES] [--data-limit BYTES] [--scratch FD] [--counter FD]"
            " [--no-aslr] [--emulated] [--no-sandbox] [--allow=GROUP,...] [--library=PATH ...]"
            " [--accelerator-platform=PATH --accelerator-host=PATH --accelerator-control=PATH"
            " --accelerator-core=PATH]\n",
            why);
    exit(EXIT_USAGE);
}

static uint64_t number(const char *text, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > most)
        usage("an option's value is not a number that fits");
    return value;
}

static void add_library(struct options *options, const char *path) {
    /* Without a slash, dlopen would search the system's folders. */
    if (!strchr(path, '/'))
        usage("--library must be a path");
    size_t bytes = (options->library_count + 1) * sizeof *options->libraries;
    const char **larger = realloc(options->libraries, bytes);
    if (!larger)
        usage("no memory for another --library");
    options->libraries = larger;
    options->libraries[options->library_count++] = path;
}

static struct options parse(int count, char **arguments) {
    static const struct option known[] = {{"channel", required_argument, NULL, 'c'},
                                          {"window", required_argument, NULL, 'w'},
                                          {"window-bytes", required_argument, NULL, 'b'},
                                          {"pin", required_argument, NULL, 'p'},
                                          {"memory-limit", required_argument, NULL, 'm'},
                                          {"data-limit", required_argument, NULL, 'd'},
                                          {"scratch", required_argument, NULL, 's'},
                                          {"counter", required_argument, NULL, 'n'},
                                          {"no-aslr", no_argument, NULL, 'a'},
                                          {"emulated", no_argument, NULL, 'e'},
                                          {"no-sandbox", no_argument, NULL, 'o'},
                                          {"allow", required_argument, NULL, 'g'},
                                          {"library", required_argument, NULL, 'l'},
                                          {"accelerator-platform", required_argument, NULL, 'P'},
                                          {"accelerator-host", required_argument, NULL, 'H'},
                                          {"accelerator-control", required_argument, NULL, 'C'},
                                          {"accelerator-core", required_argument, NULL, 'E'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {.channel = -1, .window = -1, .scratch = -1, .pin = -1, .counter = -1};
    int option;
    opterr = 0;
    while ((option = getopt_long(count, arguments, "", known, NULL)) != -1) {
        switch (option) {
        case 'c':
            options.channel = (int)number(optarg, INT32_MAX);
            break;
        case 'w':
            options.window = (int)number(optarg, INT32_MAX);
            break;
        case 'b':
            options.window_bytes = number(optarg, INT64_MAX);
            break;
        case 'p':
            options.pin = (int)number(optarg, INT32_MAX);
            break;
        case 'm':
            options.memory_limit = number(optarg, UINT64_MAX);
            break;
        case 'd':
            options.data_limit = number(optarg, INT64_MAX);
            break;
        case 's':
            options.scratch = (int)number(optarg, INT32_MAX);
            break;
        case 'n':
            options.counter = (int)number(optarg, INT32_MAX);
            break;
        case 'a':
            options.fixed_addresses = true;
            break;
        case 'e':
            options.emulated = true;
            break;
        case 'o':
            options.no_sandbox = true;
            break;
        case 'g':
            if (!sandbox_groups(optarg, &options.allowed))
                usage("--allow names an unknown group");
            break;
        case 'l':
            add_library(&options, optarg);
            break;
        case 'P':
            options.accelerator.platform = optarg;
            break;
        case 'H':
            options.accelerator.host = optarg;
            break;
        case 'C':
            options.accelerator.control = optarg;
            break;
        case 'E':
            options.accelerator.core = optarg;
            break;
        default:
            usage("an option is unknown or lacks its value");
        }
    }
    if (optind != count || options.channel < 0 || options.window < 0 || !options.window_bytes)
        usage("--channel, --window and --window-bytes must be given, and nothing but options");
    return options;
}

static void prepare_worker(int worker) {
    guard_thread();
    thread_state_prepare_worker();
    process_pin_worker(worker);
}

static void greet(const struct request *request, struct reply *reply) {
    struct kl_hello message;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Hello has the wrong size");
    memcpy(&message, request->body, sizeof message);
    if (!kernels_usable(reply))
        return;
    if (message.version != KL_VERSION)
        reply_fail(reply, KL_STATUS_WRONG_VERSION, "the runner speaks version %d, not %u",
                   KL_VERSION, message.version);
    reply->value = KL_VERSION;
}

static void launch_in_sandbox(const struct request *request, struct reply *reply) {
    bool sandboxed = sandbox_enter(kernels_inside);
    launch(request, reply);
    /* Of a launch that failed the state is restored, and not reported. */
    struct reply unsent = {.status = reply->status};
    bool failed = reply->status != KL_STATUS_OK;
    if (thread_state_intact(failed ? &unsent : reply) && !failed)
        reply->conditions |= sandboxed ? KL_CONDITION_SANDBOXED : 0u;
}

static void carry_out(const struct request *request, struct reply *reply) {
    if (request->header.addressees)
        return reply_fail(reply, KL_STATUS_INVALID, "a host has no parts to address");
    switch (request->header.kind) {
    case KL_KIND_HELLO:
        return greet(request, reply);
    case KL_KIND_ALLOCATE:
        return memory_allocate(request, reply);
    case KL_KIND_FREE:
        return memory_free(request, reply);
    case KL_KIND_MEMORY_WRITE:
        return memory_write(request, reply);
    case KL_KIND_MEMORY_READ:
        return memory_read(request, reply);
    case KL_KIND_MEMORY_FILL:
        return memory_fill(request, reply);
    case KL_KIND_LOAD:
        return kernels_load(request, reply);
    case KL_KIND_KERNEL_LAUNCH:
        return launch_in_sandbox(request, reply);
    case KL_KIND_VARY:
        return vary(request, reply);
    case KL_KIND_MMU_MAP:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no MmuMap");
    case KL_KIND_MMU_UNMAP:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no MmuUnmap");
    case KL_KIND_PE_DMA:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no PeDma");
    case KL_KIND_CONFIGURE:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no Configure");
    case KL_KIND_PLACE:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no Place");
    case KL_KIND_TRACE:
        return reply_fail(reply, KL_STATUS_UNSUPPORTED, "a host has no Trace");
    case KL_KIND_CLOSE:
        return;
    default:
        return reply_fail(reply, KL_STATUS_INVALID, "%u is no kind of request",
                          request->header.kind);
    }
}

/* Returns the exit code. */
static int serve(void) {
    struct request request;
    while (channel_receive(&request)) {
        struct reply reply = {.status = KL_STATUS_OK};
        /* Detects an engine that died before PR_SET_PDEATHSIG was set. */
        if (channel_abandoned())
            break;
        if (accelerator_used() && accelerator_takes(&request)) {
            bool launch = request.header.kind == KL_KIND_KERNEL_LAUNCH;
            bool sandboxed = launch && sandbox_enter(kernels_inside);
            accelerator_answer(&request, sandboxed ? KL_CONDITION_SANDBOXED : 0u);
            continue;
        }
        carry_out(&request, &reply);
        channel_respond(&reply);
        /* While the engine prepares the launch: it takes a tenth of the time of a start. */
        if (request.header.kind == KL_KIND_LOAD && !sandbox_waits() && channel_idle())
            sandbox_enter(kernels_inside);
        if (request.header.kind == KL_KIND_CLOSE)
            return EXIT_SUCCESS;
    }
    return KL_EXIT_DISCONNECTED;
}

int main(int count, char **arguments) {
    struct options options = parse(count, arguments);
    if (options.fixed_addresses)
        process_fix_addresses(arguments);
    bool counted = options.counter >= 0, emulated = counted || options.emulated;
    process_limit(emulated);
    if (!emulated) {
        const int kept[] = {options.channel, options.window, options.scratch};
        process_close_inherited(kept, sizeof kept / sizeof *kept);
        /* An emulator is supervised as a whole, from outside. */
        supervisor_start();
    }
    process_confine(emulated, options.data_limit);
    if (options.scratch >= 0 && !process_enter(options.scratch))
        usage("--scratch is not a folder");
    fcntl(options.channel, F_SETFD, FD_CLOEXEC);
    setvbuf(stdout, NULL, _IOLBF, 0);
    thread_state_save();
    parallel_open(process_cores(), prepare_worker, thread_state_look_at_worker);
    /* Before pinning, which threads started by a library would inherit. */
    for (size_t i = 0; i < options.library_count; i++)
        kernels_add_library(options.libraries[i]);
    if (options.pin >= 0 && !process_pin(options.pin))
        usage("--pin names a core that this process may not use");
    if (!memory_open(options.window, options.window_bytes, options.memory_limit))
        usage("--window cannot be mapped");
    const char *problem = accelerator_open(&options.accelerator);
    if (problem) {
        fprintf(stderr, "runner: %s\n", problem);
        return EXIT_USAGE;
    }
    if (counted && !launch_counted(options.counter))
        usage("--counter cannot be mapped");
    watch_open(process_open_threads());
    channel_open(options.channel);
    guard_install();
    /* Under an emulator the filter would apply to the emulator's own system calls. */
    if (!emulated && !options.no_sandbox) {
        struct sandbox_owned owned = {.channel = options.channel};
        watch_descriptors(&owned.tasks, &owned.schedule);
        owned.window = memory_window(&owned.window_bytes);
        /* A part loads code as it comes. */
        uint32_t reading = accelerator_used() ? SANDBOX_READING : 0;
        sandbox_prepare(owned, options.allowed | reading);
    }
    int code = serve();
    fflush(NULL);
    /* Skip destructors of kernel libraries: they could hang or crash. */
    _exit(code);
}
