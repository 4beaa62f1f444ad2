#include "semihost.h"

#include "part.h"

#include <string.h>

enum {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE0 = 0x04,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_GET_CMDLINE = 0x15,
    SYS_EXIT_EXTENDED = 0x20,
    APPLICATION_EXIT = 0x20026,
};

static intptr_t request(intptr_t operation, intptr_t first, intptr_t second, intptr_t third) {
    intptr_t block[3] = {first, second, third};
    return part_semihost(operation, block);
}

intptr_t semihost_open(const char *path, intptr_t mode) {
    return request(SYS_OPEN, (intptr_t)path, mode, (intptr_t)strlen(path));
}

void semihost_close(intptr_t file) {
    request(SYS_CLOSE, file, 0, 0);
}

/* Both requests return the number of remaining bytes. */
bool semihost_read(intptr_t file, void *to, size_t bytes) {
    return bytes == 0 || request(SYS_READ, file, (intptr_t)to, (intptr_t)bytes) == 0;
}

bool semihost_write(intptr_t file, const void *from, size_t bytes) {
    return bytes == 0 || request(SYS_WRITE, file, (intptr_t)from, (intptr_t)bytes) == 0;
}

bool semihost_command_line(char *to, size_t bytes) {
    return request(SYS_GET_CMDLINE, (intptr_t)to, (intptr_t)bytes, 0) == 0;
}

void semihost_print(const char *text) {
    part_semihost(SYS_WRITE0, (void *)(uintptr_t)text);
}

void semihost_exit(int code) {
    for (;;)
        request(SYS_EXIT_EXTENDED, APPLICATION_EXIT, code, 0);
}
