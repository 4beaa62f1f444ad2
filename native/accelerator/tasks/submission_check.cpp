#include "submission_check.hpp"

#include <algorithm>

namespace kernloom::tasks {

Machine::Machine(const kl_arch &arch) : cubes(arch.sips * arch.cubes) {
    for (std::uint32_t i = 0; i < arch.pes && i < KL_MAX_PES_PER_CUBE; i++)
        if (arch.core_types[i] < KL_CORE_TYPES)
            of_cube[arch.core_types[i]]++;
    for (std::uint32_t type = 0; type < KL_CORE_TYPES; type++)
        pes[type] = of_cube[type] * cubes;
}

bool is_printable(std::string_view name) {
    return std::none_of(name.begin(), name.end(), [](char character) {
        return static_cast<unsigned char>(character) < ' ' || character == 127;
    });
}

namespace {

class Check {
  public:
    Check(const kl_submission &submission, std::span<const KernelView> kernels,
          const Machine &machine, Outcome &problem)
        : submission_(submission), kernels_(kernels), machine_(machine), problem_(problem) {
    }

    bool name();
    bool kernels();
    bool blocks();

  private:
    bool core_type(const KernelView &kernel);
    bool kinds(const KernelView &kernel);
    bool refuse(std::uint32_t status, std::string detail) {
        problem_ = Outcome::failure(status, std::move(detail));
        return false;
    }

