#include "code.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernloom/float_control.h"

namespace kernloom {

namespace {

// A file in memory with these bytes, or -1.
int memory_file(const std::vector<unsigned char> &image) {
    const int file = memfd_create("kernloom-kernel", MFD_CLOEXEC);
    std::size_t done = 0;
    while (file >= 0 && done < image.size()) {
        const ssize_t written = write(file, image.data() + done, image.size() - done);
        if (written <= 0) {
            close(file);
            return -1;
        }
        done += static_cast<std::size_t>(written);
    }
    return file;
}

bool inside(std::uint64_t address, std::uint64_t bytes, const BlobHeader &header) {
    return address >= header.base && address - header.base <= header.bytes &&
           bytes <= header.bytes - (address - header.base);
}

} // namespace

Code::~Code() {
    for (auto &[address, loaded] : loaded_)
        unload(loaded);
}

void Code::unload(Loaded &loaded) {
    if (loaded.library)
        dlclose(loaded.library);
    if (loaded.file >= 0)
        close(loaded.file);
}

bool Code::read(std::uint64_t address, void *to, std::uint64_t bytes) {
    const kl_rows rows = {1, bytes, bytes, bytes};
    kl_fault fault{};
    return !bytes || platform_.load(platform_.self, pe_, to, address, &rows, &fault);
}

bool Code::load(const CodeRecord &code, const BlobHeader &header, Loaded &loaded,
                std::string &why) {
    std::vector<BlobFunction> functions;
    std::vector<unsigned char> image;
    loaded.header = header;
    if (!inside(header.image, header.image_bytes, header) ||
        header.functions > (header.bytes - sizeof header) / sizeof(BlobFunction)) {
        why = "its table does not fit its size";
        return false;
    }
    functions.resize(header.functions);
    image.resize(header.image_bytes);
    if (!read(code.address + sizeof header, functions.data(),
              functions.size() * sizeof functions[0]) ||
        !read(header.image, image.data(), image.size())) {
        why = "it is not mapped";
        return false;
    }
    if (hash_of(image.data(), image.size()) != header.hash) {
        why = "its image has changed since it was uploaded";
        return false;
    }
    for (const BlobFunction &function : functions) {
        std::string name(
            inside(function.name, function.name_bytes, header) ? function.name_bytes : 0, '\0');
        if (name.empty() || !read(function.name, name.data(), name.size())) {
            why = "its table does not fit its size";
            return false;
        }
        loaded.names.push_back(std::move(name));
    }
    // Open for as long as the library is loaded: the loader takes equal paths for equal libraries.
    loaded.file = memory_file(image);
    const std::string path = text_of("/proc/self/fd/%d", loaded.file);
    const kl_float_control control = kl_float_read();
    loaded.library = loaded.file < 0 ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // A library that is linked with -ffast-math changes it while it is loaded.
    kl_float_restore(control);
    if (!loaded.library) {
        const char *problem = loaded.file < 0 ? "no memory for it" : dlerror();
        why = problem ? problem : "it cannot be loaded";
    }
    return loaded.library != nullptr;
}

void *Code::find(const CodeRecord &code, const std::string &user, Outcome &problem) {
    BlobHeader header{};
    std::string why;
    const auto fail = [&]() -> void * {
        problem = Outcome::failure(KL_STATUS_LOAD_FAILED,
                                   text_of("%s: %s has no code at 0x%llx (%llu bytes): %s",
                                           name_of(node_).c_str(), user.c_str(),
                                           (unsigned long long)code.address,
                                           (unsigned long long)code.bytes, why.c_str()),
                                   code.address);
        return nullptr;
    };
    if (code.bytes < sizeof header || !read(code.address, &header, sizeof header)) {
        why = "it is not mapped";
        return fail();
    }
    if (header.magic != BLOB_MAGIC || header.version != BLOB_VERSION ||
        header.bytes != code.bytes || header.base != code.address) {
        why = "there is no program blob of that size";
        return fail();
    }
    const std::uint64_t address = code.address; // messages are packed
    auto found = loaded_.find(address);
    if (found != loaded_.end() && std::memcmp(&found->second.header, &header, sizeof header) != 0) {
        unload(found->second);
        loaded_.erase(found);
        found = loaded_.end();
    }
    if (found == loaded_.end()) {
        Loaded loaded;
        if (!load(code, header, loaded, why)) {
            unload(loaded);
            return fail();
        }
        found = loaded_.emplace(address, std::move(loaded)).first;
    }
    const Loaded &loaded = found->second;
    if (code.function >= loaded.names.size()) {
        why = text_of("function %u is none of its %zu", code.function, loaded.names.size());
        return fail();
    }
    void *symbol = dlsym(loaded.library, loaded.names[code.function].c_str());
    if (!symbol) {
        why = text_of("it has no function '%s'", loaded.names[code.function].c_str());
        return fail();
    }
    return symbol;
}

} // namespace kernloom
