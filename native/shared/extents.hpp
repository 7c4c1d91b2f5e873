// Which pages of an arena are free: best fit, neighbours joined. Pure arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ucxstore::shared {

class Extents {
  public:
    // Pages [0, count), all free.
    explicit Extents(std::uint64_t count);

    // The first of so many pages in a row, which begin on a multiple of `alignment`, in the
    // smallest free run that has them; nullopt where none has. Where there is no memory for notes,
    // it throws, and nothing is taken.
    std::optional<std::uint64_t> take(std::uint64_t count, std::uint64_t alignment = 1);
    // What take() returned, whole. Needs no memory: whoever gives back could not do without.
    void give(std::uint64_t first, std::uint64_t count);

    std::uint64_t free() const { return free_; }
    // The most that one take() can have, where it asks for no alignment.
    std::uint64_t largest() const { return by_count_.empty() ? 0 : by_count_.rbegin()->first; }

  private:
    using ByFirst = std::map<std::uint64_t, std::uint64_t>;             // to counts
    using ByCount = std::set<std::pair<std::uint64_t, std::uint64_t>>;  // with firsts
    // The nodes of one free run.
    struct Nodes {
        ByFirst::node_type by_first;
        ByCount::node_type by_count;
    };

    // These two need no memory, once there are enough spare nodes.
    void add(std::uint64_t first, std::uint64_t count);
    void remove(std::uint64_t first, std::uint64_t count);
    // Makes spare nodes for one run more that is taken: there is at most one free run between two
    // of these.
    void provide();

    ByFirst by_first_;
    ByCount by_count_;
    std::vector<Nodes> spare_;
    std::uint64_t taken_ = 0;  // runs
    std::uint64_t free_ = 0;
};

}  // namespace ucxstore::shared
