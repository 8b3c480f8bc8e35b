// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/operator_answer.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <fstream>

#include "core/base/nearest_name.h"
#include "core/protocol/messages.h"

namespace starling::coordinator {
namespace {

namespace fs = std::filesystem;

class BytesAnswer final : public OperatorAnswer {
 public:
  explicit BytesAnswer(SharedBytes bytes) : bytes_(std::move(bytes)) {}

  Result<SharedBytes> next() override {
    const std::size_t size = std::min(protocol::kChunkBytesMax, bytes_.size() - at_);
    SharedBytes piece = bytes_.slice(at_, size);
    at_ += size;
    return piece;
  }
  bool done() const override { return at_ == bytes_.size(); }

 private:
  SharedBytes bytes_;
  std::size_t at_ = 0;
};

class FileAnswer final : public OperatorAnswer {
 public:
  FileAnswer(fs::path path, std::ifstream file, std::uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), rest_(size) {}

  Result<SharedBytes> next() override {
    Bytes piece(static_cast<std::size_t>(std::min<std::uint64_t>(protocol::kChunkBytesMax, rest_)));
    file_.read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    if (!file_) return rejected("file-unreadable", "cannot read " + path_.string());
    rest_ -= piece.size();
    return SharedBytes::own(std::move(piece));
  }
  bool done() const override { return rest_ == 0; }

 private:
  fs::path path_;
  std::ifstream file_;
  std::uint64_t rest_;
};

}  // namespace

std::unique_ptr<OperatorAnswer> answer_json(const boost::json::value& value) {
  const std::string text = boost::json::serialize(value);
  return std::make_unique<BytesAnswer>(SharedBytes::own(to_bytes(as_bytes(text))));
}

Answer answer_file(const fs::path& path) {
  std::error_code code;
  const std::uint64_t size = fs::file_size(path, code);
  if (code) return rejected("file-missing", path.string() + " is not there: " + code.message());
  std::ifstream file(path, std::ios::binary);
  if (!file) return rejected("file-unreadable", "cannot open " + path.string());
  return std::make_unique<FileAnswer>(path, std::move(file), size);
}

std::optional<std::string> OperatorCall::find(std::string_view key) const {
  const auto found = std::ranges::find(arguments, key, &Settings::value_type::first);
  if (found == arguments.end()) return std::nullopt;
  return found->second;
}

Result<std::string> OperatorCall::get(std::string_view key) const {
  if (auto value = find(key)) return *std::move(value);
  return wrong_setting("argument-missing", "the request does not say " + std::string(key));
}

Result<RunId> OperatorCall::run_id() const {
  STARLING_ASSIGN(const std::string text, get("id"));
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits = value > 0 && value <= static_cast<std::uint64_t>(INT64_MAX);
  if (code != std::errc() || end != text.data() + text.size() || !fits) {
    return wrong_setting("argument-invalid",
                         "'" + printable(text) + "' is not the number of a run");
  }
  return RunId(value);
}

}  // namespace starling::coordinator
