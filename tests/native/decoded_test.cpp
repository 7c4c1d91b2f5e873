// Values that are decoded once, by a decoder that the test holds up; and what a source's cache says
// of the versions that they are of.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "cache/decoded_values.hpp"
#include "protocol/keys.hpp"
#include "remote_fixture.hpp"
#include "support.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

const std::string kDigest(kDigestBytes, 'a');

std::string name_of(const std::string& key, const std::string& bytes = "all") {
    return std::string(kDecodedFolder) + kDigest + "/" + bytes + "/" + key;
}

// "Decodes" a value to so many bytes, all of which are its first one.
class FirstByte : public Recipe {
  public:
    FirstByte(std::uint64_t bytes, std::atomic<int>& decoded, std::atomic<bool>& held)
        : bytes_(bytes), decoded_(decoded), held_(held) {}
    const std::string& digest() const override { return kDigest; }
    std::uint64_t bytes() const override { return bytes_; }
    void decode(const StoredChunk& stored, const std::shared_ptr<Region>& out) const override {
        EXPECT_TRUE(eventually([&] { return !held_; }));
        ++decoded_;
        if (stored.bytes.empty() || stored.bytes[0] == std::byte{'!'}) {
            throw std::runtime_error("it is broken");
        }
        std::memset(out->data(), static_cast<int>(stored.bytes[0]), out->size());
    }

  private:
    const std::uint64_t bytes_;
    std::atomic<int>& decoded_;
    std::atomic<bool>& held_;
};

class TestDecoder : public Decoder {
  public:
    std::shared_ptr<const Recipe> prepare(const std::string& text) override {
        ++prepared;
        if (text == "none") {
            throw std::runtime_error("no recipe");
        }
        return std::make_shared<FirstByte>(std::stoull(text), decoded, held);
    }
    std::atomic<int> prepared = 0;
    std::atomic<int> decoded = 0;
    std::atomic<bool> held = false;
};

class DecodedTest : public testing::TestWithParam<bool> {
  protected:
    using Got = std::shared_ptr<std::optional<Outcome<DecodedValues::Value>>>;

    ~DecodedTest() override { EXPECT_TRUE(values->close(kPatience)); }

    static std::shared_ptr<Region> stored(const std::string& text, std::uint64_t version = 1) {
        auto value = region(text);
        value->set_version(version);
        return value;
    }
    Got begin(const std::string& name, const std::shared_ptr<const Region>& value,
              const std::string& recipe = "1000") {
        auto got = std::make_shared<std::optional<Outcome<DecodedValues::Value>>>();
        auto done = std::make_shared<std::atomic<bool>>(false);
        values->decode({name, std::make_shared<const std::string>(recipe)}, value,
                       [got, done](auto outcome) {
                           *got = std::move(outcome);
                           *done = true;
                       });
        waits.push_back(done);
        return got;
    }
    void wait() {
        for (const auto& done : waits) {
            ASSERT_TRUE(eventually([&] { return done->load(); }));
        }
        waits.clear();
    }
    Outcome<DecodedValues::Value> decode(const std::string& name,
                                         const std::shared_ptr<const Region>& value,
                                         const std::string& recipe = "1000") {
        const Got got = begin(name, value, recipe);
        wait();
        return **got;
    }
    static bool is(const DecodedValues::Value& value, char byte, std::uint64_t size = 1000) {
        return value != nullptr && value->size() == size &&
               std::all_of(value->data(), value->data() + size,
                           [&](std::byte one) { return one == static_cast<std::byte>(byte); });
    }

    const std::shared_ptr<TestDecoder> decoder = std::make_shared<TestDecoder>();
    const std::shared_ptr<DecodedValues> values =
        std::make_shared<DecodedValues>(decoder, 1 << 20, 2, GetParam());
    std::vector<std::shared_ptr<std::atomic<bool>>> waits;
};

TEST_P(DecodedTest, IsDecodedOnceForAllWhoAsk) {
    decoder->held = true;
    std::vector<Got> all;
    for (int i = 0; i < 50; ++i) {
        all.push_back(begin(name_of("k"), stored("x")));
    }
    decoder->held = false;
    wait();
    for (const Got& got : all) {
        EXPECT_TRUE(is((*got)->value, 'x'));
        EXPECT_EQ((*got)->value->version(), 1u);
    }
    EXPECT_TRUE(is(values->find(name_of("k"), 1), 'x'));
    EXPECT_TRUE(is(decode(name_of("k"), stored("x")).value, 'x'));
    EXPECT_EQ(decoder->decoded, 1);
    EXPECT_EQ(decoder->prepared, 1);
    const DecodedCounts counts = values->counts();
    EXPECT_EQ(counts.decoded, 1u);
    EXPECT_EQ(counts.joined, 49u);
    EXPECT_EQ(counts.hits, 1u);
}

TEST_P(DecodedTest, IsOfOneVersion) {
    decode(name_of("k"), stored("x", 1));
    EXPECT_EQ(values->find(name_of("k"), 2), nullptr);
    EXPECT_TRUE(is(decode(name_of("k"), stored("y", 2)).value, 'y'));
    EXPECT_EQ(values->find(name_of("k"), 1), nullptr);
    EXPECT_TRUE(is(values->find(name_of("k"), 2), 'y'));
}

