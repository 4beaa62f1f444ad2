// A device made of the built programs, controlled as the engine controls it, and a sequential
// execution of scripts to compare it with.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <vector>

#include "kernloom/messages.h"
#include "kernloom/orchestration.h"
#include "kernloom/platform.h"
#include "script.hpp"

namespace script {

// Role -> file, from the environment of the test.
inline std::string path_of(const char *role) {
    const char *path = std::getenv(role);
    if (!path) {
        std::fprintf(stderr, "%s is not set\n", role);
        std::exit(2);
    }
    return path;
}

template <class Function> Function symbol(const std::string &path, const char *name) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        std::fprintf(stderr, "%s: %s\n", path.c_str(), dlerror());
        std::exit(2);
    }
    Function function;
    std::memcpy(&function, &found, sizeof found);
    return function;
}

struct Answer {
    std::uint32_t status = 0;
    std::uint64_t value = 0;
    std::string detail;
    std::uint64_t virtual_ps = 0; // of the sample
};

constexpr const char *RUNTIMES[] = {"HOSTGRAPH", "RINGMAP"};
enum { MATRIX_KERNEL = 0, VECTOR_KERNEL = 1, LANE_KERNEL = 2 };

class Device {
  public:
    // Later lines override earlier ones.
    explicit Device(const std::string &runtime, const std::string &overrides = "")
        : window_(1 << 20) {
        library_ = symbol<kl_platform_function>(path_of("PLATFORM"), "kl_platform")();
        interface_ = symbol<kl_host_function>(path_of("HOST"), "kl_host")();
        char problem[512] = "";
        // The platform takes the last of equal keys, programs the first.
        const std::string settings = overrides + path_of("SETTINGS") + overrides;
        platform_ = library_->open(settings.c_str(), problem, sizeof problem);
        for (const std::string &role : {std::string("HOST"), runtime, std::string("CORE")})
            if (platform_ &&
                !library_->attach(
                    platform_, symbol<kl_program_function>(path_of(role.c_str()), "kl_program")(),
                    problem, sizeof problem)) {
                library_->close(platform_);
                platform_ = nullptr;
            }
        if (!platform_) {
            std::fprintf(stderr, "%s\n", problem);
            std::exit(2);
        }
        host_ = library_->program_state(platform_, {KL_NODE_HOST, 0, 0, 0});
        orchestration_ = load(path_of("ORCHESTRATION"), "kl_orchestrate", "script", 0).value;
        kernels_ = {load(path_of("MATRIX"), "kl_core_entry", "matrix", ARGUMENTS).value,
                    load(path_of("VECTOR"), "kl_core_entry", "vector", ARGUMENTS).value,
                    load(path_of("LANE"), "kl_core_entry", "lane", ARGUMENTS).value};
    }
    ~Device() {
        library_->close(platform_);
    }
    Device(const Device &) = delete;

    Answer load(const std::string &path, const std::string &entry, const std::string &name,
                std::uint32_t arguments) {
        struct kl_load message {};
        message.arguments = arguments;
        message.path_bytes = static_cast<std::uint32_t>(path.size());
        message.entry_bytes = static_cast<std::uint32_t>(entry.size());
        message.name_bytes = static_cast<std::uint32_t>(name.size());
        message.buffers = KL_UNKNOWN_KINDS;
        return request(KL_KIND_LOAD, message, path + entry + name);
    }

    // Launches have the vector kernel under another name.
    Answer name_kernel(const std::string &name) {
        const Answer loaded = load(path_of("VECTOR"), "kl_core_entry", name, ARGUMENTS);
        kernels_[VECTOR_KERNEL] = loaded.value;
        return loaded;
    }

    std::uint64_t allocate(std::uint64_t bytes) {
        kl_place message{};
        message.bytes = bytes;
        message.policy = KL_POLICY_SHARD;
        message.label_bytes = 1;
        return request(KL_KIND_PLACE, message, "t").value;
    }

    Answer write(std::uint64_t address, const std::vector<std::uint32_t> &content) {
        kl_memory_write message{};
        message.address = address;
        message.bytes = content.size() * sizeof content[0];
        std::memcpy(window_.data(), content.data(), message.bytes);
        return request(KL_KIND_MEMORY_WRITE, message, "");
    }

    void read(std::uint64_t address, std::vector<std::uint32_t> &content) {
        kl_memory_read message{};
        message.address = address;
        message.bytes = content.size() * sizeof content[0];
        request(KL_KIND_MEMORY_READ, message, "");
        std::memcpy(content.data(), window_.data(), message.bytes);
    }

