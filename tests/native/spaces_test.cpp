// Scratch spaces: who is in which, what they take, and when they end; by hostile clients, too.
#include "storage/spaces.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "loopback.hpp"
#include "protocol/keys.hpp"
#include "walks.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

const std::string kOne(32, '1');
const std::string kOther(32, '2');
constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();

std::string key_in(const std::string& space, const std::string& rest) {
    return std::string(kScratchFolder) + space + "/" + rest;
}

std::unique_ptr<Incoming> fill(Storage& storage, const std::string& key, const Bytes& value) {
    auto incoming = storage.receive(key, value.size());
    std::memcpy(incoming->data(), value.data(), value.size());
    return incoming;
}

void put(Storage& storage, const std::string& key, std::uint64_t size) {
    fill(storage, key, pattern(size))->commit(false);
}

template <typename Call>
std::string text_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// ---------------------------------------------------------------------------------------------
// By themselves.

class SpacesTest : public testing::Test {
  protected:
    std::size_t count() { return spaces_.counts().size(); }
    void end(const std::string& name) {
        std::promise<void> freed;
        spaces_.end(name, [&freed] { freed.set_value(); });
        ASSERT_EQ(freed.get_future().wait_for(kPatience), std::future_status::ready);
    }

    const std::shared_ptr<Quota> room_ = std::make_shared<Quota>(1000);
    Spaces spaces_{room_};
    const Spaces::TimePoint start_ = Spaces::Clock::now();
};

TEST_F(SpacesTest, EndSoonAfterTheirOwnersSession) {
    auto session = std::make_shared<int>();
    const auto share = std::make_shared<int>();
    spaces_.begin(kOne, kAny, 20h, start_, {session, share});
    spaces_.begin(kOther, kAny, 20h, start_, {session, nullptr});
    spaces_.expire(start_ + 19h);
    EXPECT_EQ(count(), 2u);
    EXPECT_EQ(share.use_count(), 2);
    session.reset();
    spaces_.expire(start_ + 19h);
    spaces_.expire(start_ + 19h + 4min);
    EXPECT_EQ(count(), 2u);
    // Whoever renews it has it from then on.
    const auto other = std::make_shared<int>();
    spaces_.renew(kOther, start_ + 19h + 4min, other);
    spaces_.expire(start_ + 19h + 6min);
    EXPECT_EQ(count(), 1u);
    EXPECT_EQ(share.use_count(), 1);
    spaces_.expire(start_ + 29h);
    EXPECT_EQ(count(), 1u);
}

TEST_F(SpacesTest, TakeOfTheirQuotaAndOfTheRoomOfAll) {
    spaces_.begin(kOne, 700, 1h);
    spaces_.begin(kOther, kAny, 1h);
    const auto one = spaces_.find(kOne);
    const auto other = spaces_.find(kOther);
    put(*one, "a", 600);
    EXPECT_EQ(
        text_of([&] { put(*one, "b", 101); }),
        "no room for 101 bytes: values take 600 of 700 bytes of scratch space '" + kOne + "'");
    EXPECT_EQ(text_of([&] { put(*other, "b", 401); }),
              "no room for 401 bytes: values take 600 of 1000 bytes of memory");
    put(*other, "b", 400);
    // What did not fit in the room was not taken of the space, either.
    EXPECT_EQ(spaces_.counts()[1].bytes, 400u);
    EXPECT_EQ(room_->taken(), 1000u);
    one->remove("a");
    EXPECT_EQ(room_->taken(), 400u);
    put(*other, "b", 500);  // the old value goes when the new one is there
    EXPECT_EQ(room_->taken(), 500u);
    remove_prefix(*other, "");
    EXPECT_EQ(room_->taken(), 0u);
}

TEST_F(SpacesTest, FreeWhatHasBeenReadOnceWhereTheirNameSaysSo) {
    const std::string once = kOne + std::string(kReadOnce);
    spaces_.begin(once, kAny, 1h);
    spaces_.begin(kOther, kAny, 1h);
    for (const auto& [name, freed] : {std::pair(once, true), std::pair(kOther, false)}) {
        const auto values = spaces_.find(name);
        const std::uint64_t before = room_->taken();
        for (const char* const key : {"a", "b", "x/zarr.json"}) {
            put(*values, key, 100);
        }
        auto value = values->find("a");
        const std::uint64_t version = value->version();
        values->was_read("a", version + 1);  // another one's
        values->was_read("missing", version);
        EXPECT_EQ(values->find("a"), value);
        values->was_read("a", version);
        values->was_read("a", version);  // by another reader
        values->was_read("x/zarr.json", values->find("x/zarr.json")->version());
        EXPECT_EQ(room_->taken(), before + 300);  // this reader still has it
        EXPECT_EQ(text_of([&] { values->find("a"); }).starts_with("it has been read"), freed);
        EXPECT_EQ(values->size("a"), 100u);
        EXPECT_EQ(measure(*values, "", false).keys, 3u);
        value.reset();
        EXPECT_EQ(room_->taken(), before + (freed ? 200 : 300));
        EXPECT_NE(values->find("x/zarr.json"), nullptr);
        put(*values, "a", 50);
        EXPECT_EQ(values->find("a")->size(), 50u);
        values->was_read("a", version);  // late, and of the old value
        EXPECT_EQ(values->find("a")->size(), 50u);
    }
}

