// Malformed messages for the front end of the host program: every one gets its responses.
// host_fuzz PLATFORM HOST CONTROL CORE SETTINGS KERNELS MESSAGES SEED
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernloom/messages.h"
#include "kernloom/platform.h"

namespace {

using Bytes = std::vector<unsigned char>;

[[noreturn]] void fail(const char *why, const Bytes &message) {
    std::fprintf(stderr, "%s; the message:", why);
    for (const unsigned char byte : message)
        std::fprintf(stderr, " %02x", byte);
    std::fprintf(stderr, "\n");
    std::exit(1);
}

template <class Function> Function symbol(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : nullptr;
    if (!found) {
        std::fprintf(stderr, "%s: %s\n", path, dlerror());
        std::exit(2);
    }
    Function function;
    std::memcpy(&function, &found, sizeof found);
    return function;
}

class Fuzz {
  public:
    Fuzz(char **arguments)
        : library_(symbol<kl_platform_function>(arguments[1], "kl_platform")()),
          interface_(symbol<kl_host_function>(arguments[2], "kl_host")()), kernels_(arguments[6]),
          numbers_(std::strtoull(arguments[8], nullptr, 10)), window_(1 << 16) {
        char problem[256] = "";
        platform_ = library_->open(arguments[5], problem, sizeof problem);
        for (int i = 2; platform_ && i < 5; i++)
            if (!library_->attach(platform_,
                                  symbol<kl_program_function>(arguments[i], "kl_program")(),
                                  problem, sizeof problem))
                platform_ = nullptr;
        if (!platform_) {
            std::fprintf(stderr, "%s\n", problem);
            std::exit(2);
        }
        host_ = library_->program_state(platform_, {KL_NODE_HOST, 0, 0, 0});
    }

    ~Fuzz() {
        library_->close(platform_);
    }

    void run(unsigned long messages) {
        for (unsigned long i = 0; i < messages; i++) {
            const Bytes message = next();
            check(message);
        }
        std::printf("%lu messages, %lu responses, %lu of them OK\n", messages, responses_, good_);
    }

  private:
    std::uint64_t below(std::uint64_t count) {
        return numbers_() % count;
    }

    // An address, a size or a count: near to something that exists, or not at all.
    std::uint64_t number() {
        const std::uint64_t edges[] = {0,
                                       1,
                                       7,
                                       64,
                                       4096,
                                       1 << 16,
                                       1 << 20,
                                       (1 << 20) + 1,
                                       1ull << 32,
                                       KL_VIRTUAL_BASE,
                                       KL_VIRTUAL_BASE + (1ull << 50),
                                       KL_SRAM_BASE,
                                       1ull << 63,
                                       ~0ull,
                                       address_,
                                       handle_};
        const std::uint64_t edge = edges[below(std::size(edges))];
        return below(3) ? edge : below(2) ? edge + below(200) - 100 : numbers_();
    }

    template <class T> static void add(Bytes &bytes, const T &part) {
        const auto *from = reinterpret_cast<const unsigned char *>(&part);
        bytes.insert(bytes.end(), from, from + sizeof part);
    }

    static void add_text(Bytes &bytes, const std::string &text) {
        bytes.insert(bytes.end(), text.begin(), text.end());
    }

    // A body that may well be right.
    Bytes body(unsigned kind) {
        Bytes bytes;
        switch (kind) {
        case KL_KIND_ALLOCATE: {
            add(bytes, kl_allocate_(below(2) ? below(4096) : number(), 1));
            add_text(bytes, "x");
            break;
        }
        case KL_KIND_PLACE: {
            kl_place place{};
            place.bytes = below(2) ? below(4096) : number();
            place.unit = below(2) ? below(64) : number();
            place.policy = static_cast<std::uint32_t>(below(4));
            place.label_bytes = 1;
            add(bytes, place);
            add_text(bytes, "y");
            break;
        }
        case KL_KIND_FREE:
            add(bytes, number());
            break;
        case KL_KIND_MEMORY_WRITE:
        case KL_KIND_MEMORY_READ:
            for (int i = 0; i < 3; i++)
                add(bytes, number());
            break;
        case KL_KIND_MEMORY_FILL:
            add(bytes, number());
            add(bytes, number());
            add(bytes, static_cast<std::uint32_t>(below(300)));
            break;
        case KL_KIND_LOAD: {
            const std::string paths[] = {
                kernels_, "builtin:spin", "builtin:copy", "builtin:", "/nowhere/x.so", "x", ""};
            const std::string path = paths[below(std::size(paths))];
            const std::string entry = below(3) ? "kl_core_entry" : "count";
            add(bytes, static_cast<std::uint32_t>(below(5)));
            add(bytes, static_cast<std::uint32_t>(path.size()));
            add(bytes, static_cast<std::uint32_t>(entry.size()));
            add_text(bytes, path + entry);
            break;
        }
        case KL_KIND_KERNEL_LAUNCH: {
            kl_kernel_launch launch{};
            launch.warmup = static_cast<std::uint32_t>(below(2));
            launch.samples = static_cast<std::uint32_t>(below(20) ? below(3) : number());
            launch.inner = below(3);
            launch.orchestration = below(4) ? 0 : number();
            launch.calls_count = static_cast<std::uint32_t>(below(3));
            launch.arguments_count = static_cast<std::uint32_t>(below(4));
            if (launch.samples > 3 && launch.samples <= 1000000)
                launch.inner = 0;
            add(bytes, launch);
            for (unsigned i = 0; i < launch.calls_count; i++) {
                add(bytes, below(2) ? handle_ : number());
                add(bytes, static_cast<std::uint32_t>(below(3)));
            }
            for (unsigned i = 0; i < launch.arguments_count; i++) {
                add(bytes, static_cast<std::uint32_t>(below(4)));
                add(bytes, below(2) ? address_ : below(1 << 20));
            }
            break;
        }
        case KL_KIND_MMU_MAP: {
            const auto count = static_cast<std::uint32_t>(below(4));
            add(bytes, count);
            for (unsigned i = 0; i < count; i++) {
                for (int field = 0; field < 3; field++)
                    add(bytes, number());
                for (int field = 0; field < 4; field++)
                    add(bytes, static_cast<std::uint16_t>(below(4) ? below(3) : numbers_()));
            }
            break;
        }
        case KL_KIND_MMU_UNMAP:
            add(bytes, number());
            add(bytes, number());
            break;
        case KL_KIND_PE_DMA:
            add(bytes, number());
            add(bytes, number());
            add(bytes, below(2) ? below(5000) : number());
            break;
        default:
            bytes.resize(below(64));
            for (unsigned char &byte : bytes)
                byte = static_cast<unsigned char>(numbers_());
        }
        return bytes;
    }

