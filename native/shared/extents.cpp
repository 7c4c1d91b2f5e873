#include "shared/extents.hpp"

#include <iterator>

namespace ucxstore::shared {

Extents::Extents(std::uint64_t count) {
    provide();
    if (count > 0) {
        add(0, count);
    }
}

std::optional<std::uint64_t> Extents::take(std::uint64_t count, std::uint64_t alignment) {
    for (auto run = by_count_.lower_bound({count, 0}); run != by_count_.end(); ++run) {
        const auto [length, first] = *run;
        const std::uint64_t begin = (first + alignment - 1) / alignment * alignment;
        if (begin - first + count > length) {
            continue;  // it has them, but does not begin well
        }
        provide();
        ++taken_;
        remove(first, length);
        if (begin > first) {
            add(first, begin - first);
        }
        if (begin + count < first + length) {
            add(begin + count, first + length - begin - count);
        }
        return begin;
    }
    return std::nullopt;
}

void Extents::give(std::uint64_t first, std::uint64_t count) {
    --taken_;
    const auto next = by_first_.lower_bound(first);
    std::uint64_t begin = first;
    std::uint64_t end = first + count;
    if (next != by_first_.begin()) {
        const auto [before, length] = *std::prev(next);
        if (before + length == begin) {
            remove(before, length);
            begin = before;
        }
    }
    const auto after = by_first_.find(end);
    if (after != by_first_.end()) {
        const auto [at, length] = *after;
        remove(at, length);
        end += length;
    }
    add(begin, end - begin);
}

void Extents::add(std::uint64_t first, std::uint64_t count) {
    Nodes nodes = std::move(spare_.back());
    spare_.pop_back();
    nodes.by_first.key() = first;
    nodes.by_first.mapped() = count;
    nodes.by_count.value() = {count, first};
    by_first_.insert(std::move(nodes.by_first));
    by_count_.insert(std::move(nodes.by_count));
    free_ += count;
}

void Extents::remove(std::uint64_t first, std::uint64_t count) {
    spare_.push_back({by_first_.extract(first), by_count_.extract({count, first})});
    free_ -= count;
}

void Extents::provide() {
    const std::size_t wanted = taken_ + 3;
    if (spare_.capacity() < wanted) {
        spare_.reserve(2 * wanted);
    }
    while (by_first_.size() + spare_.size() < wanted) {
        ByFirst first{{0, 0}};
        ByCount count{{0, 0}};
        spare_.push_back({first.extract(first.begin()), count.extract(count.begin())});
    }
}

}  // namespace ucxstore::shared
