/* An accelerator's platform and programs, hosted by the runner: it loads their libraries and
 * forwards messages to the host program. */
#ifndef RUNNER_ACCELERATOR_H
#define RUNNER_ACCELERATOR_H

#include <stdbool.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* Libraries; all or none. */
struct accelerator_paths {
    const char *platform;
    const char *host;
    const char *control;
    const char *core;
};

/* Loads the libraries, if there are any; NULL, or what is wrong. */
const char *accelerator_open(const struct accelerator_paths *paths);

/* Whether this runner hosts an accelerator. */
bool accelerator_used(void);

/* Whether a request is for the accelerator, and not for the runner itself. */
bool accelerator_takes(const struct request *request);

/* Carries out a request and sends all its responses; that of a launch also has these conditions. */
void accelerator_answer(const struct request *request, uint32_t conditions);

#pragma GCC visibility pop

#endif
