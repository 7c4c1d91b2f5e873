#include "storage/quota.hpp"

#include "base/status.hpp"

namespace ucxstore {

void Quota::take(std::uint64_t size) {
    std::uint64_t taken = taken_;
    do {
        if (size > limit_ - taken) {
            throw Error(ErrorKind::storage, "no room for " + std::to_string(size) +
                                                " bytes: values take " + std::to_string(taken) +
                                                " of " + std::to_string(limit_) + " bytes of " +
                                                of_);
        }
    } while (!taken_.compare_exchange_weak(taken, taken + size));
    if (within_ != nullptr) {
        try {
            within_->take(size);
        } catch (...) {
            taken_ -= size;
            throw;
        }
    }
}

void Quota::give(std::uint64_t size) {
    taken_ -= size;
    if (within_ != nullptr) {
        within_->give(size);
    }
}

}  // namespace ucxstore
