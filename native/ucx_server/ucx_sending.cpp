#include "ucx_server/ucx_sending.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "protocol/sums.hpp"
#include "ucx/request.hpp"
#include "ucx_server/unread_bytes.hpp"

namespace ucxstore::ucx_server {

class UcxSending::InFlight : public ucx::Request {
  public:
    InFlight(std::shared_ptr<UcxSending> sending, Message message)
        : sending_(std::move(sending)), message_(std::move(message)), amount_(message_.amount()) {
        if (message_.reading != nullptr) {
            filled = message_.header.length;
            unread_.emplace(message_.value, std::move(message_.pieces));
            return;
        }
        pieces = std::move(message_.pieces);
        if (pieces.empty() && !message_.payload.empty()) {
            pieces.push_back({message_.payload.data(), message_.payload.size()});
        }
    }

    void fill(std::uint64_t offset, std::span<std::byte> target) noexcept override {
        std::exception_ptr& failure = message_.reading->failure;
        if (!failure) {
            try {
                unread_->read(offset, target);
                return;
            } catch (const std::exception&) {
                failure = std::current_exception();
            }
        }
        std::ranges::fill(target, std::byte{0});
    }
    void completed(ucs_status_t status) override {
        sending_->sent(amount_, status == UCS_OK, message_.reading);
    }

  private:
    const std::shared_ptr<UcxSending> sending_;
    Message message_;
    const Amount amount_;
    std::optional<UnreadBytes> unread_;
};

void UcxSending::connect(const std::string& address) {
    endpoint_ = std::make_unique<ucx::Endpoint>(worker_, address);
}

bool UcxSending::catch_up() {
    // A client that sends without an end leaves others a turn.
    constexpr int kMostRounds = 1000;
    int round = 0;
    while (round < kMostRounds && worker_.progress()) {
        ++round;
    }
    return round < kMostRounds;
}

void UcxSending::end() {
    if (endpoint_ != nullptr) {
        endpoint_->close();
    }
}

bool UcxSending::send(Message message) {
    const ucp_ep_h endpoint = endpoint_ == nullptr ? nullptr : endpoint_->get();
    if (endpoint == nullptr) {
        return false;
    }
    // Apart from the request, which UCX may end before it returns.
    std::string header(reinterpret_cast<const char*>(&message.header), sizeof(message.header));
    if (checked_) {
        protocol::append_sums(header, sum_of(message));
    }
    auto request = std::make_unique<InFlight>(shared_from_this(), std::move(message));
    ucx::Request::send(std::move(request), worker_, endpoint, protocol::Message::reply,
                       header.data(), header.size());
    return true;
}

}  // namespace ucxstore::ucx_server
