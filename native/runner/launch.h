/* Runs and times kernels. */
#ifndef RUNNER_LAUNCH_H
#define RUNNER_LAUNCH_H

#include "channel.h"

#pragma GCC visibility push(hidden)

/* The reply's samples stay valid until the next launch. */
void launch(const struct request *request, struct reply *reply);

#pragma GCC visibility pop

#endif
