#include "server/storages.hpp"

#include "base/status.hpp"
#include "protocol/keys.hpp"

namespace ucxstore {

std::shared_ptr<Storage> Storages::storage_of(const std::string& key) const {
    if (wire::is_note(key)) {
        return notes;
    }
    const auto space = wire::space_of(key);
    return space ? offered_spaces().find(*space) : local;
}

Spaces& Storages::offered_spaces() const {
    if (spaces == nullptr) {
        throw Error(ErrorKind::storage,
                    "the server offers no scratch space: start it with Server(..., "
                    "scratch=\"memory://\"), or ucxstore serve --scratch memory://");
    }
    return *spaces;
}

}  // namespace ucxstore
