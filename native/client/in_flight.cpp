#include "client/in_flight.hpp"

#include <algorithm>

#include "base/status.hpp"

namespace ucxstore {

InFlight::Pointer InFlight::find(std::uint64_t id) const {
    const auto found = registered_.find(id);
    return found == registered_.end() ? nullptr : found->second;
}

void InFlight::add(const Pointer& operation) {
    operation->registered = true;
    registered_.emplace(operation->id, operation);
}

void InFlight::end(const Pointer& operation) {
    operation->registered = false;
    registered_.erase(operation->id);
    if (operation->active == 0) {
        operation->complete();
    } else {
        releasing_.emplace(operation->id, Releasing{operation, Clock::now()});
    }
}

void InFlight::released(const Pointer& operation) {
    if (operation->active == 0 && releasing_.erase(operation->id) > 0) {
        operation->complete();
    }
}

void InFlight::leak(const Pointer& operation, const std::string& message) {
    if (releasing_.erase(operation->id) > 0) {
        operation->fail(ErrorKind::server_lost, message);
        operation->complete(true);
    }
}

std::vector<InFlight::Pointer> InFlight::all() const {
    std::vector<Pointer> operations;
    for (const auto& [id, operation] : registered_) {
        operations.push_back(operation);
    }
    return operations;
}

InFlight::Due InFlight::late(TimePoint now) const {
    Due due;
    for (const auto& [id, operation] : registered_) {
        if (operation->deadline() <= now) {
            due.operations.push_back(operation);
        } else {
            due.next = std::min(due.next, operation->deadline());
        }
    }
    return due;
}

InFlight::Due InFlight::unreleased(TimePoint now, Clock::duration time) const {
    Due due;
    for (const auto& [id, one] : releasing_) {
        if (one.since + time <= now) {
            due.operations.push_back(one.operation);
        } else {
            due.next = std::min(due.next, one.since + time);
        }
    }
    return due;
}

void InFlight::wait_anew(TimePoint now) {
    for (auto& [id, one] : releasing_) {
        one.since = now;
    }
}

}  // namespace ucxstore
