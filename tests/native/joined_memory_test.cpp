// Memory in several places that is mapped once more, one part after the other.
#include "memory/joined_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "base/handle.hpp"
#include "memory/huge_pages.hpp"
#include "rooms.hpp"

namespace ucxstore::test {
namespace {

using Part = std::span<const std::byte>;

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

// A shared mapping, whose page i is full of the byte `first` + i.
class Shared {
  public:
    Shared(std::size_t pages, unsigned char first, int flags = MAP_SHARED)
        : size_(pages * kPage), file_(memfd_create("joined", MFD_CLOEXEC)) {
        EXPECT_EQ(ftruncate(file_.get(), static_cast<off_t>(size_)), 0);
        for (std::size_t i = 0; i < pages; ++i) {
            const std::string bytes(kPage, static_cast<char>(first + i));
            EXPECT_EQ(pwrite(file_.get(), bytes.data(), kPage, static_cast<off_t>(i * kPage)),
                      static_cast<ssize_t>(kPage));
        }
        memory_ = mmap(nullptr, size_, PROT_READ, flags, file_.get(), 0);
        EXPECT_NE(memory_, MAP_FAILED);
    }
    Shared(const Shared&) = delete;
    ~Shared() { munmap(memory_, size_); }

    Part part(std::size_t page, std::size_t pages) const {
        return {static_cast<const std::byte*>(memory_) + page * kPage, pages * kPage};
    }
    int file() const { return file_.get(); }

  private:
    const std::size_t size_;
    const Fd file_;
    void* memory_;
};

std::string pages_of(const Region& region) {
    std::string firsts;
    for (std::uint64_t at = 0; at < region.size(); at += kPage) {
        firsts.push_back(static_cast<char>(region.data()[at]));
        EXPECT_EQ(std::memcmp(region.data() + at, region.data() + at + 1, kPage - 1), 0);
    }
    return firsts;
}

std::size_t mappings() {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
        count += line.find("memfd:joined") != std::string::npos ? 1 : 0;
    }
    return count;
}

TEST(JoinedMemory, PartsLieTogether) {
    const Shared one(4, 'a');
    const Shared other(3, 'A');
    const Part parts[] = {one.part(2, 2), other.part(0, 3), one.part(0, 1), one.part(0, 1)};
    const auto joined = join(parts);
    ASSERT_NE(joined, nullptr);
    EXPECT_EQ(joined->size(), 7 * kPage);
    EXPECT_TRUE(joined->read_only());
    EXPECT_EQ(pages_of(*joined), "cdABCaa");
    // They are the same pages, and not copies.
    const char byte = 'z';
    EXPECT_EQ(pwrite(one.file(), &byte, 1, static_cast<off_t>(2 * kPage)), 1);
    EXPECT_EQ(static_cast<char>(joined->data()[0]), 'z');
    EXPECT_EQ(mprotect(joined->data(), kPage, PROT_READ), 0);
}

TEST(JoinedMemory, ItGoesAgain) {
    const Shared one(4, 'a');
    const std::size_t before = mappings();
    {
        const Part parts[] = {one.part(2, 2), one.part(0, 2)};
        const auto joined = join(parts);
        ASSERT_NE(joined, nullptr);
        EXPECT_EQ(mappings(), before + 2);
    }
    EXPECT_EQ(mappings(), before);
    const Part all[] = {one.part(0, 4)};
    EXPECT_EQ(pages_of(*join(all)), "abcd");
}

TEST(JoinedMemory, LargeOnesBeginOnAHugePage) {
    const Shared one(2 * kHugePageBytes / kPage, '\0');
    const Part parts[] = {one.part(0, kHugePageBytes / kPage), one.part(0, kHugePageBytes / kPage)};
    const auto joined = join(parts);
    ASSERT_NE(joined, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(joined->data()) % kHugePageBytes, 0u);
}

TEST(JoinedMemory, WhatIsNoSharedPagesIsRefused) {
    const Shared one(4, 'a');
    const Shared own(4, 'a', MAP_PRIVATE);
    const std::size_t before = mappings();
    const Part whole = one.part(0, 2);
    for (const Part& bad : {whole.subspan(1, kPage), whole.subspan(0, kPage + 1), Part(),
                            own.part(0, 2), Part(whole.data(), SIZE_MAX / kPage * kPage)}) {
        const Part parts[] = {whole, bad};
        EXPECT_EQ(join(parts), nullptr) << bad.size();
    }
    EXPECT_EQ(join({}), nullptr);
    EXPECT_EQ(mappings(), before);
    EXPECT_EQ(pages_of(*join(std::span(&whole, 1))), "ab");
}

}  // namespace
}  // namespace ucxstore::test
