// Calls to a storage about all keys under a prefix, carried out at once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "rooms.hpp"
#include "sessions/walk.hpp"

namespace ucxstore::test {

// `storage` outlives the call.
inline CallResult carry_out(Storage& storage, StorageCall call) {
    const std::shared_ptr<Storage> unowned(std::shared_ptr<Storage>(), &storage);
    Walk walk(unowned, std::move(call), std::make_shared<Brake>());
    return *walk.step(TimePoint::max());
}

// How many keys there were.
inline std::uint64_t remove_prefix(Storage& storage, const std::string& prefix) {
    return std::get<Removed>(carry_out(storage, RemovePrefixCall{prefix})).keys;
}

inline Measure measure(Storage& storage, const std::string& prefix, bool any) {
    return std::get<Measure>(carry_out(storage, MeasureCall{prefix, any}));
}

}  // namespace ucxstore::test
