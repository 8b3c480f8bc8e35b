// SPDX-License-Identifier: Apache-2.0
// A gossip issuer with clients that join and are revoked, without a service: what it publishes goes
// nowhere, and a test sets the time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "coordinator/service/certificate_records.h"
#include "coordinator/service/gossip_issuer.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/join_token.h"
#include "core/store/sqlite_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {

struct KeptLog final : Log {
  void write(LogLevel level, std::string_view line) override {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  }
  std::vector<std::string> warnings;
};

struct HandClock final : Clock {
  TimePoint now() const override { return time; }
  WallTime wall_now() const override { return wall; }
  TimePoint time{};
  WallTime wall = *parse_rfc3339("2026-11-20T09:00:00Z");
};

class GossipIssuerFixture : public ::testing::Test {
 public:
  GossipIssuerFixture() { issuer = make(); }

  std::unique_ptr<GossipIssuer> make() {
    auto made = std::make_unique<GossipIssuer>(
        GossipIssuer::Parts{loop, clock, *store, state, log}, "test",
        GossipIssuer::Handlers{
            .send = [this](SessionId session,
                           const protocol::Envelope&) { sent.push_back(session); },
            .queued_bytes = [](SessionId) { return std::size_t{0}; },
            .on_broken = [](const Error& error) { FAIL() << error.message(); }});
    made->set_credentials(hub);
    made->resume();
    return made;
  }
  // Long enough after the last one that its epoch begins at once.
  void join(const std::string& name, store::Role role, std::vector<std::string> addresses = {}) {
    clock.time += GossipIssuer::kNewcomersEvery;
    join_at_once(name, role, std::move(addresses));
  }
  void join_at_once(const std::string& name, store::Role role,
                    std::vector<std::string> addresses = {}) {
    const auto token = identity::JoinToken::make({}, "h", 1);
    ASSERT_TRUE(store->create_token({.id = to_string(token.id),
                                     .client = name,
                                     .role = role,
                                     .addresses = std::move(addresses),
                                     .mac_key = to_bytes(token.key().bytes()),
                                     .created = clock.wall,
                                     .expires = clock.wall + std::chrono::minutes(60)}));
    const auto issue = [&](const store::Token&) -> Result<store::Certificate> {
      const auto made =
          authority.issue_credentials({.role = to_identity(role), .name = name}, clock.wall);
      return to_record(made->certificate, name);
    };
    ASSERT_TRUE(store->redeem_token(
        to_string(token.id), sha256(as_bytes(name + to_string(token.id))), clock.wall, issue));
    issuer->members_changed();
  }
  // What it says of its data as it connects.
  void announce(const std::string& name, std::vector<std::uint32_t> input, std::uint32_t classes) {
    const store::Greeting greeting{
        .abilities = {"model-softmax-regression"}, .input = std::move(input), .classes = classes};
    ASSERT_TRUE(store->record_seen(name, clock.wall, greeting));
  }
  void revoke(const std::string& name) {
    ASSERT_TRUE(store->revoke_client(name, clock.wall));
    issuer->members_changed();
  }
  std::string start(const std::string& toml = "[topology]\nspec = \"ring\"\n") {
    const auto run = parse_gossip_run("faces", toml, "NET.toml");
    if (!run) return run.error().code();
    const auto started = issuer->start(*run, std::chrono::minutes(10));
    return started ? "started" : started.error().code();
  }
  std::string names() const {
    std::string all;
    for (const auto& member : issuer->roster()->members) all += member.name + " ";
    return all;
  }
  std::string setting(const std::string& key) const {
    for (const auto& [name, value] : issuer->roster()->settings) {
      if (name == key) return value;
    }
    return "";
  }
  std::uint64_t epoch() const { return issuer->roster()->epoch; }

  testing::TemporaryDirectory directory;
  const StateDirectory state{directory.path()};
  HandClock clock;
  KeptLog log;
  net::EventLoop loop;
  const identity::CertificateAuthority authority =
      *identity::CertificateAuthority::make({.federation = "test"}, clock.wall);
  const identity::Credentials hub = *authority.issue_credentials(
      {.role = identity::Role::kIssuer, .name = "coordinator"}, clock.wall);
  const std::unique_ptr<store::Store> store = store::open_store_in_memory();
  std::vector<SessionId> sent;
  std::unique_ptr<GossipIssuer> issuer;
};

}  // namespace starling::coordinator
