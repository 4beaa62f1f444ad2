// Messages among an accelerator's programs: those of messages.h, and those below. Every message
// starts with a kl_header; every request is answered by a Response with the same request id.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernloom/messages.h"
#include "kernloom/platform.h"

namespace kernloom {

// Kinds of messages beside enum kl_kind.
enum FabricKind : std::uint16_t {
    FABRIC_DESCRIBE = 0x100, // host -> control; the response's detail is the runtime's name
    FABRIC_SUBMIT = 0x101,   // host -> control: tasks, to be executed in this order
    FABRIC_RUN = 0x102,      // control -> PE: one task
    FABRIC_LAUNCH = 0x103,   // host -> control: tasks of an orchestration
    FABRIC_BLOCK = 0x104,    // control -> PE: a task of an orchestration, or a block of one
    FABRIC_DOCUMENT = 0x105, // host -> control: a DocumentRecord about the last launch
};

// Value of a control program's response to FABRIC_DESCRIBE.
enum RuntimeFlags : std::uint64_t {
    RUNTIME_HOST_BUILDS = 1, // the host builds all tasks before it submits the first
};

enum { TASK_NAME_BYTES = 48 };

// One kernel on one PE. Its arguments follow all tasks of a message.
struct TaskRecord {
    std::uint64_t id;
    std::uint64_t code;       // virtual address of a program blob
    std::uint64_t code_bytes; // its size; 0: a built-in timing model
    std::uint32_t function;   // in the blob's table, or the timing model
    std::uint32_t core_type;  // KL_CORE_TYPES: any
    std::uint32_t arguments;
    std::uint32_t fixed; // whether it must run on (sip, cube, pe)
    std::uint16_t sip, cube, pe, reserved;
    char name[TASK_NAME_BYTES]; // ends with a zero byte
} __attribute__((packed));

struct SubmitRecord {
    std::uint32_t tasks;
    std::uint32_t arguments; // of all of them
} __attribute__((packed));

// Which part of a task a PE executes; follows the TaskRecord of a FABRIC_BLOCK.
struct BlockRecord {
    std::uint32_t launch; // what is left of others at the PE is dropped
    std::uint32_t gang;
    std::uint64_t actions; // address of the control program's ActionsTransfer, or 0
    std::uint32_t block;
    std::uint32_t of_blocks;
    std::uint32_t members; // of the gang, which start together; 0: it starts alone
    std::uint32_t reserved;
} __attribute__((packed));

// A function of a program blob.
struct CodeRecord {
    std::uint64_t address;
    std::uint64_t bytes; // 0: a built-in timing model
    std::uint32_t function;
} __attribute__((packed));

// A launch with an orchestration. Kernels, tensors and values follow.
struct LaunchRecord {
    std::uint64_t launch; // its number
    CodeRecord orchestration;
    std::uint32_t kernels;
    std::uint32_t tensors;
    std::uint32_t values;
    std::uint64_t heap;  // address of the memory for outputs
    std::uint64_t graph; // address of the host's GraphTransfer, or 0
} __attribute__((packed));

struct KernelRecord {
    CodeRecord code;
    std::uint8_t core_type; // KL_CORE_TYPES: any
    std::uint8_t has_kinds; // whether `buffers` is known
    std::uint16_t arguments;
    std::uint32_t buffers;      // bit i: argument i is a tensor
    char name[TASK_NAME_BYTES]; // ends with a zero byte
} __attribute__((packed));

struct TensorRecord {
    std::uint64_t address;
    std::uint64_t bytes;
} __attribute__((packed));

namespace tasks {
struct Graph;
}

// A graph that the host has built. The host clears it when it no longer waits for the answer.
struct GraphTransfer {
    std::shared_ptr<const tasks::Graph> graph;
};

// What the host wants to know of the last launch (enum kl_documents); the control program writes
// the text before it answers. The host keeps this until then.
struct DocumentTransfer {
    std::vector<std::string> tensors; // names of those of the launch
    std::string text;
};

struct DocumentRecord {
    std::uint32_t document;
    std::uint64_t transfer; // address of the DocumentTransfer
} __attribute__((packed));

// Where a PE leaves what a task has done: memory of the control program, which outlives the PE's
// jobs. It is filled in before the answer to `request`, if that is still the one.
struct ActionsTransfer {
    std::uint64_t request = 0;
    std::vector<kl_action> actions;
};

// Memory of the host that a MemoryWrite or MemoryRead among programs refers to: its `offset` is the
// address of this descriptor. The host clears `data` when it no longer waits for the answer.
struct HostTransfer {
    unsigned char *data;
    std::uint64_t bytes;
};

__attribute__((format(printf, 1, 2))) inline std::string text_of(const char *format, ...) {
    char text[1024];
    std::va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

inline bool same_node(kl_node a, kl_node b) {
    return a.kind == b.kind && a.sip == b.sip && a.cube == b.cube && a.pe == b.pe;
}

inline std::string name_of(kl_node node) {
    switch (node.kind) {
    case KL_NODE_HOST:
        return "the host";
    case KL_NODE_CONTROL:
        return text_of("the control program of sip %u", node.sip);
    default:
        return text_of("PE %u.%u.%u", node.sip, node.cube, node.pe);
    }
}

inline const char *name_of_core_type(std::uint32_t type) {
    return type == KL_CORE_MATRIX ? "matrix" : type == KL_CORE_VECTOR ? "vector" : "unknown";
}

inline const char *name_of_kind(std::uint32_t kind) {
    switch (kind) {
    case KL_KIND_HELLO:
        return "Hello";
    case KL_KIND_ALLOCATE:
        return "Allocate";
    case KL_KIND_FREE:
        return "Free";
    case KL_KIND_MEMORY_WRITE:
        return "MemoryWrite";
    case KL_KIND_MEMORY_READ:
        return "MemoryRead";
    case KL_KIND_MEMORY_FILL:
        return "MemoryFill";
    case KL_KIND_LOAD:
        return "Load";
    case KL_KIND_KERNEL_LAUNCH:
        return "KernelLaunch";
    case KL_KIND_MMU_MAP:
        return "MmuMap";
    case KL_KIND_MMU_UNMAP:
        return "MmuUnmap";
    case KL_KIND_PE_DMA:
        return "PeDma";
    case KL_KIND_CLOSE:
        return "Close";
    case KL_KIND_RESPONSE:
        return "Response";
    case KL_KIND_CONFIGURE:
        return "Configure";
    case KL_KIND_PLACE:
        return "Place";
    case KL_KIND_TRACE:
        return "Trace";
    case KL_KIND_DOCUMENT:
    case FABRIC_DOCUMENT:
        return "Document";
    case FABRIC_DESCRIBE:
        return "Describe";
    case FABRIC_SUBMIT:
        return "Submit";
    case FABRIC_RUN:
    case FABRIC_BLOCK:
        return "Run";
    case FABRIC_LAUNCH:
        return "Launch";
    default:
        return "an unknown request";
    }
}

// A message being written.
class Packet {
  public:
    Packet(std::uint16_t kind, std::uint64_t request) {
        kl_header header{};
        header.magic = KL_MAGIC;
        header.version = KL_VERSION;
        header.kind = kind;
        header.request = request;
        add(header);
    }

    template <class T> void add(const T &part) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(&part, sizeof part);
    }

    void append(const void *data, std::size_t bytes) {
        const std::size_t before = bytes_.size();
        bytes_.resize(before + bytes);
        if (bytes)
            std::memcpy(bytes_.data() + before, data, bytes);
    }

    // The whole message; call it last.
    const std::vector<unsigned char> &finish() {
        const auto size = static_cast<std::uint32_t>(bytes_.size());
        std::memcpy(bytes_.data() + offsetof(kl_header, size), &size, sizeof size);
        return bytes_;
    }

  private:
    std::vector<unsigned char> bytes_;
};

// A message being read; nothing is read beyond its end.
class Reader {
  public:
    Reader(const void *message, std::size_t bytes)
        : at_(static_cast<const unsigned char *>(message)), left_(bytes) {
    }

