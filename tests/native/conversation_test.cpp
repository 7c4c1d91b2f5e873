#include "client/conversation.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "loopback.hpp"

namespace ucxstore::test {
namespace {

using namespace std::chrono_literals;

using Pointer = std::shared_ptr<Operation>;

constexpr std::uint64_t kSegment = 1000;

// Notes what it is given, as long as it has room.
class ConversationTest : public testing::Test, private Conversation::Carrier {
  protected:
    struct Sent {
        std::uint64_t operation;
        std::uint32_t item;
        std::uint64_t offset;

        bool operator==(const Sent&) const = default;
    };

    Pointer start(Pointer operation) {
        conversation.start(operation);
        return operation;
    }
    Pointer start_call() { return start(call_operation(Op::stat, "a")); }
    Pointer start_get(double timeout_s = 60) { return start(get_operation({{"a"}}, timeout_s)); }
    Pointer start_set(std::size_t values, std::uint64_t bytes = kSegment, double timeout_s = 60) {
        memory.resize(bytes);
        std::vector<Set> sets;
        for (std::size_t i = 0; i < values; ++i) {
            sets.push_back({"a", memory_of(memory)});
        }
        return start(set_operation(sets, false, timeout_s));
    }
    Pointer reply(const Operation& operation, Status status) {
        return conversation.on_reply(reply_header(conversation.token(), operation.id, 0, status));
    }
    // As a server that has taken the value.
    void answer(const Pointer& operation, std::uint32_t item) {
        conversation.item_done(operation, operation->items[item]);
    }
    static ErrorKind kind_of(const Pointer& operation) {
        return error_of([&] { finish(operation); }).value();
    }
    static std::string text_of(const Pointer& operation) {
        try {
            operation->check();
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }

    bool failed() const override { return lost; }
    void send_request(Outgoing request) override { requests.push_back(request.header); }
    bool send_file(const Pointer&) override { return takes_files; }
    void pump() override {
        conversation.send_values([this](const Pointer& operation, Item& item, std::uint32_t index) {
            if (room == 0) {
                return false;
            }
            --room;
            const auto header = conversation.value_header(*operation, index, kSegment);
            sent.push_back({header.request, header.item, header.offset});
            item.next += header.length;
            if (on_sent) {
                on_sent(operation, index);
            }
            return true;
        });
    }
    void stop(const Operation& operation) override { stopped.push_back(operation.id); }
    void on_stuck(const std::string& text) override { end(text); }
    void shut(const char* why) override { end(why); }
    void end(const std::string& why) {
        lost = true;
        conversation.end(ErrorKind::server_lost, why);
    }

    bool lost = false;
    bool takes_files = false;
    std::size_t room = 10'000;
    Bytes memory;
    std::vector<RequestHeader> requests;
    std::vector<Sent> sent;
    std::vector<std::uint64_t> stopped;
    std::function<void(const Pointer& operation, std::uint32_t item)> on_sent;
    Conversation conversation{new_token(), "server", *this};
};

TEST_F(ConversationTest, AnOperationIsCompleteWithItsLastItem) {
    const auto operation = start_call();
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_EQ(requests[0].token, conversation.token());
    EXPECT_EQ(requests[0].request, operation->id);
    EXPECT_EQ(conversation.find(operation->id), operation);
    EXPECT_FALSE(conversation.empty());
    answer(operation, 0);
    EXPECT_TRUE(operation->done());
    EXPECT_FALSE(operation->failed());
    EXPECT_EQ(conversation.find(operation->id), nullptr);
    EXPECT_TRUE(conversation.empty());
    EXPECT_EQ(requests.size(), 1u) << "only what has failed is abandoned";
    EXPECT_EQ(stopped, std::vector{operation->id});
}

TEST_F(ConversationTest, AnOperationWithoutItemsIsCompleteAtOnce) {
    EXPECT_TRUE(start(get_operation({}))->done());
    EXPECT_TRUE(conversation.empty());
}

TEST_F(ConversationTest, RepliesThatSayNothingOfAnItemHaveNoOperation) {
    const auto operation = start_get();
    EXPECT_EQ(reply(*operation, Status::ok), operation);
    EXPECT_EQ(reply(*operation, Status::going_on), nullptr);
    EXPECT_EQ(reply(*operation, Status::leaving), nullptr);
    EXPECT_TRUE(conversation.leaving());
    conversation.cancel(operation);
    EXPECT_EQ(reply(*operation, Status::ok), nullptr);
}

TEST_F(ConversationTest, ItsLastSegmentEndsAnItem) {
    const auto operation = start_get();
    Item& item = operation->items[0];
    item.size = 2 * kSegment;
    conversation.segment_arrived(operation, item, kSegment);
    EXPECT_FALSE(operation->done());
    conversation.segment_arrived(operation, item, kSegment);
    EXPECT_TRUE(operation->done());
    conversation.segment_arrived(operation, item, kSegment);  // it has ended
    EXPECT_EQ(item.received, 2 * kSegment);
}

// ---- values that wait to be sent ----

TEST_F(ConversationTest, ValuesGoSegmentBySegmentAsThereIsRoom) {
    room = 3;
    const auto operation = start_set(2, 2 * kSegment);
    using Sends = std::vector<Sent>;
    const std::uint64_t id = operation->id;
    EXPECT_EQ(sent, (Sends{{id, 0, 0}, {id, 0, kSegment}, {id, 1, 0}}));
    EXPECT_EQ(operation->unanswered, 2u);
    room = 10;
    pump();
    EXPECT_EQ(sent.size(), 4u);
    EXPECT_EQ(sent.back(), (Sent{id, 1, kSegment}));
    EXPECT_EQ(operation->unanswered, 2u);
}

TEST_F(ConversationTest, WhatFoundNoRoomDoesNotCountAsUnanswered) {
    room = 0;
    const auto operation = start_set(1);
    EXPECT_EQ(operation->unanswered, 0u);
    EXPECT_TRUE(operation->waits_to_be_sent());
}

TEST_F(ConversationTest, AnEmptyValueIsSentOnce) {
    start_set(1, 0);
    EXPECT_EQ(sent.size(), 1u);
    pump();
    EXPECT_EQ(sent.size(), 1u);
}

TEST_F(ConversationTest, AFileGoesInPlaceOfTheValue) {
    takes_files = true;
    const auto operation = start_set(1);
    EXPECT_TRUE(sent.empty());
    conversation.queue_values(operation);  // the server does not take it
    EXPECT_EQ(sent.size(), 1u);
}

TEST_F(ConversationTest, FewValuesAreUnansweredWhileOthersWait) {
    const auto first = start_set(kMaxUnanswered - 1);
    const auto second = start_set(3);
    EXPECT_EQ(sent.size(), kMaxUnanswered);
    answer(first, 0);
    EXPECT_EQ(sent.size(), kMaxUnanswered + 1);
    conversation.cancel(first);  // none of its values is answered any more
    EXPECT_EQ(sent.size(), kMaxUnanswered + 2);
    EXPECT_EQ(sent.back(), (Sent{second->id, 2, 0}));
}

TEST_F(ConversationTest, ValuesThatNobodyWantsAnyMoreAreNotSent) {
    room = 1;
    const auto refused = start_set(2);
    answer(refused, 1);
    const auto cancelled = start_set(1);
    conversation.cancel(cancelled);
    const auto wanted = start_set(1);
    room = 10;
    pump();
    EXPECT_EQ(sent, (std::vector<Sent>{{refused->id, 0, 0}, {wanted->id, 0, 0}}));
}

TEST_F(ConversationTest, AnAnswerMayComeInsideTheCallThatSends) {
    on_sent = [this](const Pointer& operation, std::uint32_t item) { answer(operation, item); };
    const auto operation = start_set(2000);
    EXPECT_TRUE(operation->done());
    EXPECT_EQ(operation->unanswered, 0u);
    EXPECT_EQ(sent.size(), 2000u);
    on_sent = nullptr;
    start_set(2 * kMaxUnanswered);
    EXPECT_EQ(sent.size(), 2000 + kMaxUnanswered) << "each was counted once, and not more";
}

TEST_F(ConversationTest, AValueThatCannotBeSentFailsItsOperationAlone) {
    room = 0;
    const auto bad = start_set(2);
    const auto good = start_set(1);
    room = 10;
    on_sent = [&](const Pointer& operation, std::uint32_t) {
        if (operation == bad) {
            throw std::bad_alloc();
        }
    };
    pump();
    EXPECT_EQ(kind_of(bad), ErrorKind::memory);
    EXPECT_NE(text_of(bad).find("server: sending 'a'"), std::string::npos);
    EXPECT_EQ(sent.back(), (Sent{good->id, 0, 0}));
    EXPECT_EQ(good->unanswered, 1u);
}

// ---- how an operation ends ----

TEST_F(ConversationTest, TheServerIsToldOfWhatHasFailed) {
    const auto operation = start_get();
    conversation.cancel(operation);
    EXPECT_EQ(kind_of(operation), ErrorKind::cancelled);
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_EQ(requests[0].op, Op::abandon);
    EXPECT_EQ(requests[0].request, operation->id);
    conversation.cancel(operation);  // nothing more
    EXPECT_EQ(requests.size(), 1u);
    EXPECT_EQ(stopped.size(), 1u);
}

TEST_F(ConversationTest, MemoryThatIsUsedKeepsAnOperationFromItsCaller) {
    const auto operation = start_get();
    operation->active = 1;
    conversation.cancel(operation);
    EXPECT_FALSE(operation->done());
    EXPECT_FALSE(conversation.empty());
    conversation.released(operation);  // another of its transfers has not ended
    EXPECT_FALSE(operation->done());
    operation->active = 0;
    conversation.released(operation);
    EXPECT_TRUE(operation->done());
    EXPECT_FALSE(operation->leaked());
    EXPECT_TRUE(conversation.empty());
}

TEST_F(ConversationTest, MemoryThatIsNotReleasedInTimeIsLeaked) {
    const auto operation = start_get();
    operation->active = 1;
    EXPECT_TRUE(conversation.unreleased(Clock::now() + 1h, 1s).operations.empty());
    conversation.cancel(operation);
    const TimePoint now = Clock::now();
    const auto before = conversation.unreleased(now, 1s);
    EXPECT_TRUE(before.operations.empty());
    EXPECT_LE(before.next, now + 1s);
    conversation.wait_anew(now + 1s);
    EXPECT_EQ(conversation.unreleased(now + 1s, 1s).next, now + 2s);
    const auto due = conversation.unreleased(now + 2s, 1s);
    ASSERT_EQ(due.operations, std::vector{operation});
    conversation.leak(due.operations, "it is still written to");
    EXPECT_TRUE(operation->leaked());
    EXPECT_EQ(kind_of(operation), ErrorKind::cancelled);
    EXPECT_TRUE(conversation.empty());
    conversation.leak(due.operations, "again");
    operation->active = 0;
    conversation.released(operation);
}

// ---- deadlines ----

TEST_F(ConversationTest, WhatStandsStillTimesOut) {
    const auto slow = start_get(10);
    const auto other = start_get(30);
    const TimePoint now = Clock::now();
    EXPECT_EQ(conversation.tick(now), slow->deadline());
    EXPECT_EQ(conversation.tick(now + 20s), other->deadline());
    EXPECT_EQ(kind_of(slow), ErrorKind::timeout);
    EXPECT_EQ(text_of(slow), "server: nothing came for 'a' within 10 s");
    EXPECT_FALSE(other->done());
    EXPECT_EQ(requests.back().op, Op::abandon);
    EXPECT_EQ(conversation.tick(now + 1h), TimePoint::max());
}

TEST_F(ConversationTest, ProgressRenewsTheDeadline) {
    const auto operation = start_get(10);
    const TimePoint first = operation->deadline();
    ASSERT_TRUE(eventually([&] { return Clock::now() > first - 10s; }));
    reply(*operation, Status::going_on);
    EXPECT_GT(operation->deadline(), first);
    conversation.tick(first);
    EXPECT_FALSE(operation->done());
}

TEST_F(ConversationTest, WhatWaitsForOthersHasTheirDeadline) {
    const auto reading = start_get(1000);
    room = 0;
    const auto waiting = start_set(1, kSegment, 10);
    const TimePoint first = waiting->deadline();
    ASSERT_TRUE(eventually([&] { return Clock::now() > first - 10s; }));
    conversation.moved(*reading);
    conversation.tick(first);
    EXPECT_FALSE(waiting->done());
    conversation.tick(waiting->deadline());
    EXPECT_TRUE(waiting->done()) << "nothing moves";
    room = 1;
    const auto begun = start_set(1, 2 * kSegment, 10);
    conversation.moved(*reading);
    conversation.tick(begun->deadline());
    EXPECT_TRUE(begun->done()) << "it moves by itself, or not at all";
}

TEST_F(ConversationTest, MemoryOfALateOperationThatIsUsedEndsTheConnection) {
    const auto stuck = start_get(10);
    const auto other = start_get(30);
    stuck->active = 1;
    conversation.tick(Clock::now() + 20s);
    EXPECT_TRUE(lost);
    EXPECT_EQ(kind_of(other), ErrorKind::server_lost);
    EXPECT_FALSE(stuck->done());
    stuck->active = 0;
    conversation.released(stuck);
    EXPECT_EQ(kind_of(stuck), ErrorKind::timeout);
}

// ---- the end of all ----

TEST_F(ConversationTest, TheEndFailsWhatIsUnderWayAndWhatIsStartedLater) {
    room = 0;
    const auto one = start_call();
    const auto two = start_set(1);
    requests.clear();
    end("the server is gone");
    EXPECT_EQ(kind_of(one), ErrorKind::server_lost);
    EXPECT_EQ(text_of(two), "server: the server is gone");
    EXPECT_EQ(text_of(start_get()), "server: the server is gone");
    EXPECT_TRUE(conversation.empty());
    EXPECT_TRUE(requests.empty());
    room = 1;
    pump();
    EXPECT_TRUE(sent.empty());
}

TEST_F(ConversationTest, AServerThatEndsIsLeftOnceThereIsNothingToDo) {
    const auto operation = start_get();
    reply(*operation, Status::leaving);
    const TimePoint now = Clock::now();
    conversation.tick(now + 1s);
    EXPECT_FALSE(lost);
    answer(operation, 0);
    const TimePoint due = conversation.tick(now + 2s);
    EXPECT_GT(due, now + 2s);
    EXPECT_FALSE(lost) << "requests may be on their way to it";
    const auto late = start_get();
    EXPECT_FALSE(late->done());
    conversation.tick(due);
    EXPECT_FALSE(lost);
    answer(late, 0);
    conversation.tick(conversation.tick(due));
    EXPECT_TRUE(lost);
    EXPECT_NE(text_of(start_get()).find("the server ends"), std::string::npos);
    EXPECT_EQ(conversation.tick(now + 1h), TimePoint::max());
}

}  // namespace
}  // namespace ucxstore::test
