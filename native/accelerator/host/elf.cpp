#include "elf.hpp"

#include <algorithm>
#include <cstring>
#include <elf.h>

namespace kernloom::host {

namespace {

// The bytes of a file; nothing is read beyond its end.
class File {
  public:
    explicit File(const std::vector<unsigned char> &bytes) : bytes_(bytes) {
    }

    template <class T> bool read(std::uint64_t at, T &part) const {
        if (at > bytes_.size() || sizeof part > bytes_.size() - at)
            return false;
        std::memcpy(&part, bytes_.data() + at, sizeof part);
        return true;
    }

    // The text at an offset, which ends with a zero byte before `end`.
    bool text(std::uint64_t at, std::uint64_t end, std::string &text) const {
        if (at >= end || end > bytes_.size())
            return false;
        const auto *start = reinterpret_cast<const char *>(bytes_.data()) + at;
        const std::size_t length = strnlen(start, end - at);
        text.assign(start, length);
        return length < end - at;
    }

  private:
    const std::vector<unsigned char> &bytes_;
};

// The 4 bytes that are loaded to an address.
bool read_loaded(const File &file, const Elf64_Ehdr &header, std::uint64_t address,
                 std::uint32_t &value) {
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        if (!file.read(header.e_phoff + i * sizeof part, part))
            return false;
        if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
            address - part.p_vaddr < part.p_filesz)
            return file.read(part.p_offset + (address - part.p_vaddr), value);
    }
    return false;
}

bool read_symbols(const File &file, const Elf64_Ehdr &header, const Elf64_Shdr &section,
                  Library &library) {
    Elf64_Shdr strings;
    if (!file.read(header.e_shoff + std::uint64_t{section.sh_link} * sizeof strings, strings) ||
        strings.sh_size > ~0ull - strings.sh_offset)
        return false;
    const std::uint64_t end = strings.sh_offset + strings.sh_size;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        std::string name;
        if (!file.read(section.sh_offset + at, symbol))
            return false;
        if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL)
            continue;
        if (!file.text(strings.sh_offset + symbol.st_name, end, name))
            return false;
        const unsigned type = ELF64_ST_TYPE(symbol.st_info);
        std::uint32_t value;
        if (type == STT_FUNC && !name.empty())
            library.functions.push_back(name);
        // A sanitizer makes it larger.
        else if (type == STT_OBJECT && name == "kl_core_type" && symbol.st_size >= sizeof value &&
                 read_loaded(file, header, symbol.st_value, value))
            library.core_type = value;
    }
    return true;
}

} // namespace

std::int64_t Library::find(const std::string &name) const {
    const auto at = std::lower_bound(functions.begin(), functions.end(), name);
    return at != functions.end() && *at == name ? at - functions.begin() : -1;
}

bool read_library(const std::vector<unsigned char> &bytes, Library &library, std::string &problem) {
    const File file(bytes);
    Elf64_Ehdr header;
    if (!file.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_type != ET_DYN || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_phentsize != sizeof(Elf64_Phdr)) {
        problem = "it is no shared library";
        return false;
    }
    for (unsigned i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        if (!file.read(header.e_shoff + i * sizeof section, section) ||
            (section.sh_type == SHT_DYNSYM && !read_symbols(file, header, section, library))) {
            problem = "it is damaged";
            return false;
        }
    }
    std::sort(library.functions.begin(), library.functions.end());
    library.functions.erase(std::unique(library.functions.begin(), library.functions.end()),
                            library.functions.end());
    return true;
}

} // namespace kernloom::host
