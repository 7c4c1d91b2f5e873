// Which value goes first where there is no room, by S3-FIFO: J. Yang, Y. Zhang, Z. Qiu, Y. Yue,
// K. V. Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023. A new value enters a
// small queue. It moves to the main queue only if it is read again while it is there, or soon after
// it has gone. So a scan does not empty the main queue.
//
// Whoever has the values decides what becomes of one that is to go. Not thread-safe, but for
// Entry::note_use().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

namespace ucxstore::storage {

class S3Fifo {
  public:
    // A value, as a part of what its owner keeps of it. Out of the order before it ends.
    class Entry {
      public:
        Entry() = default;
        Entry(const Entry&) = delete;
        Entry& operator=(const Entry&) = delete;

        // Counts a read. Any thread.
        void note_use() noexcept {
            if (uses_.load(std::memory_order_relaxed) < kMostUses) {
                uses_.fetch_add(1, std::memory_order_relaxed);
            }
        }
        // These are for what has been in the order.
        const std::string& key() const { return *key_; }
        std::uint64_t charge() const { return charge_; }

      private:
        friend class S3Fifo;

        const std::string* key_ = nullptr;
        std::uint64_t charge_ = 0;
        std::atomic<unsigned> uses_ = 0;
        bool in_main_ = false;
        Entry* newer_ = nullptr;  // both nullptr where it is in no queue
        Entry* older_ = nullptr;
    };

    // What the owner knows of an entry.
    class Owner {
      public:
        virtual ~Owner() = default;
        // Whether somebody has it right now, so that it stays.
        virtual bool is_busy(const Entry& entry) const = 0;
        // How often it was read, beside note_use(), since the last call.
        virtual unsigned take_uses(const Entry&) { return 0; }
    };

    // `capacity`: the bytes that the owner has for values, about.
    explicit S3Fifo(std::uint64_t capacity) : capacity_(capacity) {}
    S3Fifo(const S3Fifo&) = delete;
    S3Fifo& operator=(const S3Fifo&) = delete;

    // Whether the key has lately gone from the small queue. Forgets that.
    bool recall(const std::string& key);
    // Adds an entry, as the newest; `recalled`: to the main queue. The key lives as long as it.
    void add(Entry& entry, const std::string& key, std::uint64_t charge, bool recalled) noexcept;
    // Does nothing for one that is not in the order.
    void remove(Entry& entry) noexcept;

    std::size_t size() const { return size_; }
    std::uint64_t bytes() const { return small_.bytes + main_.bytes; }
    // What it takes to know which keys have gone.
    std::uint64_t ghost_bytes() const;
    void forget_ghosts();

    // Looks for entries to go. Each is looked at a few times at the most, so that it ends also
    // where all are busy.
    class Search {
      public:
        Search(S3Fifo& order, Owner& owner)
            : order_(order), owner_(owner), first_round_(order.size()) {}
        bool over() const;
        // Looks at the next one, and returns it where it is to go: then it is in the order no more.
        Entry* look();

      private:
        S3Fifo& order_;
        Owner& owner_;
        const std::size_t first_round_;
        std::size_t looks_ = 0;
    };

  private:
    // Uses are counted up to 3, as in the paper.
    static constexpr unsigned kMostUses = 3;

    // A ring, of which `end` is the beginning and the end.
    struct Queue {
        Queue() { end.newer_ = end.older_ = &end; }
        bool empty() const { return end.newer_ == &end; }
        Entry& oldest() const { return *end.newer_; }

        Entry end;
        std::uint64_t bytes = 0;
    };
    // A key that has lately gone from the small queue, by its hash.
    struct Ghost {
        std::size_t hash;
        std::uint64_t charge;
    };

    void enter(Entry& entry, bool in_main) noexcept;
    Entry* pass(Owner& owner, bool counts);
    void remember(const Entry& entry);

    const std::uint64_t capacity_;
    Queue small_;
    Queue main_;
    std::size_t size_ = 0;
    std::list<Ghost> ghosts_;
    std::unordered_map<std::size_t, std::list<Ghost>::iterator> ghost_of_;
    std::uint64_t ghost_charge_ = 0;
};

}  // namespace ucxstore::storage
