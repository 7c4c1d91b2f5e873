// What is read of a file is what a server would send of its value, wherever it is to go.
#include "local_client/file_reader.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "support.hpp"

namespace ucxstore::test {
namespace {

using Wait = FileReader::Wait;

class FileReaderTest : public testing::Test {
  protected:
    Fd file(const Bytes& value) {
        const auto path = directory_.path() / "value";
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(value.data()),
                   static_cast<std::streamsize>(value.size()));
        return Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    }
    Selected select(Selection selection, std::uint64_t size) {
        GetItem wanted;
        wanted.selection = std::move(selection);
        return std::get<Selected>(protocol::select(wanted, size, 1));
    }
    // What is wanted of a value, one byte after another.
    Bytes expected(const Bytes& value, const Selected& wanted) {
        Bytes bytes(wanted.size);
        if (!wanted.several) {
            wanted.layout.pack(value.data(), bytes.data());
            return bytes;
        }
        auto at = bytes.begin();
        for (const Span& span : wanted.spans) {
            at = std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(span.begin), span.length,
                             at);
        }
        return bytes;
    }
    Bytes gathered(const Memory& memory) {
        std::vector<ucp_dt_iov_t> pieces;
        memory.pieces(0, memory.size(), pieces);
        Bytes bytes;
        for (const auto& piece : pieces) {
            const auto* const data = static_cast<const std::byte*>(piece.buffer);
            bytes.insert(bytes.end(), data, data + piece.length);
        }
        return bytes;
    }
    // Reads it in segments of so many bytes.
    void check(const Bytes& value, const Selected& wanted, const Item& item, std::uint64_t segment,
               Wait wait = Wait::for_disk) {
        const Fd fd = file(value);
        for (const Write how : {Write::cached, Write::past_caches}) {
            for (std::uint64_t at = 0; at < wanted.size; at += segment) {
                FileReader reader(fd, wanted, item, how, wait);
                ASSERT_EQ(reader.read(at, std::min(segment, wanted.size - at)),
                          FileReader::Outcome::read);
            }
            const Bytes got =
                item.memory ? gathered(*item.memory)
                            : Bytes(item.owned->data(), item.owned->data() + item.owned->size());
            ASSERT_EQ(got, expected(value, wanted));
        }
    }
    Item owned(std::uint64_t size) {
        Item item;
        item.owned = allocate_region(size);
        return item;
    }

    TemporaryDirectory directory_;
};

