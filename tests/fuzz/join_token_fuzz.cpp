// SPDX-License-Identifier: Apache-2.0
// Input: the text of a join token, or of an address.
#include "core/base/check.h"
#include "core/identity/host_port.h"
#include "core/identity/join_token.h"
#include "tests/fuzz/fuzz_target.h"

namespace starling {
namespace {

// What is taken writes itself in the one form that is taken again as the same.
void parse_token(std::string_view text) {
  const auto token = identity::JoinToken::parse(text);
  if (!token) {
    STARLING_CHECK(token.error().code() == "bad-token" && !token.error().message().empty());
    return;
  }
  const auto again = identity::JoinToken::parse(token->text());
  STARLING_CHECK(again && again->text() == token->text() && again->id == token->id &&
                 again->host == token->host && again->port == token->port);
}

void parse_address(std::string_view text) {
  const auto address = identity::parse_host_port(text);
  if (!address) {
    STARLING_CHECK(address.error().code() == "bad-address" && !address.error().message().empty());
    return;
  }
  const auto again = identity::parse_host_port(address->text());
  STARLING_CHECK(again && *again == *address);
}

}  // namespace
}  // namespace starling

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace starling;
  const std::string_view text = as_text(std::as_bytes(std::span(data, size)));
  parse_token(text);
  // Most of a token is base32, which mutation seldom hits: the input as its content.
  parse_token("STJ1-" + to_base32(as_bytes(text)));
  parse_address(text);
  return 0;
}
