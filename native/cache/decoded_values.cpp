#include "cache/decoded_values.hpp"

#include <exception>
#include <utility>

#include "base/status.hpp"
#include "cache/cache_shelf.hpp"
#include "memory/copier.hpp"
#include "memory/recycler.hpp"
#include "protocol/keys.hpp"

namespace ucxstore::cache {
namespace {

// Those bytes of a value; may wait for a disk.
StoredChunk join(const std::shared_ptr<const memory::Region>& value,
                 const protocol::StoredBytes& part) {
    const std::uint64_t end = part.all ? value->size() : part.end;
    if (part.begin > end || end > value->size()) {
        throw base::Error(base::ErrorKind::storage,
                          "it has " + std::to_string(value->size()) + " bytes, and bytes " +
                              std::to_string(part.begin) + " to " + std::to_string(end) +
                              " of it were to be decoded");
    }
    const std::uint64_t length = end - part.begin;
    std::vector<ucp_dt_iov_t> pieces{{value->data() + part.begin, length}};
    if (length == 0 || !value->pieced()) {
        return {{value->data() + part.begin, length}, value};
    }
    auto owner = value->locate(pieces);
    if (pieces.size() == 1) {
        const auto* const bytes = static_cast<const std::byte*>(pieces[0].buffer);
        return {{bytes, length}, owner == nullptr ? value : owner};
    }
    const auto joined = memory::allocate_region(length);
    memory::Copier(pieces).gather(0, joined->data(), length, memory::Write::cached);
    return {{joined->data(), length}, joined};
}

}  // namespace

DecodedValues::DecodedValues(std::shared_ptr<Decoder> decoder, std::uint64_t bytes, int threads,
                             bool visible)
    : limit_(bytes),
      shelf_(visible ? make_cache_shelf(bytes, memory::Recycler::instance().limit()) : nullptr),
      decoder_(std::move(decoder)),
      cache_(bytes, Cache::Clock::now, "decoded values", readers_of(shelf_)),
      pool_(threads, 0, "ucxstore-decode") {}

DecodedValues::Value DecodedValues::found(const std::string& name, std::uint64_t version) {
    auto value = std::static_pointer_cast<const memory::Region>(cache_.peek(name));
    if (value == nullptr || value->version() != version) {
        return nullptr;
    }
    cache_.find(name);  // a use of it
    return value;
}

DecodedValues::Value DecodedValues::find(const std::string& name, std::uint64_t version) {
    const base::Lock lock(mutex_);
    Value value = found(name, version);
    hits_ += value == nullptr ? 0 : 1;
    return value;
}

void DecodedValues::decode(const Wanted& wanted, Value stored, Later<Value> then,
                           const base::Whose& whose) {
    FlightPointer flight;
    Value value;
    if (stored->version_in_doubt()) {  // nobody joins it, and it is not kept
        flight = std::make_shared<Flight>();
        flight->stale = true;
        flight->waiting.push_back(std::move(then));
    } else {
        const base::Lock lock(mutex_);
        value = found(wanted.name, stored->version());
        if (value == nullptr) {
            const auto under_way = flights_.find(wanted.name);
            if (under_way != nullptr && under_way->version == stored->version()) {
                ++joined_;
                under_way->waiting.push_back(std::move(then));
                return;
            }
            flight = flights_.begin(wanted.name);
            flight->version = stored->version();
            flight->waiting.push_back(std::move(then));
        }
    }
    if (value != nullptr) {
        then({std::move(value), {}});  // NOLINT(bugprone-use-after-move): not where there is one
        return;
    }
    const bool begun = pool_.try_post(
        [self = shared_from_this(), wanted, stored = std::move(stored), flight] {
            Outcome<Value> outcome;
            try {
                outcome.value = self->make(wanted, stored);
            } catch (const std::exception& error) {
                outcome.failure = error.what();
            }
            self->end(wanted.name, flight, std::move(outcome));
        },
        whose);
    if (!begun) {
        end(wanted.name, flight, {nullptr, "the server has no thread for it"});
    }
}

void DecodedValues::end(const std::string& name, const FlightPointer& flight,
                        Outcome<Value> outcome) {
    std::vector<Later<Value>> waiting;
    {
        const base::Lock lock(mutex_);
        flights_.end(name, flight);
        if (outcome.value != nullptr && !flight->stale && decoder_ != nullptr) {
            cache_.put(name, outcome.value);
            if (shelf_ != nullptr && shelf_->holds(*outcome.value) &&
                cache_.peek(name) != nullptr) {
                shelf_->publish(*outcome.value, shared::IndexEntry::kNotUnasked);
            }
        }
        waiting.swap(flight->waiting);
    }
    ++(outcome.value == nullptr ? failed_ : decoded_);
    for (const auto& then : waiting) {
        then(outcome);
    }
}

std::shared_ptr<const Recipe> DecodedValues::prepare(const std::string& text) {
    std::shared_ptr<Decoder> decoder;
    Prepared prepared;
    {
        const base::Lock lock(mutex_);
        const auto known = recipes_.find(text);
        if (known != recipes_.end()) {
            prepared = known->second;
        }
        decoder = decoder_;
    }
    if (decoder == nullptr) {
        throw base::Error(base::ErrorKind::storage, "the server is ending");
    }
    if (prepared.recipe == nullptr && prepared.failure.empty()) {
        try {
            prepared.recipe = decoder->prepare(text);
        } catch (const std::exception& error) {
            prepared.failure = error.what();
        }
        const base::Lock lock(mutex_);
        if (recipes_.emplace(text, prepared).second) {
            recipe_order_.push_back(text);
            if (recipe_order_.size() > kMostRecipes) {
                recipes_.erase(recipe_order_.front());
                recipe_order_.pop_front();
            }
        }
    }
    if (prepared.recipe == nullptr) {
        throw base::Error(base::ErrorKind::storage, prepared.failure);
    }
    return prepared.recipe;
}

// Room for it is made before, so that what the cache has and what is made for it take no more than
// the limit together, but for what several threads make at once.
std::shared_ptr<memory::Region> DecodedValues::allocate(const std::string& name,
                                                        std::uint64_t bytes) {
    {
        const base::Lock lock(mutex_);
        cache_.make_room_for(name, bytes);
    }
    if (shelf_ != nullptr) {
        try {
            return shelf_->allocate(name, bytes);
        } catch (const base::Error&) {  // arenas are full of what readers hold: it is sent
        }
    }
    return memory::allocate_region(bytes, memory::Kept::for_long);
}

DecodedValues::Value DecodedValues::make(const Wanted& wanted, const Value& stored) {
    const auto recipe = prepare(*wanted.recipe);
    const auto name = protocol::decoded_name(wanted.name);
    if (!name || name->digest != recipe->digest()) {
        throw base::Error(base::ErrorKind::storage, "it is named by another recipe than its own");
    }
    const std::uint64_t bytes = recipe->bytes();
    if (bytes > limit_) {
        throw base::Error(base::ErrorKind::storage, "a chunk of it takes " + std::to_string(bytes) +
                                                        " bytes, and all decoded values may take " +
                                                        std::to_string(limit_));
    }
    const StoredChunk chunk = join(stored, name->bytes);
    const auto value = allocate(wanted.name, bytes);
    try {
        recipe->decode(chunk, value);
    } catch (...) {
        if (shelf_ != nullptr) {
            shelf_->note_incomplete(*value);
        }
        throw;
    }
    value->set_version(stored->version());
    return value;
}

base::DecodedCounts DecodedValues::counts() {
    const base::Lock lock(mutex_);
    return {.decoded = decoded_,
            .hits = hits_,
            .joined = joined_,
            .failed = failed_,
            .bytes = cache_.bytes(),
            .limit = limit_,
            .evicted = cache_.evicted()};
}

bool DecodedValues::close(std::chrono::milliseconds patience) {
    std::shared_ptr<Decoder> last;
    std::map<std::string, Prepared> recipes;
    {
        const base::Lock lock(mutex_);
        last.swap(decoder_);
        recipes.swap(recipes_);
        recipe_order_.clear();
        cache_.clear();
    }
    return pool_.settle(patience);
}

}  // namespace ucxstore::cache
