/* ThreadSanitizer, if the runner is built with it: a race ends the process. AddressSanitizer, if
 * the runner is built with it: poisoned bytes around every tensor, and its report as a response.
 * Otherwise these do nothing. */
#ifndef RUNNER_SANITIZER_H
#define RUNNER_SANITIZER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif

#ifdef ADDRESS_SANITIZED

#define NOT_SANITIZED __attribute__((no_sanitize_address, noinline))
void __asan_poison_memory_region(void const volatile *address, size_t bytes);
#define sanitizer_poison(address, bytes) __asan_poison_memory_region(address, bytes)

#else

#define NOT_SANITIZED
#define sanitizer_poison(address, bytes) ((void)(address), (void)(bytes))

#endif

#endif
