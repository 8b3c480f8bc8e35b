// SPDX-License-Identifier: Apache-2.0
// Expected failures as values: a kind that says what the caller does, a category that says to those
// outside the program what went wrong, a reason code for programs and counters, and one sentence
// for people that says what, where and what to do.
#pragma once

#include <boost/system/result.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace starling {

enum class ErrorKind {
  kRetry,        // the same call may succeed later: connection lost, deadline passed
  kOverloaded,   // a limit of ours is reached; retry after backing off
  kRejected,     // the input or the other side is wrong; retrying cannot help
  kUnsupported,  // well-formed, but this build or version cannot do it
  kInternal,     // our own state or the machine under us failed (disk, database)
};

std::string_view to_string(ErrorKind kind);

// What a program's exit code says (core/config/command_line.h). The numbers travel.
enum class ErrorCategory : std::uint8_t {
  kFailed = 0,         // none of the others
  kUsage = 1,          // a command line, a configuration or a setting is wrong
  kTimedOut = 2,       // a deadline passed
  kNotConnected = 3,   // the other side cannot be reached, or has gone
  kNotAuthorised = 4,  // one side does not accept the identity of the other
};
inline constexpr auto kErrorCategoryMax = ErrorCategory::kNotAuthorised;

// `code` is a stable kebab-case word ("deadline", "not-finite", "certificate-expired"); it is
// stored, counted and tested. `message` is a sentence without a trailing full stop.
class Error {
 public:
  Error() = default;  // Boost.Result asks for one; it means nothing
  Error(ErrorKind kind, std::string code, std::string message,
        ErrorCategory category = ErrorCategory::kFailed)
      : kind_(kind), category_(category), code_(std::move(code)), message_(std::move(message)) {}

  ErrorKind kind() const { return kind_; }
  ErrorCategory category() const { return category_; }
  const std::string& code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error with "what: " in front of the sentence, for a caller that knows more.
  Error within(std::string_view what) const;
  // The same error with another sentence, or in another category.
  Error with_message(std::string message) const;
  Error as(ErrorCategory category) const;

  friend bool operator==(const Error&, const Error&) = default;

 private:
  ErrorKind kind_ = ErrorKind::kInternal;
  ErrorCategory category_ = ErrorCategory::kFailed;
  std::string code_;
  std::string message_;
};

// Lets Result<T>::value() on an error throw something readable; we never rely on it.
[[noreturn]] void throw_exception_from_error(const Error& error,
                                             const boost::source_location& location);

template <class T>
using Result = boost::system::result<T, Error>;

// By kind, in the category kFailed ...
Error rejected(std::string code, std::string message);
Error unsupported(std::string code, std::string message);
Error retry(std::string code, std::string message);
Error overloaded(std::string code, std::string message);
Error internal(std::string code, std::string message);
// ... and by category, with the kind that it usually has.
Error wrong_setting(std::string code, std::string message);   // kUsage, kRejected
Error timed_out(std::string code, std::string message);       // kRetry
Error not_connected(std::string code, std::string message);   // kRetry
Error not_authorised(std::string code, std::string message);  // kRejected

}  // namespace starling

// Returns the error of `expression` (a Result) from the enclosing function.
#define STARLING_TRY(expression)                                         \
  do {                                                                   \
    if (auto starling_try_result = (expression); !starling_try_result) { \
      return starling_try_result.error();                                \
    }                                                                    \
  } while (false)

#define STARLING_CONCAT_INNER(a, b) a##b
#define STARLING_CONCAT(a, b) STARLING_CONCAT_INNER(a, b)
// STARLING_ASSIGN(auto x, f()): x = the value of f(), or returns f()'s error.
#define STARLING_ASSIGN(declaration, expression)                   \
  auto STARLING_CONCAT(starling_result_, __LINE__) = (expression); \
  if (!STARLING_CONCAT(starling_result_, __LINE__)) {              \
    return STARLING_CONCAT(starling_result_, __LINE__).error();    \
  }                                                                \
  declaration = std::move(*STARLING_CONCAT(starling_result_, __LINE__))
