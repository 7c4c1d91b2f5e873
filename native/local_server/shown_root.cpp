#include "local_server/shown_root.hpp"

#include <utility>

#include "base/status.hpp"
#include "local/same_rights.hpp"

namespace ucxstore::local_server {

std::unique_ptr<ShownRoot> ShownRoot::make(const sessions::Storages& storages, int life, int socket,
                                           std::shared_ptr<base::SeenByClient> seen_by) {
    if (storages.root < 0 || !local::has_our_rights(socket)) {
        return nullptr;
    }
    try {
        return std::unique_ptr<ShownRoot>(new ShownRoot(storages, life, std::move(seen_by)));
    } catch (const base::Error&) {  // for want of memory or descriptors
        return nullptr;
    }
}

ShownRoot::ShownRoot(const sessions::Storages& storages, int life,
                     std::shared_ptr<base::SeenByClient> seen_by)
    : seen_by_(std::move(seen_by)), page_(storages.readers->add()) {
    message_.descriptors.push_back(stream::copy_of(life));
    message_.descriptors.push_back(page_->take_descriptor());
    message_.descriptors.push_back(stream::copy_of(storages.root));
    seen_by_->add(page_);
}

}  // namespace ucxstore::local_server