    template <class T> bool take(T &part) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (left_ < sizeof part)
            return false;
        std::memcpy(&part, at_, sizeof part);
        skip(sizeof part);
        return true;
    }

    template <class T> bool take_all(std::vector<T> &parts, std::uint64_t count) {
        static_assert(std::is_trivially_copyable_v<T>);
        if (count > left_ / sizeof(T))
            return false;
        parts.resize(count);
        if (count)
            std::memcpy(static_cast<void *>(parts.data()), at_, count * sizeof(T));
        skip(count * sizeof(T));
        return true;
    }

    bool take_text(std::string &text, std::uint64_t bytes) {
        if (bytes > left_)
            return false;
        text.assign(reinterpret_cast<const char *>(at_), bytes);
        skip(bytes);
        return true;
    }

    std::size_t left() const {
        return left_;
    }

  private:
    void skip(std::size_t bytes) {
        at_ += bytes;
        left_ -= bytes;
    }

    const unsigned char *at_;
    std::size_t left_;
};

// The outcome of a request among programs.
struct Outcome {
    std::uint32_t status = KL_STATUS_OK;
    std::uint64_t value = 0;
    std::string detail;
    std::uint64_t virtual_ps = 0; // when a task ended

    static Outcome failure(std::uint32_t status, std::string detail, std::uint64_t value = 0) {
        return {status, value, std::move(detail), 0};
    }

