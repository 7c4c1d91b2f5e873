// A limit on the memory that gets of all clients take until they are answered: keys, and what is
// wanted of the values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ucxstore {

// No origin (places.hpp) can keep the others out: whatever one has taken counts for them as a
// quarter of the limit at the most. So where several take more than that, they can have up to three
// quarters more than the limit together.
class GetBudget {
  public:
    static constexpr std::uint64_t kLimit = 1ull << 30;
    // What a session takes at a time. One that needs no more than that takes none.
    static constexpr std::uint64_t kUnit = 64ull << 10;

    explicit GetBudget(std::uint64_t limit = kLimit) : limit_(limit), share_(limit / 4) {}

    // A session's part. On its thread.
    class Account {
      public:
        Account(std::shared_ptr<GetBudget> budget, std::string origin)
            : budget_(std::move(budget)), origin_(std::move(origin)) {}
        Account(const Account&) = delete;
        Account& operator=(const Account&) = delete;
        ~Account() { budget_->give(taken_, origin_); }

        // False, and nothing added, where there is no room.
        bool add(std::uint64_t bytes);
        void remove(std::uint64_t bytes);
        std::uint64_t bytes() const { return bytes_; }

      private:
        const std::shared_ptr<GetBudget> budget_;
        const std::string origin_;
        std::uint64_t bytes_ = 0;
        std::uint64_t taken_ = 0;  // of the budget
    };

    // What one get has of an account, until it goes.
    class Hold {
      public:
        Hold() = default;
        // Of what add() has added.
        Hold(std::shared_ptr<Account> account, std::uint64_t bytes)
            : account_(std::move(account)), bytes_(bytes) {}
        Hold(Hold&& other) noexcept
            : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
        Hold& operator=(Hold&& other) noexcept {
            std::swap(account_, other.account_);
            std::swap(bytes_, other.bytes_);
            return *this;
        }
        ~Hold() {
            if (account_ != nullptr) {
                account_->remove(bytes_);
            }
        }

      private:
        std::shared_ptr<Account> account_;
        std::uint64_t bytes_ = 0;
    };

    std::uint64_t taken() const;

  private:
    bool take(std::uint64_t bytes, const std::string& origin);
    void give(std::uint64_t bytes, const std::string& origin);
    // Under the lock.
    bool fits(std::uint64_t bytes, const std::string& origin) const;

    const std::uint64_t limit_;
    const std::uint64_t share_;
    mutable std::mutex mutex_;
    std::uint64_t taken_ = 0;
    std::map<std::string, std::uint64_t> taken_by_;
};

}  // namespace ucxstore
