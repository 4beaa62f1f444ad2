// Speed of a whole simulated device: tasks without work, from the host's request to its answer.
// Prints lines `key=value`. With ORCHESTRATION defined it is the library that submits the tasks,
// with KERNEL their kernel.
//
//     accelerator_simulator RUNTIME TASKS tiles|attention [SETTING=VALUE ...]
//
// tiles: three tensors each; every step reads what the one before has written. attention: the tasks
// of templates/orchestration/paged_attention.cpp, 64 sequences: scores and weighted values on
// matrix PEs, weights and merges on vector PEs, with outputs that the runtime allocates.
//
// seconds       CPU time of the launch
// peak_bytes    by which the memory of the process grew at most
// trace_bytes   of the trace, with the setting trace=1; trace_seconds: CPU time of writing it
#ifdef KERNEL
#include "kernloom/core.h"

extern "C" __attribute__((visibility("default"))) const uint32_t kl_core_type = CORE_TYPE;
extern "C" __attribute__((visibility("default"))) void kl_core_entry(struct kl_core *,
                                                                     const uint64_t *) {
}
#elif defined ORCHESTRATION
#include "kernloom/orchestration.hpp"

namespace {

using namespace kernloom;

constexpr uint64_t TILE = 16, COLUMNS = 16 * TILE, ROWS = 16;
constexpr uint32_t ARGUMENTS = 15; // of each kernel
enum { MATRIX_KERNEL = 0, VECTOR_KERNEL = 1 };

template <class Task> void fill(Task &task, uint32_t arguments) {
    for (uint64_t value = arguments; value < ARGUMENTS; value++)
        task.value(value);
}

void submit_tiles(const Orchestration &tasks, uint64_t count) {
    const Tensor even = tasks.tensor<float>(0, {ROWS * TILE, COLUMNS});
    const Tensor odd = tasks.tensor<float>(1, {ROWS * TILE, COLUMNS});
    const Tensor weights = tasks.tensor<float>(2, {TILE, COLUMNS});
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t tile = i % (ROWS * 16), row = tile / 16 * TILE, column = tile % 16 * TILE;
        const bool forth = i / (ROWS * 16) % 2 == 0;
        auto task = tasks.submit(VECTOR_KERNEL);
        task.in((forth ? even : odd).box({row, column}, {TILE, TILE}))
            .in(weights.box({0, column}, {TILE, TILE}))
            .out((forth ? odd : even).box({row, column}, {TILE, TILE}));
        fill(task, 3);
    }
}

void submit_page(const Orchestration &tasks, const Tensor &q, const Tensor &y, const Tensor &keys,
                 uint64_t sequence, bool fresh) {
    const Scope scope(tasks);
    const kl_region own = q.box({sequence, 0}, {1, COLUMNS});
    auto scoring = tasks.submit(MATRIX_KERNEL);
    scoring.in(own).in(keys.all()).output<float>({COLUMNS});
    fill(scoring, 3);
    const Tensor scores = tasks.tensor<float>(scoring.new_tensor(2), {COLUMNS});
    auto weighing = tasks.submit(VECTOR_KERNEL);
    weighing.in(scores.all()).output<float>({COLUMNS}).output<float>({2});
    fill(weighing, 3);
    const Tensor weights = tasks.tensor<float>(weighing.new_tensor(1), {COLUMNS});
    const Tensor stats = tasks.tensor<float>(weighing.new_tensor(2), {2});
    auto applying = tasks.submit(MATRIX_KERNEL);
    applying.in(weights.all()).in(keys.all()).output<float>({COLUMNS});
    fill(applying, 3);
    const Tensor result = tasks.tensor<float>(applying.new_tensor(2), {COLUMNS});
    auto merging = tasks.submit(VECTOR_KERNEL);
    merging.in(stats.all()).in(result.all());
    merging.tensor(fresh ? KL_ACCESS_WRITE : KL_ACCESS_INOUT, y.box({sequence, 0}, {1, COLUMNS}),
                   0);
    fill(merging, 3);
}

void submit_attention(const Orchestration &tasks, uint64_t count) {
    constexpr uint64_t SEQUENCES = 64, TASKS_OF_PAGE = 4;
    const Tensor q = tasks.tensor<float>(0, {ROWS * TILE, COLUMNS});
    const Tensor y = tasks.tensor<float>(1, {ROWS * TILE, COLUMNS});
    const Tensor keys = tasks.tensor<float>(2, {TILE, COLUMNS});
    const uint64_t pages = count / SEQUENCES / TASKS_OF_PAGE;
    for (uint64_t sequence = 0; sequence < SEQUENCES; sequence++)
        for (uint64_t page = 0; page < pages; page++)
            submit_page(tasks, q, y, keys, sequence, page == 0);
}

} // namespace

extern "C" __attribute__((visibility("default"))) void kl_orchestrate(kl_orchestrator *self) {
    if (self->values[1])
        submit_attention(Orchestration(self), self->values[0]);
    else
        submit_tiles(Orchestration(self), self->values[0]);
}
#else
#include <ctime>

#include <sys/resource.h>

#include "script_device.hpp"

namespace {

double seconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The most memory that the process has had so far.
double peak_bytes() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) * 1024;
}

} // namespace

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    std::string overrides;
    for (int i = 4; i < count; i++)
        overrides += std::string(arguments[i]) + "\n";
    script::Device device(arguments[1], overrides);
    std::vector<std::uint64_t> tensors;
    for (const std::uint64_t rows : {256, 256, 16})
        tensors.push_back(device.allocate(rows * 256 * 4));
    const double memory = peak_bytes(), begin = seconds();
    const script::Answer answer =
        device.launch(tensors, {std::strtoull(arguments[2], nullptr, 10),
                                std::uint64_t{!std::strcmp(arguments[3], "attention")}});
    const double end = seconds();
    if (answer.status) {
        std::fprintf(stderr, "%s\n", answer.detail.c_str());
        return 1;
    }
    std::printf("seconds=%.4f\nvirtual_ns=%.0f\npeak_bytes=%.0f\n", end - begin,
                static_cast<double>(answer.virtual_ps) / 1000, peak_bytes() - memory);
    if (overrides.find("trace=1\n") != std::string::npos) {
        const double written = seconds();
        const std::size_t bytes = device.trace().size();
        std::printf("trace_bytes=%zu\ntrace_seconds=%.4f\n", bytes, seconds() - written);
    }
    return 0;
}
#endif
