/* System calls of the C library: few, since a kernel should need none. */
#include "part.h"
#include "semihost.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PRINTED = 64 << 10 };

static size_t printed;

/* Output of a kernel beyond the limit is dropped. */
static void print(const char *text, size_t bytes) {
    char piece[128];
    while (bytes > 0 && printed < MOST_PRINTED) {
        const size_t count = bytes < sizeof piece - 1 ? bytes : sizeof piece - 1;
        memcpy(piece, text, count);
        piece[count] = '\0';
        semihost_print(piece);
        printed += count;
        text += count;
        bytes -= count;
    }
}

void _exit(int code) {
    firmware_left(false, code);
}

static void *more_heap(ptrdiff_t bytes) {
    static char *end = kl_bss_end;
    if (bytes > kl_heap_end - end || bytes < kl_bss_end - end) {
        errno = ENOMEM;
        return (void *)-1;
    }
    char *start = end;
    end += bytes;
    return start;
}

#ifdef __PICOLIBC__

void *sbrk(ptrdiff_t bytes) {
    return more_heap(bytes);
}

static int put(char character, FILE *file) {
    (void)file;
    print(&character, 1);
    return (unsigned char)character;
}

static FILE console = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdout = &console;
FILE *const stderr = &console;

int kill(pid_t process, int number) {
    (void)process;
    firmware_left(true, number);
}

pid_t getpid(void) {
    return 1;
}

#else

void *_sbrk(ptrdiff_t bytes);
int _write(int file, const char *text, int bytes);
int _read(int file, char *text, int bytes);
int _close(int file);
int _lseek(int file, int offset, int from);
int _isatty(int file);
int _fstat(int file, struct stat *status);
int _getpid(void);
int _kill(int process, int number);

void *_sbrk(ptrdiff_t bytes) {
    return more_heap(bytes);
}

int _write(int file, const char *text, int bytes) {
    (void)file;
    print(text, (size_t)bytes);
    return bytes;
}

int _read(int file, char *text, int bytes) {
    (void)file, (void)text, (void)bytes;
    return 0;
}

int _close(int file) {
    (void)file;
    return -1;
}

int _lseek(int file, int offset, int from) {
    (void)file, (void)offset, (void)from;
    return 0;
}

int _isatty(int file) {
    (void)file;
    return 1;
}

int _fstat(int file, struct stat *status) {
    (void)file;
    status->st_mode = S_IFCHR;
    return 0;
}

int _getpid(void) {
    return 1;
}

int _kill(int process, int number) {
    (void)process;
    firmware_left(true, number);
}

#endif
