/* Runs and times kernels. */
#ifndef RUNNER_LAUNCH_H
#define RUNNER_LAUNCH_H

#include <stdbool.h>

#include "channel.h"

#pragma GCC visibility push(hidden)

/* From now on, every sample has an instruction count, which a counter (native/qemu) writes to this
 * file. False if the file cannot be mapped. */
bool launch_counted(int descriptor);

/* The reply's samples stay valid until the next launch. */
void launch(const struct request *request, struct reply *reply);

#pragma GCC visibility pop

#endif