    static Outcome invalid(std::string detail) {
        return failure(KL_STATUS_INVALID, std::move(detail));
    }

    bool ok() const {
        return status == KL_STATUS_OK;
    }
};

// Answers a request; `bulk` bytes of data go with the answer.
inline void respond(const kl_platform &platform, kl_node from, kl_node to, std::uint32_t kind,
                    std::uint64_t request, const Outcome &outcome, std::uint64_t bulk = 0) {
    Packet packet(KL_KIND_RESPONSE, request);
    kl_response response{};
    response.answers = kind;
    response.status = outcome.status;
    response.value = outcome.value;
    response.detail_bytes = static_cast<std::uint32_t>(outcome.detail.size());
    response.virtual_ps = outcome.virtual_ps;
    packet.add(response);
    packet.append(outcome.detail.data(), outcome.detail.size());
    const auto &bytes = packet.finish();
    platform.send(platform.self, from, to, bytes.data(), bytes.size(), bulk);
}

// Reads a Response; false if it is none.
inline bool read_response(const kl_delivery &delivery, std::uint64_t &request, Outcome &outcome) {
    Reader reader(delivery.message, delivery.bytes);
    kl_header header;
    kl_response response;
    if (!reader.take(header) || header.kind != KL_KIND_RESPONSE || !reader.take(response) ||
        !reader.take_text(outcome.detail, response.detail_bytes))
        return false;
    request = header.request;
    outcome.status = response.status;
    outcome.value = response.value;
    outcome.virtual_ps = response.virtual_ps;
    return true;
}

// Why waiting for an answer has ended, and when; `limit` is how long it was waited for, as the key
// that sets it.
inline Outcome no_answer(const kl_platform &platform, const std::string &what,
                         std::uint64_t delay_ps, const std::string &limit) {
    return Outcome::failure(
        KL_STATUS_NO_ANSWER,
        text_of("%s within %llu ns of virtual time (%s), until the virtual instant %llu ns",
                what.c_str(), (unsigned long long)(delay_ps / 1000), limit.c_str(),
                (unsigned long long)(platform.now(platform.self) / 1000)));
}

constexpr const char *ANSWER_TIMEOUT_KEY = "target.options.timeout_ns";

// A timer of a node that ends waiting. At most one is in the platform's queue, however often it is
// set: it is set again when it fires too early.
class Watchdog {
  public:
    Watchdog(const kl_platform &platform, kl_node node, std::uint64_t token)
        : platform_(platform), node_(node), token_(token) {
    }

    void start(std::uint64_t delay_ps) {
        const std::uint64_t now = platform_.now(platform_.self);
        deadline_ = delay_ps > ~0ull - now ? ~0ull : now + delay_ps;
        if (!queued_)
            queue(deadline_ - now);
    }

    void stop() {
        deadline_ = 0;
    }

    // The timer has fired; whether the time is over.
    bool fired() {
        queued_ = false;
        if (!deadline_)
            return false;
        const std::uint64_t now = platform_.now(platform_.self);
        if (now >= deadline_) {
            deadline_ = 0;
            return true;
        }
        queue(deadline_ - now);
        return false;
    }

  private:
    void queue(std::uint64_t delay_ps) {
        queued_ = true;
        platform_.after(platform_.self, node_, delay_ps, token_);
    }

    const kl_platform &platform_;
    kl_node node_;
    std::uint64_t token_;
    std::uint64_t deadline_ = 0;
    bool queued_ = false;
};

} // namespace kernloom
