// Program blobs that this PE has loaded from device memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernloom/blob.hpp"
#include "kernloom/fabric.hpp"

namespace kernloom::core {

class Code {
  public:
    Code(const kl_platform &platform, kl_node node) : platform_(platform), node_(node) {
    }
    ~Code();
    Code(const Code &) = delete;
    Code &operator=(const Code &) = delete;

    // The function of a task, loaded at its first use; null and the reason if the address and the
    // size are not those of a sound blob with such a function.
    kl_core_entry_function find(const TaskRecord &task, Outcome &problem);

  private:
    struct Loaded {
        BlobHeader header{};
        int file = -1;
        void *library = nullptr;
        std::vector<std::string> names;
    };

    bool read(std::uint64_t address, void *to, std::uint64_t bytes);
    bool load(const TaskRecord &task, const BlobHeader &header, Loaded &loaded, std::string &why);
    static void unload(Loaded &loaded);

    const kl_platform &platform_;
    kl_node node_;
    std::map<std::uint64_t, Loaded> loaded_; // by address
};

} // namespace kernloom::core
