// What a launch used most of each resource, as lines `peak.KEY=PEAK/SIZE/ADVISED` of a report.
#pragma once

#include <string>

#include "transcript.hpp"

namespace kernloom::control {

// `advised` is a size with which the launch takes no longer than now.
std::string peak_line(const std::string &key, std::uint64_t peak, std::uint64_t size,
                      std::uint64_t advised);

// Lines `scope.DEPTH=SCOPES/TASKS/HEAP`: how many there are, and the most tasks and bytes of
// outputs that one of them has.
std::string scope_lines(const tasks::Transcript &transcript);

} // namespace kernloom::control
