#include "cache/whole_fetches.hpp"

#include <utility>

#include "storage/version.hpp"

namespace ucxstore::cache {

void WholeFetches::fetch(const std::string& key, Later<SourceValue> then,
                         const base::Whose& whose) {
    std::shared_ptr<Flight> flight;
    SourceValue value;
    {
        const base::Lock lock(state_.mutex);
        const bool may_join = state_.objects.may_join(key);
        value = may_join ? state_.objects.whole(key) : nullptr;  // it may have come meanwhile
        if (value == nullptr) {
            const auto under_way = flights_.find(key);
            if (under_way != nullptr && may_join) {
                ++state_.counters.joined;
                under_way->waiting.push_back(std::move(then));
                return;
            }
            flight = flights_.begin(key);
            flight->stale = state_.changes_now(key);
            flight->waiting.push_back(std::move(then));
        }
    }
    if (value != nullptr) {
        then({std::move(value), {}});  // NOLINT(bugprone-use-after-move): not where there is one
        return;
    }
    state_.calls.push(
        GetCall{key},
        [this, key, flight](CallResult result) { return landed(key, flight, std::move(result)); },
        {}, whose);
}

bool WholeFetches::landed(const std::string& key, const std::shared_ptr<Flight>& flight,
                          CallResult result) {
    Outcome<SourceValue> outcome;
    if (const auto* object = std::get_if<SourceObject>(&result); object && object->value) {
        object->value->set_version(storage::version_of(object->etag, *object->value));
        outcome.value = object->value;
    } else {
        outcome.failure = failure_of(result);
    }
    std::vector<Later<SourceValue>> waiting;
    bool may_be_kept = false;
    {
        const base::Lock lock(state_.mutex);
        flights_.end(key, flight);
        may_be_kept = outcome.value != nullptr && !flight->stale;
        if (may_be_kept) {
            state_.objects.keep_whole(key, outcome.value);
        }
        waiting.swap(flight->waiting);
    }
    for (const auto& then : waiting) {
        then(outcome);
    }
    return may_be_kept;
}

}  // namespace ucxstore::cache
