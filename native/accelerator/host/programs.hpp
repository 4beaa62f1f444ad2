// Kernel libraries on the device: each is one program blob, uploaded once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device.hpp"
#include "elf.hpp"

namespace kernloom::host {

// A function that tasks can refer to.
struct Function {
    std::uint64_t code = 0;       // virtual address of its blob
    std::uint64_t code_bytes = 0; // 0: built in
    std::uint32_t place = 0;      // in the blob's table, or a timing model
    std::uint32_t core_type = KL_CORE_TYPES;
    std::uint32_t arguments = 0;
    std::uint64_t buffers = KL_UNKNOWN_KINDS; // bit i: argument i is a tensor
    std::string name;                         // in messages and traces
    bool orchestration = false;
    bool released = false;
};

class Programs {
  public:
    Programs(const kl_arch &arch, Device &device, Tensors &tensors)
        : arch_(arch), device_(device), tensors_(tensors) {
    }

    // Deploys a library, or finds it deployed, and returns the id of one of its functions. An empty
    // name: that of the file. A library with `kl_orchestrate` is an orchestration. A path
    // `builtin:NAME` is a timing model of the core program.
    Outcome load(const std::string &path, const std::string &entry, const std::string &name,
                 std::uint32_t arguments, std::uint64_t buffers);
    // Gives up a function; a blob without functions in use is freed.
    Outcome release(std::uint64_t id);
    // Null and the problem if there is no such function.
    const Function *find(std::uint64_t id, Outcome &problem) const;

    static bool is_id(std::uint64_t number);

    std::size_t blobs() const {
        return blobs_.size();
    }

  private:
    struct Blob {
        Library library;
        std::uint64_t address = 0;
        std::uint64_t bytes = 0;
        std::uint64_t references = 0;
    };
    using Key = std::pair<std::uint64_t, std::uint64_t>; // hash and size of the image

    Outcome load_builtin(const std::string &path, const std::string &name, std::uint32_t arguments);
    Outcome check(const std::string &path, const Library &library) const;
    Outcome deploy(const std::string &path, const std::vector<unsigned char> &image,
                   std::uint64_t hash, Blob &blob);
    std::uint64_t add(Function function);

    const kl_arch &arch_;
    Device &device_;
    Tensors &tensors_;
    std::map<Key, Blob> blobs_;
    std::vector<Function> functions_;
    std::vector<Key> keys_; // of each function's blob
};

} // namespace kernloom::host
