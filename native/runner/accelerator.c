#include "accelerator.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernloom/platform.h"
#include "memory.h"

enum { REPORT_BYTES = 32 << 20, PROGRAMS = 3 };

static const struct kl_platform_library *library;
static const struct kl_host_interface *host;
static const struct kl_program *programs[PROGRAMS];
static struct kl_platform *platform;
static void *host_state;

/* The function that a library exports, or NULL with the problem. */
static void *exported(const char *path, const char *name, char *problem, size_t problem_bytes) {
    /* Without a slash, dlopen would search the system's folders. */
    void *loaded = strchr(path, '/') ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *function = loaded ? dlsym(loaded, name) : NULL;
    if (!function) {
        const char *why = strchr(path, '/') ? dlerror() : "not a path";
        snprintf(problem, problem_bytes, "%s cannot be used: %s", path, why ? why : name);
    }
    return function;
}

static bool fits(uint32_t abi, const char *path, char *problem, size_t problem_bytes) {
    if (abi != KL_PLATFORM_ABI)
        snprintf(problem, problem_bytes, "%s has version %u of the platform's ABI, not %u", path,
                 abi, KL_PLATFORM_ABI);
    return abi == KL_PLATFORM_ABI;
}

static bool load_program(int place, const char *path, char *problem, size_t problem_bytes) {
    kl_program_function get;
    void *symbol = exported(path, "kl_program", problem, problem_bytes);
    if (!symbol)
        return false;
    memcpy(&get, &symbol, sizeof symbol);
    programs[place] = get();
    return fits(programs[place]->abi, path, problem, problem_bytes);
}

static bool load_host(const char *path, char *problem, size_t problem_bytes) {
    kl_host_function get;
    void *symbol = exported(path, "kl_host", problem, problem_bytes);
    if (!symbol)
        return false;
    memcpy(&get, &symbol, sizeof symbol);
    host = get();
    return fits(host->abi, path, problem, problem_bytes);
}

static bool load_platform(const char *path, char *problem, size_t problem_bytes) {
    kl_platform_function get;
    void *symbol = exported(path, "kl_platform", problem, problem_bytes);
    if (!symbol)
        return false;
    memcpy(&get, &symbol, sizeof symbol);
    library = get();
    return fits(library->abi, path, problem, problem_bytes);
}

const char *accelerator_open(const struct accelerator_paths *paths) {
    static char problem[DETAIL_BYTES];
    if (!paths->platform && !paths->host && !paths->control && !paths->core)
        return NULL;
    if (!paths->platform || !paths->host || !paths->control || !paths->core)
        return "an accelerator needs a platform, a host, a control and a core library";
    bool loaded = load_platform(paths->platform, problem, sizeof problem) &&
                  load_program(0, paths->host, problem, sizeof problem) &&
                  load_host(paths->host, problem, sizeof problem) &&
                  load_program(1, paths->control, problem, sizeof problem) &&
                  load_program(2, paths->core, problem, sizeof problem);
    return loaded ? NULL : problem;
}

bool accelerator_used(void) {
    return library != NULL;
}

bool accelerator_takes(const struct request *request) {
    return request->header.kind != KL_KIND_HELLO && request->header.kind != KL_KIND_CLOSE;
}

static void attach(const char *settings, struct reply *reply) {
    char problem[DETAIL_BYTES / 2] = "";
    platform = library->open(settings, problem, sizeof problem);
    if (!platform)
        return reply_fail(reply, KL_STATUS_INVALID, "%s", problem);
    for (int i = 0; i < PROGRAMS; i++)
        if (!library->attach(platform, programs[i], problem, sizeof problem)) {
            library->close(platform);
            platform = NULL;
            return reply_fail(reply, KL_STATUS_INVALID, "the %s program cannot run: %s",
                              programs[i]->name, problem);
        }
    host_state = library->program_state(platform, (struct kl_node){.kind = KL_NODE_HOST});
}

