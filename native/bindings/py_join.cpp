#include "bindings/py_join.hpp"

#include <span>
#include <utility>

#include "bindings/gil.hpp"
#include "memory/joined_memory.hpp"

namespace ucxstore::bindings {
namespace {

// The mapping goes before what it maps may be used for something else.
struct Joined {
    std::vector<Joinable> values;
    std::shared_ptr<memory::Region> memory;
};

}  // namespace

std::optional<ReadOnlyBytes> join_values(std::vector<Joinable> values) {
    std::vector<std::span<const std::byte>> parts;
    for (const Joinable& value : values) {
        parts.emplace_back(reinterpret_cast<const std::byte*>(value.data()), value.size());
    }
    std::shared_ptr<memory::Region> memory;
    {
        const WithoutGil released;
        memory = memory::join(parts);
    }
    if (memory == nullptr) {
        return std::nullopt;
    }
    auto* const joined = new Joined{std::move(values), std::move(memory)};
    const nb::capsule owner(joined,
                            [](void* pointer) noexcept { delete static_cast<Joined*>(pointer); });
    const memory::Region& region = *joined->memory;
    return ReadOnlyBytes(region.data(), {static_cast<std::size_t>(region.size())}, owner);
}

}  // namespace ucxstore::bindings
