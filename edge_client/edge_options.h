// SPDX-License-Identifier: Apache-2.0
// What edge.toml and the flags of `starling-edge start` and `preflight` say.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/log.h"
#include "core/client/trainer_host.h"

namespace starling::config {
class Binder;
}

namespace starling::edge_client {

struct DataOptions {
  std::string dataset;
  std::string partition;
  double hold_out = 0;
};

template <class V>
void describe(V& visit, DataOptions& o) {
  visit("dataset", o.dataset,
        FieldInfo{.help = "training data of this device, KIND:PATH[:SPLIT]; kinds: idx, "
                          "fashion-mnist, csv, synthetic"});
  visit("partition", o.partition,
        FieldInfo{.help = "the part of the data set to hold, as in "
                          "dirichlet:alpha=0.5,index=3,of=10; empty: all of it"});
  visit("hold-out", o.hold_out,
        FieldInfo{.help = "part of the rows that is never trained on, so that models can be "
                          "evaluated on them where a run asks for it",
                  .min = 0,
                  .max = 0.9});
}

struct LimitOptions {
  int threads = 1;
  std::uint64_t memory = 0;
  std::uint32_t pending_updates = 4;
};

template <class V>
void describe(V& visit, LimitOptions& o) {
  visit("threads", o.threads,
        FieldInfo{.help = "compute threads; one training task uses one, a custom trainer uses all",
                  .min = 1,
                  .max = 64});
  visit("memory", o.memory,
        FieldInfo{.help = "for data, models, updates and what strategies remember together; larger "
                          "ones are refused by name; "
                          "0: half of what the machine has",
                  .unit = "MB",
                  .min = 0,
                  .max = 1 << 26});
  visit("pending-updates", o.pending_updates,
        FieldInfo{.help = "finished updates kept until the coordinator settles them; beyond, the "
                          "oldest one that brings no state of its strategy is dropped, and where "
                          "all bring one, tasks of other runs are refused (memory-in-use)",
                  .min = 1,
                  .max = 64});
}

struct LinkOptions {
  Duration connect_deadline = std::chrono::seconds(15);
  Duration greeting_deadline = std::chrono::seconds(10);
  Duration silence_max = std::chrono::seconds(60);
  Duration backoff_min = std::chrono::milliseconds(200);
  Duration backoff_max = std::chrono::seconds(30);
  Duration stop_deadline = std::chrono::seconds(5);
};

template <class V>
void describe(V& visit, LinkOptions& o) {
  const auto duration = [](std::string_view help, double min, double max) {
    return FieldInfo{.help = help, .min = min, .max = max};
  };
  visit("connect-deadline", o.connect_deadline,
        duration("for name look-up, TCP and TLS together", 0.1, 600));
  visit("greeting-deadline", o.greeting_deadline,
        duration("from connected to the coordinator's welcome", 0.1, 600));
  visit("silence-max", o.silence_max,
        duration("nothing heard for so long: the connection is given up", 1, 3600));
  visit("backoff-min", o.backoff_min,
        duration("shortest wait before a new attempt to connect", 0.01, 60));
  visit("backoff-max", o.backoff_max,
        duration("longest wait before a new attempt to connect", 0.01, 86400));
  visit("stop-deadline", o.stop_deadline,
        duration("for saying goodbye to the coordinator when stopping", 0, 60));
}

struct GossipOptions {
  std::string listen;
  std::string bind;
  Duration checkpoint_every = std::chrono::seconds(30);
  Duration patience = std::chrono::seconds(60);
};

template <class V>
void describe(V& visit, GossipOptions& o) {
  visit("listen", o.listen,
        FieldInfo{.help = "ADDRESS:PORT where peers may dial this device, as its roster names it; "
                          "empty: it only dials"});
  visit("bind", o.bind,
        FieldInfo{.help = "local address that peers are dialled from; empty: the system's choice"});
  visit("checkpoint-every", o.checkpoint_every,
        FieldInfo{.help = "between two checkpoints of the model", .min = 0.1, .max = 86400});
  visit("patience", o.patience,
        FieldInfo{.help = "longest wait for a neighbour that is slow; a silent one is waited for "
                          "2s; ad-psgd learns its wait for a reply, at most this long",
                  .min = 2,
                  .max = 3600});
}

inline constexpr std::array<std::string_view, 4> kLogLevels = {"debug", "info", "warning", "error"};

struct LogOptions {
  std::string level = "info";
  LogLevel threshold() const;
};

template <class V>
void describe(V& visit, LogOptions& o) {
  visit("level", o.level,
        FieldInfo{.help = "least weight of a line that is logged", .choices = kLogLevels});
}

struct EdgeOptions {
  DataOptions data;
  client::TrainerOptions trainer;  // a custom one, which holds its data itself
  LimitOptions limits;
  LinkOptions connection;
  GossipOptions gossip;
  LogOptions log;
};

// Binds all sections; `options` must outlive the binder.
void bind(config::Binder& binder, EdgeOptions& options);

// What no single field can say ("setting-invalid").
[[nodiscard]] Result<void> validate(const EdgeOptions& options);

// An edge.toml in which every key stands with its default and meaning, all commented out.
std::string edge_toml_template();

}  // namespace starling::edge_client