    struct Allocate {
        std::uint64_t bytes;
        std::uint32_t label_bytes;
    } __attribute__((packed));

    static Allocate kl_allocate_(std::uint64_t bytes, std::uint32_t label_bytes) {
        return {bytes, label_bytes};
    }

    std::uint16_t part() {
        return static_cast<std::uint16_t>(below(4)   ? below(3)
                                          : below(2) ? std::uint64_t{KL_EVERY}
                                                     : numbers_());
    }

    Bytes next() {
        const auto kind = static_cast<std::uint16_t>(below(8) ? 1 + below(17) : numbers_());
        kl_header header{};
        header.magic = KL_MAGIC;
        header.version = KL_VERSION;
        header.kind = kind;
        header.correlation = numbers_();
        header.request = numbers_();
        if (!below(4)) {
            header.sip = part();
            header.cube = part();
            header.pe = part();
        }
        const unsigned addressees = static_cast<unsigned>(below(3) ? 0 : below(4));
        header.addressees = static_cast<std::uint16_t>(addressees);
        Bytes rest;
        for (unsigned i = 0; i < 3 * addressees; i++)
            add(rest, part());
        const Bytes content = body(kind);
        rest.insert(rest.end(), content.begin(), content.end());
        damage(header, rest);
        header.size = static_cast<std::uint32_t>(sizeof header + rest.size());
        if (!below(50))
            header.size = static_cast<std::uint32_t>(number());
        if (!below(50))
            header.magic ^= 1u << below(32);
        if (!below(50))
            header.version = static_cast<std::uint16_t>(numbers_());
        Bytes message;
        add(message, header);
        message.insert(message.end(), rest.begin(), rest.end());
        if (!below(50))
            message.resize(below(message.size() + 1));
        return message;
    }

    void damage(kl_header &header, Bytes &rest) {
        if (below(2))
            return;
        if (!below(4))
            rest.resize(below(rest.size() + 1));
        else if (!below(4))
            rest.resize(rest.size() + below(100));
        else if (!below(8))
            header.addressees = static_cast<std::uint16_t>(numbers_());
        // A launch that runs for ever is no malformed one.
        else if (!rest.empty() && header.kind != KL_KIND_KERNEL_LAUNCH)
            rest[below(rest.size())] ^= static_cast<unsigned char>(1u << below(8));
    }

    void check(const Bytes &message) {
        std::size_t bytes = 0;
        const auto *at = static_cast<const unsigned char *>(interface_->request(
            host_, message.data(), message.size(), window_.data(), window_.size(), &bytes));
        kl_header asked{};
        std::memcpy(&asked, message.data(), message.size() < sizeof asked ? 0 : sizeof asked);
        std::set<std::uint64_t> responders;
        if (!bytes)
            fail("there is no response", message);
        while (bytes) {
            kl_header header;
            kl_response response;
            if (bytes < sizeof header + sizeof response)
                fail("a response is cut short", message);
            std::memcpy(&header, at, sizeof header);
            std::memcpy(&response, at + sizeof header, sizeof response);
            const std::uint64_t size = sizeof header + sizeof response + response.detail_bytes +
                                       response.samples_count * std::uint64_t{sizeof(kl_sample)};
            if (header.kind != KL_KIND_RESPONSE || header.size != size || size > bytes ||
                header.request != asked.request || response.answers != asked.kind ||
                header.addressees)
                fail("a response is none", message);
            if (response.status != KL_STATUS_OK && !response.detail_bytes)
                fail("a failure has no reason", message);
            if (!responders
                     .insert(header.sip | std::uint64_t{header.cube} << 16 |
                             std::uint64_t{header.pe} << 32)
                     .second)
                fail("an addressee has answered twice", message);
            if (response.status == KL_STATUS_OK) {
                good_++;
                if (asked.kind == KL_KIND_ALLOCATE || asked.kind == KL_KIND_PLACE)
                    address_ = response.value;
                if (asked.kind == KL_KIND_LOAD)
                    handle_ = response.value;
            }
            responses_++;
            at += size;
            bytes -= size;
        }
    }

    const kl_platform_library *library_;
    const kl_host_interface *interface_;
    std::string kernels_;
    std::mt19937_64 numbers_;
    Bytes window_;
    struct kl_platform *platform_ = nullptr;
    void *host_ = nullptr;
    std::uint64_t address_ = 0;
    std::uint64_t handle_ = 0;
    unsigned long responses_ = 0;
    unsigned long good_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 9)
        return 2;
    Fuzz(arguments).run(std::strtoul(arguments[7], nullptr, 10));
    return 0;
}