TEST_P(DecodedTest, WhoAsksForAnotherVersionMeanwhileGetsThat) {
    decoder->held = true;
    const Got before = begin(name_of("k"), stored("x", 1));
    const Got after = begin(name_of("k"), stored("y", 2));
    decoder->held = false;
    wait();
    EXPECT_TRUE(is((*before)->value, 'x'));
    EXPECT_TRUE(is((*after)->value, 'y'));
    EXPECT_EQ(values->find(name_of("k"), 1), nullptr) << "which of them ended last";
}

TEST_P(DecodedTest, AVersionInDoubtIsKeptForNobody) {
    const auto value = [](const std::string& text) {
        auto made = stored(text);
        made->doubt_version();
        return made;
    };
    decoder->held = true;
    const Got one = begin(name_of("k"), value("x"));
    const Got other = begin(name_of("k"), value("y"));
    decoder->held = false;
    wait();
    EXPECT_TRUE(is((*one)->value, 'x'));
    EXPECT_TRUE(is((*other)->value, 'y'));
    EXPECT_EQ(values->find(name_of("k"), 1), nullptr);
}

TEST_P(DecodedTest, PartsOfAValueAreOnesOfTheirOwn) {
    const auto shard = stored("abc");
    EXPECT_TRUE(is(decode(name_of("k", "0-1"), shard).value, 'a'));
    EXPECT_TRUE(is(decode(name_of("k", "2-3"), shard).value, 'c'));
    EXPECT_NE(decode(name_of("k", "2-4"), shard).failure, "");
    EXPECT_EQ(decode(name_of("k", "1-1"), shard).failure, "it is broken");
}

TEST_P(DecodedTest, AFailureIsNotKept) {
    const auto failed = decode(name_of("k"), stored("!"));
    EXPECT_EQ(failed.value, nullptr);
    EXPECT_EQ(failed.failure, "it is broken");
    EXPECT_EQ(values->find(name_of("k"), 1), nullptr);
    EXPECT_EQ(decode(name_of("k"), stored("!")).failure, "it is broken");
    EXPECT_EQ(decoder->decoded, 2);
    EXPECT_EQ(values->counts().failed, 2u);
    EXPECT_TRUE(is(decode(name_of("k"), stored("x", 2)).value, 'x'));
}

TEST_P(DecodedTest, WhatCannotBePreparedIsTriedOnce) {
    EXPECT_EQ(decode(name_of("k"), stored("x"), "none").failure, "no recipe");
    EXPECT_EQ(decode(name_of("k"), stored("x"), "none").failure, "no recipe");
    EXPECT_EQ(decoder->prepared, 1);
}

TEST_P(DecodedTest, ANameOfAnotherRecipeIsRefused) {
    const std::string other =
        std::string(kDecodedFolder) + std::string(kDigestBytes, 'b') + "/all/k";
    EXPECT_NE(decode(other, stored("x")).failure, "");
    EXPECT_EQ(values->find(other, 1), nullptr);
    EXPECT_EQ(decoder->decoded, 0);
}

TEST_P(DecodedTest, WhatIsLargerThanTheLimitIsRefused) {
    const auto failed = decode(name_of("k"), stored("x"), std::to_string(2 << 20));
    EXPECT_NE(failed.failure.find("may take 1048576"), std::string::npos) << failed.failure;
    EXPECT_EQ(decoder->decoded, 0);
}

TEST_P(DecodedTest, ThereAreNoMoreThanTheLimit) {
    for (int i = 0; i < 200; ++i) {
        const std::string name = name_of("k" + std::to_string(i));
        EXPECT_TRUE(is(decode(name, stored("x"), "50000").value, 'x', 50000));
        EXPECT_LE(values->counts().bytes, std::uint64_t{1} << 20);
    }
    EXPECT_GE(values->counts().evicted, 170u);
    if (values->shelf() != nullptr) {
        EXPECT_LE(values->shelf()->counts().arena_bytes_used, (std::uint64_t{1} << 20) * 3 / 2);
    }
}

TEST_P(DecodedTest, RecipesAreForgotten) {
    for (std::size_t i = 0; i <= DecodedValues::kMostRecipes; ++i) {
        decode(name_of("k"), stored("!"), std::to_string(1000 + i));
    }
    const int before = decoder->prepared;
    decode(name_of("k"), stored("!"), "1001");
    EXPECT_EQ(decoder->prepared, before);
    decode(name_of("k"), stored("!"), "1000");
    EXPECT_EQ(decoder->prepared, before + 1);
}

TEST_P(DecodedTest, NothingIsDecodedOnceItIsClosed) {
    decoder->held = true;
    const Got under_way = begin(name_of("k"), stored("x"));
    ASSERT_TRUE(eventually([&] { return decoder->prepared > 0; }));
    EXPECT_FALSE(values->close(1ms));
    decoder->held = false;
    wait();
    EXPECT_TRUE(is((*under_way)->value, 'x'));
    EXPECT_EQ(values->find(name_of("k"), 1), nullptr);
    EXPECT_EQ(decode(name_of("k"), stored("x")).failure, "the server is ending");
}

