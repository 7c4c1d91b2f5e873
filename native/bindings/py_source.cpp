#include "bindings/py_source.hpp"

#include <utility>
#include <variant>

#include "base/mutex.hpp"
#include "bindings/gil.hpp"

using namespace nb::literals;

namespace ucxstore::bindings {

class ReleaseQueue {
  public:
    explicit ReleaseQueue(const std::shared_ptr<cache::CachedSource>& source) : source_(source) {}

    // On any thread.
    void add(const Py_buffer& buffer) {
        bool first = false;
        {
            const base::Lock lock(mutex_);
            first = buffers_.empty();
            buffers_.push_back(buffer);
        }
        if (const auto source = source_.lock(); first && source != nullptr) {
            source->calls().wake();
        }
    }
    // Under the GIL.
    void drain() {
        std::vector<Py_buffer> buffers;
        {
            const base::Lock lock(mutex_);
            buffers.swap(buffers_);
        }
        for (Py_buffer& buffer : buffers) {
            PyBuffer_Release(&buffer);
        }
    }

  private:
    const std::weak_ptr<cache::CachedSource> source_;
    base::Mutex mutex_;
    std::vector<Py_buffer> buffers_ GUARDED_BY(mutex_);
};

namespace {

// A value without an entity tag gets a hash of its bytes as its version (storage/version.hpp). From
// this size on, other threads of Python's go on meanwhile.
constexpr std::uint64_t kLongHash = 256 << 10;

// The memory of a buffer of Python's, which stays as it is for as long as this lives.
class BufferRegion : public memory::Region {
  public:
    BufferRegion(nb::handle object, std::shared_ptr<ReleaseQueue> released)
        : released_(std::move(released)) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) {
            throw nb::python_error();
        }
    }
    BufferRegion(const BufferRegion&) = delete;
    BufferRegion& operator=(const BufferRegion&) = delete;
    ~BufferRegion() override { released_->add(buffer_); }

    std::byte* data() const override { return static_cast<std::byte*>(buffer_.buf); }
    std::uint64_t size() const override { return static_cast<std::uint64_t>(buffer_.len); }

  private:
    const std::shared_ptr<ReleaseQueue> released_;
    Py_buffer buffer_{};
};

// A call as a tuple: name, arguments.
struct AsTuple {
    nb::tuple operator()(const cache::GetCall& call) const {
        return nb::make_tuple("get", call.key, call.begin, call.end, call.if_match);
    }
    nb::tuple operator()(const cache::HeadCall& call) const {
        return nb::make_tuple("head", call.key);
    }
    nb::tuple operator()(const cache::PutCall& call) const {
        return nb::make_tuple("put", call.key, to_numpy(call.value), call.if_absent);
    }
    nb::tuple operator()(const cache::StatCall& call) const {
        return nb::make_tuple("stat", call.keys);
    }
    nb::tuple operator()(const cache::RemoveCall& call) const {
        return nb::make_tuple("remove", call.keys);
    }
    nb::tuple operator()(const cache::RemovePrefixCall& call) const {
        return nb::make_tuple("remove_prefix", call.prefix);
    }
    nb::tuple operator()(const cache::MeasureCall& call) const {
        return nb::make_tuple("measure", call.prefix, call.any);
    }
    nb::tuple operator()(const cache::ListCall& call) const {
        return nb::make_tuple("list", call.prefix, call.delimited, call.cursor, call.max_bytes);
    }
};

}  // namespace

PyCachedSource::PyCachedSource(std::uint64_t cache_bytes, std::uint64_t block_bytes,
                               std::optional<double> freshness, std::uint64_t write_bytes,
                               bool visible)
    : source(cache::CachedSource::make(
          cache_bytes, block_bytes,
          freshness ? milliseconds(*freshness) : cache::CachedSource::kForEver, write_bytes,
          visible)),
      released_(std::make_shared<ReleaseQueue>(source)) {}

PyCachedSource::~PyCachedSource() { drain(); }

void PyCachedSource::drain() { released_->drain(); }

PyCachedSource::Taken PyCachedSource::take() {
    Taken taken;
    for (const auto& [ticket, call] : source->calls().take()) {
        const base::Whose whose = source->calls().whose(ticket);
        taken.append(nb::make_tuple(ticket, nb::make_tuple(whose.origin, whose.session),
                                    std::visit(AsTuple(), call)));
    }
    released_->drain();
    return taken;
}

bool PyCachedSource::found(std::uint64_t ticket, nb::handle buffer, const std::string& etag,
                           std::uint64_t size) {
    auto value = std::make_shared<BufferRegion>(buffer, released_);
    const bool takes_long = etag.empty() && value->size() >= kLongHash;
    return answer(ticket, cache::SourceObject{std::move(value), etag, size}, takes_long);
}

bool PyCachedSource::answer(std::uint64_t ticket, cache::CallResult result, bool takes_long) {
    bool may_be_kept = false;
    {
        std::optional<WithoutGil> without_gil;
        if (takes_long) {
            without_gil.emplace();
        }
        may_be_kept = source->calls().answer(ticket, std::move(result)).value_or(false);
    }
    released_->drain();
    return may_be_kept;
}

void PyCachedSource::close(const std::string& why) {
    source->close(why);
    released_->drain();
}

