// Values that are mapped into results: what is mapped and what copied, and what becomes of both.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "base/huge_pages.hpp"
#include "base/result_memory.hpp"
#include "client/map_value.hpp"
#include "shared/collapser.hpp"
#include "support.hpp"

namespace ucxstore {
namespace {

using namespace std::chrono_literals;
using test::eventually;

constexpr std::uint64_t kPiece = kHugePageBytes;

// ---- the plan ----

TEST(MapPlan, TakesWholePiecesAndCopiesTheEnds) {
    const auto all = [](std::uint64_t) { return true; };
    const MapPlan plan =
        plan_mapping(3 * kPiece + 100, kPiece + 100, 5 * kPiece, 0, {kPiece, 1, all});
    ASSERT_EQ(plan.mapped.size(), 1u);
    EXPECT_EQ(plan.mapped[0].begin, kPiece - 100);
    EXPECT_EQ(plan.mapped[0].length, 4 * kPiece);
    ASSERT_EQ(plan.copied.size(), 2u);
    EXPECT_EQ(plan.copied[0].length, kPiece - 100);
    EXPECT_EQ(plan.copied[1].begin, 5 * kPiece - 100);
    EXPECT_EQ(plan.copied[1].length, 100u);
}

TEST(MapPlan, TakesTheLastPieceWhereThereIsRoomBehindIt) {
    const auto all = [](std::uint64_t) { return true; };
    const MapPlan plan = plan_mapping(0, 0, 5 * kPiece + 1, kPiece - 1, {kPiece, 1, all});
    ASSERT_EQ(plan.mapped.size(), 1u);
    EXPECT_EQ(plan.mapped[0].length, 6 * kPiece);
    EXPECT_TRUE(plan.copied.empty());
}

TEST(MapPlan, TakesSmallPages) {
    const auto all = [](std::uint64_t) { return true; };
    const MapPlan plan = plan_mapping(4096 + 100, 100, 3 * 4096, 0, {4096, 1, all});
    ASSERT_EQ(plan.mapped.size(), 1u);
    EXPECT_EQ(plan.mapped[0].begin, 4096u - 100);
    EXPECT_EQ(plan.mapped[0].length, 2u * 4096);
    EXPECT_EQ(plan.copied.size(), 2u);
}

TEST(MapPlan, DoesAsASlowModelDoes) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 20'000; ++round) {
        const std::uint64_t source = random() % 3 * kPiece + (random() % 2 ? 0 : random() % kPiece);
        const bool congruent = random() % 4 != 0;
        const std::uint64_t target =
            random() % 3 * kPiece + (congruent ? source % kPiece : random() % kPiece);
        const std::uint64_t size = random() % (9 * kPiece);
        const std::uint64_t room = random() % 2 ? 0 : random() % (2 * kPiece);
        const std::uint64_t least = 1 + random() % 4;
        std::set<std::uint64_t> huge;
        for (std::uint64_t piece = 0; piece < 16; ++piece) {
            if (random() % 4 != 0) {
                huge.insert(piece);
            }
        }
        const MapPlan plan =
            plan_mapping(source, target, size, room,
                         {kPiece, least, [&](std::uint64_t at) { return huge.contains(at); }});
        // Each byte is wanted once, and what is mapped can be.
        std::uint64_t covered = 0;
        for (const Part& part : plan.copied) {
            ASSERT_GT(part.length, 0u);
            ASSERT_LE(part.begin + part.length, size);
            covered += part.length;
        }
        for (const Part& part : plan.mapped) {
            ASSERT_EQ((source + part.begin) % kPiece, 0u);
            ASSERT_EQ((target + part.begin) % kPiece, 0u);
            ASSERT_EQ(part.length % kPiece, 0u);
            ASSERT_GE(part.length, least * kPiece);
            ASSERT_LE(part.begin + part.length, size + room);
            ASSERT_LT(part.begin + part.length - kPiece, size);
            for (std::uint64_t at = 0; at < part.length; at += kPiece) {
                ASSERT_TRUE(huge.contains((source + part.begin + at) / kPiece));
            }
            covered += std::min(part.length, size - part.begin);
        }
        ASSERT_EQ(covered, size);
        if (source % kPiece != target % kPiece) {
            ASSERT_TRUE(plan.mapped.empty());
        }
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
    EXPECT_EQ(test::error_of([] { ResultMemory memory(~std::uint64_t{0}); }), ErrorKind::memory);
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

TEST(Collapser, MakesHugePagesOfWhatIsLarge) {
    if (!kernel_collapses()) {
        GTEST_SKIP() << "the kernel does not make huge pages of such memory";
    }
    Arenas arenas;
    shared::Collapser collapser(1ms);
    const Block block = arenas.take(3 * kPiece + kPiece / 4);
    std::memset(block.data, 7, block.bytes);
    const auto arena = arenas.arena(block.arena);
    EXPECT_FALSE(arena->is_huge(block.offset / kPiece));
    const auto alive = std::make_shared<int>();
    collapser.add(arena, block, alive);
    const std::uint64_t first = block.offset / kPiece;
    EXPECT_TRUE(eventually([&] { return arena->is_huge(first + 2); }));
    EXPECT_TRUE(arena->is_huge(first));
    EXPECT_TRUE(arena->is_huge(first + 1));
    EXPECT_FALSE(arena->is_huge(first + 3)) << "little of it is the value's";
    EXPECT_TRUE(std::all_of(block.data, block.data + block.bytes,
                            [](std::byte byte) { return byte == std::byte{7}; }));
    arenas.give(block);
}

TEST(Collapser, LeavesWhatHasGoneMeanwhile) {
    Arenas arenas;
    shared::Collapser collapser(20ms);
    const Block block = arenas.take(3 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto arena = arenas.arena(block.arena);
    collapser.add(arena, block, std::make_shared<int>());  // which has gone already
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(arena->is_huge(block.offset / kPiece));
    arenas.give(block);
}

TEST(Collapser, EndsWithWorkLeft) {
    Arenas arenas;
    const Block block = arenas.take(64 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto alive = std::make_shared<int>();
    for (int i = 0; i < 20; ++i) {
        shared::Collapser collapser(std::chrono::milliseconds(i % 3 == 0 ? 10'000 : 0));
        collapser.add(arenas.arena(block.arena), block, alive);
        std::this_thread::sleep_for(std::chrono::milliseconds(i));
    }
    EXPECT_EQ(block.data[block.bytes - 1], std::byte{7});
    arenas.give(block);
}

TEST(Collapser, AForkedChildLeavesItAlone) {
    auto collapser = std::make_unique<shared::Collapser>(0ms);
    Arenas arenas;
    const Block block = arenas.take(3 * kPiece);
    std::memset(block.data, 7, block.bytes);
    const auto alive = std::make_shared<int>();
    collapser->add(arenas.arena(block.arena), block, alive);
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
}  // namespace ucxstore
