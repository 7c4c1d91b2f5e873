#include "client/map_value.hpp"

#include <algorithm>

#include "base/huge_pages.hpp"

namespace ucxstore {

MapPlan plan_mapping(std::uint64_t source, std::uint64_t target, std::uint64_t size,
                     std::uint64_t room, std::uint64_t least,
                     const std::function<bool(std::uint64_t)>& is_huge) {
    MapPlan plan;
    std::uint64_t done = 0;  // all before is in the plan
    const auto copy_until = [&](std::uint64_t end) {
        if (end > done) {
            plan.copied.push_back({done, end - done});
        }
    };
    if (source % kHugePageBytes == target % kHugePageBytes) {
        const std::uint64_t head = (kHugePageBytes - source % kHugePageBytes) % kHugePageBytes;
        const auto fits = [&](std::uint64_t at) {
            const std::uint64_t end = at + kHugePageBytes;
            return at < size && end <= size + room && is_huge((source + at) / kHugePageBytes);
        };
        for (std::uint64_t at = head; at < size;) {
            std::uint64_t end = at;
            while (fits(end)) {
                end += kHugePageBytes;
            }
            if (end > at && (end - at) / kHugePageBytes >= least) {
                copy_until(at);
                plan.mapped.push_back({at, end - at});
                done = std::min(end, size);
            }
            at = std::max(end, at + kHugePageBytes);
        }
    }
    copy_until(size);
    return plan;
}

}  // namespace ucxstore
