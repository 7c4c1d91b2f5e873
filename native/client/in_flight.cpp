#include "client/in_flight.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace ucxstore {

InFlight::Pointer InFlight::find(std::uint64_t id) const {
    const auto found = all_.find(id);
    const bool there = found != all_.end() && found->second.operation->registered;
    return there ? found->second.operation : nullptr;
}

void InFlight::add(const Pointer& operation) {
    all_.emplace(operation->id, One{operation});
    operation->registered = true;
    ++registered_;
}

void InFlight::moved(Operation& operation) {
    last_moved_ = Clock::now();
    operation.moved(last_moved_);
}

void InFlight::end(const Pointer& operation) {
    const auto found = all_.find(operation->id);
    if (!std::exchange(operation->registered, false)) {
        return;
    }
    --registered_;
    if (operation->active == 0) {
        const Pointer kept = operation;  // it may be the map's own
        all_.erase(found);
        kept->complete();
    } else {
        found->second.ended = Clock::now();
    }
}

void InFlight::released(const Pointer& operation) {
    if (operation->active == 0 && !operation->registered && all_.erase(operation->id) > 0) {
        operation->complete();
    }
}

void InFlight::leak(const Pointer& operation, std::string_view peer, std::string_view why) {
    if (!operation->registered && all_.erase(operation->id) > 0) {
        operation->fail(ErrorKind::server_lost, {peer, ": ", why});
        operation->complete(true);
    }
}

InFlight::Due InFlight::late(TimePoint now) const {
    Due due;
    for (const auto& [id, one] : all_) {
        const Pointer& operation = one.operation;
        if (!operation->registered) {
            continue;
        }
        if (operation->deadline() <= now && operation->waits_to_be_sent()) {
            operation->moved_at_least(last_moved_);
        }
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
    for (const auto& [id, one] : all_) {
        if (one.operation->registered) {
            continue;
        }
        if (one.ended + time <= now) {
            due.operations.push_back(one.operation);
        } else {
            due.next = std::min(due.next, one.ended + time);
        }
    }
    return due;
}

void InFlight::wait_anew(TimePoint now) {
    for (auto& [id, one] : all_) {
        if (!one.operation->registered) {
            one.ended = now;
        }
    }
}

}  // namespace ucxstore