// NOLINTNEXTLINE(readability-function-size): a list of names
void bind_source(nb::module_& module) {
    using Queue = base::FairQueue<std::uint64_t>;
    using Session = std::pair<std::string, std::uint64_t>;
    nb::class_<Queue>(module, "FairQueue",
                      "Numbers that wait, in turns among origins and sessions.")
        .def(nb::init<>())
        .def(
            "push",
            [](Queue& self, const Session& whose, std::uint64_t number) {
                self.push({whose.first, whose.second}, number);
            },
            "whose"_a, "number"_a)
        .def(
            "take",
            [](Queue& self, int next) -> std::optional<std::pair<Session, std::uint64_t>> {
                auto taken = self.take(static_cast<base::Next>(next));
                if (!taken) {
                    return std::nullopt;
                }
                return std::pair(Session(taken->whose.origin, taken->whose.session), taken->item);
            },
            "next"_a, "Next: of 0 anybody, 1 idle origins, 2 idle sessions; it begins.")
        .def(
            "end",
            [](Queue& self, const Session& whose, double seconds) {
                self.end({whose.first, whose.second}, std::chrono::duration_cast<Queue::Time>(
                                                          std::chrono::duration<double>(seconds)));
            },
            "whose"_a, "seconds"_a, "End what take() has begun.");
    using Self = PyCachedSource;
    nb::class_<Self>(module, "CachedSource")
        .def(nb::init<std::uint64_t, std::uint64_t, std::optional<double>, std::uint64_t, bool>(),
             "cache_bytes"_a, "block_bytes"_a, "freshness"_a.none(), "write_bytes"_a,
             "visible"_a = false)
        .def("fileno", &Self::fileno)
        .def("wake", &Self::wake)
        .def("take", &Self::take)
        .def("found", &Self::found, "ticket"_a, "buffer"_a, "etag"_a, "size"_a)
        .def(
            "missing",
            [](Self& self, cache::Calls::Ticket ticket) { self.answer(ticket, cache::Missing{}); },
            "ticket"_a)
        .def(
            "headed",
            [](Self& self, cache::Calls::Ticket ticket, std::uint64_t size, std::string etag) {
                self.answer(ticket, cache::SourceObject{nullptr, std::move(etag), size});
            },
            "ticket"_a, "size"_a, "etag"_a)
        .def(
            "changed",
            [](Self& self, cache::Calls::Ticket ticket) { self.answer(ticket, cache::Changed{}); },
            "ticket"_a)
        .def(
            "stored",
            [](Self& self, cache::Calls::Ticket ticket, bool written, std::string etag,
               bool may_be_kept) {
                const bool takes_long = written && etag.empty();
                return self.answer(ticket, cache::Stored{written, std::move(etag), may_be_kept},
                                   takes_long);
            },
            "ticket"_a, "written"_a, "etag"_a, "may_be_kept"_a)
        .def(
            "sized",
            [](Self& self, cache::Calls::Ticket ticket,
               const std::vector<std::optional<std::uint64_t>>& sizes) {
                cache::Sizes result;
                for (const auto& size : sizes) {
                    result.push_back(size.value_or(protocol::kAnySize));
                }
                self.answer(ticket, std::move(result));
            },
            "ticket"_a, "sizes"_a)
        .def(
            "removed",
            [](Self& self, cache::Calls::Ticket ticket, std::uint64_t keys) {
                self.answer(ticket, cache::Removed{keys});
            },
            "ticket"_a, "keys"_a)
        .def(
            "measured",
            [](Self& self, cache::Calls::Ticket ticket, std::uint64_t keys, std::uint64_t bytes) {
                self.answer(ticket, cache::Measure{keys, bytes});
            },
            "ticket"_a, "keys"_a, "bytes"_a)
        .def(
            "listed",
            [](Self& self, cache::Calls::Ticket ticket, std::vector<std::string> names,
               std::string cursor) {
                self.answer(ticket, storage::Page{std::move(names), std::move(cursor)});
            },
            "ticket"_a, "names"_a, "cursor"_a)
        .def(
            "failed",
            [](Self& self, cache::Calls::Ticket ticket, std::string why, bool unknown) {
                self.answer(ticket, cache::Failure{std::move(why), unknown});
            },
            "ticket"_a, "why"_a, "unknown"_a = false)
        .def(
            "moved",
            [](Self& self, cache::Calls::Ticket ticket) {
                return self.source->calls().moved(ticket);
            },
            "ticket"_a)
        .def(
            "set_lease_end",
            [](Self& self, std::optional<std::uint64_t> until) {
                self.source->set_lease_end(until.value_or(cache::Lease::kForEver));
            },
            "until"_a.none())
        .def("forget_all", [](Self& self) { self.source->forget_all(); })
        .def(
            "flush",
            [](Self& self, const std::string& name) {
                const cache::CachedSource::Flushed flushed = self.source->flush(name);
                self.drain();
                return std::pair(flushed.freed, flushed.read);
            },
            "name"_a,
            "Forget the key of this name and all below it; all, without a name. Return the bytes "
            "that are free now, and those of forgotten values that other processes still read.")
        .def(
            "believes",
            [](Self& self, const std::string& key) { return self.source->believes(key); }, "key"_a)
        .def(
            "begin_asking",
            [](Self& self, std::vector<std::string> keys, std::vector<std::string> prefixes) {
                self.source->begin_asking({std::move(keys), std::move(prefixes)});
            },
            "keys"_a, "prefixes"_a)
        .def(
            "end_asking",
            [](Self& self, std::vector<std::string> keys, std::vector<std::string> prefixes) {
                self.source->end_asking({std::move(keys), std::move(prefixes)});
            },
            "keys"_a, "prefixes"_a)
        .def("close", &Self::close, "why"_a);
}

}  // namespace ucxstore::bindings
