// SPDX-License-Identifier: Apache-2.0
#include "edge_client/status_file.h"

#include <boost/json.hpp>
#include <fstream>

#include "core/base/durable_file.h"

namespace starling::edge_client {
namespace {

namespace json = boost::json;

constexpr std::size_t kBytesMax = 64 * 1024;
constexpr Duration kInterval = std::chrono::milliseconds(250);
constexpr Duration kRetry = std::chrono::seconds(2);
constexpr Duration kRenewal = std::chrono::seconds(5);

Error damaged() {
  return rejected("status-damaged", "the status file was not written by this version");
}

json::value time_or_null(const std::optional<WallTime>& time) {
  return time ? json::value(format_rfc3339(*time)) : json::value(nullptr);
}

json::value task_or_null(const std::optional<EdgeStatus::Task>& task) {
  if (!task) return nullptr;
  return json::object{{"run", task->run},
                      {"run_name", task->run_name},
                      {"round", task->round},
                      {"rounds", task->rounds}};
}

json::value gossip_or_null(const std::optional<EdgeStatus::Gossip>& gossip) {
  if (!gossip) return nullptr;
  return json::object{{"run_name", gossip->run_name},     {"epoch", gossip->epoch},
                      {"state", gossip->state},           {"step", gossip->step},
                      {"neighbours", gossip->neighbours}, {"expected", gossip->expected},
                      {"links", gossip->links},           {"reachable", gossip->reachable},
                      {"problem", gossip->problem},       {"model", gossip->model}};
}

// Reads members of one object, and remembers whether one was missing or of another type.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}

  bool failed() const { return failed_; }
  const json::value* member(std::string_view name) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) failed_ = true;
    return value != nullptr && !value->is_null() ? value : nullptr;
  }
  std::string text(std::string_view name) {
    const json::value* value = member(name);
    const json::string* text = value != nullptr ? value->if_string() : nullptr;
    if (text == nullptr) failed_ = true;
    return text != nullptr ? std::string(*text) : std::string();
  }
  template <class Integer>
  Integer number(std::string_view name) {
    const json::value* value = member(name);
    boost::system::error_code code;
    const Integer number = value != nullptr ? value->to_number<Integer>(code) : Integer{};
    if (value == nullptr || code) failed_ = true;
    return number;
  }
  std::optional<WallTime> time(std::string_view name) {
    if (member(name) == nullptr) return std::nullopt;
    const auto time = parse_rfc3339(text(name));
    if (!time) failed_ = true;
    return time ? std::optional(*time) : std::nullopt;
  }

 private:
  const json::object& object_;
  bool failed_ = false;
};

Result<EdgeStatus::Task> parse_task(const json::value& value) {
  if (!value.is_object()) return damaged();
  Reader read(value.get_object());
  EdgeStatus::Task task;
  task.run = read.number<std::uint64_t>("run");
  task.run_name = read.text("run_name");
  task.round = read.number<std::uint32_t>("round");
  task.rounds = read.number<std::uint32_t>("rounds");
  if (read.failed()) return damaged();
  return task;
}

Result<EdgeStatus::Gossip> parse_gossip(const json::value& value) {
  if (!value.is_object()) return damaged();
  Reader read(value.get_object());
  EdgeStatus::Gossip gossip;
  gossip.run_name = read.text("run_name");
  gossip.epoch = read.number<std::uint64_t>("epoch");
  gossip.state = read.text("state");
  gossip.step = read.number<std::uint64_t>("step");
  gossip.neighbours = read.number<std::uint32_t>("neighbours");
  gossip.expected = read.number<std::uint32_t>("expected");
  gossip.links = read.number<std::uint32_t>("links");
  gossip.reachable = read.number<std::uint32_t>("reachable");
  gossip.problem = read.text("problem");
  gossip.model = read.text("model");
  if (read.failed()) return damaged();
  return gossip;
}

// A reader sees the old file or the new one; after a crash of the machine perhaps neither.
bool replace_file(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path temporary = file;
  temporary += ".new";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code code;
  if (out) std::filesystem::rename(temporary, file, code);
  return out && !code;
}

}  // namespace

std::string to_json(const EdgeStatus& status) {
  const json::object object{{"federation", status.federation},
                            {"client", status.client},
                            {"coordinator", status.coordinator},
                            {"link", status.link},
                            {"activity", status.activity},
                            {"task", task_or_null(status.task)},
                            {"gossip", gossip_or_null(status.gossip)},
                            {"pending_updates", status.pending_updates},
                            {"updates_counted", status.updates_counted},
                            {"started", format_rfc3339(status.started)},
                            {"last_connected", time_or_null(status.last_connected)},
                            {"last_error", status.last_error},
                            {"last_error_at", time_or_null(status.last_error_at)}};
  return json::serialize(object);
}

Result<EdgeStatus> parse_status(std::string_view text) {
  boost::system::error_code code;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), code);
  if (code || !value.is_object()) return damaged();
  Reader read(value.get_object());
  EdgeStatus status;
  status.federation = read.text("federation");
  status.client = read.text("client");
  status.coordinator = read.text("coordinator");
  status.link = read.text("link");
  status.activity = read.text("activity");
  status.pending_updates = read.number<std::uint64_t>("pending_updates");
  status.updates_counted = read.number<std::uint64_t>("updates_counted");
  status.started = read.time("started").value_or(WallTime{});
  status.last_connected = read.time("last_connected");
  status.last_error = read.text("last_error");
  status.last_error_at = read.time("last_error_at");
  if (const json::value* task = read.member("task")) {
    STARLING_ASSIGN(status.task, parse_task(*task));
  }
  if (const json::value* gossip = read.member("gossip")) {
    STARLING_ASSIGN(status.gossip, parse_gossip(*gossip));
  }
  if (read.failed()) return damaged();
  return status;
}

Result<EdgeStatus> read_status(const std::filesystem::path& file) {
  STARLING_ASSIGN(const std::string text, read_text_file(file, kBytesMax));
  return parse_status(text);
}

StatusWriter::StatusWriter(net::EventLoop& loop, std::filesystem::path file, Log& log)
    : loop_(loop), file_(std::move(file)), log_(log), alarm_(loop, [this] { on_time(); }) {}

void StatusWriter::set(const EdgeStatus& status) {
  if (status == status_ && !stale_) return;
  status_ = status;
  stale_ = true;
  if (!waiting_) write();
}

void StatusWriter::flush() {
  if (stale_) write();
}

void StatusWriter::on_time() {
  waiting_ = false;
  stale_ ? write() : renew();
}

void StatusWriter::write() {
  stale_ = !replace_file(file_, to_json(status_));
  if (stale_ && !failed_) log_.warning("cannot write {}: tried again", file_.string());
  if (!stale_ && failed_) log_.info("{} is written again", file_.string());
  failed_ = stale_;
  waiting_ = true;
  alarm_.set(loop_.now() + (stale_ ? kRetry : kInterval));
}

void StatusWriter::renew() {
  std::error_code code;
  std::filesystem::last_write_time(file_, std::filesystem::file_time_type::clock::now(), code);
  alarm_.set(loop_.now() + kRenewal);
}

}  // namespace starling::edge_client
