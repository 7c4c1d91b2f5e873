// Values that are mapped into results: which part of them, and what becomes of it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "local_client/map_value.hpp"
#include "memory/huge_pages.hpp"
#include "memory/result_memory.hpp"
#include "shared/huge_page_maker.hpp"
#include "shared/shelf.hpp"
#include "storage/memory.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kPiece = kHugePageBytes;

// ---- the plan ----

constexpr std::uint64_t kPage = 4096;

TEST(WholePages, LeavesTheEnds) {
    const ValuePart part = whole_pages({3 * kPage + 100, kPage + 100, 5 * kPage, 0}, kPage);
    EXPECT_EQ(part.begin, kPage - 100);
    EXPECT_EQ(part.length, 4 * kPage);
}

TEST(WholePages, TakesTheLastOneWhereThereIsRoomBehindIt) {
    EXPECT_EQ(whole_pages({0, 0, 5 * kPage + 1, kPage - 1}, kPage).length, 6 * kPage);
    EXPECT_EQ(whole_pages({0, 0, 5 * kPage + 1, kPage - 2}, kPage).length, 5 * kPage);
}

TEST(WholePages, AreAllPagesThatASlowModelFinds) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 20'000; ++round) {
        const std::uint64_t source = random() % 3 * kPage + (random() % 2 ? 0 : random() % kPage);
        const bool congruent = random() % 4 != 0;
        const std::uint64_t target =
            random() % 3 * kPage + (congruent ? source % kPage : random() % kPage);
        const std::uint64_t size = random() % (9 * kPage);
        const std::uint64_t room = random() % 2 ? 0 : random() % (2 * kPage);
        std::set<std::uint64_t> expected;
        for (std::uint64_t at = 0; at < size; ++at) {
            if ((source + at) % kPage == 0 && (target + at) % kPage == 0 &&
                at + kPage <= size + room) {
                expected.insert(at);
            }
        }
        std::set<std::uint64_t> found;
        const ValuePart part = whole_pages({source, target, size, room}, kPage);
        for (std::uint64_t at = 0; at < part.length; at += kPage) {
            found.insert(part.begin + at);
        }
        ASSERT_EQ(found, expected);
        ASSERT_EQ(part.length % kPage, 0u);
    }
}

// ---- the memory ----

Fd file_of(std::uint64_t bytes, int byte) {
    Fd file(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    void* const memory = mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, file.get(), 0);
    std::memset(memory, byte, bytes);
    munmap(memory, bytes);
    return file;
}

TEST(ResultMemory, HasWhatIsMappedAndItsOwn) {
    const Fd file = file_of(4 * kPiece, 5);
    auto owner = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = owner;
    auto memory = std::make_unique<ResultMemory>(5 * kPiece - 3);
    EXPECT_GE(memory->capacity(), 5 * kPiece);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % kPiece, 0u);
    std::memset(memory->data(), 1, memory->size());
    ASSERT_TRUE(memory->map(kPiece, 2 * kPiece, file.get(), kPiece));
    memory->keep(std::move(owner));
    EXPECT_EQ(memory->mapped(), 1u);
    EXPECT_EQ(memory->data()[kPiece - 1], std::byte{1});
    EXPECT_EQ(memory->data()[kPiece], std::byte{5});
    EXPECT_EQ(memory->data()[3 * kPiece - 1], std::byte{5});
    EXPECT_EQ(memory->data()[3 * kPiece], std::byte{1});
    // It is written to as any other memory, and the file stays as it is.
    memory->data()[2 * kPiece] = std::byte{9};
    std::byte in_file{};
    ASSERT_EQ(pread(file.get(), &in_file, 1, 2 * kPiece), 1);
    EXPECT_EQ(in_file, std::byte{5});
    EXPECT_EQ(memory->data()[2 * kPiece + 1], std::byte{5});
    EXPECT_FALSE(watch.expired());
    memory.reset();
    EXPECT_TRUE(watch.expired());
}

TEST(ResultMemory, IsNotRecycledOnceSomethingWasMapped) {
    const Fd file = file_of(4 * kPiece, 5);
    auto memory = std::make_unique<ResultMemory>(8 * kPiece);
    const std::uint64_t kept = Recycler::instance().kept();
    ASSERT_TRUE(memory->map(0, 4 * kPiece, file.get(), 0));
    memory.reset();
    EXPECT_LE(Recycler::instance().kept(), kept);
    ResultMemory next(8 * kPiece);
    std::memset(next.data(), 0, next.size());
    std::byte in_file{};
    ASSERT_EQ(pread(file.get(), &in_file, 1, 0), 1);
    EXPECT_EQ(in_file, std::byte{5});
}

TEST(ResultMemory, WhatTheKernelRefusesCanStillBeWritten) {
    ResultMemory memory(4 * kPiece);
    const Fd none(open("/dev/null", O_RDONLY));
    EXPECT_FALSE(memory.map(kPiece, kPiece, none.get(), 0));
    std::memset(memory.data(), 3, memory.size());
    EXPECT_EQ(memory.data()[kPiece], std::byte{3});
}

TEST(ResultMemory, LargerThanAnyMemoryIsAnError) {
    EXPECT_EQ(error_of([] { ResultMemory memory(~std::uint64_t{0}); }), ErrorKind::memory);
}

// ---- huge pages ----

bool kernel_collapses() {
    const Fd file = file_of(2 * kPiece, 1);
    void* const memory = map_aligned(2 * kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, file.get());
    std::memset(memory, 1, 2 * kPiece);
    const bool does = madvise(memory, kPiece, 25 /* MADV_COLLAPSE */) == 0;
    munmap(memory, 2 * kPiece);
    return does;
}

