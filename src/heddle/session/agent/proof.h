// Proves that two agents know the same token, without sending a word of it. Each sends an HMAC-SHA-256 (RFC 2104,
// FIPS 180-4) over a random number of each side, its own part in the conversation, and the address at which the two
// have met. A listener at a false address can't pass a proof on to a true one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::session {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view bytes);

inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;

/// The side that proves: the one that has connected, or the one that it has connected to.
enum class Side : uint8_t { caller, door };

/// `door_nonce`, `caller_nonce`: of kNonceBytes each, chosen anew for each connection. `address`: the door's, as
/// "10.0.0.3:41000".
std::string proof_of(std::string_view token, Side side, std::string_view door_nonce, std::string_view caller_nonce,
                     std::string_view address);

/// Compares in a time that does not say where they differ.
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace heddle::session
