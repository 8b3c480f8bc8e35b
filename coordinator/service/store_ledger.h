// SPDX-License-Identifier: Apache-2.0
// The enrolment service's ledger, kept in the coordinator's store.
#pragma once

#include "core/base/clock.h"
#include "core/enrol/enrolment_ledger.h"
#include "core/store/identity_store.h"

namespace starling::coordinator {

class StoreLedger final : public enrol::EnrolmentLedger {
 public:
  // Somebody joined; not called again for a repeated request.
  using OnAdmitted = std::function<void(const std::string& name, store::Role role)>;
  // Whether this client may join with this address.
  using CheckAddress =
      std::function<Result<void>(const std::string& name, const std::string& address)>;
  // The store failed in a way that only a restart can mend.
  using OnBroken = std::function<void(const Error& error)>;

  // All references must outlive the ledger.
  StoreLedger(store::IdentityStore& store, const Clock& clock, CheckAddress check_address,
              OnAdmitted on_admitted, OnBroken on_broken)
      : store_(store),
        clock_(clock),
        check_address_(std::move(check_address)),
        on_admitted_(std::move(on_admitted)),
        on_broken_(std::move(on_broken)) {}

  Result<identity::TokenKey> key(identity::TokenId id) override;
  Result<void> record_bad_mac(identity::TokenId id) override;
  Result<std::string> redeem(identity::TokenId id, const Sha256Digest& request, WallTime now,
                             const Issue& issue) override;

 private:
  Error told(const Error& error) const;
  Result<void> check_addresses(identity::TokenId id, WallTime now);

  store::IdentityStore& store_;
  const Clock& clock_;
  CheckAddress check_address_;
  OnAdmitted on_admitted_;
  OnBroken on_broken_;
};

}  // namespace starling::coordinator