    Answer launch(const std::vector<std::uint64_t> &tensors,
                  const std::vector<std::uint64_t> &values, std::uint32_t inner = 1) {
        kl_kernel_launch message{};
        message.samples = 1;
        message.inner = inner;
        message.calls_count = static_cast<std::uint32_t>(kernels_.size());
        message.arguments_count = static_cast<std::uint32_t>(tensors.size() + values.size());
        message.orchestration = orchestration_;
        std::string tail;
        for (const std::uint64_t kernel : kernels_) {
            kl_launch_call call{};
            call.kernel = kernel;
            tail.append(reinterpret_cast<const char *>(&call), sizeof call);
        }
        const auto add = [&](std::uint32_t kind, std::uint64_t bits) {
            kl_launch_argument argument{};
            argument.kind = kind;
            argument.bits = bits;
            tail.append(reinterpret_cast<const char *>(&argument), sizeof argument);
        };
        for (const std::uint64_t tensor : tensors)
            add(KL_ARGUMENT_KIND_BUFFER, tensor);
        for (const std::uint64_t value : values)
            add(KL_ARGUMENT_KIND_SCALAR, value);
        return request(KL_KIND_KERNEL_LAUNCH, message, tail);
    }

    void *state(kl_node node) {
        return library_->program_state(platform_, node);
    }
    std::string trace() {
        std::size_t bytes = 0;
        const char *text = library_->trace(platform_, &bytes);
        return {text, bytes};
    }
    // What the device tells about the last launch; empty if it refuses.
    std::string document(std::uint32_t kind) {
        kl_document message{};
        message.document = kind;
        const Answer made = request(KL_KIND_DOCUMENT, message, "");
        std::string text;
        while (made.status == KL_STATUS_OK && text.size() < made.value) {
            message.offset = text.size();
            message.bytes = std::min<std::uint64_t>(window_.size(), made.value - text.size());
            request(KL_KIND_DOCUMENT, message, "");
            text.append(reinterpret_cast<const char *>(window_.data()), message.bytes);
        }
        return text;
    }
    struct kl_platform *platform() {
        return platform_;
    }
    std::string report() {
        std::size_t bytes = 0;
        const char *text = library_->report(platform_, &bytes);
        return {text, bytes};
    }
    void begin_report() {
        library_->begin_report(platform_);
    }

  private:
    template <class Message>
    Answer request(std::uint16_t kind, const Message &message, const std::string &tail) {
        std::string text(sizeof(kl_header), '\0');
        kl_header header{};
        text.append(reinterpret_cast<const char *>(&message), sizeof message);
        text += tail;
        header.magic = KL_MAGIC;
        header.version = KL_VERSION;
        header.kind = kind;
        header.size = static_cast<std::uint32_t>(text.size());
        // A tensor goes over all PEs.
        if (kind == KL_KIND_PLACE)
            header.sip = header.cube = header.pe = KL_EVERY;
        header.request = ++requests_;
        std::memcpy(text.data(), &header, sizeof header);
        std::size_t bytes = 0;
        const auto *answer = static_cast<const char *>(interface_->request(
            host_, text.data(), text.size(), window_.data(), window_.size(), &bytes));
        kl_response response{};
        std::memcpy(&response, answer + sizeof header, sizeof response);
        Answer found;
        found.status = response.status;
        found.value = response.value;
        const char *detail = answer + sizeof header + sizeof response;
        found.detail.assign(detail, response.detail_bytes);
        if (response.samples_count) {
            kl_sample sample{};
            std::memcpy(&sample, detail + response.detail_bytes, sizeof sample);
            found.virtual_ps = sample.virtual_ps;
        }
        if (found.status != KL_STATUS_OK && kind != KL_KIND_KERNEL_LAUNCH)
            std::fprintf(stderr, "request of kind %u: %s\n", kind, found.detail.c_str());
        return found;
    }

    std::vector<unsigned char> window_;
    const kl_platform_library *library_;
    const kl_host_interface *interface_;
    struct kl_platform *platform_ = nullptr;
    void *host_ = nullptr;
    std::uint64_t orchestration_ = 0;
    std::vector<std::uint64_t> kernels_;
    std::uint64_t requests_ = 0;
};

using Tensor = std::vector<std::uint32_t>;

// A script being written, and executed in order.
class Script {
  public:
    explicit Script(std::uint64_t salt = 0) : words_{salt} {
    }

