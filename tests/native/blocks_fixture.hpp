// A large object behind a remote storage, and what is asked of it.
#pragma once

#include <algorithm>
#include <utility>

#include "remote_fixture.hpp"

namespace ucxstore::test {

class BlocksTest : public RemoteTest {
  protected:
    using RemoteTest::RemoteTest;
    using Part = std::pair<std::uint64_t, std::uint64_t>;

    static Selection part(std::uint64_t begin, std::uint64_t end) {
        return std::vector<Range>{{Range::Kind::range, begin, end}};
    }
    std::shared_ptr<Fetched> fetch_part(std::uint64_t begin, std::uint64_t end) {
        auto fetched = std::make_shared<Fetched>();
        remote_->fetch("k", part(begin, end),
                       [fetched](auto outcome) { fetched->outcome = std::move(outcome); });
        return fetched;
    }
    // Answers as an object store that holds this value; what it was asked for.
    std::vector<Part> serve(const Bytes& value, const std::string& etag) {
        std::vector<Part> asked;
        for (const auto& [ticket, call] : remote_->calls().take()) {
            if (std::holds_alternative<HeadCall>(call)) {
                asked.push_back({0, 0});
                answer(ticket, SourceObject{nullptr, etag, value.size()});
                continue;
            }
            const auto& get = std::get<GetCall>(call);
            const std::uint64_t size = value.size();
            const std::uint64_t end = get.end == 0 ? size : std::min(get.end, size);
            asked.push_back({get.begin, get.end == 0 ? size : get.end});
            if (!get.if_match.empty() && get.if_match != etag) {
                answer(ticket, Changed{});
            } else {
                const auto begin = value.begin() + static_cast<std::ptrdiff_t>(get.begin);
                answer(ticket,
                       SourceObject{
                           region(Bytes(begin, value.begin() + static_cast<std::ptrdiff_t>(end))),
                           etag, size});
            }
        }
        return asked;
    }
    static Bytes bytes_of(const Fetched& fetched, std::uint64_t begin, std::uint64_t length) {
        const auto& value = *fetched.outcome->value;
        std::vector<ucp_dt_iov_t> pieces = {{value.data() + begin, length}};
        value.locate(pieces);
        Bytes bytes;
        for (const ucp_dt_iov_t& piece : pieces) {
            const auto* data = static_cast<const std::byte*>(piece.buffer);
            bytes.insert(bytes.end(), data, data + piece.length);
        }
        return bytes;
    }
    static Bytes cut(const Bytes& value, std::uint64_t begin, std::uint64_t length) {
        const auto from = value.begin() + static_cast<std::ptrdiff_t>(begin);
        return {from, from + static_cast<std::ptrdiff_t>(length)};
    }

    const Bytes value_ = pattern(10 * kBlock + 100);
    const std::vector<Part> kHead = {{0, 0}};
    // Behind the first two blocks, so that these are not asked for in place of a HEAD.
    static constexpr std::uint64_t kFar = 4 * kBlock;
};

}  // namespace ucxstore::test
