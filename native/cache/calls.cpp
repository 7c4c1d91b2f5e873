#include "cache/calls.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.hpp"

namespace ucxstore {

const std::string& failure_of(const CallResult& result) {
    static const std::string kNone;
    static const std::string kWrong = "the source has answered another call than this one";
    if (const auto* failure = std::get_if<Failure>(&result)) {
        return failure->text;
    }
    return std::holds_alternative<Missing>(result) ? kNone : kWrong;
}

Calls::Calls() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_) {
        throw_errno("creating a descriptor");
    }
}

void Calls::wake() {
    const std::uint64_t one = 1;
    // A full counter is a wake-up already.
    static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
}

void Calls::push(Call call, Then then) {
    std::string why;
    {
        const std::lock_guard lock(mutex_);
        why = closed_;
        if (why.empty()) {
            queue_.emplace_back(++last_, std::move(call));
            waiting_.emplace(last_, std::move(then));
        }
    }
    if (why.empty()) {
        wake();
    } else {
        then(Failure{why});
    }
}

std::vector<std::pair<Calls::Ticket, Call>> Calls::take() {
    std::uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof(count)));
    const std::lock_guard lock(mutex_);
    return std::exchange(queue_, {});
}

std::optional<bool> Calls::answer(Ticket ticket, CallResult result) {
    Then then;
    {
        const std::lock_guard lock(mutex_);
        const auto found = waiting_.find(ticket);
        if (found == waiting_.end()) {
            return std::nullopt;
        }
        then = std::move(found->second);
        waiting_.erase(found);
    }
    return then(std::move(result));
}

void Calls::close(const std::string& why) {
    std::unordered_map<Ticket, Then> waiting;
    {
        const std::lock_guard lock(mutex_);
        closed_ = why;
        queue_.clear();
        waiting.swap(waiting_);
    }
    for (auto& [ticket, then] : waiting) {
        then(Failure{why});
    }
}

}  // namespace ucxstore
