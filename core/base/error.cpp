// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <stdexcept>

namespace starling {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kRetry:
      return "retry";
    case ErrorKind::kOverloaded:
      return "overloaded";
    case ErrorKind::kRejected:
      return "rejected";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kInternal:
      return "internal";
  }
  return "internal";
}

Error Error::within(std::string_view what) const {
  return with_message(std::string(what) + ": " + message_);
}

Error Error::with_message(std::string message) const {
  return {kind_, code_, std::move(message), category_};
}

Error Error::as(ErrorCategory category) const { return {kind_, code_, message_, category}; }

void throw_exception_from_error(const Error& error, const boost::source_location& location) {
  boost::throw_exception(std::runtime_error(error.code() + ": " + error.message()), location);
}

Error rejected(std::string code, std::string message) {
  return {ErrorKind::kRejected, std::move(code), std::move(message)};
}
Error unsupported(std::string code, std::string message) {
  return {ErrorKind::kUnsupported, std::move(code), std::move(message)};
}
Error retry(std::string code, std::string message) {
  return {ErrorKind::kRetry, std::move(code), std::move(message)};
}
Error overloaded(std::string code, std::string message) {
  return {ErrorKind::kOverloaded, std::move(code), std::move(message)};
}
Error internal(std::string code, std::string message) {
  return {ErrorKind::kInternal, std::move(code), std::move(message)};
}

Error wrong_setting(std::string code, std::string message) {
  return {ErrorKind::kRejected, std::move(code), std::move(message), ErrorCategory::kUsage};
}
Error timed_out(std::string code, std::string message) {
  return {ErrorKind::kRetry, std::move(code), std::move(message), ErrorCategory::kTimedOut};
}
Error not_connected(std::string code, std::string message) {
  return {ErrorKind::kRetry, std::move(code), std::move(message), ErrorCategory::kNotConnected};
}
Error not_authorised(std::string code, std::string message) {
  return {ErrorKind::kRejected, std::move(code), std::move(message), ErrorCategory::kNotAuthorised};
}

}  // namespace starling
