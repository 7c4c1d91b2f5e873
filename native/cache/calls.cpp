#include "cache/calls.hpp"

namespace ucxstore {

const std::string& failure_of(const CallResult& result) {
    static const std::string kNone;
    static const std::string kWrong = "the source has answered another call than this one";
    if (const auto* failure = std::get_if<Failure>(&result)) {
        return failure->text;
    }
    return std::holds_alternative<Missing>(result) ? kNone : kWrong;
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
    wake_.clear();
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
