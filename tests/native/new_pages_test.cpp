// Huge pages that are cleared from their beginning on: which pages are there, and that no byte
// changes.
#include "memory/new_pages.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory/huge_pages.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kSmallPage = 4096;
constexpr std::uint64_t kHugePages = 8;
constexpr std::uint64_t kAllBytes = kHugePages * kHugePageBytes;

class NewPagesTest : public testing::Test {
  protected:
    NewPagesTest() {
        if (memory == MAP_FAILED) {
            throw std::runtime_error("mmap");
        }
        madvise(memory, kAllBytes, MADV_NOHUGEPAGE);  // so that single pages are told apart
    }
    ~NewPagesTest() override { munmap(memory, kAllBytes); }

    std::byte* at(std::uint64_t offset) const { return static_cast<std::byte*>(memory) + offset; }
    ucp_dt_iov_t piece(std::uint64_t begin, std::uint64_t length) const {
        return {at(begin), length};
    }
    // The offsets of pages that are there, as the kernel tells.
    std::vector<std::uint64_t> there() const {
        std::vector<unsigned char> found(kAllBytes / kSmallPage);
        EXPECT_EQ(mincore(memory, kAllBytes, found.data()), 0);
        std::vector<std::uint64_t> offsets;
        for (std::uint64_t i = 0; i < found.size(); ++i) {
            if ((found[i] & 1) != 0) {
                offsets.push_back(i * kSmallPage);
            }
        }
        return offsets;
    }
    static std::uint64_t last_page(std::uint64_t block) {
        return (block + 1) * kHugePageBytes - kSmallPage;
    }

    void* const memory =
        map_aligned(kAllBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
};

TEST_F(NewPagesTest, TheLastOfEachHugePageComesFirst) {
    NewPages pages(at(kAllBytes));
    const std::vector<ucp_dt_iov_t> one{piece(100, kHugePageBytes)};  // of two huge pages
    pages.clear(one);
    EXPECT_EQ(there(), (std::vector<std::uint64_t>{last_page(0), last_page(1)}));
    const std::vector<ucp_dt_iov_t> apart{piece(3 * kHugePageBytes, 10),
                                          piece(6 * kHugePageBytes + 5, 10)};
    pages.clear(apart);
    EXPECT_EQ(there(),
              (std::vector<std::uint64_t>{last_page(0), last_page(1), last_page(3), last_page(6)}));
}

TEST_F(NewPagesTest, NothingBehindTheMemoryIsTouched) {
    NewPages pages(at(kHugePageBytes + 3 * kSmallPage + 1));
    const std::vector<ucp_dt_iov_t> some{piece(kHugePageBytes - 10, 20)};
    pages.clear(some);
    EXPECT_EQ(there(), (std::vector<std::uint64_t>{last_page(0), kHugePageBytes + 3 * kSmallPage}));
    const std::vector<ucp_dt_iov_t> beyond{piece(5 * kHugePageBytes, 20)};
    pages.clear(beyond);
    EXPECT_EQ(there().size(), 2);
    NewPages none;
    none.clear(beyond);
    EXPECT_EQ(there().size(), 2);
}

TEST_F(NewPagesTest, NoByteChanges) {
    const Bytes bytes = pattern(kAllBytes);
    std::ranges::copy(bytes, at(0));
    NewPages pages(at(kAllBytes));
    const std::vector<ucp_dt_iov_t> all{piece(0, kAllBytes)};
    pages.clear(all);
    EXPECT_EQ(std::memcmp(memory, bytes.data(), kAllBytes), 0);
}

TEST_F(NewPagesTest, MemoryThatCannotBeWrittenToIsLeftAlone) {
    mprotect(memory, kAllBytes, PROT_READ);
    NewPages pages(at(kAllBytes));
    const std::vector<ucp_dt_iov_t> all{piece(0, kAllBytes)};
    pages.clear(all);
    EXPECT_TRUE(there().empty());
}

}  // namespace
}  // namespace ucxstore::test
