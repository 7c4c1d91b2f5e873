// What readers are reading: each process has a table in shared memory that it writes to, and that
// the server reads before it uses a block for something else. Whatever a process writes there, it
// can only keep blocks from being freed, or lose its own hold on them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/around_forks.hpp"
#include "base/counters.hpp"
#include "base/handle.hpp"
#include "shared/family.hpp"
#include "shared/index.hpp"

namespace ucxstore::shared {

// Whose account it is that a reader pins values on. Any thread.
class Holder {
  public:
    virtual ~Holder() = default;
    virtual const std::string& origin() const = 0;
    // So many bytes are only there because the reader has them pinned.
    virtual void charge(std::uint64_t bytes) = 0;
    // It had too many of these pinned, and has lost them.
    virtual void lose(const std::string& why) = 0;
};

// The server's side of a reader's tables. What a reader has pinned stays until it lets go of it, or
// has gone, whatever becomes of its session: so the tables outlive that.
class PinTable final : public base::Seeing {
  public:
    // `counts_uses`: the reader counts which blocks it reads. `keeps` lives as long as this. Throws
    // Error(memory), Error(resource).
    explicit PinTable(bool counts_uses = false, std::shared_ptr<const void> keeps = nullptr,
                      std::shared_ptr<Holder> holder = nullptr);
    ~PinTable() override;

    // For the process whose tables they are, and not kept here: the file, which it maps for
    // writing, and one end of a pipe, which it keeps open for as long as it pins anything.
    struct Descriptors {
        base::Fd table;
        base::Fd lifeline;
    };
    Descriptors take_descriptors();

    // From now on the reader finds nothing. Any thread.
    void end() { header().ended.fetch_or(kFindsNothing, std::memory_order_seq_cst); }
    // Whether neither the reader nor a child that has a table of its own is there any more.
    bool reader_gone() const;
    // Tells the reader how much it holds, as far as the server has seen.
    void set_held(std::uint64_t bytes) const {
        header().held.store(bytes, std::memory_order_relaxed);
    }
    // nullptr where nobody is charged.
    Holder* holder() const { return holder_.get(); }
    // The reader finds nothing any more, and nothing that it has pinned counts.
    void revoke(const std::string& why);

    // What one look at its tables comes to at the most: a reader with more pins in different places
    // counts as one that has everything pinned.
    static constexpr std::size_t kMostPins = 64 * 1024;
    // Tells what is pinned right now, as the tables say it: many places at once, some of them more
    // than once. False where that is not all.
    using Tell = std::function<void(std::span<const Place>)>;
    bool collect(const Tell& tell) const;

    base::SeenCounts seen() const override;
    // How often it says that it has read the block since the last call; kMostUses at the most.
    unsigned take_uses(Place place) const;

  private:
    FamilyHeader& header() const;
    const PinTableMemory& table(std::uint64_t number) const;
    template <typename TellOne>
    void read_table(std::uint64_t number, std::vector<Place>& absent, TellOne tell) const;
    bool lifeline_ended() const;
    // The number behind that of the last table that a child may have.
    std::uint64_t tables() const;

    const std::shared_ptr<const void> keeps_;
    const std::shared_ptr<Holder> holder_;
    std::atomic<bool> revoked_ = false;
    Descriptors descriptors_;
    base::Fd lifeline_;
    base::Fd watch_;  // opened anew, to look at locks
    std::byte* memory_ = nullptr;
};

// A reader's side: pins that are free to be used. Called from any thread.
class Pins final : private base::AroundForks {
  public:
    // Maps the table, and keeps the lifeline. Throws Error(protocol) where it is no table of ours.
    explicit Pins(PinTable::Descriptors descriptors);
    ~Pins() override;

    // Whether the server has ended the session: its values may be others by now. What is pinned
    // stays as it is, unless it is lost.
    bool ended() const { return header_->ended.load(std::memory_order_acquire) != 0; }
    // Whether nothing that is pinned counts any more, so that other bytes may be there. To be asked
    // after they were read, by what no read before it can come after: the server says so before it
    // uses the memory.
    bool lost() const {
        return (header_->ended.fetch_or(0, std::memory_order_acq_rel) & kPinsNothing) != 0;
    }
    // For the server's statistics.
    void count(std::uint64_t bytes);
    // For the server's choice of what to keep: a block was read without asking for it.
    void note_use(Place place);

    // The bytes that this process and its children had pinned when the server looked.
    std::uint64_t held() const { return header_->held.load(std::memory_order_relaxed); }

    // One that nobody uses, which holds nothing yet; nullptr where all are used.
    std::atomic<Place>* take();
    // What it holds is passed on to each child that is forked from now on: that has it in a table
    // of its own, under the same address, and gives it back there. Of other pins a child has
    // nothing.
    void pass_on(const std::atomic<Place>* pin);
    // Clears it first.
    void give(std::atomic<Place>* pin);

  private:
    using Words = std::atomic<std::uint64_t>[kPinWords];

    void before_fork() noexcept override;
    void in_parent() noexcept override;
    void in_child() noexcept override;
    // Takes a table for a child; false where there is none.
    bool take_table() noexcept;

    base::Fd lifeline_;
    base::Fd file_;
    std::uint64_t number_ = 0;  // of this process's table
    FamilyHeader* header_ = nullptr;
    PinTableMemory* memory_ = nullptr;
    Uses* uses_ = nullptr;
    Words used_ = {};
    Words passed_on_ = {};
    // Those that children without tables of their own hold, too: never cleared in this table, nor
    // used again. They end with these processes.
    Words stuck_ = {};

    // Whether this child has no table of its own, and lives on what is stuck in its parent's.
    bool lives_on_parents_ = false;

    // Between before_fork() and its end:
    base::Fd childs_file_;
    std::uint64_t childs_number_ = 0;
    bool shares_ = false;  // the child will have to live on what is stuck
};

}  // namespace ucxstore::shared
