// Files that a server may take over, and those that only look like it.
#include "shared/sealed.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "shared/arenas.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kBytes = 2ull << 20;
constexpr int kSealExec = 0x20;
constexpr unsigned kMfdExec = 0x10;

Fd new_file(std::uint64_t bytes = kBytes, unsigned flags = 0) {
    Fd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
    EXPECT_TRUE(file);
    EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)), 0);
    const std::string zeros(bytes, '\0');
    EXPECT_EQ(pwrite(file.get(), zeros.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return file;
}

Fd reopened(const Fd& file, int flags = O_RDONLY) {
    return Fd(open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), flags | O_CLOEXEC));
}

class Mapped {
  public:
    Mapped(const Fd& file, int protection, int flags)
        : data_(mmap(nullptr, kBytes, protection, flags, file.get(), 0)) {}
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped() {
        if (data_ != MAP_FAILED) {
            munmap(data_, kBytes);
        }
    }
    explicit operator bool() const { return data_ != MAP_FAILED; }
    char* data() const { return static_cast<char*>(data_); }

  private:
    void* const data_;
};

TEST(Sealed, NobodyCanWriteAnyMore) {
    const Fd file = new_file();
    const Fd other(dup(file.get()));
    const Fd readable = reopened(file);
    EXPECT_FALSE(is_sealed(readable, kBytes));
    ASSERT_TRUE(seal(file));
    EXPECT_TRUE(is_sealed(readable, kBytes));
    const Fd again = reopened(file, O_RDWR);
    for (const Fd* const one : {&file, &other, &again}) {
        ASSERT_TRUE(*one);
        EXPECT_EQ(pwrite(one->get(), "x", 1, 0), -1);
        EXPECT_EQ(errno, EPERM);
        EXPECT_FALSE(Mapped(*one, PROT_READ | PROT_WRITE, MAP_SHARED));
        EXPECT_EQ(ftruncate(one->get(), 0), -1);
        EXPECT_EQ(ftruncate(one->get(), 2 * kBytes), -1);
        EXPECT_NE(fallocate(one->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
        const Mapped shared(*one, PROT_READ, MAP_SHARED);
        if (shared) {  // newer kernels let it be mapped, and never be made writable
            EXPECT_NE(mprotect(shared.data(), kBytes, PROT_READ | PROT_WRITE), 0);
        }
    }
    EXPECT_TRUE(Mapped(readable, PROT_READ, MAP_SHARED));
}

TEST(Sealed, NotWhileSomebodyCouldWrite) {
    const Fd file = new_file();
    {
        // Even where it cannot be written right now: it could be made so.
        const Mapped kept(file, PROT_READ, MAP_SHARED);
        ASSERT_TRUE(kept);
        EXPECT_FALSE(seal(file));
        EXPECT_FALSE(is_sealed(reopened(file), kBytes));
    }
    const Mapped own(file, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    ASSERT_TRUE(own);
    std::strcpy(own.data(), "own");
    EXPECT_TRUE(seal(file));
    std::strcpy(own.data() + 4096, "own");
    const Fd readable = reopened(file);
    const Mapped seen(readable, PROT_READ, MAP_SHARED);
    EXPECT_TRUE(is_sealed(readable, kBytes));
    EXPECT_STREQ(seen.data(), "");
    EXPECT_STREQ(seen.data() + 4096, "");
}

TEST(Sealed, NotWhereSealsAreSealed) {
    const Fd file = new_file();
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    EXPECT_FALSE(seal(file));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
}

TEST(Sealed, EachSealIsNeeded) {
    for (const int missing : {F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW}) {
        const Fd file = new_file();
        const int seals = (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) & ~missing;
        ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, seals | F_SEAL_SEAL), 0);
        EXPECT_FALSE(is_sealed(reopened(file), kBytes)) << missing;
    }
}

// Kernels of some years show a seal here that they have not checked.
TEST(Sealed, NotByTheSealOfExecution) {
    const Fd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | kMfdExec));
    if (!file) {
        GTEST_SKIP() << "no memfd may be executable";
    }
    ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
    const Mapped kept(file, PROT_READ | PROT_WRITE, MAP_SHARED);
    std::memset(kept.data(), 1, kBytes);
    static_cast<void>(fcntl(file.get(), F_ADD_SEALS, kSealExec));
    static_cast<void>(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
}

TEST(Sealed, OnlyOfTheRightSizeAndForReading) {
    const Fd file = new_file();
    ASSERT_TRUE(seal(file));
    const Fd readable = reopened(file);
    EXPECT_FALSE(is_sealed(readable, kBytes - 4096));
    EXPECT_FALSE(is_sealed(readable, kBytes + 4096));
    EXPECT_FALSE(is_sealed(readable, 0));
    EXPECT_FALSE(is_sealed(file, kBytes));
    EXPECT_FALSE(is_sealed(reopened(file, O_PATH), kBytes));
    EXPECT_FALSE(is_sealed(Fd(), kBytes));
}

TEST(Sealed, NotWithHoles) {
    const Fd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
    ASSERT_EQ(fallocate(file.get(), 0, 0, kBytes - 4096), 0);
    ASSERT_TRUE(seal(file));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
}

TEST(Sealed, NotWithPagesThatNobodyCounts) {
    const Fd file = new_file();
    ASSERT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, 2 * kBytes), 0);
    ASSERT_TRUE(seal(file));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
}

