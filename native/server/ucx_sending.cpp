#include "server/ucx_sending.hpp"

#include <utility>

#include "ucx/request.hpp"

namespace ucxstore {

class UcxSending::InFlight : public Request {
  public:
    InFlight(std::shared_ptr<UcxSending> sending, Message message)
        : sending_(std::move(sending)), message_(std::move(message)) {
        pieces = std::move(message_.pieces);
        if (pieces.empty() && !message_.payload.empty()) {
            pieces.push_back({message_.payload.data(), message_.payload.size()});
        }
    }

    const wire::ReplyHeader& header() const { return message_.header; }
    void completed(ucs_status_t status) override {
        sending_->sent(message_.bytes(), status == UCS_OK);
    }

  private:
    const std::shared_ptr<UcxSending> sending_;
    Message message_;
};

void UcxSending::connect(const std::string& address) {
    endpoint_ = std::make_unique<Endpoint>(worker_, address);
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
    auto request = std::make_unique<InFlight>(shared_from_this(), std::move(message));
    const wire::ReplyHeader header =
        request->header();  // UCX may end the request before it returns
    Request::send(std::move(request), worker_, endpoint, wire::Message::reply, &header,
                  sizeof(header));
    return true;
}

}  // namespace ucxstore
