/* CPU cache flushing. */
#ifndef RUNNER_CACHE_H
#define RUNNER_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Whether this CPU lets a process flush its caches. */
bool cache_can_flush(void);

/* Writes back and evicts the bytes from every level, on all cores. */
void cache_flush(const void *from, size_t bytes);

#pragma GCC visibility pop

#endif
