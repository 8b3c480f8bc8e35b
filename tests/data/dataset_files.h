// SPDX-License-Identifier: Apache-2.0
// Small data-set files, well-formed or broken, for the readers' tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace starling::testing {

inline std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline std::string idx_labels(const std::vector<int>& labels) {
  std::string bytes = big_endian(0x801) + big_endian(static_cast<std::uint32_t>(labels.size()));
  for (int label : labels) bytes.push_back(static_cast<char>(label));
  return bytes;
}

// `count` images whose pixels count up modulo 256 from 0.
inline std::string idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width) {
  std::string bytes =
      big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (std::uint32_t i = 0; i < count * height * width; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

inline std::string gzip(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  std::string copy(bytes);
  stream.next_in = reinterpret_cast<Bytef*>(copy.data());
  stream.avail_in = static_cast<uInt>(copy.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::filesystem::path write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace starling::testing
