// SPDX-License-Identifier: Apache-2.0
#include "coordinator/rounds/upload_desk.h"

#include <algorithm>

namespace starling::coordinator {

Result<std::uint64_t> UploadDesk::open(const store::UploadKey& key, TimePoint now) {
  const auto found = receiving_.find(key.task);
  if (found != receiving_.end() && found->second.key == key) return start(found->second, now);
  const auto asked = asked_.find(key);
  if (asked == asked_.end()) {
    give_up(key.task);
    // Behind those that wait already, so that none of them waits for ever.
    waiting_.push_back(key);
    asked_[key] = looks_;
  } else if (asked->second != looks_) {  // since it asked last
    asked->second = looks_;
    return *refusal_;
  }
  serve_waiting();
  if (refusal_ && take_room_of_stalled(now)) serve_waiting();
  const auto served = receiving_.find(key.task);
  if (served != receiving_.end()) return start(served->second, now);
  if (const auto error = failed_.extract(key.task)) return error.mapped();
  asked_[key] = looks_;
  return *refusal_;
}

// The time runs from the first call on: its sender does not know of the room before. Offering the
// update again is no progress.
std::uint64_t UploadDesk::start(Received& received, TimePoint now) {
  if (!received.upload) return received.key.bytes;
  if (!received.progress_at) {
    received.progress_at = now;
    received.progress_bytes = received.upload->received();
  }
  return received.upload->received();
}

// Of the uploads whose room one that waits could get, from the one that has been without progress
// for longest, and only from one: where a slow link of this machine delays all of them, most go on.
// Returns whether there was one.
bool UploadDesk::take_room_of_stalled(TimePoint now) {
  std::set<std::optional<RunId>> wanted;
  for (const store::UploadKey& key : waiting_) wanted.insert(promised_to(key.run));
  auto longest = receiving_.end();
  for (auto it = receiving_.begin(); it != receiving_.end(); ++it) {
    const Received& received = it->second;
    if (!received.upload || received.upload->complete() || !received.progress_at) continue;
    if (now - *received.progress_at < kProgressTime) continue;
    if (!wanted.contains(promised_to(received.key.run))) continue;
    const bool is_longer =
        longest == receiving_.end() || *received.progress_at < *longest->second.progress_at;
    if (is_longer) longest = it;
  }
  if (longest == receiving_.end()) return false;
  stalled_.push_back(longest->first);
  if (longest->second.upload->received() == 0) discard(longest->second);
  receiving_.erase(longest);
  spool_.leave_free_space();
  return true;
}

// Whose the room is that an upload of the run has or wants; none: anyone's.
std::optional<RunId> UploadDesk::promised_to(RunId run) const {
  return spool_.has_promise(run) ? std::optional(run) : std::nullopt;
}

void UploadDesk::expect_together(RunId run, std::uint64_t updates, std::uint64_t bytes) {
  spool_.end_promise(run);
  together_[run] = {updates, bytes};
}

// Gives room to those that wait, in the order in which they asked for it. Updates that a phase
// needs together get theirs when it was promised to all of them; while such a phase waits for
// another one or for a disk that others fill, which may take long, updates that are needed one at a
// time pass it. After the first refusal of a phase only what is on disk already is tried of it:
// each attempt costs calls of the file system.
void UploadDesk::serve_waiting() {
  ++looks_;
  refusal_.reset();
  bool phases_wait = false;
  bool others_wait = false;
  std::set<RunId> refused;
  std::erase_if(waiting_, [&](const store::UploadKey& key) {
    const auto together = together_.find(key.run);
    const bool alone = together == together_.end();
    const bool promised = !alone && spool_.has_promise(key.run);
    if (alone ? others_wait : !promised && phases_wait) return false;
    if (refused.contains(key.run) && !spool_.keeps(key)) return false;
    auto upload = promised || alone ? spool_.begin(key) : begin_first(key, together->second);
    if (!upload && upload.error().kind() == ErrorKind::kOverloaded) {
      if (!refusal_) refusal_ = upload.error();
      refused.insert(key.run);
      phases_wait = phases_wait || !promised;
      const bool may_pass = spool_.has_promises() || upload.error().code() == "disk-full";
      others_wait = others_wait || alone || !may_pass;
      return false;
    }
    if (upload) {
      receiving_[key.task] = {key, std::move(*upload), {}};
    } else {
      failed_.insert_or_assign(key.task, upload.error());
    }
    asked_.erase(key);
    return true;
  });
}

Result<std::unique_ptr<store::Upload>> UploadDesk::begin_first(const store::UploadKey& key,
                                                               const Together& together) {
  STARLING_TRY(spool_.promise(key.run, together.updates, together.bytes));
  return spool_.begin(key);
}

void UploadDesk::write(TaskId task, std::uint64_t offset, const SharedBytes& bytes, TimePoint now) {
  const auto found = receiving_.find(task);
  if (found == receiving_.end() || !found->second.upload) return;
  store::Upload& upload = *found->second.upload;
  if (offset == 0 && bytes.owner() && bytes.size() == upload.bytes()) {
    discard(found->second);
    upload.use_up_promise();
    found->second = {found->second.key, nullptr, bytes};
    return room_freed();
  }
  const auto written = upload.write(offset, bytes.view());
  if (written) {
    if (upload.received() < found->second.progress_bytes + kProgressBytes) return;
    found->second.progress_at = now;
    found->second.progress_bytes = upload.received();
    return;
  }
  discard(found->second);
  receiving_.erase(found);
  failed_.insert_or_assign(task, written.error());
  room_freed();
}

void UploadDesk::discard(Received& received) {
  if (received.upload) received.upload->discard();
}

void UploadDesk::give_up(TaskId task) {
  if (auto received = receiving_.extract(task)) discard(received.mapped());
  failed_.erase(task);
  std::erase_if(waiting_, [&](const store::UploadKey& key) {
    if (key.task != task) return false;
    asked_.erase(key);
    return true;
  });
}

void UploadDesk::drop(TaskId task) {
  give_up(task);
  spool_.forget(task);
  room_freed();
}

Result<update::Payload> UploadDesk::begin_sum(TaskId task) {
  auto found = receiving_.extract(task);
  if (const auto error = failed_.extract(task)) return error.mapped();
  if (found.empty() || (found.mapped().upload && !found.mapped().upload->complete())) {
    if (found) discard(found.mapped());
    return retry("upload-incomplete", "the update was not received whole");
  }
  const auto& upload = found.mapped().upload;
  const update::Payload payload =
      upload ? upload->content() : update::Payload(found.mapped().whole);
  summing_.insert_or_assign(task, std::move(found.mapped()));
  return payload;
}

bool UploadDesk::is_resumed(TaskId task) const {
  const auto found = summing_.find(task);
  return found != summing_.end() && found->second.upload && found->second.upload->resumed();
}

void UploadDesk::end_sum(TaskId task, bool counted) {
  auto summed = summing_.extract(task);
  if (summed && !counted) discard(summed.mapped());
  summed = {};
  room_freed();
}

// What is still being summed, of a run that was stopped, goes when the sum is done.
void UploadDesk::end_phase(RunId run) {
  for (auto& [task, received] : summing_) {
    if (received.key.run == run) discard(received);
  }
  spool_.forget(run);
  spool_.end_promise(run);
  together_.erase(run);
  room_freed();
}

// Between rounds no buffer is kept: a coordinator that waits for devices holds little memory.
void UploadDesk::room_freed() {
  spool_.leave_free_space();
  serve_waiting();
  if (receiving_.empty() && summing_.empty()) spool_.release_idle();
}

}  // namespace starling::coordinator