static void configure(const struct request *request, struct reply *reply) {
    struct kl_configure message;
    if (request->body_bytes < sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Configure is cut short");
    memcpy(&message, request->body, sizeof message);
    if (request->body_bytes - sizeof message != message.settings_bytes)
        return reply_fail(reply, KL_STATUS_INVALID, "Configure has settings of another length");
    if (platform)
        return reply_fail(reply, KL_STATUS_INVALID, "the device is configured already");
    char *settings = malloc((size_t)message.settings_bytes + 1);
    if (!settings)
        return reply_fail(reply, KL_STATUS_OUT_OF_MEMORY, "no memory for the settings");
    memcpy(settings, request->body + sizeof message, message.settings_bytes);
    settings[message.settings_bytes] = '\0';
    attach(settings, reply);
    free(settings);
}

static void copy_trace(const struct request *request, struct reply *reply) {
    struct kl_trace message;
    uint64_t window_bytes;
    unsigned char *window = memory_window(&window_bytes);
    size_t bytes = 0;
    if (request->body_bytes != sizeof message)
        return reply_fail(reply, KL_STATUS_INVALID, "Trace has the wrong size");
    memcpy(&message, request->body, sizeof message);
    if (message.window > window_bytes || message.bytes > window_bytes - message.window)
        return reply_fail(reply, KL_STATUS_INVALID,
                          "%llu bytes at offset %llu leave the window of %llu",
                          (unsigned long long)message.bytes, (unsigned long long)message.window,
                          (unsigned long long)window_bytes);
    const char *trace = library->trace(platform, &bytes);
    if (message.offset > bytes || message.bytes > bytes - message.offset)
        return reply_fail(
            reply, KL_STATUS_INVALID, "%llu bytes at offset %llu leave the trace of %zu",
            (unsigned long long)message.bytes, (unsigned long long)message.offset, bytes);
    if (message.bytes)
        memcpy(window + message.window, trace + message.offset, message.bytes);
    reply->value = bytes;
}

/* Puts the platform's report and the runner's own conditions into the response of a launch that
 * succeeded. */
static void send_with_report(const unsigned char *response, size_t bytes, uint32_t conditions) {
    struct kl_header header;
    struct kl_response answer;
    size_t opening = sizeof header + sizeof answer, report_bytes = 0;
    memcpy(&header, response, sizeof header);
    memcpy(&answer, response + sizeof header, sizeof answer);
    if (answer.status != KL_STATUS_OK || answer.detail_bytes || header.size != bytes)
        return channel_send(response, bytes);
    const char *report = library->report(platform, &report_bytes);
    if (report_bytes > REPORT_BYTES)
        report_bytes = REPORT_BYTES;
    unsigned char *whole = malloc(bytes + report_bytes);
    if (!whole)
        return channel_send(response, bytes);
    header.size += (uint32_t)report_bytes;
    answer.detail_bytes = (uint32_t)report_bytes;
    answer.conditions |= conditions;
    memcpy(whole, &header, sizeof header);
    memcpy(whole + sizeof header, &answer, sizeof answer);
    if (report_bytes)
        memcpy(whole + opening, report, report_bytes);
    memcpy(whole + opening + report_bytes, response + opening, bytes - opening);
    channel_send(whole, bytes + report_bytes);
    free(whole);
}

static void forward(const struct request *request, uint32_t conditions) {
    bool launch = request->header.kind == KL_KIND_KERNEL_LAUNCH;
    uint64_t window_bytes;
    unsigned char *window = memory_window(&window_bytes);
    size_t bytes = 0;
    if (launch)
        library->begin_report(platform);
    /* After a crash, errno is the kernel's own. */
    errno = 0;
    const void *responses = host->request(host_state, request->whole, request->header.size, window,
                                          window_bytes, &bytes);
    if (launch)
        send_with_report(responses, bytes, conditions);
    else
        channel_send(responses, bytes);
}

void accelerator_answer(const struct request *request, uint32_t conditions) {
    struct reply reply = {.status = KL_STATUS_OK};
    uint16_t kind = request->header.kind;
    if (kind == KL_KIND_CONFIGURE && !request->header.addressees)
        configure(request, &reply);
    else if (!platform)
        reply_fail(&reply, KL_STATUS_INVALID, "the device is not configured yet");
    else if (kind == KL_KIND_TRACE && !request->header.addressees)
        copy_trace(request, &reply);
    else
        return forward(request, conditions);
    channel_respond(&reply);
}