TEST_F(FileReaderTest, WholeValuesOfEverySize) {
    for (const std::size_t size : {0ul, 1ul, 4095ul, 65'536ul, 65'537ul, 3'000'001ul}) {
        const Bytes value = pattern(size);
        const auto wanted = select({}, size);
        check(value, wanted, owned(size), std::max<std::uint64_t>(size, 1));
        check(value, wanted, owned(size), 100'000);
        if (size > 0) {
            check(value, wanted, owned(size), size, Wait::never);  // just written, so it is there
        }
    }
}

TEST_F(FileReaderTest, RangesAndSuffixes) {
    using Kind = Range::Kind;
    const Bytes value = pattern(300'000);
    const std::vector<std::vector<Range>> all = {
        {{Kind::range, 10, 20}},
        {{Kind::suffix, 7, 0}},
        {{Kind::offset, 299'000, 0}},
        {{Kind::range, 0, 100'000}, {Kind::range, 5, 5}, {Kind::range, 200'000, 300'000}},
        {{Kind::range, 50, 60}, {Kind::range, 10, 20}, {Kind::suffix, 100, 0}},
    };
    for (const auto& ranges : all) {
        const auto wanted = select(ranges, value.size());
        for (const std::uint64_t segment : {7ul, 64'000ul, 1'000'000ul}) {
            check(value, wanted, owned(wanted.size), segment);
        }
    }
}

// Any box of any value into any memory.
TEST_F(FileReaderTest, BoxesAsTheServerSelectsThem) {
    std::mt19937 random(17);
    const auto draw = [&](std::uint64_t low, std::uint64_t high) {
        return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
    };
    for (int round = 0; round < 60; ++round) {
        const std::uint64_t itemsize = std::uint64_t{1} << draw(0, 4);
        // Rows of up to some times the buffer.
        const std::uint64_t rows = draw(1, 40);
        const std::uint64_t columns = draw(1, round % 3 == 0 ? 20'000 : 300);
        const Bytes value = pattern(rows * columns * itemsize, static_cast<unsigned>(round));
        const std::uint64_t step = draw(1, 3);
        const std::uint64_t some_rows = (rows + step - 1) / step;
        const std::uint64_t column_step = draw(1, 4) == 1 ? draw(1, 9) : 1;
        const std::uint64_t first = draw(0, columns - 1);
        const std::uint64_t some = (columns - first + column_step - 1) / column_step;
        const auto bytes = [&](std::uint64_t items) {
            return static_cast<std::int64_t>(items * itemsize);
        };
        std::vector<Dim> dims = {{some_rows, bytes(columns * step)}, {some, bytes(column_step)}};
        if (round % 5 == 4) {
            std::swap(dims[0], dims[1]);  // in another order than that of the file
        }
        Layout box = Layout::strided(bytes(first), itemsize, dims);
        if (round % 7 == 6) {
            std::vector<std::int64_t> offsets(draw(2, 9));
            for (auto& offset : offsets) {
                offset = bytes(draw(0, columns - 1));
            }
            const std::vector<Dim> down = {{rows, bytes(columns)}};
            box = Layout::gathered(offsets, itemsize, down);
        }
        const auto wanted = select(box, value.size());
        const std::uint64_t items = wanted.size / itemsize;
        // Contiguous, or with gaps, or items that lie apart.
        Bytes out(wanted.size * 3 + 64);
        Item item;
        if (round % 2 == 0) {
            item.memory = Memory(out.data() + 8, Layout::contiguous(wanted.size));
        } else {
            const std::uint64_t each = items % some_rows == 0 ? items / some_rows : 1;
            const std::vector<Dim> to = {{items / each, bytes(each * 2)}, {each, bytes(1)}};
            item.memory = Memory(out.data() + 8, Layout::strided(0, itemsize, to));
        }
        for (const std::uint64_t segment : {std::uint64_t{5'000}, wanted.size}) {
            check(value, wanted, item, segment);
            ASSERT_FALSE(HasFatalFailure()) << "round " << round;
        }
        check(value, wanted, owned(wanted.size), wanted.size);
        ASSERT_FALSE(HasFatalFailure()) << "round " << round;
    }
}

TEST_F(FileReaderTest, AFileThatWasCutFails) {
    const Bytes value = pattern(200'000);
    const Fd fd = file(value);
    ASSERT_EQ(truncate((directory_.path() / "value").c_str(), 100'000), 0);
    const auto wanted = select({}, value.size());
    const Item item = owned(value.size());
    FileReader reader(fd, wanted, item, Write::cached, Wait::for_disk);
    EXPECT_EQ(reader.read(0, 200'000), FileReader::Outcome::failed);
    EXPECT_EQ(reader.read(100'000, 1), FileReader::Outcome::failed);
    EXPECT_EQ(reader.read(0, 100'000), FileReader::Outcome::read);
}

TEST_F(FileReaderTest, ManyRunsInTheOrderOfTheFileSuit) {
    const std::vector<Dim> in_order = {{100, 10'000}, {1000, 10}};
    const std::vector<Dim> across = {{1000, 10}, {100, 10'000}};
    const std::vector<Dim> few = {{10, 10}, {100, 10'000}};
    const auto suits = [&](const Layout& layout) {
        return FileReader::suits(select(layout, 1'000'000));
    };
    EXPECT_TRUE(suits(Layout::contiguous(1'000'000)));
    EXPECT_TRUE(suits(Layout::strided(0, 1, in_order)));
    EXPECT_FALSE(suits(Layout::strided(0, 1, across)));
    EXPECT_TRUE(suits(Layout::strided(0, 1, few)));
    std::vector<std::int64_t> offsets(5000);
    std::iota(offsets.begin(), offsets.end(), 0);
    EXPECT_TRUE(suits(Layout::gathered(offsets, 1, {})));
    std::swap(offsets[0], offsets[1]);
    EXPECT_FALSE(suits(Layout::gathered(offsets, 1, {})));
}

}  // namespace
}  // namespace ucxstore::test
