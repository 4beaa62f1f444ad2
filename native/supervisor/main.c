/* Supervisor of an emulator, since this cannot be done inside of QEMU:
 *
 *     supervisor [--scratch=FD] [--data-limit=BYTES] PROGRAM ARGUMENT...
 *
 * The program runs in the open folder FD, writes no core file, and has that limit of private
 * memory. It ends with the engine, as do all processes it started; see kernloom/supervisor.h. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernloom/supervisor.h"

enum { EXIT_USAGE = 2, EXIT_NOT_STARTED = 127 };

static void fail(const char *what, int code) {
    fprintf(stderr, "supervisor: %s: %s\n", what, errno ? strerror(errno) : "not a number");
    exit(code);
}

/* Parses the number after NAME=; false if it is another argument. */
static bool option(const char *argument, const char *name, uint64_t *value) {
    size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0)
        return false;
    char *end;
    errno = 0;
    *value = strtoull(argument + length, &end, 10);
    if (errno || end == argument + length || *end)
        fail(argument, EXIT_USAGE);
    return true;
}

static void limit(int resource, uint64_t bytes) {
    struct rlimit limits;
    if (getrlimit(resource, &limits) != 0)
        return;
    if (bytes < limits.rlim_max)
        limits.rlim_max = bytes;
    limits.rlim_cur = limits.rlim_max;
    setrlimit(resource, &limits);
}

int main(int count, char **arguments) {
    uint64_t scratch = 0, data = 0;
    int at = 1;
    while (at < count && (option(arguments[at], "--scratch=", &scratch) ||
                          option(arguments[at], "--data-limit=", &data)))
        at++;
    if (at >= count) {
        fprintf(stderr, "usage: supervisor [--scratch=FD] [--data-limit=BYTES] PROGRAM...\n");
        return EXIT_USAGE;
    }
    /* QEMU itself writes core files of emulated programs, unless this is 0. */
    limit(RLIMIT_CORE, 0);
    supervisor_start();
    if (scratch && fchdir((int)scratch) != 0)
        fail("--scratch", EXIT_USAGE);
    if (scratch)
        close((int)scratch);
    if (data)
        limit(RLIMIT_DATA, data);
    execv(arguments[at], arguments + at);
    fail(arguments[at], EXIT_NOT_STARTED);
}
