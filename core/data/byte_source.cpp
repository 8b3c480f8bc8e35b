// SPDX-License-Identifier: Apache-2.0
#include "core/data/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace starling::data {
namespace {

Error malformed(const std::string& name, const std::string& why) {
  return rejected("dataset-malformed", name + " " + why);
}

}  // namespace

class ByteSource::State {
 public:
  State(std::string name, std::uint64_t file_bytes, std::ifstream file)
      : name_(std::move(name)), file_bytes_(file_bytes), file_(std::move(file)) {}
  ~State() {
    if (compressed_) inflateEnd(&stream_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t bytes_max() const {
    constexpr std::uint64_t kDeflateRatioMax = 1032;
    return compressed_ ? file_bytes_ * kDeflateRatioMax : file_bytes_;
  }

  Result<void> begin() {
    refill();
    compressed_ = stream_.avail_in >= 2 && stream_.next_in[0] == 0x1f && stream_.next_in[1] == 0x8b;
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (compressed_ && inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      compressed_ = false;
      return internal("out-of-memory", "there is no memory to decompress " + name_);
    }
    return {};
  }

  // As many bytes as there are, up to out.size().
  Result<std::size_t> read_some(MutableByteView out) {
    std::size_t filled = 0;
    while (filled < out.size()) {
      if (stream_.avail_in == 0) refill();
      STARLING_ASSIGN(const std::size_t count, advance(out.subspan(filled)));
      filled += count;
      if (count == 0 && stream_.avail_in == 0 && at_end_) break;
    }
    if (file_.bad()) return rejected("dataset-unreadable", "reading " + name_ + " failed");
    return filled;
  }

 private:
  void refill() {
    file_.read(reinterpret_cast<char*>(buffer_.data()), buffer_.size());
    stream_.next_in = buffer_.data();
    stream_.avail_in = static_cast<uInt>(file_.gcount());
    at_end_ = stream_.avail_in == 0;
  }

  Result<std::size_t> advance(MutableByteView out) {
    constexpr std::size_t kStep = 1 << 20;
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kStep));
    const uInt room = stream_.avail_out;
    if (compressed_) {
      STARLING_TRY(inflate_some());
    } else {
      const uInt count = std::min(stream_.avail_in, room);
      std::copy_n(stream_.next_in, count, stream_.next_out);
      stream_.next_in += count;
      stream_.avail_in -= count;
      stream_.avail_out -= count;
    }
    return room - stream_.avail_out;
  }

  Result<void> inflate_some() {
    if (stream_.avail_in == 0) {
      if (member_open_) return malformed(name_, "is cut off in the middle of its gzip data");
      return {};
    }
    if (!member_open_ && inflateReset(&stream_) != Z_OK) return malformed(name_, "is broken");
    member_open_ = true;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      member_open_ = false;  // another member may follow, as gzip allows
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return malformed(name_, std::string("is not valid gzip: ") +
                                  (stream_.msg != nullptr ? stream_.msg : "unknown error"));
    }
    return {};
  }

  std::string name_;
  std::uint64_t file_bytes_;
  std::ifstream file_;
  std::array<Bytef, 64 * 1024> buffer_;
  z_stream stream_{};
  bool compressed_ = false;
  bool member_open_ = false;
  bool at_end_ = false;
};

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteSource::~ByteSource() = default;
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;

Result<ByteSource> ByteSource::open(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    return wrong_setting("dataset-missing", "there is no file " + path.string());
  }
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, code) || !file) {
    return rejected("dataset-unreadable", path.string() + " is not a file that this user may read");
  }
  const std::uint64_t bytes = std::filesystem::file_size(path, code);
  auto state = std::make_unique<State>(path.string(), code ? 0 : bytes, std::move(file));
  STARLING_TRY(state->begin());
  return ByteSource(std::move(state));
}

const std::string& ByteSource::name() const { return state_->name(); }

Result<void> ByteSource::expect_at_least(std::uint64_t bytes) const {
  if (bytes <= state_->bytes_max()) return {};
  return malformed(
      name(), "is too short for the " + std::to_string(bytes) + " bytes that its header announces");
}

Result<void> ByteSource::read(MutableByteView out) {
  STARLING_ASSIGN(const std::size_t count, state_->read_some(out));
  if (count == out.size()) return {};
  return malformed(name(), "ends too early: " + std::to_string(out.size() - count) +
                               " more bytes were expected");
}

Result<void> ByteSource::expect_end() {
  std::byte extra{};
  STARLING_ASSIGN(const std::size_t count, state_->read_some(std::span(&extra, 1)));
  if (count == 0) return {};
  return malformed(name(), "has more bytes than its header says");
}

}  // namespace starling::data
