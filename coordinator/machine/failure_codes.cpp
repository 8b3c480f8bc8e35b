// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/failure_codes.h"

#include <array>

namespace starling::coordinator {
namespace {

constexpr std::array<std::string_view, 16> kCircumstances = {kDeadline,
                                                             "round-closed",
                                                             kDisconnected,
                                                             "run-stopped",
                                                             "certificate-revoked",
                                                             kWrongBase,
                                                             "spool-full",
                                                             "disk-full",
                                                             "io-error",
                                                             "upload-incomplete",
                                                             kNoRoom,
                                                             kUploadStalled,
                                                             "no-directory",
                                                             "no-permission",
                                                             "upload-too-large",
                                                             client::kMemoryInUse};

}  // namespace

bool is_circumstance(std::string_view code, protocol::TaskKind kind) {
  const bool outlasts_patience = code == kDeadline || code == kDisconnected;
  if (kind == protocol::TaskKind::kEvaluate && outlasts_patience) return false;
  return std::ranges::find(kCircumstances, code) != kCircumstances.end();
}

bool is_miss(std::string_view code) {
  return code == kDeadline || code == kDisconnected || code == kUploadStalled ||
         code == kWrongBase || code == client::kMemoryInUse;
}

}  // namespace starling::coordinator