TEST_F(SpacesTest, AValueThatIsReadCountsUntilItIsLetGo) {
    spaces_.begin(kOne, 700, 1h);
    put(*spaces_.find(kOne), "a", 600);
    auto pinned = spaces_.find(kOne)->find("a");
    end(kOne);
    EXPECT_EQ(room_->taken(), 600u);
    EXPECT_EQ(Bytes(pinned->data(), pinned->data() + pinned->size()), pattern(600));
    pinned.reset();
    EXPECT_EQ(room_->taken(), 0u);
}

TEST_F(SpacesTest, EndWhenTheirOwnerIsOverdue) {
    spaces_.begin(kOne, kAny, 1h, start_);
    spaces_.begin(kOther, kAny, 2h, start_);
    put(*spaces_.find(kOne), "a", 600);
    spaces_.expire(start_ + 59min);
    EXPECT_EQ(count(), 2u);
    spaces_.renew(kOne, start_ + 59min);
    spaces_.expire(start_ + 118min);
    EXPECT_EQ(count(), 2u);
    spaces_.expire(start_ + 119min);
    EXPECT_EQ(count(), 1u);
    EXPECT_TRUE(eventually([&] { return room_->taken() == 0; }));
    EXPECT_EQ(error_of([&] { spaces_.renew(kOne); }), ErrorKind::scratch_ended);
    EXPECT_EQ(error_of([&] { spaces_.find(kOne); }), ErrorKind::scratch_ended);
    EXPECT_EQ(spaces_.counts(start_ + 119min).at(0).name, "22222222");
    EXPECT_EQ(spaces_.counts(start_ + 119min).at(0).age_s, 119 * 60);
}

TEST_F(SpacesTest, EndByThemselves) {
    spaces_.begin(kOther, kAny, 1h);
    spaces_.begin(kOne, kAny, 20ms);
    EXPECT_TRUE(eventually([&] { return count() == 1; }));
}

TEST_F(SpacesTest, WhoeverHoldsOneIsToldThatItHasEnded) {
    spaces_.begin(kOne, 1000, 1h);
    const auto held = spaces_.find(kOne);
    put(*held, "a", 10);
    const auto arriving = fill(*held, "b", pattern(10));
    end(kOne);
    const std::vector<std::function<void()>> calls = {
        [&] { held->find("a"); },           [&] { held->size("a"); },
        [&] { held->receive("c", 1); },     [&] { arriving->commit(false); },
        [&] { held->remove("a"); },         [&] { remove_prefix(*held, ""); },
        [&] { measure(*held, "", false); }, [&] { held->list("", false, "", 100); },
    };
    for (const auto& call : calls) {
        EXPECT_EQ(error_of(call), ErrorKind::scratch_ended);
    }
    // One that begins under the same name is another one.
    spaces_.begin(kOne, 1000, 1h);
    EXPECT_EQ(spaces_.find(kOne)->find("a"), nullptr);
    EXPECT_EQ(error_of(calls[0]), ErrorKind::scratch_ended);
}

TEST_F(SpacesTest, EndTwiceOrAllAtOnce) {
    end(kOne);
    spaces_.begin(kOne, kAny, 1h);
    spaces_.begin(kOther, kAny, 1h);
    put(*spaces_.find(kOne), "a", 100);
    put(*spaces_.find(kOther), "a", 100);
    spaces_.end_all();
    end(kOne);
    EXPECT_EQ(count(), 0u);
    EXPECT_TRUE(eventually([&] { return room_->taken() == 0; }));
}

