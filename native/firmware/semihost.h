/* Semihosting: files, console and exit through the host machine. */
#ifndef KERNLOOM_SEMIHOST_H
#define KERNLOOM_SEMIHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEMIHOST_READ = 1, SEMIHOST_WRITE = 5 };

/* Negative if the file cannot be opened. */
intptr_t semihost_open(const char *path, intptr_t mode);
void semihost_close(intptr_t file);
/* True if all bytes were read or written. */
bool semihost_read(intptr_t file, void *to, size_t bytes);
bool semihost_write(intptr_t file, const void *from, size_t bytes);
bool semihost_command_line(char *to, size_t bytes);
void semihost_print(const char *text);
void semihost_exit(int code) __attribute__((noreturn));

#endif
