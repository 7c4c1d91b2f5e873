#include "sessions/operators.hpp"

#include <utility>

namespace ucxstore::sessions {

void Operators::set_handler(Handler handler) {
    auto made = std::make_shared<const Handler>(std::move(handler));
    const base::Lock lock(mutex_);
    handler_ = std::move(made);
}

std::shared_ptr<const Operators::Handler> Operators::handler() {
    const base::Lock lock(mutex_);
    return handler_;
}

void Operators::ask(Request request, cache::Later<std::string> done) {
    const auto asked = std::make_shared<Request>(std::move(request));
    const bool begun = pool_.try_post([self = shared_from_this(), asked, done] {
        const auto handler = self->handler();
        if (handler == nullptr) {
            return done({{}, "the server is ending"});
        }
        std::string reply;
        try {
            reply = (*handler)(*asked);
        } catch (const std::exception& error) {
            return done({{}, error.what()});
        }
        done({std::move(reply), {}});
    });
    if (!begun) {
        done({{}, "the server has no thread for it"});
    }
}

bool Operators::close(std::chrono::milliseconds patience) {
    std::shared_ptr<const Handler> last;
    {
        const base::Lock lock(mutex_);
        last.swap(handler_);
    }
    return pool_.settle(patience);
}

}  // namespace ucxstore::sessions
