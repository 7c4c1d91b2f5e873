// Sessions that end for newcomers, or for an operator: which one is asked to, and when it must.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sessions/client_record.hpp"

namespace ucxstore::sessions {

// A session, on its thread.
class Yielding {
  public:
    Yielding() = default;
    Yielding(const Yielding&) = delete;
    Yielding& operator=(const Yielding&) = delete;
    virtual ~Yielding() = default;

    virtual ClientRecord& record() = 0;
    // Notes whether its client has read values where they lie, which nobody else tells.
    virtual void note_seen() {}
    // Whether it can end without any loss: nothing is under way, and its client holds nothing.
    virtual bool may_yield() = 0;
    // Tells the client to hang up once it has nothing under way.
    virtual void ask() = 0;
    virtual void end() = 0;
};

// A thread with sessions, of which some may end for newcomers. Any thread but that one may call it.
//
// Clients are asked, and hang up themselves: so what they send meanwhile is still answered.
class YieldingThread {
  public:
    YieldingThread() = default;
    YieldingThread(const YieldingThread&) = delete;
    YieldingThread& operator=(const YieldingThread&) = delete;
    virtual ~YieldingThread() = default;

    // Since when the session is silent that is asked next, of those of this origin; nullopt where
    // none is.
    std::optional<base::TimePoint> silent_since(const std::string& origin);
    // Asks that one; false where there is none.
    bool ask_most_silent(const std::string& origin);
    // Ends those that were asked before `time` and have not hung up. Returns how many were asked
    // after that, and may still hang up.
    std::size_t end_asked(base::TimePoint time);
    // Asks all sessions that there are now to begin anew. Returns how many have not ended that were
    // asked so; ends them, if `end`.
    void ask_for_new();
    std::size_t asked_for_new(bool end);
    // Has the record of each session tell what only its thread knows.
    void tell_all();
    // Ends all sessions that are to be ended so, whatever is under way; returns how many.
    std::size_t kick(const std::function<bool(const ClientRecord&)>& is_to_end);

  protected:
    // Calls `visitor` on the thread with all sessions that are not closed, and then looks at them.
    using Visitor = std::function<void(const std::vector<Yielding*>&)>;
    virtual void visit(const Visitor& visitor) = 0;

  private:
    static Yielding* most_silent(const std::vector<Yielding*>& sessions, const std::string& origin);
};

}  // namespace ucxstore::sessions
