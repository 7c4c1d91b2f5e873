#include "sessions/yielding.hpp"

#include <algorithm>

namespace ucxstore::sessions {

Yielding* YieldingThread::most_silent(const std::vector<Yielding*>& sessions,
                                      const std::string& origin) {
    std::vector<Yielding*> silent;
    for (Yielding* const one : sessions) {
        if (one->record().origin() == origin && !one->record().asked()) {
            silent.push_back(one);
        }
    }
    std::ranges::sort(silent, {}, [](Yielding* one) { return one->record().last_moved(); });
    const auto found = std::ranges::find_if(silent, [](Yielding* one) { return one->may_yield(); });
    return found == silent.end() ? nullptr : *found;
}

std::optional<base::TimePoint> YieldingThread::silent_since(const std::string& origin) {
    std::optional<base::TimePoint> since;
    visit([&](const std::vector<Yielding*>& sessions) {
        if (Yielding* const one = most_silent(sessions, origin)) {
            since = one->record().last_moved();
        }
    });
    return since;
}

bool YieldingThread::ask_most_silent(const std::string& origin) {
    bool asked = false;
    visit([&](const std::vector<Yielding*>& sessions) {
        if (Yielding* const one = most_silent(sessions, origin)) {
            one->record().note_asked(base::Clock::now());
            one->ask();
            asked = true;
        }
    });
    return asked;
}

std::size_t YieldingThread::end_asked(base::TimePoint time) {
    std::size_t left = 0;
    visit([&](const std::vector<Yielding*>& sessions) {
        for (Yielding* const one : sessions) {
            const auto asked = one->record().asked();
            if (!asked) {
                continue;
            }
            if (*asked >= time) {
                ++left;
            } else if (one->may_yield()) {
                one->end();
            }
        }
    });
    return left;
}

void YieldingThread::ask_for_new() {
    visit([&](const std::vector<Yielding*>& sessions) {
        for (Yielding* const one : sessions) {
            one->record().note_old();
            one->ask();
        }
    });
}

std::size_t YieldingThread::asked_for_new(bool end) {
    std::size_t left = 0;
    visit([&](const std::vector<Yielding*>& sessions) {
        for (Yielding* const one : sessions) {
            left += one->record().is_old() ? 1 : 0;
            if (end && one->record().is_old()) {
                one->end();
            }
        }
    });
    return left;
}

void YieldingThread::tell_all() {
    visit([](const std::vector<Yielding*>& sessions) {
        for (Yielding* const one : sessions) {
            one->note_seen();
            one->record().tell();
        }
    });
}

std::size_t YieldingThread::kick(const std::function<bool(const ClientRecord&)>& is_to_end) {
    std::size_t kicked = 0;
    visit([&](const std::vector<Yielding*>& sessions) {
        for (Yielding* const one : sessions) {
            if (!one->record().kicked() && is_to_end(one->record())) {
                one->record().kick();
                ++kicked;
            }
        }
    });
    return kicked;
}

}  // namespace ucxstore::sessions
