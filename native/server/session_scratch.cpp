// Scratch spaces, as a session's client makes and uses them.
#include <algorithm>
#include <utility>

#include "base/status.hpp"
#include "protocol/keys.hpp"
#include "server/answer.hpp"
#include "server/session.hpp"

namespace ucxstore {

using wire::Status;

namespace {

Spaces& offered(const Holdings& holdings) {
    if (holdings.spaces == nullptr) {
        throw Error(ErrorKind::storage,
                    "the server offers no scratch space: start it with Server(..., "
                    "scratch=\"memory://\"), or ucxstore serve --scratch memory://");
    }
    return *holdings.spaces;
}

}  // namespace

std::shared_ptr<Storage> Session::home_of(const std::string& key) const {
    if (wire::is_note(key)) {
        return holdings_.starts;
    }
    const auto space = wire::space_of(key);
    return space ? offered(holdings_).find(*space) : holdings_.local;
}

void Session::scratch(const wire::RequestHeader& header, std::span<const std::byte> body) {
    wire::Reader reader(body);
    const std::string name = reader.string();
    const bool begins = header.op == wire::Op::begin_space;
    const std::uint64_t quota = begins ? reader.u64() : 0;
    const std::uint64_t timeout = begins ? reader.u64() : 0;
    const auto done = [header](Session& self) {
        self.reply(header.request, header.first, Status::ok);
    };
    if (!wire::is_space_name(name)) {
        reply(header.request, header.first, Status::invalid_key, "is no name of a scratch space");
        return;
    }
    try {
        Spaces& spaces = offered(holdings_);
        if (begins) {
            using Timeout = Spaces::Timeout;
            const auto longest = static_cast<std::uint64_t>(Spaces::kMaxTimeout.count());
            spaces.begin(name, quota, Timeout(std::min(timeout, longest + 1)));
        } else if (header.op == wire::Op::renew_space) {
            spaces.renew(name);
        } else {
            ++calls_;
            const auto freed = later<bool>([done](Session& self, Outcome<bool>) {
                --self.calls_;
                self.last_moved_ = Clock::now();
                done(self);
            });
            spaces.end(name, [freed] { freed({}); });
            return;
        }
        done(*this);
    } catch (const std::exception& error) {
        reply(header.request, header.first, status_of(error), error.what());
    }
}

}  // namespace ucxstore