TEST_F(SpacesTest, AreRefused) {
    spaces_.begin(kOne, kAny, Spaces::kMaxTimeout);
    EXPECT_EQ(error_of([&] { spaces_.begin(kOne, kAny, 1h); }), ErrorKind::storage);
    for (const auto timeout :
         {Spaces::Timeout(0), Spaces::Timeout(-1), Spaces::kMaxTimeout + Spaces::Timeout(1)}) {
        EXPECT_EQ(error_of([&] { spaces_.begin(kOther, kAny, timeout); }), ErrorKind::storage);
    }
    EXPECT_EQ(count(), 1u);
}

TEST_F(SpacesTest, WritersAndTheEndAtTheSameTime) {
    for (int round = 0; round < 20; ++round) {
        spaces_.begin(kOne, kAny, 1h);
        std::atomic<bool> stored = false;
        std::vector<std::thread> writers;
        for (int i = 0; i < 3; ++i) {
            writers.emplace_back([&, i] {
                try {
                    for (int n = 0;; ++n) {
                        put(*spaces_.find(kOne), std::to_string(i) + "/" + std::to_string(n % 5),
                            10);
                        stored = true;
                    }
                } catch (const Error& error) {
                    EXPECT_EQ(error.kind(), ErrorKind::scratch_ended);
                }
            });
        }
        EXPECT_TRUE(eventually([&] { return stored.load(); }));
        end(kOne);
        for (auto& writer : writers) {
            writer.join();
        }
        EXPECT_EQ(room_->taken(), 0u);
    }
}

// ---------------------------------------------------------------------------------------------
// Through a server of something else, here a remote storage that nobody answers for.

std::string begin_body(const std::string& name, std::uint64_t quota, std::uint64_t timeout_ms) {
    std::string body = strings({name});
    put_u64(body, quota);
    put_u64(body, timeout_ms);
    return body;
}

TEST(SpacesOfMemory, TakeFromItsLimitAndFromOneOfTheirOwn) {
    const auto quota = std::make_shared<Quota>(1000);
    const MemoryStorage memory(quota);
    Spaces limited(memory, false, 100);
    limited.begin(kOne, kAny, 1min);
    put(*limited.find(kOne), key_in(kOne, "a"), 60);
    EXPECT_EQ(quota->taken(), 60u);
    EXPECT_THROW(put(*limited.find(kOne), key_in(kOne, "b"), 60), NoRoomError);
    Spaces others(memory, false, {});
    others.begin(kOther, kAny, 1min);
    put(*others.find(kOther), key_in(kOther, "a"), 200);
    EXPECT_EQ(quota->taken(), 260u);
}

class ScratchTest : public testing::Test {
  protected:
    void begin(const std::string& name, std::uint64_t quota = kAny) {
        run(Op::begin_space, begin_body(name, quota, 3'600'000));
    }
    void run(Op op, const std::string& body, std::uint32_t count = 1) {
        both_.run(call_operation(op, body, count));
    }
    std::optional<ErrorKind> refused(Op op, const std::string& body, std::uint32_t count = 1) {
        return error_of([&] { run(op, body, count); });
    }

    const std::shared_ptr<Quota> room_ = std::make_shared<Quota>(kAny);
    const std::shared_ptr<Spaces> spaces_ = std::make_shared<Spaces>(room_);
    const std::shared_ptr<CachedSource> remote_ = std::make_shared<CachedSource>(1 << 20, 0);
    Loopback both_{remote_, Options{}, spaces_};
};

TEST_F(ScratchTest, ValuesComeAndGoWithoutTheStorage) {
    begin(kOne);
    const Bytes large = pattern(3 << 20);
    both_.set(key_in(kOne, "a"), large);
    EXPECT_EQ(both_.get(key_in(kOne, "a")), large);
    EXPECT_EQ(both_.stat(key_in(kOne, "a")), large.size());
    EXPECT_EQ(both_.get(key_in(kOne, "b")), std::nullopt);
    run(Op::remove, strings({key_in(kOne, "a"), key_in(kOne, "b")}), 2);
    EXPECT_EQ(room_->taken(), 0u);
    EXPECT_TRUE(remote_->calls().take().empty());
}

TEST_F(ScratchTest, TheEndIsAnsweredWhenAllIsFreed) {
    begin(kOne);
    for (int i = 0; i < 50; ++i) {
        both_.set(key_in(kOne, std::to_string(i)), pattern(1 << 20));
    }
    run(Op::end_space, strings({kOne}));
    EXPECT_EQ(room_->taken(), 0u);
    EXPECT_EQ(error_of([&] { both_.get(key_in(kOne, "0")); }), ErrorKind::scratch_ended);
    EXPECT_EQ(error_of([&] { both_.stat(key_in(kOne, "0")); }), ErrorKind::scratch_ended);
    EXPECT_EQ(error_of([&] { both_.set(key_in(kOne, "0"), pattern(9)); }),
              ErrorKind::scratch_ended);
    EXPECT_EQ(refused(Op::renew_space, strings({kOne})), ErrorKind::scratch_ended);
    run(Op::end_space, strings({kOne}));
}

