// Program blobs that a program has loaded from device memory, each from a copy of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernloom/blob.hpp"
#include "kernloom/fabric.hpp"

namespace kernloom {

class Code {
  public:
    // Memory is read as `pe` sees it.
    Code(const kl_platform &platform, kl_node node, kl_node pe)
        : platform_(platform), node_(node), pe_(pe) {
    }
    ~Code();
    Code(const Code &) = delete;
    Code &operator=(const Code &) = delete;

    // A function, loaded at its first use; null and the reason if the address and the size are not
    // those of a sound blob with such a function. `user` names what it is for.
    void *find(const CodeRecord &code, const std::string &user, Outcome &problem);

  private:
    struct Loaded {
        BlobHeader header{};
        int file = -1;
        void *library = nullptr;
        std::vector<std::string> names;
    };

    bool read(std::uint64_t address, void *to, std::uint64_t bytes);
    bool load(const CodeRecord &code, const BlobHeader &header, Loaded &loaded, std::string &why);
    static void unload(Loaded &loaded);

    const kl_platform &platform_;
    kl_node node_;
    kl_node pe_;
    std::map<std::uint64_t, Loaded> loaded_; // by address
};

} // namespace kernloom
