#include "server/shown_root.hpp"

#include "base/status.hpp"
#include "local/same_rights.hpp"

namespace ucxstore {

std::unique_ptr<ShownRoot> ShownRoot::make(const Storages& storages, int life, int socket) {
    if (storages.root < 0 || !local::has_our_rights(socket)) {
        return nullptr;
    }
    try {
        return std::unique_ptr<ShownRoot>(new ShownRoot(storages, life));
    } catch (const Error&) {  // for want of memory or descriptors
        return nullptr;
    }
}

ShownRoot::ShownRoot(const Storages& storages, int life) : page_(storages.readers->add()) {
    message_.descriptors.push_back(local::copy_of(life));
    message_.descriptors.push_back(page_->take_descriptor());
    message_.descriptors.push_back(local::copy_of(storages.root));
}

}  // namespace ucxstore