TEST_F(ScratchTest, AWriterThatDiesLeavesNothing) {
    begin(kOne);
    Client other({}, false);
    const auto theirs = both_.connect(other);
    Bytes large = pattern(64 << 20);
    const auto operation = set_operation({{key_in(kOne, "a"), memory_of(large)}});
    other.submit(theirs, operation);
    EXPECT_TRUE(eventually([&] { return room_->taken() > 0; }));
    other.close(0ms);
    EXPECT_TRUE(
        eventually([&] { return both_.get(key_in(kOne, "a")) == large || room_->taken() == 0; }));
    run(Op::end_space, strings({kOne}));
    EXPECT_TRUE(eventually([&] { return room_->taken() == 0; }));
}

TEST_F(ScratchTest, AValueOnItsWayWhenItEndsIsRefused) {
    begin(kOne);
    Bytes large = pattern(64 << 20);
    const auto operation = set_operation({{key_in(kOne, "a"), memory_of(large)}});
    both_.submit(operation);
    EXPECT_TRUE(eventually([&] { return room_->taken() > 0; }));
    spaces_->end_all();
    // Or it was there a moment before.
    const auto failure = error_of([&] { finish(operation); });
    EXPECT_TRUE(!failure || failure == ErrorKind::scratch_ended);
    EXPECT_TRUE(eventually([&] { return room_->taken() == 0; }));
}

TEST_F(ScratchTest, NamesAreChecked) {
    const std::string upper(32, 'A');
    for (const std::string& name : {std::string(), kOne + "1", kOne.substr(1), upper,
                                    std::string(31, '1') + "/", std::string(32, '\0')}) {
        EXPECT_EQ(refused(Op::begin_space, begin_body(name, 1, 1000)), ErrorKind::invalid_key);
        EXPECT_EQ(refused(Op::renew_space, strings({name})), ErrorKind::invalid_key);
        EXPECT_EQ(refused(Op::end_space, strings({name})), ErrorKind::invalid_key);
    }
    for (const std::uint64_t timeout : {std::uint64_t{0}, kAny, kAny / 2 + 1}) {
        EXPECT_EQ(refused(Op::begin_space, begin_body(kOne, 1, timeout)), ErrorKind::storage);
    }
    EXPECT_TRUE(spaces_->counts().empty());
}

TEST_F(ScratchTest, KeysAndPrefixesOutsideOfASpaceAreInNone) {
    begin(kOne);
    both_.set(key_in(kOne, "a"), pattern(10));
    const std::string folder(kScratchFolder);
    for (const std::string& prefix : {folder, folder + "1/", folder + kOther + "/"}) {
        EXPECT_EQ(refused(Op::remove_prefix, strings({prefix})), ErrorKind::scratch_ended);
        EXPECT_EQ(refused(Op::measure, strings({prefix}) + '\0'), ErrorKind::scratch_ended);
        EXPECT_EQ(refused(Op::list, strings({prefix}) + '\0' + strings({""})),
                  ErrorKind::scratch_ended);
    }
    EXPECT_EQ(refused(Op::stat, strings({key_in(kOne, "a"), "a"}), 2), ErrorKind::invalid_key);
    begin(kOther);
    EXPECT_EQ(refused(Op::remove, strings({key_in(kOther, "a"), key_in(kOne, "a")}), 2),
              ErrorKind::invalid_key);
    EXPECT_EQ(both_.get(key_in(kOne, "a")), pattern(10));
    EXPECT_TRUE(remote_->calls().take().empty());
}

TEST(NoScratch, IsSaid) {
    Loopback both;
    const auto call = [&](Op op, const std::string& body) {
        return text_of([&] { both.run(call_operation(op, body)); });
    };
    const std::string none = "offers no scratch space";
    EXPECT_NE(call(Op::begin_space, begin_body(kOne, 1, 1000)).find(none), std::string::npos);
    EXPECT_NE(call(Op::stat, strings({key_in(kOne, "a")})).find(none), std::string::npos);
    EXPECT_NE(text_of([&] { both.get(key_in(kOne, "a")); }).find(none), std::string::npos);
    EXPECT_NE(text_of([&] { both.set(key_in(kOne, "a"), {}); }).find(none), std::string::npos);
}

}  // namespace
}  // namespace ucxstore::test
