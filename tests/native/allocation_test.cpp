// Values that are computed into files, and taken over by a server of the host.
#include "local_client/allocation.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "local_client/local_client.hpp"
#include "local_server/local_thread.hpp"
#include "loopback.hpp"
#include "shared/index.hpp"
#include "shared/sealed.hpp"

namespace ucxstore::test {
namespace {

constexpr std::uint64_t kSize = 3'000'000;

std::shared_ptr<Allocation> allocation_of(const Bytes& value, const std::string& key = "key") {
    auto memory = std::make_shared<Allocation>(key, value.size());
    std::ranges::copy(value, memory->data());
    return memory;
}

Bytes bytes_of(const Region& region) { return Bytes(region.data(), region.data() + region.size()); }

Bytes file_bytes_of(const Fd& file, std::uint64_t size) {
    Bytes bytes(size);
    EXPECT_EQ(pread(file.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    return bytes;
}

// Runs it in a forked child; its exit status.
int in_child(const std::function<int()>& act) {
    const pid_t child = fork();
    if (child == 0) {
        _exit(act());
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Allocation, IsZerosUntilItIsWritten) {
    const Allocation memory("key", kSize);
    EXPECT_EQ(memory.size(), kSize);
    EXPECT_TRUE(std::all_of(memory.data(), memory.data() + kSize,
                            [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST(Allocation, TheFileHasTheValueAndItsKey) {
    const auto memory = allocation_of(pattern(kSize));
    const Fd file = memory->seal();
    ASSERT_TRUE(file);
    EXPECT_TRUE(shared::is_sealed(file, shared::file_bytes(kSize, 3)));
    EXPECT_EQ(file_bytes_of(file, kSize), pattern(kSize));
    char key[3];
    ASSERT_EQ(pread(file.get(), key, 3, static_cast<off_t>(shared::key_offset(kSize))), 3);
    EXPECT_EQ(std::string(key, 3), "key");
}

TEST(Allocation, WhatIsWrittenLaterIsItsOwn) {
    const auto memory = allocation_of(pattern(kSize));
    const std::byte* const where = memory->data();
    const Fd file = memory->seal();
    EXPECT_EQ(memory->data(), where);
    EXPECT_EQ(bytes_of(*memory), pattern(kSize));
    std::ranges::copy(pattern(kSize, 9), memory->data());
    EXPECT_EQ(bytes_of(*memory), pattern(kSize, 9));
    EXPECT_EQ(file_bytes_of(file, kSize), pattern(kSize));
    // The same file each time.
    EXPECT_EQ(file_bytes_of(memory->seal(), kSize), pattern(kSize));
}

TEST(Allocation, ADroppedOneKeepsItsBytes) {
    const auto memory = allocation_of(pattern(kSize));
    memory->let_go();
    EXPECT_FALSE(memory->seal());
    EXPECT_EQ(bytes_of(*memory), pattern(kSize));
    std::ranges::copy(pattern(kSize, 9), memory->data());
    EXPECT_EQ(bytes_of(*memory), pattern(kSize, 9));
}

TEST(Allocation, IsNotSealedWhileAChildCouldWrite) {
    const auto memory = allocation_of(pattern(kSize));
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    EXPECT_FALSE(memory->seal());
    EXPECT_EQ(bytes_of(*memory), pattern(kSize));
    close(ends[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(memory->seal()) << "from now on the value is what is in the memory";
}

TEST(Allocation, AChildThatLetsGoHasBytesOfItsOwn) {
    const auto memory = allocation_of(pattern(kSize));
    EXPECT_EQ(in_child([&] {
                  memory->let_go();
                  if (bytes_of(*memory) != pattern(kSize) || memory->seal()) {
                      return 1;
                  }
                  std::memset(memory->data(), 1, kSize);
                  return 0;
              }),
              0);
    EXPECT_EQ(bytes_of(*memory), pattern(kSize));
    EXPECT_TRUE(memory->seal());
}

TEST(Allocation, IsRefusedWhereItIsLargerThanAnyMemory) {
    EXPECT_EQ(error_of([] { Allocation("key", 1ull << 50); }), ErrorKind::memory);
    EXPECT_EQ(Allocation::make("key", 1ull << 50), nullptr);
}

// ---- to a server ----

class Committing : public testing::Test {
  protected:
    Committing() : Committing(shared::Shelf::make()) {}
    explicit Committing(std::shared_ptr<shared::Shelf> shelf, std::uint64_t limit = 1ull << 40)
        : storage(std::make_shared<MemoryStorage>(std::make_shared<Quota>(limit), false, shelf)),
          server(Service{Storages(std::shared_ptr<Storage>(storage)), counters}, 0) {
        link = connect();
    }

    std::shared_ptr<LocalLink> connect() {
        ControlPair pair = control_pair();
        const Token token = new_token();
        server.attach(std::move(pair.one), token, "client");
        return client.attach(std::move(pair.other), token, "server");
    }
    void run(const std::shared_ptr<Operation>& operation) {
        link->submit(operation);
        finish(operation);
    }
    void set(const std::string& key, Bytes value) { run(set_operation({{key, memory_of(value)}})); }
    // Whether it was written.
    bool commit(Allocation& memory, bool if_absent = false) {
        const Memory value{memory.data(), Layout::contiguous(memory.size())};
        const auto operation = set_operation({{memory.key(), value}}, if_absent);
        operation->file = memory.seal();
        EXPECT_TRUE(operation->file);
        run(operation);
        return operation->items[0].status == Status::ok;
    }
    bool commit(const Bytes& value, const std::string& key = "key") {
        return commit(*allocation_of(value, key));
    }
    std::shared_ptr<Region> borrow(const std::string& key) {
        const auto operation = get_operation({{key}});
        operation->borrows = true;
        run(operation);
        return operation->items[0].owned;
    }
    std::optional<Bytes> get(const std::string& key) {
        const auto region = borrow(key);
        return region == nullptr ? std::nullopt : std::optional(bytes_of(*region));
    }
    ShelfCounts counts() {
        storage->shelf()->sweep();
        return storage->shelf()->counts();
    }

    const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
    const std::shared_ptr<MemoryStorage> storage;
    LocalThread server;
    LocalClient client;
    std::shared_ptr<LocalLink> link;
};

TEST_F(Committing, AFileIsTakenOver) {
    EXPECT_TRUE(commit(pattern(kSize)));
    EXPECT_EQ(counts().adopted, 1u);
    EXPECT_EQ(counts().adopted_bytes, shared::file_bytes(kSize, 3));
    EXPECT_EQ(storage->held(), kSize);
    EXPECT_EQ(counters->sets, 1u);
    EXPECT_EQ(get("key"), pattern(kSize));
    EXPECT_EQ(get("key"), pattern(kSize));
    EXPECT_EQ(counts().gets_seen, 2u);
    EXPECT_TRUE(storage->find("key")->read_only());
}

TEST_F(Committing, AFileGoesWhereItsLinkTakesFiles) {
    const auto memory = Allocation::make("key", kSize);
    const Memory value{memory->data(), Layout::contiguous(kSize)};
    const auto operation = set_operation({{"key", value}});
    memory->send_by(*link, *operation);
    EXPECT_TRUE(operation->file);
    for (const auto& other :
         {set_operation({{"other", value}}), set_operation({{"key", value}, {"key", value}}),
          set_operation({{"key", Memory{memory->data(), Layout::contiguous(kSize - 1)}}})}) {
        EXPECT_EQ(error_of([&] { memory->send_by(*link, *other); }), ErrorKind::argument);
    }
    const auto small = Allocation::make("key", 1);
    const auto copied = set_operation({{"key", Memory{small->data(), Layout::contiguous(1)}}});
    small->send_by(*link, *copied);
    EXPECT_FALSE(copied->file);
}

TEST_F(Committing, WhatIsWrittenLaterIsNotRead) {
    const auto memory = allocation_of(pattern(kSize));
    EXPECT_TRUE(commit(*memory));
    const auto held = borrow("key");
    std::memset(memory->data(), 1, kSize);
    EXPECT_EQ(bytes_of(*held), pattern(kSize));
    EXPECT_EQ(get("key"), pattern(kSize));
}

TEST_F(Committing, AReplacedOneStaysForItsReaders) {
    EXPECT_TRUE(commit(pattern(kSize)));
    auto held = borrow("key");
    EXPECT_TRUE(commit(pattern(kSize, 1)));
    EXPECT_EQ(get("key"), pattern(kSize, 1));
    set("key", pattern(100));
    EXPECT_EQ(get("key"), pattern(100));
    EXPECT_EQ(bytes_of(*held), pattern(kSize));
    EXPECT_TRUE(eventually([&] { return counts().adopted == 1; }));
    held.reset();
    EXPECT_TRUE(eventually([&] { return counts().adopted == 0; }));
    EXPECT_EQ(counts().adopted_bytes, 0u);
}

TEST_F(Committing, ARemovedOneGoesBackToTheSystem) {
    EXPECT_TRUE(commit(pattern(kSize)));
    EXPECT_EQ(get("key"), pattern(kSize));
    run(make_calls(Op::remove, {"key"}, 60, nullptr));
    EXPECT_TRUE(eventually([&] { return counts().adopted == 0; }));
    EXPECT_EQ(get("key"), std::nullopt);
    EXPECT_EQ(storage->held(), 0u);
}

TEST_F(Committing, IfAbsent) {
    EXPECT_TRUE(commit(*allocation_of(pattern(kSize)), true));
    EXPECT_FALSE(commit(*allocation_of(pattern(kSize, 1)), true));
    EXPECT_EQ(get("key"), pattern(kSize));
    EXPECT_EQ(counts().adopted, 1u);
}

TEST_F(Committing, MoreThanAreTakenAreCopied) {
    const std::size_t most = Arenas::most_adopted();
    constexpr std::uint64_t kSmall = shared::kLeastInFile;
    for (std::size_t i = 0; i < most + 3; ++i) {
        ASSERT_TRUE(commit(pattern(kSmall, static_cast<unsigned>(i)), std::to_string(i)));
    }
    EXPECT_EQ(counts().adopted, most);
    for (std::size_t i = 0; i < most + 3; ++i) {
        ASSERT_EQ(get(std::to_string(i)), pattern(kSmall, static_cast<unsigned>(i)));
    }
}

TEST_F(Committing, ASmallOneIsCopied) {
    EXPECT_TRUE(eventually([&] { return link->takes_files(shared::kLeastInFile); }));
    EXPECT_FALSE(link->takes_files(shared::kLeastInFile - 1));
    EXPECT_TRUE(commit(pattern(100'000)));
    EXPECT_EQ(get("key"), pattern(100'000));
    EXPECT_EQ(counts().adopted, 0u);
}

TEST_F(Committing, AFileOutlivesTheServer) {
    EXPECT_TRUE(commit(pattern(kSize)));
    const auto held = borrow("key");
    server.close();
    EXPECT_EQ(bytes_of(*held), pattern(kSize));
}

// Others than those that see it get it over the socket.
TEST_F(Committing, ItIsSent) {
    EXPECT_TRUE(commit(pattern(kSize)));
    Bytes out(kSize);
    const auto operation = get_operation({{.key = "key", .memory = memory_of(out)}});
    operation->requests = request_gets(*operation);
    for (Outgoing& outgoing : operation->requests) {
        outgoing.header.flags = kSendBytes;
    }
    operation->kind = Operation::Kind::call;  // so that the link does not look itself
    run(operation);
    EXPECT_EQ(out, pattern(kSize));
}

class CommittingUnseen : public Committing {
  protected:
    CommittingUnseen() : Committing(nullptr) {}
};

TEST_F(CommittingUnseen, IsCopied) {
    EXPECT_TRUE(commit(pattern(kSize)));
    EXPECT_EQ(get("key"), pattern(kSize));
    EXPECT_TRUE(eventually([&] { return !link->takes_files(kSize); }));
    EXPECT_FALSE(commit(*allocation_of(pattern(kSize, 1)), true));
    EXPECT_EQ(get("key"), pattern(kSize));
}

class CommittingLittle : public Committing {
  protected:
    CommittingLittle() : Committing(shared::Shelf::make(), 2 * kSize) {}
};

TEST_F(CommittingLittle, FilesCountAsOtherValues) {
    EXPECT_TRUE(commit(pattern(kSize), "a"));
    EXPECT_TRUE(commit(pattern(kSize), "b"));
    EXPECT_EQ(error_of([&] { commit(pattern(kSize), "c"); }), ErrorKind::storage);
    EXPECT_EQ(counts().adopted, 2u);
    run(make_calls(Op::remove, {"a"}, 60, nullptr));
    EXPECT_TRUE(eventually([&] { return counts().adopted == 1; }));
    EXPECT_TRUE(commit(pattern(kSize), "c"));
}

// ---- a client that means ill ----

class BadFile : public Committing {
  protected:
    BadFile() {
        join();
        set("good", pattern(100));
    }
    void join() {
        ControlPair pair = control_pair();
        server.attach(std::move(pair.one), token_, "bad client");
        socket_ = std::move(pair.other);
    }
    ValueHeader header(std::uint64_t size = kSize) const {
        return {.token = token_,
                .request = 1,
                .item = 0,
                .if_absent = 0,
                .total = size,
                .segment = size,
                .offset = 0,
                .length = size};
    }
    void pass(const ValueHeader& value, const std::string& key,
              std::initializer_list<int> descriptors) {
        const std::string text = raw(value) + key;
        const stream::Frame frame{stream::FrameKind::file,
                                  static_cast<std::uint32_t>(descriptors.size()),
                                  static_cast<std::uint32_t>(text.size()), 0, 0};
        std::string bytes = raw(frame) + text;
        iovec piece{bytes.data(), bytes.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        if (descriptors.size() > 0) {
            message.msg_control = control;
            message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
            cmsghdr* const rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
            std::memcpy(CMSG_DATA(rights), descriptors.begin(), descriptors.size() * sizeof(int));
        }
        ASSERT_EQ(sendmsg(socket_.get(), &message, MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    // The status of the next reply.
    Status status() {
        while (true) {
            stream::Frame frame{};
            std::string text(4096, '\0');
            EXPECT_EQ(recv(socket_.get(), &frame, sizeof(frame), MSG_WAITALL),
                      static_cast<ssize_t>(sizeof(frame)));
            EXPECT_LE(frame.header_bytes + frame.body_bytes, text.size());
            const auto rest = static_cast<std::size_t>(frame.header_bytes + frame.body_bytes);
            EXPECT_EQ(recv(socket_.get(), text.data(), rest, MSG_WAITALL),
                      static_cast<ssize_t>(rest));
            if (frame.kind == stream::FrameKind::reply) {
                return read_header<ReplyHeader>(text.data(), rest)->status;
            }
            EXPECT_EQ(frame.kind, stream::FrameKind::files);
        }
    }
    void expect_unmoved() {
        EXPECT_EQ(status(), Status::unmoved);
        EXPECT_EQ(get("evil"), std::nullopt);
        EXPECT_EQ(get("good"), pattern(100));
        EXPECT_EQ(counts().adopted, 0u);
    }
    void expect_thrown_out() {
        EXPECT_TRUE(eventually([&] { return server.sessions() == 1; }));
        EXPECT_EQ(get("evil"), std::nullopt);
        EXPECT_EQ(get("good"), pattern(100));
        EXPECT_EQ(counts().adopted, 0u);
    }

    const Token token_ = new_token();
    Fd socket_;
};

TEST_F(BadFile, ItCouldBehave) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    pass(header(), "evil", {memory->seal().get()});
    EXPECT_EQ(status(), Status::ok);
    EXPECT_EQ(get("evil"), pattern(kSize));
    EXPECT_EQ(counts().adopted, 1u);
}

TEST_F(BadFile, KeepsAMappingThatItCanWriteTo) {
    const Fd file(memfd_create("evil", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto bytes = static_cast<std::size_t>(shared::file_bytes(kSize, 4));
    ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    void* const kept = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    ASSERT_NE(kept, MAP_FAILED);
    std::memset(kept, 1, bytes);
    std::memcpy(static_cast<std::byte*>(kept) + shared::key_offset(kSize), "evil", 4);
    EXPECT_FALSE(shared::seal(file));
    pass(header(), "evil", {file.get()});
    expect_unmoved();
    const Fd readable(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDONLY | O_CLOEXEC));
    pass(header(), "evil", {readable.get()});
    expect_unmoved();
    static_cast<void>(fcntl(file.get(), F_ADD_SEALS, 0x20 /* F_SEAL_EXEC */));
    pass(header(), "evil", {readable.get()});
    expect_unmoved();
    munmap(kept, bytes);
}

TEST_F(BadFile, KeepsDescriptorsToNoEnd) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    const Fd file = memory->seal();
    const Fd writable(
        open(("/proc/self/fd/" + std::to_string(file.get())).c_str(), O_RDWR | O_CLOEXEC));
    pass(header(), "evil", {file.get()});
    EXPECT_EQ(status(), Status::ok);
    if (writable) {
        EXPECT_EQ(pwrite(writable.get(), "x", 1, 0), -1);
        EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writable.get(), 0),
                  MAP_FAILED);
    }
    EXPECT_EQ(get("evil"), pattern(kSize));
}

TEST_F(BadFile, SaysAnotherSize) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    for (const std::uint64_t size : {kSize + 4096, kSize - 4096, kSize - 8, 2 * kSize}) {
        pass(header(size), "evil", {memory->seal().get()});
        expect_unmoved();
    }
    pass(header(1ull << 45), "evil", {memory->seal().get()});
    EXPECT_EQ(status(), Status::storage) << "more than there is room for";
    EXPECT_EQ(storage->held(), 100u);
}

TEST_F(BadFile, SaysAnotherKey) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    pass(header(), "good", {memory->seal().get()});
    expect_unmoved();
}

TEST_F(BadFile, HasAKeyThatNoServerTakes) {
    const auto memory = allocation_of(pattern(kSize), "../evil");
    pass(header(), "../evil", {memory->seal().get()});
    EXPECT_EQ(status(), Status::invalid_key);
}

TEST_F(BadFile, IsNoFile) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd read_end(ends[0]);
    const Fd write_end(ends[1]);
    for (const int descriptor : {read_end.get(), write_end.get(), -1}) {
        pass(header(), "evil", {descriptor < 0 ? socket_.get() : descriptor});
        expect_thrown_out();
        join();
    }
}

TEST_F(BadFile, HasNoDescriptor) {
    pass(header(), "evil", {});
    expect_thrown_out();
}

TEST_F(BadFile, HasTwoDescriptors) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    const Fd file = memory->seal();
    pass(header(), "evil", {file.get(), file.get()});
    expect_thrown_out();
}

TEST_F(BadFile, IsOnlyAPart) {
    const auto memory = allocation_of(pattern(kSize), "evil");
    ValueHeader part = header();
    part.length -= 1;
    pass(part, "evil", {memory->seal().get()});
    expect_thrown_out();
}

TEST_F(BadFile, ComesAfterAPartOfItsValue) {
    const std::string key = "evil";
    const std::string text = raw(local::LocalValueHeader{
        {token_, 1, 0, 0, 5'000'000, local::kUploadSegmentBytes, 0, 10}, local::kInBody});
    const auto memory = allocation_of(pattern(kSize), "evil");
    // No segment is so short; whatever comes of it, the file is not taken as its rest.
    const stream::Frame frame{stream::FrameKind::value, 0,
                              static_cast<std::uint32_t>(text.size() + key.size()), 0, 10};
    const std::string bytes = raw(frame) + text + key + std::string(10, 'x');
    ASSERT_EQ(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    expect_thrown_out();
}

}  // namespace
}  // namespace ucxstore::test
