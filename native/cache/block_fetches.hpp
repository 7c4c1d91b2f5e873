// Fetches of blocks of large objects from a source, shared by all gets that want them. Blocks that
// are next to one another are fetched, kept and evicted together, as a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/flights.hpp"
#include "cache/source_state.hpp"
#include "cache/whole_fetches.hpp"

namespace ucxstore::cache {

class BlockFetches {
  public:
    BlockFetches(SourceState& state, WholeFetches& wholes, std::uint64_t block_bytes)
        : state_(state), wholes_(wholes), block_(block_bytes) {}

    // A value with the bytes that are wanted, or nullptr where the key has none. An object that is
    // not large, or of which most is wanted, is fetched whole.
    void fetch(const std::string& key, const protocol::Selection& wanted, Later<SourceValue> then,
               const base::Whose& whose);
    // Whether its first blocks are being fetched, which may be all of it.
    bool brings_first_blocks(const std::string& key);

    // These under the lock.
    void ground(const std::string& key);
    void ground_prefix(const std::string& prefix);

  private:
    // A get of bytes of an object, until all of their blocks are there.
    struct Gather;
    using Waiting = std::vector<std::shared_ptr<Gather>>;
    // A request for the info of an object.
    struct HeadFlight {
        Waiting waiting;
        bool stale = false;
        bool brings_first_blocks = false;
    };
    // A request for a run of blocks.
    struct RunFlight {
        Run run;
        std::uint64_t version = 0;
        Waiting waiting;
        bool stale = false;
    };
    using RunFlights = std::vector<std::shared_ptr<RunFlight>>;

    void look(const std::shared_ptr<Gather>& gather);
    // True if what has come may be kept: its key was not changed meanwhile. So does landed().
    bool looked(const std::string& key, const std::shared_ptr<HeadFlight>& flight,
                CallResult result);
    void plan(const std::shared_ptr<Gather>& gather);
    bool is_better_whole(const Gather& gather, std::uint64_t missing) const REQUIRES(state_.mutex);
    RunFlights depart(const std::shared_ptr<Gather>& gather,
                      const std::vector<std::uint64_t>& missing) REQUIRES(state_.mutex);
    void request(const Gather& gather, const std::shared_ptr<RunFlight>& flight,
                 const std::shared_ptr<const ObjectInfo>& info);
    bool landed(const std::string& key, const std::shared_ptr<RunFlight>& flight,
                const ObjectInfo& info, CallResult result);
    void finish(const std::shared_ptr<Gather>& gather);

    SourceState& state_;
    WholeFetches& wholes_;
    const std::uint64_t block_;
    Flights<HeadFlight> heads_;  // by key
    Flights<RunFlight> runs_;    // by the run's name
};

}  // namespace ucxstore::cache
