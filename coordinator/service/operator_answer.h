// SPDX-License-Identifier: Apache-2.0
// What a request of an operator is answered with: bytes in pieces, as fast as the connection takes
// them, so that a long list, a model or a log that is followed never fills the memory.
#pragma once

#include <boost/json/value.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/settings.h"
#include "core/base/shared_bytes.h"

namespace starling::coordinator {

class OperatorAnswer {
 public:
  virtual ~OperatorAnswer() = default;
  // The next piece, at most protocol::kChunkBytesMax. Empty: none now; ask again when woken.
  [[nodiscard]] virtual Result<SharedBytes> next() = 0;
  virtual bool done() const = 0;
};

using Answer = Result<std::unique_ptr<OperatorAnswer>>;

std::unique_ptr<OperatorAnswer> answer_json(const boost::json::value& value);

// The file's bytes. "file-missing" or "file-unreadable".
Answer answer_file(const std::filesystem::path& path);

// A request, whoever sent it. Borrowed for the call.
struct OperatorCall {
  const std::string& caller;  // the operator's name, from the certificate
  const Settings& arguments;
  std::string_view payload;

  // The argument, or nothing.
  std::optional<std::string> find(std::string_view key) const;
  // "argument-missing"
  [[nodiscard]] Result<std::string> get(std::string_view key) const;
  // "argument-invalid" for what is not a number of a run.
  [[nodiscard]] Result<RunId> run_id() const;
};

}  // namespace starling::coordinator
