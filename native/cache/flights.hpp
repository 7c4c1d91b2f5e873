// Requests to a source that are under way, by name, so that one request serves all who ask
// meanwhile. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace ucxstore::cache {

// A Flight has a member `stale`: what it brings may be older than a change, and is not kept.
template <typename Flight>
class Flights {
  public:
    using Map = std::map<std::string, std::shared_ptr<Flight>, std::less<>>;

    bool contains(const std::string& name) const { return flights_.contains(name); }
    // nullptr where there is none.
    std::shared_ptr<Flight> find(const std::string& name) const {
        const auto found = flights_.find(name);
        return found == flights_.end() ? nullptr : found->second;
    }
    // The last one that is not behind `name`; its name begins with `prefix`. nullptr for none.
    std::shared_ptr<Flight> find_last(const std::string& name, const std::string& prefix) const {
        auto at = flights_.upper_bound(name);
        return at == flights_.begin() || !(--at)->first.starts_with(prefix) ? nullptr : at->second;
    }
    bool any_of(const std::string& prefix) const {
        const auto at = flights_.lower_bound(prefix);
        return at != flights_.end() && at->first.starts_with(prefix);
    }

    // It takes the place of any of that name: those who come from now on join this one. Nobody
    // grounds the other any more, so what it brings is not kept.
    std::shared_ptr<Flight> begin(const std::string& name) {
        std::shared_ptr<Flight>& flight = flights_[name];
        if (flight != nullptr) {
            flight->stale = true;
        }
        return flight = std::make_shared<Flight>();
    }
    void end(const std::string& name, const std::shared_ptr<Flight>& flight) {
        const auto found = flights_.find(name);
        if (found != flights_.end() && found->second == flight) {
            flights_.erase(found);
        }
    }

    // Nobody joins these from now on, and what they bring is not kept.
    void ground(const std::string& name) {
        if (const auto found = flights_.find(name); found != flights_.end()) {
            found->second->stale = true;
            flights_.erase(found);
        }
    }
    void ground_all(const std::string& prefix) {
        auto at = flights_.lower_bound(prefix);
        while (at != flights_.end() && at->first.starts_with(prefix)) {
            at->second->stale = true;
            at = flights_.erase(at);
        }
    }

  private:
    Map flights_;
};

}  // namespace ucxstore::cache
