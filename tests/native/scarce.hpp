// Memory that runs out on some threads of ours, when the test says so.
#pragma once

#include <cstddef>

namespace ucxstore::test {

// While it lives, one `operator new` on threads whose names begin so throws std::bad_alloc: the one
// after so many that have not.
class ScarceMemory {
  public:
    explicit ScarceMemory(std::size_t after, const char* threads = "ucxstore-srv");
    ScarceMemory(const ScarceMemory&) = delete;
    ScarceMemory& operator=(const ScarceMemory&) = delete;
    ~ScarceMemory();

    // Whether it has come to that.
    bool ran_out() const;
};

}  // namespace ucxstore::test
