// Which pages of an arena are free: best fit, neighbours joined. Pure arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ucxstore {

class Extents {
  public:
    // Pages [0, count), all free.
    explicit Extents(std::uint64_t count);

    // The first of so many pages in a row, which begin on a multiple of `alignment`, in the
    // smallest free run that has them; nullopt where none has.
    std::optional<std::uint64_t> take(std::uint64_t count, std::uint64_t alignment = 1);
    // What take() returned, whole.
    void give(std::uint64_t first, std::uint64_t count);

    std::uint64_t free() const { return free_; }
    // The most that one take() can have, where it asks for no alignment.
    std::uint64_t largest() const { return by_count_.empty() ? 0 : by_count_.rbegin()->first; }

  private:
    void add(std::uint64_t first, std::uint64_t count);
    void remove(std::uint64_t first, std::uint64_t count);

    std::map<std::uint64_t, std::uint64_t> by_first_;             // to counts
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_count_;  // with firsts
    std::uint64_t free_ = 0;
};

}  // namespace ucxstore
