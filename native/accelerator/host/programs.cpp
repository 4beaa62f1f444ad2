#include "programs.hpp"

#include <cerrno>
#include <cstdio>

#include "kernloom/blob.hpp"
#include "kernloom/builtins.hpp"
#include "submission_check.hpp"

namespace kernloom::host {

namespace {

// Ids are no addresses of tensors, so that Free can tell them apart.
constexpr std::uint64_t FIRST_ID = 1ull << 63;
constexpr std::uint64_t MOST_FUNCTIONS = 1ull << 32;
constexpr char BUILTIN_PREFIX[] = "builtin:";
constexpr char ENTRY[] = "kl_core_entry";
constexpr char ORCHESTRATION_ENTRY[] = "kl_orchestrate";
constexpr char PLAIN_ENTRY[] = "kl_entry";

bool read_file(const std::string &path, std::vector<unsigned char> &content, std::string &problem) {
    std::FILE *file = std::fopen(path.c_str(), "rb");
    if (!file) {
        problem = std::strerror(errno);
        return false;
    }
    unsigned char part[1 << 16];
    for (std::size_t got; (got = std::fread(part, 1, sizeof part, file)) > 0;)
        content.insert(content.end(), part, part + got);
    const bool whole = !std::ferror(file);
    std::fclose(file);
    if (!whole)
        problem = "it cannot be read";
    return whole;
}

std::uint64_t aligned(std::uint64_t value) {
    return (value + BLOB_ALIGNMENT - 1) / BLOB_ALIGNMENT * BLOB_ALIGNMENT;
}

// File name without folders and suffix.
std::string stem(const std::string &path) {
    const std::string file = path.substr(path.rfind('/') + 1);
    return file.substr(0, file.find('.', 1));
}

Outcome load_failed(const std::string &path, const std::string &why) {
    return Outcome::failure(KL_STATUS_LOAD_FAILED,
                            text_of("%.600s cannot be loaded: %s", path.c_str(), why.c_str()));
}

} // namespace

bool Programs::is_id(std::uint64_t number) {
    return number >= FIRST_ID && number - FIRST_ID < MOST_FUNCTIONS;
}

std::uint64_t Programs::add(Function function) {
    functions_.push_back(std::move(function));
    return FIRST_ID + functions_.size() - 1;
}

Outcome Programs::check(const std::string &path, const Library &library) const {
    if (library.find(ORCHESTRATION_ENTRY) >= 0)
        return {};
    if (library.find(ENTRY) < 0 && library.find(PLAIN_ENTRY) >= 0)
        return load_failed(path, text_of("it has the entry function of host kernels (%s) only, and "
                                         "an accelerator needs a core kernel (%s)",
                                         PLAIN_ENTRY, ENTRY));
    if (!library.core_type)
        return load_failed(path, "it exports neither kl_core_type, which a core kernel has, nor "
                                 "kl_orchestrate, which an orchestration has (extern \"C\")");
    if (*library.core_type >= KL_CORE_TYPES)
        return load_failed(path, text_of("%u is no core type", *library.core_type));
    for (std::uint32_t pe = 0; pe < arch_.pes; pe++)
        if (arch_.core_types[pe] == *library.core_type)
            return {};
    return load_failed(path, text_of("it is for %s PEs, and there are none "
                                     "(arch.topology.pes.%s)",
                                     name_of_core_type(*library.core_type),
                                     name_of_core_type(*library.core_type)));
}

// Packs a blob, with the addresses it has on the device, and uploads it.
Outcome Programs::deploy(const std::string &path, const std::vector<unsigned char> &image,
                         std::uint64_t hash, Blob &blob) {
    const std::vector<std::string> &names = blob.library.functions;
    const std::uint64_t table = sizeof(BlobHeader) + names.size() * sizeof(BlobFunction);
    std::uint64_t text = 0;
    for (const std::string &name : names)
        text += name.size();
    const std::uint64_t image_at = aligned(table + text);
    std::vector<unsigned char> packed(image_at + image.size());
    Outcome problem;
    std::vector<Answer> answers;
    const Tensor *tensor = device_.place(
        {packed.size(), 0, KL_POLICY_OWNER, "code of " + stem(path), {device_.all().front()}, true},
        problem, answers);
    if (!tensor)
        return problem;
    blob.address = tensor->address;
    blob.bytes = packed.size();
    const BlobHeader header = {BLOB_MAGIC,
                               BLOB_VERSION,
                               blob.bytes,
                               blob.address,
                               hash,
                               blob.address + image_at,
                               image.size(),
                               blob.library.core_type.value_or(KL_CORE_TYPES),
                               static_cast<std::uint32_t>(names.size())};
    std::memcpy(packed.data(), &header, sizeof header);
    std::uint64_t at = table;
    for (std::size_t i = 0; i < names.size(); i++) {
        const BlobFunction function = {blob.address + at, names[i].size()};
        std::memcpy(packed.data() + sizeof header + i * sizeof function, &function,
                    sizeof function);
        std::memcpy(packed.data() + at, names[i].data(), names[i].size());
        at += names[i].size();
    }
    std::memcpy(packed.data() + image_at, image.data(), image.size());
    const Outcome written = device_.upload(*tensor, packed.data());
    if (!written.ok())
        device_.release(*tensors_.find(blob.address, 0, problem));
    return written;
}

Outcome Programs::load_builtin(const std::string &path, const std::string &name,
                               std::uint32_t arguments) {
    const unsigned builtin = find_builtin(path.substr(sizeof BUILTIN_PREFIX - 1));
    if (builtin == BUILTINS)
        return load_failed(path, "the built-in timing models are copy, read and spin");
    const BuiltinModel &model = BUILTIN_MODELS[builtin];
    if (arguments != model.arguments)
        return Outcome::failure(KL_STATUS_WRONG_ARGUMENT_COUNT,
                                text_of("the built-in timing model '%s' takes %u arguments, not %u",
                                        model.name, model.arguments, arguments));
    Function function;
    function.arguments = arguments;
    function.name = name.empty() ? model.name : name;
    function.place = builtin;
    keys_.emplace_back();
    return {KL_STATUS_OK, add(std::move(function)), {}};
}

Outcome Programs::load(const std::string &path, const std::string &entry, const std::string &name,
                       std::uint32_t arguments, std::uint64_t buffers) {
    // Names become parts of lines of reports.
    if (!tasks::is_printable(name + entry + stem(path)))
        return load_failed(path, "its name has control characters");
    if (path.starts_with(BUILTIN_PREFIX))
        return load_builtin(path, name, arguments);
    std::vector<unsigned char> image;
    std::string why;
    if (path.find('/') == std::string::npos || path.find('\0') != std::string::npos)
        return load_failed(path, "it is no path");
    if (!read_file(path, image, why))
        return load_failed(path, why);
    const std::uint64_t hash = hash_of(image.data(), image.size());
    const Key key{hash, image.size()};
    auto found = blobs_.find(key);
    if (found == blobs_.end()) {
        Blob blob;
        if (!read_library(image, blob.library, why))
            return load_failed(path, why);
        const Outcome sound = check(path, blob.library);
        if (!sound.ok())
            return sound;
        if (blob.library.find(entry) < 0)
            return load_failed(path, text_of("it has no function '%.200s'", entry.c_str()));
        const Outcome deployed = deploy(path, image, hash, blob);
        if (!deployed.ok())
            return deployed;
        found = blobs_.emplace(key, std::move(blob)).first;
    }
    Blob &blob = found->second;
    const std::int64_t place = blob.library.find(entry);
    if (place < 0)
        return load_failed(path, text_of("it has no function '%.200s'", entry.c_str()));
    blob.references++;
    Function function;
    function.code = blob.address;
    function.code_bytes = blob.bytes;
    function.place = static_cast<std::uint32_t>(place);
    function.core_type = blob.library.core_type.value_or(KL_CORE_TYPES);
    function.arguments = arguments;
    function.buffers = buffers;
    function.orchestration = entry == ORCHESTRATION_ENTRY;
    function.name = !name.empty()                              ? name
                    : entry == ENTRY || function.orchestration ? stem(path)
                                                               : entry;
    keys_.push_back(key);
    return {KL_STATUS_OK, add(std::move(function)), {}};
}

const Function *Programs::find(std::uint64_t id, Outcome &problem) const {
    if (is_id(id) && id - FIRST_ID < functions_.size() && !functions_[id - FIRST_ID].released)
        return &functions_[id - FIRST_ID];
    problem = Outcome::failure(KL_STATUS_UNKNOWN_KERNEL,
                               text_of("no kernel has handle %llu", (unsigned long long)id));
    return nullptr;
}

Outcome Programs::release(std::uint64_t id) {
    Outcome problem;
    if (!find(id, problem))
        return problem;
    Function &function = functions_[id - FIRST_ID];
    function.released = true;
    const auto blob = blobs_.find(keys_[id - FIRST_ID]);
    if (!function.code_bytes || blob == blobs_.end() || --blob->second.references)
        return {};
    Tensor *tensor = tensors_.find_start(blob->second.address, problem);
    blobs_.erase(blob);
    return tensor ? device_.release(*tensor) : problem;
}

} // namespace kernloom::host
