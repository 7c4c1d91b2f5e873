// Fetches of whole objects from a source: one request for each, shared by all gets that want it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/flights.hpp"
#include "cache/source_state.hpp"

namespace ucxstore::cache {

class WholeFetches {
  public:
    explicit WholeFetches(SourceState& state) : state_(state) {}

    // The value, or nullptr where the key has none.
    void fetch(const std::string& key, Later<SourceValue> then, const base::Whose& whose);

    // These under the lock.
    bool fetches(const std::string& key) const { return flights_.contains(key); }
    void ground(const std::string& key) { flights_.ground(key); }
    void ground_prefix(const std::string& prefix) { flights_.ground_all(prefix); }

  private:
    struct Flight {
        std::vector<Later<SourceValue>> waiting;
        bool stale = false;
    };

    // Whether what has come may be kept: its key was not changed meanwhile.
    bool landed(const std::string& key, const std::shared_ptr<Flight>& flight, CallResult result);

    SourceState& state_;
    Flights<Flight> flights_;
};

}  // namespace ucxstore::cache