INSTANTIATE_TEST_SUITE_P(All, DecodedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "visible" : "own"; });

TEST(DecodedNames, AreReadInOneWay) {
    const std::string name = name_of("a/b", "12-345");
    const auto read = decoded_name(name);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->key, "a/b");
    EXPECT_EQ(read->digest, kDigest);
    EXPECT_FALSE(read->bytes.all);
    EXPECT_EQ(read->bytes.begin, 12u);
    EXPECT_EQ(read->bytes.end, 345u);
    EXPECT_TRUE(decoded_name(name_of("k"))->bytes.all);
    for (const char* bytes : {"", "1", "1-", "-1", "2-1", "01-2", "+1-2", "1-2-3", "ALL", "1 -2",
                              "1-99999999999999999999"}) {
        EXPECT_FALSE(decoded_name(name_of("k", bytes))) << bytes;
    }
    EXPECT_FALSE(decoded_name("a/b"));
    EXPECT_FALSE(decoded_name(std::string(kDecodedFolder)));
    EXPECT_FALSE(decoded_name(std::string(kDecodedFolder) + "abc/all/k"));
}

class VersionsTest : public RemoteTest {
  protected:
    explicit VersionsTest(std::shared_ptr<Cache::Clock::time_point> now =
                              std::make_shared<Cache::Clock::time_point>())
        : RemoteTest(std::make_shared<CachedSource>(4096, kBlock, 10s, CachedSource::kWriteBytes,
                                                    [now] { return *now; })),
          now_(now) {
        remote_->note_versions();
    }
    // One too large for the cache, as is every value here.
    std::uint64_t bring(const std::string& key, const std::string& etag) {
        const auto fetched = fetch(key);
        answer(taken<GetCall>(), SourceObject{region(std::string(5000, 'x')), etag, 5000});
        return fetched->outcome->value->version();
    }

    const std::shared_ptr<Cache::Clock::time_point> now_;
};

TEST_F(VersionsTest, AreBelievedWhetherTheValueIsKeptOrNot) {
    EXPECT_EQ(remote_->believed_version("k"), std::nullopt);
    const std::uint64_t version = bring("k", "1");
    EXPECT_EQ(remote_->find("k"), nullptr) << "it is not kept";
    EXPECT_EQ(remote_->believed_version("k"), version);
    *now_ += 10s;
    EXPECT_EQ(remote_->believed_version("k"), std::nullopt);
    EXPECT_EQ(bring("k", "1"), version);
    EXPECT_EQ(remote_->believed_version("k"), version);
    EXPECT_NE(bring("k", "2"), version);
    EXPECT_NE(remote_->believed_version("k"), version);
}

TEST_F(VersionsTest, EndWithEachChange) {
    // Another key each time, so that nothing is kept of it.
    int keys = 0;
    const auto known = [&] {
        const std::string key = "a/" + std::to_string(++keys);
        bring(key, "1");
        EXPECT_TRUE(remote_->believed_version(key));
        return key;
    };
    const std::string written = known();
    const auto before = remote_->believed_version(written);
    write(written, "new");
    const auto put = taken<PutCall>();
    EXPECT_FALSE(remote_->believed_version(written)) << "while it is being changed";
    answer(put, Stored{.etag = "2"});
    EXPECT_NE(remote_->believed_version(written), before);

    const std::string perhaps = known();
    write(perhaps, "new");
    answer(taken<PutCall>(), Failure{"it did not answer", true});
    EXPECT_FALSE(remote_->believed_version(perhaps));

    const std::string removed = known();
    remote_->call(RemovePrefixCall{"a/"}, [](const auto&) {});
    answer(taken<RemovePrefixCall>(), Removed{1});
    EXPECT_FALSE(remote_->believed_version(removed));

    const std::string elsewhere = known();
    remote_->begin_asking({{elsewhere}, {}});
    EXPECT_FALSE(remote_->believed_version(elsewhere));
    remote_->end_asking({{elsewhere}, {}});
    EXPECT_FALSE(remote_->believed_version(elsewhere));

    const std::string flushed = known();
    remote_->flush("a");
    EXPECT_FALSE(remote_->believed_version(flushed));

    const std::string forgotten = known();
    remote_->forget_all();
    EXPECT_FALSE(remote_->believed_version(forgotten));

    const std::string leased = known();
    remote_->set_lease_end(1);
    EXPECT_FALSE(remote_->believed_version(leased));
}

TEST_F(VersionsTest, WhatCameDuringAChangeIsNotBelieved) {
    fetch("k");
    const auto before = taken<GetCall>();
    remote_->begin_asking({{"k"}, {}});
    answer(before, SourceObject{region("old"), "1", 3});
    remote_->end_asking({{"k"}, {}});
    EXPECT_FALSE(remote_->believed_version("k"));
}

}  // namespace
}  // namespace ucxstore::test
