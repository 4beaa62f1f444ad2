#include "peaks.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "kernloom/fabric.hpp"

namespace kernloom::control {

std::string peak_line(const std::string &key, std::uint64_t peak, std::uint64_t size,
                      std::uint64_t advised) {
    return text_of("peak.%s=%llu/%llu/%llu\n", key.c_str(), (unsigned long long)peak,
                   (unsigned long long)size, (unsigned long long)advised);
}

std::string scope_lines(const tasks::Transcript &transcript) {
    struct Use {
        std::uint64_t scopes = 0, tasks = 0, bytes = 0;
    };
    std::vector<Use> of_scope(transcript.scopes.size());
    for (const tasks::Task &task : transcript.tasks)
        of_scope[task.scope].tasks++;
    for (std::size_t i = transcript.launch_tensors; i < transcript.tensors.size(); i++)
        if (transcript.tensors[i].scope < of_scope.size())
            of_scope[transcript.tensors[i].scope].bytes += transcript.tensors[i].bytes;
    std::map<std::uint32_t, Use> of_depth;
    for (std::size_t i = 0; i < of_scope.size(); i++) {
        Use &use = of_depth[transcript.scopes[i].depth];
        use.scopes++;
        use.tasks = std::max(use.tasks, of_scope[i].tasks);
        use.bytes = std::max(use.bytes, of_scope[i].bytes);
    }
    std::string lines;
    for (const auto &[depth, use] : of_depth)
        lines += text_of("scope.%u=%llu/%llu/%llu\n", depth, (unsigned long long)use.scopes,
                         (unsigned long long)use.tasks, (unsigned long long)use.bytes);
    return lines;
}

} // namespace kernloom::control
