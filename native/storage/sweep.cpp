#include "storage/sweep.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/status.hpp"
#include "files/directory_root.hpp"
#include "files/value_file.hpp"
#include "files/writers.hpp"
#include "threads/quiet_thread.hpp"

namespace ucxstore::storage {
namespace {

void remove_if_left(int directory, const char* name) {
    // O_NONBLOCK: whatever it is, it must not hold the thread up.
    const base::Fd file(openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat about{};
    if (file && fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode) &&
        files::lock_unfinished(file.get())) {
        unlinkat(directory, name, 0);
    }
}

}  // namespace

struct Sweep::State {
    explicit State(const files::DirectoryRoot& at) : root(at) {}

    const files::DirectoryRoot& root;
    base::Mutex mutex;
    base::Condition stopped;
    bool stop GUARDED_BY(mutex) = false;
    std::thread thread;

    bool stops() {
        const base::Lock lock(mutex);
        return stop;
    }

    // Removes what is left in one directory, and notes those in it.
    void look(const std::string& path, std::vector<std::string>& below) {
        base::Fd fd = root.directory(path);
        const files::DirHandle directory(fd ? fdopendir(fd.get()) : nullptr);
        if (directory == nullptr) {
            return;
        }
        fd.release();  // the DIR closes it
        while (const dirent* one = stops() ? nullptr : readdir(directory.get())) {
            const std::string name = one->d_name;
            struct stat about{};
            if (files::is_unfinished_name(name)) {
                remove_if_left(dirfd(directory.get()), one->d_name);
            } else if (name != "." && name != ".." &&
                       (one->d_type == DT_DIR || (one->d_type == DT_UNKNOWN &&
                                                  fstatat(dirfd(directory.get()), one->d_name,
                                                          &about, AT_SYMLINK_NOFOLLOW) == 0 &&
                                                  S_ISDIR(about.st_mode)))) {
                below.push_back(path.empty() ? name : path + "/" + name);
            }
        }
    }

    void run() noexcept try {
        std::vector<std::string> left{""};
        while (!left.empty() && !stops()) {
            const base::TimePoint begun = base::Clock::now();
            const std::string path = std::exchange(left.back(), {});
            left.pop_back();
            try {
                look(path, left);
            } catch (const base::Error&) {  // it cannot be read
            }
            base::UniqueLock lock(mutex);
            stopped.wait_for(lock, base::Clock::now() - begun,
                             [this]() REQUIRES(mutex) { return stop; });
        }
    } catch (const std::exception&) {  // for want of memory
    }
};

Sweep::Sweep(const files::DirectoryRoot& root) : state_(std::make_unique<State>(root)) {}

Sweep::~Sweep() {
    {
        const base::Lock lock(state_->mutex);
        state_->stop = true;
    }
    state_->stopped.notify_all();
    if (state_->thread.joinable()) {
        state_->thread.join();
    }
}

void Sweep::start() noexcept try {
    state_->thread =
        threads::start_quiet_thread("ucxstore-sweep", [state = state_.get()] { state->run(); });
} catch (const std::exception&) {
}

}  // namespace ucxstore::storage