TEST(Sealed, OnlyFilesInMemory) {
    TemporaryDirectory folder;
    const Fd file(open((folder.path() / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
    EXPECT_FALSE(seal(file));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
    const Fd shm(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (shm) {
        ASSERT_EQ(fallocate(shm.get(), 0, 0, kBytes), 0);
        EXPECT_FALSE(seal(shm));
        EXPECT_FALSE(is_sealed(reopened(shm), kBytes));
    }
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    EXPECT_FALSE(is_sealed(read_end, kBytes));
    EXPECT_FALSE(is_sealed(Fd(open("/dev/zero", O_RDONLY | O_CLOEXEC)), kBytes));
    EXPECT_FALSE(is_sealed(Fd(open("/", O_RDONLY | O_CLOEXEC)), kBytes));
}

TEST(Sealed, NotOfReservedHugePages) {
    const Fd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
    if (!file || ftruncate(file.get(), kBytes) != 0) {
        GTEST_SKIP() << "no file of huge pages can be made";
    }
    static_cast<void>(fallocate(file.get(), 0, 0, kBytes));  // there may be none
    ASSERT_TRUE(seal(file));
    EXPECT_FALSE(is_sealed(reopened(file), kBytes));
}

// ---- taken over ----

struct Adopting : testing::Test {
    Fd sealed(char byte = 7) {
        const Fd file = new_file();
        EXPECT_EQ(pwrite(file.get(), &byte, 1, 4096), 1);
        EXPECT_TRUE(seal(file));
        return reopened(file);
    }
    std::vector<std::uint32_t> dropped;
    Arenas arenas{[this](std::uint32_t number) { dropped.push_back(number); }};
};

TEST_F(Adopting, AFileIsAnArenaOfOneBlock) {
    const Block before = arenas.take(100);
    const auto block = arenas.adopt(sealed(), kBytes);
    ASSERT_TRUE(block.has_value());
    EXPECT_NE(block->arena, before.arena);
    EXPECT_EQ(block->offset, 0u);
    EXPECT_EQ(block->bytes, kBytes);
    EXPECT_EQ(static_cast<char>(block->data[4096]), 7);
    const auto arena = arenas.arena(block->arena);
    EXPECT_EQ(arena->data(), block->data);
    EXPECT_EQ(arena->size(), kBytes);
    Arenas::Usage usage = arenas.usage();
    EXPECT_EQ(usage.arenas, 2u);
    EXPECT_EQ(usage.adopted, 1u);
    EXPECT_EQ(usage.adopted_bytes, kBytes);
    EXPECT_EQ(usage.taken, kBytes + before.bytes);
    EXPECT_EQ(usage.reserved, kBytes + Arenas::kFirstBytes);
    // No other block comes to lie there.
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(arenas.take(kBytes / 4).arena, before.arena);
    }
    arenas.give(*block);
    EXPECT_EQ(dropped, std::vector{block->arena});
    EXPECT_EQ(arenas.arena(block->arena), nullptr);
    EXPECT_EQ(static_cast<char>(arena->data()[4096]), 7) << "held, it stays";
    usage = arenas.usage();
    EXPECT_EQ(usage.adopted, 0u);
    EXPECT_EQ(usage.adopted_bytes, 0u);
    EXPECT_EQ(usage.reserved, Arenas::kFirstBytes);
}

TEST_F(Adopting, WhatIsNotSealedIsNotTaken) {
    EXPECT_EQ(arenas.adopt(reopened(new_file()), kBytes), std::nullopt);
    EXPECT_EQ(arenas.adopt(sealed(), 2 * kBytes), std::nullopt);
    Fd file = reopened(new_file());
    EXPECT_EQ(arenas.adopt(std::move(file), kBytes), std::nullopt);
    EXPECT_TRUE(file) << "its close may take long: whoever has passed it sees to that";
    EXPECT_EQ(arenas.usage().arenas, 0u);
}

// Its pages lie beyond its end, so it has as many as one that is whole.
TEST_F(Adopting, WhatHasHolesIsNotTaken) {
    const Fd file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
    ASSERT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE, kBytes, kBytes), 0);
    ASSERT_TRUE(seal(file));
    struct stat before{};
    ASSERT_EQ(fstat(file.get(), &before), 0);
    ASSERT_EQ(before.st_blocks * 512, static_cast<blkcnt_t>(kBytes));
    EXPECT_EQ(arenas.adopt(reopened(file), kBytes), std::nullopt);
    EXPECT_EQ(arenas.usage().arenas, 0u);
    struct stat after{};
    ASSERT_EQ(fstat(file.get(), &after), 0);
    EXPECT_EQ(after.st_blocks, before.st_blocks);
}

TEST_F(Adopting, OfAnotherUserNothingIsTaken) {
    const Fd file = new_file();
    if (fchown(file.get(), 65534, 65534) != 0) {
        GTEST_SKIP() << "only root can make a file of another user";
    }
    ASSERT_TRUE(seal(file));
    EXPECT_EQ(arenas.adopt(reopened(file), kBytes), std::nullopt);
}

TEST_F(Adopting, ThereAreOnlySoMany) {
    const std::size_t most = Arenas::most_adopted();
    ASSERT_GE(most, 16u);
    std::vector<Block> blocks;
    while (const auto block = arenas.adopt(sealed(), kBytes)) {
        blocks.push_back(*block);
        ASSERT_LE(blocks.size(), most);
    }
    EXPECT_EQ(blocks.size(), most);
    arenas.give(blocks.back());
    blocks.pop_back();
    EXPECT_TRUE(arenas.adopt(sealed(), kBytes).has_value());
}

}  // namespace
}  // namespace ucxstore::test