    const kl_submission &submission_;
    std::span<const KernelView> kernels_;
    const Machine &machine_;
    Outcome &problem_;
};

bool Check::name() {
    return !submission_.name || is_printable(submission_.name) ||
           refuse(KL_STATUS_INVALID, "its name has control characters");
}

bool Check::core_type(const KernelView &kernel) {
    if (kernel.core_type >= KL_CORE_TYPES || machine_.pes[kernel.core_type])
        return true;
    return refuse(KL_STATUS_UNSUPPORTED,
                  text_of("kernel '%.100s' is for %s PEs, and the arch has none "
                          "(arch.topology.pes.%s)",
                          std::string(kernel.name).c_str(), name_of_core_type(kernel.core_type),
                          name_of_core_type(kernel.core_type)));
}

bool Check::kinds(const KernelView &kernel) {
    if (!kernel.has_kinds)
        return true;
    for (std::uint32_t i = 0; i < submission_.arguments_count; i++) {
        const kl_task_argument &given = submission_.arguments[i];
        const bool tensor = given.type == KL_ARGUMENT_TENSOR;
        const bool none = given.type == KL_ARGUMENT_VALUE && given.bits == 0;
        const bool wanted = kernel.buffers >> i & 1;
        if (tensor != wanted && !(wanted && none))
            return refuse(KL_STATUS_INVALID,
                          text_of("argument %u of kernel '%.100s' is a %s, not a %s", i,
                                  std::string(kernel.name).c_str(), tensor ? "value" : "tensor",
                                  tensor ? "tensor" : "value"));
    }
    return true;
}

bool Check::kernels() {
    const kl_submission &given = submission_;
    if (given.arguments_count > KL_MAX_TASK_ARGUMENTS)
        return refuse(KL_STATUS_INVALID,
                      text_of("%u arguments, and a task has at most %u", given.arguments_count,
                              static_cast<unsigned>(KL_MAX_TASK_ARGUMENTS)));
    if (given.arguments_count && !given.arguments)
        return refuse(KL_STATUS_INVALID, "its arguments are missing");
    if (given.kernel == KL_NO_KERNEL && !given.vectors)
        return true;
    const std::size_t kernels = kernels_.size();
    for (const std::uint32_t place : {given.kernel, given.vector_kernel}) {
        if (place >= kernels)
            return refuse(KL_STATUS_UNKNOWN_KERNEL,
                          text_of("there is no kernel %u: the launch has %zu", place, kernels));
        const KernelView &kernel = kernels_[place];
        if (kernel.arguments != given.arguments_count)
            return refuse(KL_STATUS_WRONG_ARGUMENT_COUNT,
                          text_of("kernel '%.100s' takes %u arguments, not %u",
                                  std::string(kernel.name).c_str(), kernel.arguments,
                                  given.arguments_count));
        if (!kinds(kernel) || !core_type(kernel))
            return false;
        if (!given.vectors)
            return true;
    }
    return true;
}

bool Check::blocks() {
    const kl_submission &given = submission_;
    const bool mixed = given.vectors != 0;
    if (mixed) {
        // A kernel is built for a core type that the arch has: without one, the types of both say
        // nothing.
        for (std::uint32_t type = 0; type < KL_CORE_TYPES; type++)
            if (!machine_.of_cube[type])
                return refuse(KL_STATUS_UNSUPPORTED,
                              text_of("a mixed task takes a matrix PE and vector PEs, and the arch "
                                      "has no %s PEs (arch.topology.pes.%s)",
                                      name_of_core_type(type), name_of_core_type(type)));
        const std::uint32_t types[] = {kernels_[given.kernel].core_type,
                                       kernels_[given.vector_kernel].core_type};
        if (types[0] == KL_CORE_VECTOR || types[1] == KL_CORE_MATRIX)
            return refuse(KL_STATUS_INVALID, "a mixed task takes a matrix kernel and a vector "
                                             "kernel");
        const std::uint32_t most =
            std::min<std::uint32_t>(KL_MAX_VECTORS, machine_.of_cube[KL_CORE_VECTOR]);
        if (given.vectors > most)
            return refuse(KL_STATUS_UNSUPPORTED,
                          text_of("a mixed task with %u vector PEs is wider than a cube, which has "
                                  "%u for it (arch.topology.pes.vector; a mixed task takes at most "
                                  "%u)",
                                  given.vectors, most, static_cast<unsigned>(KL_MAX_VECTORS)));
    }
    if (given.blocks > 1 && given.of_blocks)
        return refuse(KL_STATUS_INVALID, text_of("it has %u blocks and is itself block %u of %u",
                                                 given.blocks, given.block, given.of_blocks));
    if (given.of_blocks ? given.block >= given.of_blocks : given.block > 0)
        return refuse(KL_STATUS_INVALID,
                      text_of("it is block %u of %u", given.block, std::max(given.of_blocks, 1u)));
    // Blocks are numbers of 32 bits, also those that vector kernels see, and also executions.
    const std::uint64_t seen = std::max<std::uint64_t>(given.blocks, given.of_blocks);
    if (mixed && (seen * given.vectors > UINT32_MAX || executions_of(given) > UINT32_MAX))
        return refuse(KL_STATUS_INVALID,
                      text_of("%llu blocks with %u vector PEs each are too many to be counted",
                              static_cast<unsigned long long>(seen), given.vectors));
    if (!given.sync_start || given.kernel == KL_NO_KERNEL)
        return true;
    const std::uint32_t type = kernels_[given.kernel].core_type;
    std::uint32_t width = 0;
    if (mixed)
        width = machine_.cubes * std::min(machine_.of_cube[KL_CORE_MATRIX],
                                          machine_.of_cube[KL_CORE_VECTOR] / given.vectors);
    else if (type < KL_CORE_TYPES)
        width = machine_.pes[type];
    else
        width = machine_.pes[KL_CORE_MATRIX] + machine_.pes[KL_CORE_VECTOR];
    if (given.blocks <= width)
        return true;
    const char *const where = mixed                  ? "places for mixed tasks"
                              : type < KL_CORE_TYPES ? name_of_core_type(type)
                                                     : "";
    return refuse(KL_STATUS_UNSUPPORTED,
                  text_of("%u blocks cannot start at the same instant: the arch has %u %s%s "
                          "(arch.topology)",
                          given.blocks, width, where,
                          mixed                  ? ""
                          : type < KL_CORE_TYPES ? " PEs"
                                                 : "PEs"));
}

} // namespace

bool check_submission(const kl_submission &submission, std::span<const KernelView> kernels,
                      const Machine &machine, Outcome &problem) {
    Check check(submission, kernels, machine, problem);
    return check.name() && check.kernels() && check.blocks();
}

} // namespace kernloom::tasks