TEST(HugePageMaker, MakesHugePagesOfWhatIsLarge) {
    if (!kernel_collapses()) {
        GTEST_SKIP() << "the kernel does not make huge pages of such memory";
    }
    Arenas arenas;
    shared::HugePageMaker collapser(1ms);
    const Block block = arenas.take(3 * kPiece + kPiece / 4);
    std::memset(block.data, 7, block.bytes);
    const auto arena = arenas.arena(block.arena);
    EXPECT_FALSE(arena->is_huge(block.offset / kPiece));
    const auto alive = std::make_shared<int>();
    collapser.add(*arena, block, alive);
    const std::uint64_t first = block.offset / kPiece;
    EXPECT_TRUE(eventually([&] { return arena->is_huge(first + 2); }));
    EXPECT_TRUE(arena->is_huge(first));
    EXPECT_TRUE(arena->is_huge(first + 1));
    EXPECT_FALSE(arena->is_huge(first + 3)) << "little of it is the value's";
    EXPECT_TRUE(std::all_of(block.data, block.data + block.bytes,
                            [](std::byte byte) { return byte == std::byte{7}; }));
    arenas.give(block);
}

// Of the memory of a file that this process has mapped, what is mapped by huge pages.
std::uint64_t huge_bytes_of(ino_t file) {
    std::ifstream mappings("/proc/self/smaps");
    std::uint64_t bytes = 0;
    bool its = false;
    for (std::string line; std::getline(mappings, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        if (name.find('-') != std::string::npos) {
            std::string skipped;
            std::uint64_t inode = 0;
            words >> skipped >> skipped >> skipped >> inode;
            its = inode == file;
        } else if (its && name == "ShmemPmdMapped:") {
            std::uint64_t kib = 0;
            words >> kib;
            bytes += kib << 10;
        }
    }
    return bytes;
}

TEST(HugePageMaker, MakesNoMemoryThatCountsNowhere) {
    if (!kernel_collapses()) {
        GTEST_SKIP() << "the kernel does not make huge pages of such memory";
    }
    constexpr std::uint64_t kSize = kPiece + kPiece / 2;
    constexpr std::uint64_t kLimit = 200 << 20;
    const auto quota = Quota::of_memory(kLimit);
    const auto shelf = shared::Shelf::make({.first_bytes = kLimit, .bound = quota});
    MemoryStorage storage(quota, false, shelf);
    for (int i = 0; i < 40; ++i) {
        const auto incoming = storage.receive(std::to_string(i), kSize);
        incoming->expect(kSize);
        std::memset(incoming->data(), 1, kSize);
        incoming->commit(false);
    }
    const auto about = [&] {
        struct stat found{};
        EXPECT_EQ(fstat(shelf->arena(1).descriptor.get(), &found), 0);
        return found;
    };
    EXPECT_TRUE(eventually([&] { return huge_bytes_of(about().st_ino) >= 40 * kPiece; }));
    EXPECT_LE(static_cast<std::uint64_t>(about().st_blocks) * 512, quota->used());
}

TEST(HugePageMaker, LeavesWhatHasGoneMeanwhile) {
    Arenas arenas;
    shared::HugePageMaker collapser(20ms);
    const Block block = arenas.take(3 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto arena = arenas.arena(block.arena);
    collapser.add(*arena, block, std::make_shared<int>());  // which has gone already
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(arena->is_huge(block.offset / kPiece));
    arenas.give(block);
}

TEST(HugePageMaker, KeepsNoArena) {
    shared::HugePageMaker collapser(10s);
    const auto alive = std::make_shared<int>();
    std::weak_ptr<const Arena> waiting;
    {
        Arenas arenas;
        const Block block = arenas.take(3 * kPiece);
        const auto arena = arenas.arena(block.arena);
        collapser.add(*arena, block, alive);
        waiting = arena;
        arenas.give(block);
    }
    EXPECT_TRUE(waiting.expired());
}

TEST(HugePageMaker, NoArenaEndsWhileItIsUsed) {
    shared::HugePageMaker collapser(0ms);
    const auto alive = std::make_shared<int>();
    for (int i = 0; i < 50; ++i) {
        Arenas arenas;
        const Block block = arenas.take(8 * kPiece);
        std::memset(block.data, 7, block.bytes);
        collapser.add(*arenas.arena(block.arena), block, alive);
        std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
        arenas.give(block);
    }
}

TEST(HugePageMaker, EndsWithWorkLeft) {
    Arenas arenas;
    const Block block = arenas.take(64 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto alive = std::make_shared<int>();
    for (int i = 0; i < 20; ++i) {
        shared::HugePageMaker collapser(std::chrono::milliseconds(i % 3 == 0 ? 10'000 : 0));
        collapser.add(*arenas.arena(block.arena), block, alive);
        std::this_thread::sleep_for(std::chrono::milliseconds(i));
    }
    EXPECT_EQ(block.data[block.bytes - 1], std::byte{7});
    arenas.give(block);
}

TEST(HugePageMaker, AForkedChildLeavesItAlone) {
    auto collapser = std::make_unique<shared::HugePageMaker>(0ms);
    Arenas arenas;
    const Block block = arenas.take(3 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto alive = std::make_shared<int>();
    collapser->add(*arenas.arena(block.arena), block, alive);
    const pid_t pid = fork();
    if (pid == 0) {
        collapser.reset();
        _exit(0);
    }
    int status = 1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
    arenas.give(block);
}

}  // namespace
}  // namespace ucxstore::test
