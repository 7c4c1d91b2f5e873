// Mandate: what threads other than a session's are given with its work: whose turn that takes, and
// whether it may still be done.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/fair_queue.hpp"

namespace ucxstore::base {

// Any thread. It never changes.
class Mandate {
  public:
    // Throws Error(denied) where the session may do nothing any more.
    using Check = std::function<void()>;

    // Of a session of this origin.
    Mandate(std::string origin, Check check)
        : whose_{std::move(origin), ++last_}, check_(std::move(check)) {}
    Mandate(const Mandate&) = delete;
    Mandate& operator=(const Mandate&) = delete;

    const Whose& whose() const { return whose_; }
    // To be called when something is done, and not only when it is asked: that may be long before.
    void check() const {
        if (check_) {
            check_();
        }
    }

  private:
    inline static std::atomic<std::uint64_t> last_ = 0;

    const Whose whose_;
    const Check check_;
};

// nullptr for what a server does on its own account.
using MandateRef = std::shared_ptr<const Mandate>;

inline Whose whose_of(const MandateRef& mandate) {
    return mandate == nullptr ? Whose() : mandate->whose();
}
inline void check(const MandateRef& mandate) {
    if (mandate != nullptr) {
        mandate->check();
    }
}

}  // namespace ucxstore::base
