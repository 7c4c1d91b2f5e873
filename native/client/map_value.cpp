#include "client/map_value.hpp"

#include <algorithm>

namespace ucxstore {

MapPlan plan_mapping(std::uint64_t source, std::uint64_t target, std::uint64_t size,
                     std::uint64_t room, const MapRules& rules) {
    const std::uint64_t piece = rules.piece;
    MapPlan plan;
    std::uint64_t done = 0;  // all before is in the plan
    const auto copy_until = [&](std::uint64_t end) {
        if (end > done) {
            plan.copied.push_back({done, end - done});
        }
    };
    if (source % piece == target % piece) {
        const std::uint64_t head = (piece - source % piece) % piece;
        const auto fits = [&](std::uint64_t at) {
            const std::uint64_t end = at + piece;
            return at < size && end <= size + room && rules.is_there((source + at) / piece);
        };
        for (std::uint64_t at = head; at < size;) {
            std::uint64_t end = at;
            while (fits(end)) {
                end += piece;
            }
            if (end > at && (end - at) / piece >= rules.least) {
                copy_until(at);
                plan.mapped.push_back({at, end - at});
                done = std::min(end, size);
            }
            at = std::max(end, at + piece);
        }
    }
    copy_until(size);
    return plan;
}

}  // namespace ucxstore
