// An orchestrator for tests: writes down what an orchestration submits, as lines of JSON.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "kernloom/orchestration.h"

namespace {

struct Recorder {
    kl_orchestrator self;
    std::string text;
    std::vector<std::string> kernels;
    uint32_t tensors;
    uint32_t tasks = 0;
};

Recorder &of(kl_orchestrator *self) {
    return *reinterpret_cast<Recorder *>(self);
}

std::string number(uint64_t value) {
    return std::to_string(value);
}

std::string list(const uint64_t *values, uint32_t count) {
    std::string text = "[";
    for (uint32_t i = 0; i < count; i++)
        text += (i ? ", " : "") + number(values[i]);
    return text + "]";
}

kl_task submit(kl_orchestrator *self, kl_submission *task) {
    Recorder &recorder = of(self);
    std::string arguments;
    for (uint32_t i = 0; i < task->arguments_count; i++) {
        kl_task_argument &one = task->arguments[i];
        if (one.type == KL_ARGUMENT_TENSOR && one.access == KL_ACCESS_OUT)
            one.region.tensor = recorder.tensors++;
        const kl_region &region = one.region;
        arguments += i ? ", " : "";
        if (one.type == KL_ARGUMENT_VALUE)
            arguments += "{\"value\": " + number(one.bits) + "}";
        else
            arguments +=
                "{\"access\": " + number(one.access) + ", \"tensor\": " + number(region.tensor) +
                ", \"dtype\": " + number(region.dtype) + ", \"origin\": " + number(one.origin) +
                ", \"offset\": " + number(region.offset) +
                ", \"shape\": " + list(region.shape, region.dimensions) +
                ", \"strides\": " + list(region.strides, region.dimensions) + "}";
    }
    std::string after;
    for (uint32_t i = 0; i < task->after_count; i++)
        after += (i ? ", " : "") + number(task->after[i]);
    recorder.text +=
        "{\"task\": \"" + std::string(task->name ? task->name : "") +
        "\", \"kernel\": " + number(task->kernel) + ", \"vectors\": " + number(task->vectors) +
        ", \"vector_kernel\": " + number(task->vector_kernel) +
        ", \"blocks\": " + number(task->blocks) + ", \"block\": " + number(task->block) +
        ", \"of_blocks\": " + number(task->of_blocks) +
        ", \"sync_start\": " + number(task->sync_start) + ", \"after\": [" + after +
        "], \"arguments\": [" + arguments + "]}\n";
    return ++recorder.tasks;
}

void note(kl_orchestrator *self, const std::string &what) {
    of(self).text += "{\"event\": \"" + what + "\"}\n";
}

void barrier(kl_orchestrator *self) {
    note(self, "barrier");
}
void begin_scope(kl_orchestrator *self, uint32_t kind) {
    note(self, kind == KL_SCOPE_MANUAL ? "begin manual scope" : "begin scope");
}
void end_scope(kl_orchestrator *self) {
    note(self, "end scope");
}
void fail(kl_orchestrator *self, const char *message) {
    note(self, std::string("fail: ") + message);
}
kl_graph begin_graph(kl_orchestrator *self, const char *) {
    fail(self, "no graphs here");
    return 0;
}
void end_graph(kl_orchestrator *) {
}
kl_task submit_graph(kl_orchestrator *, kl_graph, const kl_tensor *, const uint64_t *) {
    return 0;
}
uint32_t find_kernel(kl_orchestrator *self, const char *name) {
    const Recorder &recorder = of(self);
    for (uint32_t i = 0; i < recorder.kernels.size(); i++)
        if (recorder.kernels[i] == name)
            return i;
    fail(self, "unknown kernel");
    return 0;
}

const kl_orchestrator_functions FUNCTIONS = {
    submit,    barrier,      begin_scope, end_scope, begin_graph,
    end_graph, submit_graph, find_kernel, fail,
};

} // namespace

// The lines, to be freed by `release`.
extern "C" char *record(kl_orchestrate_function orchestrate, const uint64_t *bytes,
                        uint32_t tensors, const uint64_t *values, uint32_t count,
                        const uint32_t *pes, uint32_t cubes, const char *kernels) {
    Recorder recorder{
        {&FUNCTIONS, bytes, values, tensors, count, {pes[0], pes[1]}, cubes, 0}, {}, {}, tensors};
    for (std::string names = kernels; !names.empty();) {
        const std::size_t end = names.find(' ');
        recorder.kernels.push_back(names.substr(0, end));
        names = end == std::string::npos ? "" : names.substr(end + 1);
    }
    try {
        orchestrate(&recorder.self);
    } catch (const std::exception &error) {
        fail(&recorder.self, error.what());
    }
    return strdup(recorder.text.c_str());
}

extern "C" void release(char *text) {
    free(text);
}
