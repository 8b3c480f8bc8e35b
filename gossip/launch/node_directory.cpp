// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/node_directory.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/durable_file.h"
#include "core/data/partition.h"
#include "core/identity/identity_directory.h"
#include "gossip/training/network_trainers.h"

namespace starling::gossip {
namespace {

constexpr unsigned kSubnets = 254;  // 127.1 to 127.254
constexpr Node kHosts = 254;        // x.1 to x.254

// A port that nobody listens on there. The address is the node's own, so nobody takes it meanwhile.
Result<std::uint16_t> free_port(const std::string& address) {
  sockaddr_in endpoint{};
  endpoint.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &endpoint.sin_addr);
  socklen_t size = sizeof endpoint;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = socket >= 0 &&
                     ::bind(socket, reinterpret_cast<sockaddr*>(&endpoint), sizeof endpoint) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&endpoint), &size) == 0;
  const int code = errno;
  if (socket >= 0) ::close(socket);
  if (bound) return ntohs(endpoint.sin_port);
  return rejected("cannot-listen",
                  fmt::format("no port is free at {}: {}", address, std::strerror(code)));
}

// A basic string of TOML.
std::string toml_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

Result<std::vector<NodePlace>> plan_nodes(Node nodes, unsigned launcher,
                                          const std::filesystem::path& states,
                                          const std::filesystem::path& logs) {
  std::vector<NodePlace> places;
  for (Node node = 0; node < nodes; ++node) {
    NodePlace place;
    place.name = node_name(node);
    place.address =
        fmt::format("127.{}.{}.{}", 1 + launcher % kSubnets, node / kHosts + 1, node % kHosts + 1);
    STARLING_ASSIGN(place.port, free_port(place.address));
    place.shown = place.port;
    place.directory = states / place.name;
    place.log = logs / (place.name + ".log");
    places.push_back(std::move(place));
  }
  return places;
}

Result<std::string> edge_toml(const NodePlace& place, Node node, const NetOptions& options,
                              const std::vector<std::string>& trainer) {
  std::string trains_on;
  if (trainer.empty()) {
    STARLING_ASSIGN(auto part, data::PartitionSpec::parse(options.data.partition));
    part.index = node + 1;
    part.of = options.topology.nodes;
    trains_on = fmt::format("[data]\ndataset = {}\npartition = {}\n",
                            toml_text(options.data.dataset), toml_text(part.to_string()));
    const double held_out = options.held_out();
    if (held_out > 0) trains_on += fmt::format("hold-out = {}\n", held_out);
  } else {
    std::vector<std::string> words;
    for (const std::string& word : trainer) words.push_back(toml_text(word));
    // All nodes start theirs at once, on one machine.
    trains_on = fmt::format("[trainer]\ncommand = [{}]\nstart-deadline = \"10m\"\n",
                            fmt::join(words, ", "));
  }
  return fmt::format(
      "{}"
      "[gossip]\n"
      "listen = {}\n"
      "bind = {}\n",
      trains_on, toml_text(identity::HostPort{.host = place.address, .port = place.port}.text()),
      toml_text(place.address));
}

Result<identity::RosterMember> make_node_directory(const NodePlace& place, Node node,
                                                   const NetOptions& options,
                                                   const std::vector<std::string>& trainer,
                                                   const identity::CertificateAuthority& authority,
                                                   const identity::HostPort& issuer, WallTime now) {
  STARLING_TRY(make_directory(place.directory, true));
  STARLING_TRY(make_directory(place.directory / "identity", true));
  STARLING_ASSIGN(
      const auto credentials,
      authority.issue_credentials(
          {.role = identity::Role::kPeer, .name = place.name, .addresses = {place.address}}, now));
  STARLING_TRY(
      identity::IdentityDirectory::save(place.directory / "identity", credentials, issuer));
  STARLING_ASSIGN(const std::string text, edge_toml(place, node, options, trainer));
  STARLING_TRY(write_durably(place.directory / "edge.toml", as_bytes(text)));
  return identity::RosterMember{
      .name = place.name,
      .key = credentials.certificate.public_key_digest(),
      .address = identity::HostPort{.host = place.address, .port = place.shown}.text()};
}

}  // namespace starling::gossip
