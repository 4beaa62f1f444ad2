// Program blobs: a kernel library in device memory, with a table of its functions. A blob is bound
// to its virtual address: addresses in it are absolute.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernloom {

enum : std::uint32_t { BLOB_MAGIC = 0x4250'4C4B, BLOB_VERSION = 1 };
enum { BLOB_ALIGNMENT = 64 };

struct BlobHeader {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint64_t bytes; // of the whole blob
    std::uint64_t base;  // its own virtual address
    std::uint64_t hash;  // of the image
    std::uint64_t image; // virtual address of the library
    std::uint64_t image_bytes;
    std::uint32_t core_type;
    std::uint32_t functions; // entries of the table, which follows
};

struct BlobFunction {
    std::uint64_t name; // virtual address of its name
    std::uint64_t name_bytes;
};

// FNV-1a.
inline std::uint64_t hash_of(const void *data, std::size_t bytes) {
    const auto *at = static_cast<const unsigned char *>(data);
    std::uint64_t hash = 0xCBF29CE484222325;
    for (std::size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001B3;
    return hash;
}

} // namespace kernloom