    void submit(const Submit &one) {
        const auto *words = reinterpret_cast<const std::uint64_t *>(&one);
        words_.push_back(SUBMIT);
        words_.insert(words_.end(), words, words + SUBMIT_WORDS);
    }
    void add(std::initializer_list<std::uint64_t> words) {
        words_.insert(words_.end(), words);
    }
    const std::vector<std::uint64_t> &words() const {
        return words_;
    }

    // Executes it, one task after the other.
    void execute(std::vector<Tensor> &tensors) const {
        struct Graph {
            std::vector<Submit> tasks;
        };
        std::vector<Graph> graphs;
        std::vector<Tensor> outputs;
        bool recording = false;
        std::vector<std::size_t> same;
        for (std::size_t i = 0; i < tensors.size(); i++)
            same.push_back(i);
        for (std::size_t at = 1; at < words_.size();) {
            switch (words_[at++]) {
            case SUBMIT: {
                Submit one;
                std::memcpy(static_cast<void *>(&one), &words_[at], sizeof one);
                at += SUBMIT_WORDS;
                if (recording)
                    graphs.back().tasks.push_back(one);
                else
                    execute(one, words_[0], tensors, same, outputs);
                // Outputs are numbered over all tasks, also recorded ones.
                for (const Part &part : one.parts)
                    if (recording && part.access == KL_ACCESS_OUT)
                        outputs.emplace_back();
                break;
            }
            case BEGIN_SCOPE:
                at++;
                break;
            case BEGIN_GRAPH:
                graphs.emplace_back();
                first_of_graph_[graphs.size() - 1] = outputs.size();
                recording = true;
                break;
            case END_GRAPH:
                recording = false;
                break;
            case SUBMIT_GRAPH: {
                const std::uint64_t graph = words_[at++], salt = words_[at++];
                std::vector<std::size_t> map;
                for (std::size_t i = 0; i < tensors.size(); i++)
                    map.push_back(words_[at++]);
                std::vector<Tensor> own(first_of_graph_[graph]);
                for (const Submit &one : graphs[graph].tasks)
                    execute(one, salt, tensors, map, own);
                break;
            }
            default:
                break;
            }
        }
    }

  private:
    static bool holds(std::uint64_t comparison, std::int32_t a, std::int64_t b) {
        switch (comparison) {
        case KL_EQUAL:
            return a == b;
        case KL_NOT_EQUAL:
            return a != b;
        case KL_LESS:
            return a < b;
        case KL_LESS_OR_EQUAL:
            return a <= b;
        case KL_GREATER:
            return a > b;
        default:
            return a >= b;
        }
    }

    static void execute(const Submit &one, std::uint64_t launch_salt, std::vector<Tensor> &tensors,
                        const std::vector<std::size_t> &map, std::vector<Tensor> &outputs) {
        const auto tensor = [&](std::uint64_t number) -> Tensor & {
            return number < OUTPUT ? tensors[map[number]] : outputs[number - OUTPUT];
        };
        bool run = true;
        if (one.predicated)
            run = holds(
                one.comparison,
                static_cast<std::int32_t>(tensor(one.predicate_tensor)[one.predicate_element]),
                static_cast<std::int64_t>(one.compared));
        std::vector<std::uint64_t> numbers;
        for (const Part &part : one.parts) {
            numbers.push_back(part.tensor);
            if (part.access == KL_ACCESS_OUT) {
                numbers.back() = OUTPUT + outputs.size();
                outputs.emplace_back(part.rows * part.columns);
            }
        }
        if (!run || one.kernel == NO_KERNEL)
            return;
        const std::uint32_t salt =
            static_cast<std::uint32_t>(one.launch_salt ? launch_salt : one.salt);
        for (std::uint32_t lane = 1; lane <= (one.vectors ? 2u : 1u); lane++) {
            const Part &from = one.parts[0], &to = one.parts[lane];
            const std::uint64_t stride = to.access == KL_ACCESS_OUT ? to.columns : to.stride;
            const std::uint64_t offset = to.access == KL_ACCESS_OUT ? 0 : to.offset;
            for (std::uint64_t row = 0; row < to.rows; row++)
                for (std::uint64_t i = 0; i < to.columns; i++) {
                    std::uint32_t &out = tensor(numbers[lane])[offset + row * stride + i];
                    const std::uint32_t in =
                        from.rows ? tensor(numbers[0])[from.offset + row % from.rows * from.stride +
                                                       i % from.columns] *
                                        7
                                  : 0;
                    out = (to.access == KL_ACCESS_INOUT ? out * 31 : 0) + in + salt;
                }
        }
    }

    std::vector<std::uint64_t> words_;
    mutable std::map<std::size_t, std::size_t> first_of_graph_;
};

} // namespace script
