#include "cache/calls.hpp"

#include <unordered_set>

namespace ucxstore::cache {
namespace {

const std::string kNone;
const std::string kWrong = "the source has answered another call than this one";

}  // namespace

const std::string& failure_of(const CallResult& result) {
    if (const auto* failure = std::get_if<Failure>(&result)) {
        return failure->text;
    }
    return std::holds_alternative<Missing>(result) ? kNone : kWrong;
}

bool is_unknown(const CallResult& result) {
    const auto* failure = std::get_if<Failure>(&result);
    return failure != nullptr && failure->unknown;
}

void Calls::push(Call call, Then then, Moves moves, base::Whose whose) {
    std::string why;
    {
        const base::Lock lock(mutex_);
        why = closed_;
        if (why.empty()) {
            // First of all: what is carried out has somebody to be told.
            const auto waiting =
                waiting_
                    .emplace(++last_, Waiting{std::move(then), std::move(moves), std::move(whose)})
                    .first;
            try {
                queue_.emplace_back(last_, std::move(call));
            } catch (...) {
                waiting_.erase(waiting);
                throw;
            }
        }
    }
    if (why.empty()) {
        wake();
    } else {
        then(Failure{why});  // NOLINT(bugprone-use-after-move): not moved where there is a reason
    }
}

std::vector<std::pair<Calls::Ticket, Call>> Calls::take() {
    wake_.clear();
    const base::Lock lock(mutex_);
    return std::exchange(queue_, {});
}

base::Whose Calls::whose(Ticket ticket) const {
    const base::Lock lock(mutex_);
    const auto found = waiting_.find(ticket);
    return found == waiting_.end() ? base::Whose() : found->second.whose;
}

std::optional<bool> Calls::answer(Ticket ticket, CallResult result) {
    Then then;
    {
        const base::Lock lock(mutex_);
        const auto found = waiting_.find(ticket);
        if (found == waiting_.end()) {
            return std::nullopt;
        }
        then = std::move(found->second.then);
        waiting_.erase(found);
    }
    ++answered_;
    return then(std::move(result));
}

bool Calls::moved(Ticket ticket) {
    Moves moves;
    {
        const base::Lock lock(mutex_);
        const auto found = waiting_.find(ticket);
        if (found == waiting_.end()) {
            return false;
        }
        moves = found->second.moves;
    }
    return !moves || moves();
}

void Calls::close(const std::string& why) {
    std::unordered_map<Ticket, Waiting> waiting;
    std::unordered_set<Ticket> untaken;
    {
        const base::Lock lock(mutex_);
        closed_ = why;
        for (const auto& [ticket, call] : std::exchange(queue_, {})) {
            untaken.insert(ticket);
        }
        waiting.swap(waiting_);
    }
    for (auto& [ticket, one] : waiting) {
        one.then(Failure{why, !untaken.contains(ticket)});
    }
}

}  // namespace ucxstore::cache
