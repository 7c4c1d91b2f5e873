#include "storage/memory_settings.hpp"

#include <memory>
#include <utility>

#include "memory/recycler.hpp"
#include "storage/evicting.hpp"
#include "storage/spilling.hpp"

namespace ucxstore::storage {

MemoryStorage make_memory(MemorySettings settings) {
    std::unique_ptr<Shedding> shedding;
    if (settings.evict) {
        shedding = std::make_unique<Evicting>(std::move(*settings.evict), settings.limit);
    } else if (settings.spill) {
        shedding = std::make_unique<Spilling>(*settings.spill, settings.hint.value_or(""));
    }
    auto quota = settings.hint ? Quota::of_memory(settings.limit, std::move(*settings.hint))
                               : std::make_shared<Quota>(settings.limit);
    auto shelf = settings.visible
                     ? shared::Shelf::make({.most_held = settings.mapped_limit,
                                            .counts_uses = shedding != nullptr,
                                            .keep_bytes = memory::Recycler::instance().limit(),
                                            .bound = Quota::memory_of(quota)})
                     : nullptr;
    return MemoryStorage(std::move(quota), false, std::move(shelf), std::move(shedding));
}

}  // namespace ucxstore::storage
