// Comparisons of an element by which a task is executed or left out.
#pragma once

#include "kernloom/orchestration.h"

namespace kernloom::control {

// What a predicate says of an element.
bool holds(const kl_predicate &predicate, const unsigned char *element);

} // namespace kernloom::control
